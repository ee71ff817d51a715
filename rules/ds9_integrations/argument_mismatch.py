"""DS9: values of the config that contradict the training arguments, for which the loader raises."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from dslint.config import UNKNOWN, Config, Origin
from dslint.config.detect import wrapper_of
from dslint.diagnostics import Effect, LoadStep, Phase, Related, SharedCause
from dslint.facts import Integration, Release
from dslint.frameworks.filling import FILLED_AT_START, TOTAL_STEPS, Filled, as_read_by_trainer, from_arguments
from dslint.frameworks.registry import named
from dslint.job.arguments import Arguments, SourcedValue
from dslint.job.events import Event
from dslint.job.model import Setup
from dslint.rule import Finding, bad, good, path_of, rule, unsafe
from dslint.rules.helpers.batch import BATCH_KEYS, wrong_batch
from dslint.rules.helpers.examples import ZERO_2
from dslint.rules.helpers.loaders import ACCELERATE_SOURCE, RAISED_BY_LOADER, TRAINER_SOURCE, made_without_config, trainer_arguments
from dslint.rules.helpers.models import adds_one_step, knows_arguments, loads_reference, parses_while_loading
from dslint.rules.helpers.project import programs_of
from dslint.schemas.auto import MISMATCH_CHECKED
from dslint.schemas.derive import ACCUMULATION, MICRO, TRAIN, batch_world_size
from dslint.schemas.trainer import FILLINGS
from dslint.schemas.typed import find_type
from dslint.source.change import Insert, Set
from dslint.source.tree import Scalar, plain

PRECISIONS = ("fp16.enabled", "bf16.enabled")

_LLAMA_FACTORY = "stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\n"
_AXOLOTL = "base_model: m\nmicro_batch_size: 2\n"


def _compared_value(config: Config, key: str) -> Any:
    """The value of a key that the Trainer compares; `UNKNOWN` if it is null, refused, dropped, a string such as "auto", or a section.

    DeepSpeed takes "true" for true. The Trainer compares the text, which differs from both of its values.
    """
    node = config.node(key)
    if key == ACCUMULATION and adds_one_step(config):
        return 1
    if key in PRECISIONS and (node is None or plain(node) == "auto"):
        return _precision_of_launcher(config, key.partition(".")[0])
    if node is None or config.origin(key) in (Origin.REFUSED, Origin.DROPPED):
        return UNKNOWN
    value = plain(node)
    if key in PRECISIONS and isinstance(value, str) and value != "auto" and isinstance(config.value(key), bool):
        return value
    return UNKNOWN if value is None or isinstance(value, str | dict) else value


def _precision_of_launcher(config: Config, kind: str) -> Any:
    """Whether Accelerate's launcher switches a precision on that its config leaves open; `UNKNOWN` if the Trainer has filled it before.

    The arguments `fp16` and `bf16` count more than `mixed_precision`. Source: accelerate/utils/dataclasses.py,
    DeepSpeedPlugin.set_mixed_precision; transformers/training_args.py, TrainingArguments.__post_init__.
    """
    arguments, file = trainer_arguments(config), config.setup.accelerate if config.setup is not None else None
    if arguments is None or file is None or not arguments.sure or knows_arguments(config):
        return UNKNOWN
    asked = {name: arguments.value(name) for name in ("fp16", "bf16")}
    chosen = next((name for name, on in asked.items() if on is True), file.precision)
    return UNKNOWN if UNKNOWN in asked.values() or not chosen else chosen == kind


def _printed(config: Config, key: str, value: Any) -> str:
    """A value of the config as Python prints it: 1.0 is a whole number here, and stays a float there."""
    node = config.node(key)
    is_float = isinstance(node, Scalar) and type(value) is int and any(sign in node.raw for sign in ".eE")
    return repr(float(value) if is_float else value)


def _other_value(filled: Filled, arguments: Arguments, key: str, lost: Sequence[str]) -> str:
    """The value from the arguments and where it is set, for a message; `lost` are arguments for it that bash does not pass."""
    value = _shown(filled.value)
    if filled.givens:
        places = " and ".join(f"{given.where} ({given.shown})" for given in filled.givens)
        ranks = " and the world size" if key == TRAIN else ""
        return f"{value} from {places}{ranks}"
    names = FILLINGS[key].arguments[:2]
    why = f"bash does not pass --{lost[0]}" if lost else f"{arguments.path} does not set {' or '.join(names)}"
    later = _set_later(arguments, key)
    if later and not lost:
        why = f"{later[0].where} sets {later[0].name} when the arguments are made already"
    return f"{value} in the training arguments (the default, because {why})"


def _set_later(arguments: Arguments, key: str) -> list[SourcedValue]:
    """What the program sets for a key when the Trainer has compared it."""
    if key in FILLED_AT_START or _finds_batch(arguments):
        return []
    return [given for name in FILLINGS[key].arguments if name in arguments.before and (given := arguments.get(name)) is not None]


def _shown(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, float) else f"{value:g}"


def _conflicting_precision(config: Config, arguments: Arguments) -> str | None:
    """The precision that the config enables while the arguments select the other one: "fp16" or "bf16".

    None where the Trainer does not use Accelerate: it only compares both with its arguments.
    """
    if not config.facts.passes_accelerate:
        return None
    for kind, other in (("fp16", "bf16"), ("bf16", "fp16")):
        if config.is_auto(f"{kind}.enabled") and _precision_of_launcher(config, kind) is not UNKNOWN:
            continue
        if config.value(f"{kind}.enabled") is True and arguments.value(other) is True and arguments.value(kind) is not True:
            return kind
    return None


_SELDOM_REDEFINED = frozenset((*BATCH_KEYS, "gradient_clipping"))
"""Keys compared with arguments whose default a program seldom changes: of 81 classes of arguments in 42 public repositories 6 give the micro
batch size a default of their own, 5 the accumulation and 2 the clipping, but 58 the optimizer.
"""


@rule(
    "DS904",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(TRAINER_SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad(
    f'{{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 4, {ZERO_2}}}',
    at="gradient_accumulation_steps",
    training=_LLAMA_FACTORY + "gradient_accumulation_steps: 2\n",
    message='gradient_accumulation_steps is 4 here but 2 from train.yaml:4 (gradient_accumulation_steps: 2). After the model is loaded, the Hugging Face Trainer raises "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds gradient_accumulation_steps=4 vs hf gradient_accumulation_steps=2".',
    fixed='{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}}',
)
@bad(
    f'{{"train_batch_size": "auto", "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, {ZERO_2}}}',
    at="optimizer.params.lr",
    training=_AXOLOTL + "learning_rate: 2e-5\n",
    message='optimizer.params.lr is 1e-5 here but 2e-05 from train.yaml:3 (learning_rate: 2e-5). After the model is loaded, the Hugging Face Trainer raises "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds optimizer.params.lr=1e-05 vs hf learning_rate=2e-05".',
    fixed='{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "zero_optimization": {"stage": 2}}',
)
@bad(
    f'{{"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", {ZERO_2}}}',
    at="train_batch_size",
    training=_AXOLOTL + "gradient_accumulation_steps: 4\n",
    world_size=8,
    message='train_batch_size is 32 here but 64 from train.yaml:2 (micro_batch_size: 2) and train.yaml:3 (gradient_accumulation_steps: 4) and the world size. After the model is loaded, the Hugging Face Trainer raises "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds train_batch_size=32 vs hf train_batch_size (calculated)=64".',
    fixed='{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}}',
)
@bad(
    f'{{"train_batch_size": "auto", "gradient_clipping": 0.5, {ZERO_2}}}',
    at="gradient_clipping",
    training=_LLAMA_FACTORY,
    message='gradient_clipping is 0.5 here but 1 in the training arguments (the default, because train.yaml does not set max_grad_norm). After the model is loaded, the Hugging Face Trainer may raise "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds gradient_clipping=0.5 vs hf max_grad_norm=1.0".',
    fixed='{"train_batch_size": "auto", "gradient_clipping": "auto", "zero_optimization": {"stage": 2}}',
)
@bad(
    f'{{"train_batch_size": "auto", "gradient_clipping": 1.0, {ZERO_2}}}',
    at="gradient_clipping",
    training=_AXOLOTL + "max_grad_norm: 0.5\n",
    message='gradient_clipping is 1.0 here but 0.5 from train.yaml:3 (max_grad_norm: 0.5). After the model is loaded, the Hugging Face Trainer raises "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds gradient_clipping=1.0 vs hf max_grad_norm=0.5".',
    fixed='{"train_batch_size": "auto", "gradient_clipping": "auto", "zero_optimization": {"stage": 2}}',
)
@bad(
    f'{{"train_batch_size": "auto", "bf16": {{"enabled": true}}, {ZERO_2}}}',
    at="bf16.enabled",
    training=_LLAMA_FACTORY,
    message='bf16.enabled is true here but false in the training arguments (the default, because train.yaml does not set bf16 or bf16_full_eval). After the model is loaded, the Hugging Face Trainer may raise "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds bf16.enabled=True vs hf bf16|bf16_full_eval=False".',
    fixed='{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
)
@bad(
    f'{{"train_batch_size": "auto", "bf16": {{"enabled": "true"}}, {ZERO_2}}}',
    at="bf16.enabled",
    training=_LLAMA_FACTORY + "bf16: true\n",
    message='bf16.enabled is "true" here but true from train.yaml:4 (bf16: true). After the model is loaded, the Hugging Face Trainer raises "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds bf16.enabled=\'true\' vs hf bf16|bf16_full_eval=True".',
    fixed='{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
)
@bad(
    f'{{"train_batch_size": "auto", "fp16": {{"enabled": "true"}}, {ZERO_2}}}',
    at="fp16.enabled",
    training=_LLAMA_FACTORY,
    message='fp16.enabled is "true", a text, which to the Hugging Face Trainer differs from true and from false. After the model is loaded, it may raise "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds fp16.enabled=\'true\'".',
    fixed='{"train_batch_size": "auto", "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
)
@good(
    f'{{"train_batch_size": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": 1, "optimizer": {{"type": "AdamW", "params": {{"lr": 2e-5}}}}, {ZERO_2}}}',
    training=_AXOLOTL + "gradient_accumulation_steps: 4\nlearning_rate: 0.00002\n",
)
@bad(
    f'{{"train_batch_size": "auto", "fp16": {{"enabled": true}}, {ZERO_2}}}',
    at="fp16.enabled",
    training=_AXOLOTL + "bf16: true\n",
    integration="transformers",
    loader_release=Release(4, 29, 2),
    message='fp16.enabled is true here but false in the training arguments (the default, because train.yaml does not set fp16 or fp16_full_eval). After the model is loaded, the Hugging Face Trainer raises "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds fp16.enabled=True vs hf fp16|fp16_full_eval=False".',
    fixed='{"train_batch_size": "auto", "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
)
def argument_mismatch(config: Config) -> Iterator[Finding]:
    """A value of the config differs from the training arguments.

    The Hugging Face Trainer compares thirteen keys of the config with its own arguments, and raises `ValueError: Please correct the following
    DeepSpeed config values that mismatch TrainingArguments values` if one differs: batch sizes, gradient accumulation steps, gradient
    clipping, learning rate, betas, eps, weight decay, warm-up steps, total steps, and whether fp16 and bf16 are enabled; a text such as "true" is neither true nor false to it. It does so after the
    model is loaded, which can be half an hour into the job. At ZeRO stage 3 DeepSpeed parses the config while the model is loaded, and raises
    for the batch sizes before that. An argument that is not set is compared with its default, and one that the program sets
    in arguments that are made already with what they were made with. Where the framework or the program may have its own default, the
    Trainer may raise; for arguments whose default programs often change, such as the learning rate, the finding is an info.

    Write "auto" in the config: the Trainer then fills in its own value, and the two cannot differ.
    """
    arguments = trainer_arguments(config)
    program = config.setup.program if config.setup else None
    if arguments is None or (program is not None and program.loader == Integration.DEEPSPEED.value):
        return  # a program that calls deepspeed.initialize itself compares nothing
    if config.document.language in ("json", "hjson") and wrapper_of(config.document.whole or config.document) is not None:
        return  # DS008: the Trainer finds none of these keys at the top level
    late = made_without_config(arguments)
    if program is not None and program.set_late is not None and arguments.before.get("deepspeed") is None:
        return  # DS998: the Trainer does not read this config
    trained = program is not None and program.loader == Integration.TRANSFORMERS.value
    guessed = program is None and _is_of_any_trainer(config)
    conflict = _conflicting_precision(config, arguments)
    product = _wrong_product(config, arguments)
    finds_batch = _finds_batch(arguments)
    factor_differs, batch_differs = False, False
    lost_flags = config.setup.launch.lost_flags if config.setup is not None and config.setup.launch is not None else frozenset[str]()
    step = None if finds_batch else LoadStep.BATCH if _parses_filled(config) else LoadStep.TRAINER
    for key in sorted(MISMATCH_CHECKED["transformers"], key=_train_batch_size_last):
        value = _compared_value(config, key)
        if value is UNKNOWN or (conflict and key in PRECISIONS) or (key == TRAIN and factor_differs):
            continue
        if key in (MICRO, TRAIN) and finds_batch and not product:
            continue  # the Trainer does not compare what it changes
        filled = from_arguments(key, as_read_by_trainer(key, arguments, program), config.facts)
        if isinstance(value, str) and not (filled.sure and filled.value is not UNKNOWN):
            yield _text_in_quotes(config, key, value, sure=trained or (arguments.sure and not guessed))
            continue
        if filled.value is UNKNOWN or value == filled.value or (key == TOTAL_STEPS and not filled.givens):
            continue
        factor_differs = factor_differs or key in (MICRO, ACCUMULATION)
        batch_differs = batch_differs or key in BATCH_KEYS
        label = FILLINGS[key].name
        later = _set_later(arguments, key)
        lost = [name for name in FILLINGS[key].arguments if not filled.givens and name in lost_flags]
        sure = filled.sure and not guessed and not late and not _sets_itself(config, key)
        guess = not filled.sure and not (trained and filled.givens) and not (key in _SELDOM_REDEFINED and _asks_to_train(arguments))
        raising = "raises" if sure else "may raise"
        error = (
            f"{_when_parsed(step)}DeepSpeed {raising} AssertionError {product}"
            if product and key in BATCH_KEYS
            else f"After the model is loaded, the Hugging Face Trainer {raising} "
            '"Please correct the following DeepSpeed config values that mismatch TrainingArguments values: '
            f'- ds {key}={_printed(config, key, value)} vs hf {label}={filled.value!r}"'
        )
        if key in BATCH_KEYS and not product and (earlier := _wrong_product(config, arguments, may_parse=True)):
            error += f". If the program loads a model with from_pretrained, DeepSpeed raises AssertionError {earlier} before that"
        absent = config.node(key) is None
        here = (
            f"not written here, and Accelerate adds it with the value {_shown(value)},"
            if absent
            else f'"auto" here, and Accelerate fills in {_shown(value)},'
            if config.is_auto(key)
            else f"{config.quote(key)} here"
        )
        by_launcher = key in PRECISIONS and (absent or config.is_auto(key))
        yield Finding(
            key,
            f"{key} is {here} but {_other_value(filled, arguments, key, lost)}. {error}.",
            help=_advice(config, key, filled, is_lost=bool(lost), by_launcher=by_launcher, is_late=bool(later)),
            on="value",
            related=(
                *(given.related(f"sets {_shown(filled.value)}") for given in filled.givens),
                *(given.related("set here, after the comparison") for given in later),
            ),
            fix=None
            if by_launcher or lost or later
            else unsafe(f'add "{key}": "auto"', Insert((), key, '"auto"'))
            if absent
            else unsafe('write "auto"', Set(path_of(key), '"auto"')),
            effect=Effect.ADVICE if guess else None,
            step=step if product and key in BATCH_KEYS else None,
            pedantic=guess,
            certain=sure,
            cause=SharedCause(f"mismatch of {key}", f"{key} differs from the arguments of several launches.") if filled.givens else None,
        )
    if product and not batch_differs and loads_reference(config) and config.node(MICRO) is None:
        yield Finding(
            MICRO,
            f"{MICRO} is not written here, and Accelerate puts 1 for it before TRL loads the reference model. "
            f"{_when_parsed(LoadStep.TRAINER)}DeepSpeed raises AssertionError {product}.",
            help='Add it with the value "auto".',
            fix=unsafe(f'add "{MICRO}": "auto"', Insert((), MICRO, '"auto"')),
            step=LoadStep.TRAINER,
        )


def _asks_to_train(arguments: Arguments) -> bool:
    """Whether a launch gives what a training needs: a program that is not there may load a model for something else."""
    return "output_dir" in arguments and any(name in arguments for name in _OF_TRAININGS)


_OF_TRAININGS = ("learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps")


def _sets_itself(config: Config, key: str) -> bool:
    """Whether a class of the program may give the arguments of a key another value before the comparison: in its `__post_init__`."""
    sets = re.compile(rf"\bself\.(?:{'|'.join(FILLINGS[key].arguments)})\s*=(?!=)")
    return any("__post_init__" in text and sets.search(text) for text in programs_of(config))


def _when_parsed(step: LoadStep | None) -> str:
    """When DeepSpeed parses the batch that the Trainer has filled in."""
    return (
        {LoadStep.BATCH: "While the model is loaded, ", LoadStep.TRAINER: "While the reference model is loaded, "}.get(step, "")
        if step
        else ""
    )


def _parses_filled(config: Config) -> bool:
    """Whether DeepSpeed parses the values of the arguments while the model is loaded."""
    return parses_while_loading(config) and knows_arguments(config)


def _text_in_quotes(config: Config, key: str, value: str, *, sure: bool) -> Finding:
    """The finding for a precision that is switched by a text, whatever the argument is."""
    raising = "raises" if sure else "may raise"
    return Finding(
        key,
        f"{key} is {config.quote(key)}, a text, which to the Hugging Face Trainer differs from true and from false. After the model is loaded, "
        f'it {raising} "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds {key}={value!r}".',
        help='Write "auto": the Trainer then fills in its own value.',
        on="value",
        fix=unsafe('write "auto"', Set(path_of(key), '"auto"')),
        certain=sure,
    )


def _finds_batch(arguments: Arguments) -> bool:
    """Whether the Trainer tries batch sizes until one fits."""
    return arguments.said("auto_find_batch_size").value is True


def _may_parse_filled(config: Config) -> bool:
    """Whether DeepSpeed may parse the values of the arguments while the model is loaded: at stage 3, by a program that is not known."""
    is_unknown = config.setup is None or config.setup.program is None
    return is_unknown and config.value("zero_optimization.stage") == 3 and knows_arguments(config)


def _wrong_product(config: Config, arguments: Arguments, *, may_parse: bool = False) -> str:
    """What DeepSpeed raises for the batch while the model is loaded, after the Trainer replaced "auto"; "" if it does not, or is not known.

    With `auto_find_batch_size` the Trainer does not compare the batch, and DeepSpeed raises later. A key that is not written is computed,
    so that only three keys can contradict each other; for a reference model, Accelerate has put 1 for some of them. With `may_parse` also
    where the program that loads the model is not known.
    """
    again = loads_reference(config)
    if not (_finds_batch(arguments) or _parses_filled(config) or again or (may_parse and _may_parse_filled(config))):
        return ""
    read = as_read_by_trainer(MICRO, arguments, config.setup.program if config.setup else None)
    ranks, given = batch_world_size(config), [from_arguments(key, read, config.facts).value for key in BATCH_KEYS]
    written = [plain(node) if (node := config.node(key)) is not None else None for key in BATCH_KEYS]
    if again and knows_arguments(config) and written[1] is None:
        written[1] = 1
    if again and adds_one_step(config):
        written[2] = 1
    values: list[Any] = [argument if one == "auto" else one for argument, one in zip(given, written, strict=True)]
    if ranks is UNKNOWN and written[0] == "auto" and _has_only_ranks(config):
        ranks = None  # the Trainer multiplies its own two by as many ranks as DeepSpeed does: the product is wrong on any number of them
        values[0] = given[1] * given[2] if all(type(one) is int for one in given[1:]) else UNKNOWN
    train, micro, steps = values
    if ranks is UNKNOWN or not all(type(one) is int for one in values) or train == micro * steps * (ranks or 1):
        return ""
    return wrong_batch(train, micro, steps, ranks)


def _has_only_ranks(config: Config) -> bool:
    """Whether each rank has a batch of its own, however many there are."""
    return config.facts.world_size is None and not config.facts.divided_by_program and not config.has("sequence_parallel_size")


def _is_of_any_trainer(config: Config) -> bool:
    """Whether the arguments are in a file of no certain framework, which a training loop of the program's own may read."""
    setup, arguments = config.setup, config.arguments
    if setup is None or setup.launch is not None or arguments is None or arguments.sure:
        return False
    framework = named(arguments.framework)
    return framework is not None and not framework.has_own_loop


