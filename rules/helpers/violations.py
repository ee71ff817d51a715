"""Values that a key does not accept: which of them DeepSpeed reads, and the finding for one that it rejects."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config, Violation, ViolationKind
from dslint.config.coerce import is_kind
from dslint.diagnostics import Phase, SharedCause
from dslint.facts import Integration, Release
from dslint.rule import Finding, FixPlan
from dslint.rules.helpers.json_syntax import intended_json
from dslint.rules.helpers.loaders import HUGGING_FACE, releases_belong_together
from dslint.rules.helpers.messages import expected, raises
from dslint.rules.helpers.precision import model_dtype, steps_in_initialize
from dslint.schemas.derive import ACCUMULATION, MICRO
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Scalar, Sequence

DOCS = "https://www.deepspeed.ai/docs/config-json/"
MODEL = "deepspeed/runtime/config_utils.py, DeepSpeedConfigModel"
SAFE_MODULES = "torch_autocast.lower_precision_safe_modules"
CONFIG_CLASS = "deepspeed/runtime/config.py, DeepSpeedConfig._initialize_params"
LONGEST_INTEGER = 10**15
"""Larger numbers are written with an exponent."""


def read_violations(config: Config, *kinds: ViolationKind) -> Iterator[Violation]:
    """The violations of these kinds in values that DeepSpeed reads, that no program replaces, and that the release does not suppress."""
    autocast_is_off = config.value("torch_autocast.enabled") is False
    unreadable = {problem.span.start for problem in config.document.problems}
    for violation in config.violations_of(*kinds):
        if config.is_set_later(violation.path):
            continue  # the program replaces it
        node = config.node(violation.path)
        if node is not None and node.span.start in unreadable:
            continue  # the syntax error says it
        if "${" in config.document.text and in_yaml(config, violation):
            continue  # OmegaConf, which replaces the ${...} of the file, reads it as a number
        if violation.key == "data_types.buffer_dtype" and model_dtype(config) == "fp32":
            continue  # DeepSpeed reads it only with fp16 or bf16
        if violation.key == SAFE_MODULES and isinstance(config.literal(violation.path), str) and autocast_is_off:
            continue  # DeepSpeed imports the modules only with autocast
        raises_at_most = violation.raises or (violation.consequence is not None and violation.consequence[0] == "depends")
        if violation.key == "sequence_parallel_size" and raises_at_most and config.release < Release(0, 19, 3):
            continue  # DeepSpeed suppresses the error, and goes on with a world size of 1
        if _is_tuned(config, violation):
            continue
        yield violation


def _is_tuned(config: Config, violation: Violation) -> bool:
    """Whether a list holds the values that DeepSpeed's autotuner tries for a key, and no run has the list.

    Source: deepspeed/autotuning/autotuner.py, tune and tune_space, which take a list for the micro batch size and for keys of ZeRO.
    """
    if violation.key != MICRO and violation.section != "zero_optimization":
        return False
    launch = config.setup.launch if config.setup else None
    tunes = launch is None or "autotuning" in launch.flags
    return tunes and config.value("autotuning.enabled") is True and isinstance(config.node(violation.path), Sequence)


def rejected(config: Config, violation: Violation, *, help: str | None, fix: FixPlan | None = None) -> Finding:  # noqa: A002 - the name that Finding has
    """The finding for a value that makes DeepSpeed raise: what is written, what the key expects, the error and when it comes."""
    assert violation.consequence is not None
    _, phase, error = violation.consequence
    if phase == "step" and steps_in_initialize(config) and violation.key.startswith("optimizer.params."):
        phase = "initialize"
    since = KEYS.get(violation.section, {}).get("forbids_since")
    certain = since is None or releases_belong_together(config)
    outcome = f"DeepSpeed {'' if certain else f'from {since} on '}{raises(error, phase)}"
    if before := _loader_raises(config, violation):
        phase, outcome = "load", before
    return Finding(
        violation.path,
        f"{config.name_of(violation.path)} is {config.quote(violation.path)}{in_yaml(config, violation)}; it expects {expected(violation.spec)}. "
        f"{outcome}.",
        help=help,
        on="value",
        fix=fix,
        cause=COMMAS if _ends_with_comma(config, violation) else None,
        phase=Phase(phase),
        certain=certain,
    )


def _loader_raises(config: Config, violation: Violation) -> str | None:
    """What a loader raises for a batch size that is text, before DeepSpeed reads it. At stage 3 DeepSpeed reads it when the model is loaded.

    Source: accelerate/accelerator.py, Accelerator._prepare_deepspeed, which divides since its release 1.12; before, the Trainer compares.
    """
    integration, text = config.facts.integration, config.literal(violation.path)
    if violation.key not in _FACTORS or not isinstance(text, str) or not config.value("zero_optimization.stage") < 3:
        return None
    if integration not in HUGGING_FACE or all(
        isinstance(config.literal((key,)), str) and config.literal((key,)) != "auto" for key in _FACTORS
    ):
        return None
    pinned = config.context.pinned("accelerate")
    if config.facts.passes_accelerate and (pinned is None or pinned >= Release(1, 12, 0)):
        return "Accelerate raises TypeError \"unsupported operand type(s) for //: 'str' and 'int'\" when it prepares the data"
    if integration is not Integration.TRANSFORMERS or violation.key != MICRO:
        return None
    return (
        'The Trainer raises "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: '
        f'- ds {MICRO}={text} vs hf per_device_train_batch_size=..."'
    )


_FACTORS = (MICRO, ACCUMULATION)
"""The keys that Accelerate multiplies for the train batch size."""


COMMAS = SharedCause(
    "commas in YAML",
    "{count} values end with a comma, which YAML reads as a part of the text: {keys}. DeepSpeed raises an error for the first of them.",
    "Remove the commas: in YAML only the lists and mappings in brackets have them.",
)


def _ends_with_comma(config: Config, violation: Violation) -> bool:
    node = config.node(violation.path)
    return isinstance(node, Scalar) and node.style == "yaml" and node.raw == node.value and str(node.value).endswith(",")


def in_yaml(config: Config, violation: Violation) -> str:
    """What a message says of a number that YAML 1.1 reads as a string, such as 1e9; empty for every other value."""
    node = config.node(violation.path)
    is_plain = isinstance(node, Scalar) and node.style == "yaml" and node.raw == node.value
    return ", a string for PyYAML" if is_plain and unquoted(config, violation) else ""


def _number_in_yaml(word: str, number: float, kinds: tuple[str, ...]) -> str:
    """A number as YAML 1.1 reads one: 1000000000 for 1e9, 6.0e-05 for 6e-5."""
    if number.is_integer() and abs(number) < LONGEST_INTEGER and ("int" in kinds or "e-" not in word.lower()):
        return str(int(number))
    mantissa, _, exponent = word.lower().partition("e")
    sign = "" if exponent.startswith(("+", "-")) else "+"
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{sign}{exponent}"


def unquoted(config: Config, violation: Violation) -> str | None:
    """The number or boolean that is written in quotes; None for every other value."""
    node = config.node(violation.path)
    text = node.value if isinstance(node, Scalar) and intended_json(node) is None else None
    if not isinstance(text, str):
        return None
    word = text.strip()
    kinds = violation.spec["types"]
    if "bool" in kinds and word.lower() in ("true", "false"):
        return word.lower()
    try:
        number = float(word)
    except ValueError:
        return None
    if not any(is_kind(number, kind) for kind in kinds if kind in ("int", "float")) or not is_json_number(word):
        return None
    is_plain = isinstance(node, Scalar) and node.style == "yaml" and node.raw == node.value
    return _number_in_yaml(word, number, kinds) if is_plain else word


def is_json_number(word: str) -> bool:
    """Whether a word is a number as JSON writes one."""
    return re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", word) is not None