def _train_batch_size_last(key: str) -> tuple[bool, int]:
    return key == TRAIN, list(FILLINGS).index(key)


def _advice(config: Config, key: str, filled: Filled, *, is_lost: bool, by_launcher: bool, is_late: bool) -> str:
    if is_lost:
        return "Repair the command first (DS978)."
    if by_launcher:
        return "Choose the same precision in the training arguments and in mixed_precision."
    if is_late:
        return "Give the value where the arguments are made: the Trainer compares the config with what stands there."
    if config.setup is not None and config.setup.made:
        name = {"bf16.enabled": "bf16: true", "fp16.enabled": "fp16: true"}.get(key)
        return f"Set {name} in the training arguments, or change mixed_precision." if name else 'Write "auto", or remove the key.'
    unsure = "" if filled.sure else " If the program's own default equals the value here, ignore this finding."
    text = " A text in quotes is neither true nor false to the Trainer." if isinstance(config.literal(key), str) else ""
    return f'Write "auto": the Trainer then fills in its own value.{text}{unsure}'


@rule(
    "DS905",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.TRAINER,
    watches=("setup",),
    references=(ACCELERATE_SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad(
    f'{{"train_batch_size": "auto", "fp16": {{"enabled": true}}, {ZERO_2}}}',
    at="fp16.enabled",
    training=_AXOLOTL + "bf16: true\n",
    message='fp16 is enabled here, but train.yaml:3 selects bf16 (bf16: true): Accelerate raises "`--mixed_precision` arg cannot be set to `bf16` when `fp16` is set in the DeepSpeed config file".',
    fixed='{"train_batch_size": "auto", "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
)
@good(
    f'{{"train_batch_size": "auto", "fp16": {{"enabled": "auto"}}, "bf16": {{"enabled": "auto"}}, {ZERO_2}}}',
    training=_AXOLOTL + "bf16: true\n",
)
def precision_conflict(config: Config) -> Iterator[Finding]:
    """The config enables fp16 and the training arguments select bf16, or the reverse.

    Accelerate, which the Trainer uses since transformers 4.30, raises ``ValueError: `--mixed_precision` arg cannot be set to `bf16` when `fp16` is set in the
    DeepSpeed config file.``

    Write "auto" for `enabled` in both sections, or the same precision in both places.
    """
    arguments = trainer_arguments(config)
    if arguments is not None:
        kind = _conflicting_precision(config, arguments)
        other = {"fp16": "bf16", "bf16": "fp16"}.get(kind or "")
        if not kind or not other or (config.origin(f"{kind}.enabled") is Origin.FILLED and parses_while_loading(config)):
            return  # DeepSpeed has parsed the two before
        given = arguments.get(other)
        if given is None and not arguments.said(other).sure:
            return
        selection = (
            f"{given.where} selects {other} ({given.shown})"
            if given is not None
            else f"{arguments.kind or arguments.framework} selects {other} by default"
        )
        found = _conflict(kind, selection, other, *([given.related(f"selects {other}")] if given is not None else []))
        if config.is_auto(f"{kind}.enabled"):
            found = found._replace(help=f"Switch {kind} or {other} off in the training arguments.")
        yield found._replace(step=None if knows_arguments(config) else LoadStep.PLUGIN)
        return
    file = config.setup.accelerate if config.setup else None
    given = file.get("mixed_precision") if file else None
    if file is None or config.setup is None or config.setup.made or config.facts.integration is not Integration.ACCELERATE:
        return
    if file.config_file is not None and file.precision_flag is None:
        return  # DS911 reports mixed_precision in such a file
    given = file.precision_flag or given
    if given is None or any(event.argument("mixed_precision") for event in _accelerators(config.setup)):
        return
    for kind, other in (("fp16", "bf16"), ("bf16", "fp16")):
        if config.value(f"{kind}.enabled") is True and file.precision == other:
            yield _conflict(kind, f"{given.where} selects {other} ({given.shown})", other, given.related(f"selects {other}"))


def _accelerators(setup: Setup) -> Iterator[Event]:
    """The calls that make an `Accelerator` in the program."""
    yield from setup.program.events.of(r"accelerate\.(\w+\.)?Accelerator") if setup.program is not None else ()


def _conflict(kind: str, selection: str, other: str, *related: Related) -> Finding:
    return Finding(
        f"{kind}.enabled",
        f"{kind} is enabled here, but {selection}: "
        f'Accelerate raises "`--mixed_precision` arg cannot be set to `{other}` when `{kind}` is set in the DeepSpeed config file".',
        help='Write "enabled": "auto" in both sections, fp16 and bf16.',
        related=related,
        fix=unsafe('write "auto"', Set((kind, "enabled"), '"auto"')),
    )


def _warmup_decay(total_steps: str) -> str:
    """A config with a schedule of so many steps, for examples."""
    scheduler = (
        f'{{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": {total_steps}}}}}'
    )
    return f'{{"train_batch_size": "auto", "scheduler": {scheduler}, {ZERO_2}}}'


@rule(
    "DS909",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(TRAINER_SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad(
    _warmup_decay("10000"),
    at=TOTAL_STEPS,
    training=_AXOLOTL + "num_train_epochs: 3\n",
    message='total_num_steps is 10000 here, and train.yaml does not set max_steps. The Trainer computes the number of steps from the data, and may raise "- ds scheduler.params.total_num_steps=10000 vs hf num_training_steps (calculated)=...": the two must be equal.',
    fixed='{"train_batch_size": "auto", "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}, "zero_optimization": {"stage": 2}}',
)
@good(_warmup_decay('"auto"'), training=_AXOLOTL)
@good(_warmup_decay("500"), training=_AXOLOTL + "max_steps: 500\n")
def total_steps_written(config: Config) -> Iterator[Finding]:
    """The config sets the total number of steps, which the Trainer computes itself.

    The Hugging Face Trainer compares `scheduler.params.total_num_steps` with the number of training steps that it computes from the length
    of the data, the batch and the epochs. It raises if they differ, even by one.

    Write "auto", or set `max_steps` to the same number.
    """
    arguments = trainer_arguments(config)
    if arguments is None or not isinstance(_compared_value(config, TOTAL_STEPS), int) or not arguments.complete:
        return
    schedule = find_type("scheduler", config.value("scheduler.type"))
    if schedule is not None and "total_num_steps" not in schedule["params"] and not schedule.get("open"):
        return  # DeepSpeed refuses the parameter, and DS609 tells to remove it
    if arguments.said("max_steps").given is not None:
        return  # the number of steps is known, and DS904 compares it
    most = arguments.most_steps
    certain = most is not None and config.value(TOTAL_STEPS) > most
    of_data = f"steps from the data, of which {arguments.rows:,} rows make at most {most:,}," if certain else "steps from the data,"
    yield Finding(
        TOTAL_STEPS,
        f"total_num_steps is {config.quote(TOTAL_STEPS)} here, and {arguments.path} does not set max_steps. The Trainer computes the number of "
        f"{of_data} and {'raises' if certain else 'may raise'} "
        f'"- ds {TOTAL_STEPS}={config.quote(TOTAL_STEPS)} vs hf num_training_steps (calculated)=...": the two must be equal.',
        help='Write "auto".',
        on="value",
        related=(arguments.data.related("names the data"),) if certain and arguments.data is not None else (),
        fix=unsafe('write "auto"', Set(path_of(TOTAL_STEPS), '"auto"')),
        certain=certain,
    )
