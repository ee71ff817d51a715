"""DS9: keys of an Accelerate file that Accelerate does not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dslint.config import UNKNOWN, Config
from dslint.config.sections import default_of
from dslint.diagnostics import Effect, Phase, SharedCause
from dslint.facts import Release
from dslint.frameworks.accelerate import BLOCK, BLOCK_KEYS, LAUNCH_FLAGS, TOP_KEYS
from dslint.job.arguments import SourcedValue
from dslint.job.model import AccelerateFile
from dslint.job.training import ARGUMENTS
from dslint.rule import Finding, bad, good, rule, safe, unsafe
from dslint.rules.helpers.examples import ACCELERATE_HEAD, BF16_ZERO_2
from dslint.rules.helpers.loaders import ACCELERATE_LAUNCH, accelerate_file, exports_block, makes_plugin, selects_deepspeed
from dslint.schemas.key_table import KEYS
from dslint.source.change import Rename
from dslint.source.similar import similar
from dslint.source.tree import Member, Scalar


@rule("DS915", effect=Effect.IGNORED, watches=("setup",), references=(ACCELERATE_LAUNCH,), setup=True)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config", "zero_stagee"),
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stagee: 3\n",
    message='Unknown key "zero_stagee" in deepspeed_config: Accelerate silently ignores it and uses ZeRO stage 2.',
)
@bad(
    BF16_ZERO_2,
    at=("num_procesess",),
    accelerate=ACCELERATE_HEAD + "num_procesess: 3\ndeepspeed_config:\n  zero_stage: 3\n",
    message='Unknown key "num_procesess" in an Accelerate config: accelerate launch raises "The config file at accelerate.yaml had unknown keys ([\'num_procesess\'])".',
)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config",),
    accelerate="compute_environment: AMAZON_SAGEMAKER\ndistributed_type: DATA_PARALLEL\nec2_instance_type: ml.p4d.24xlarge\niam_role_name: r\nnum_machines: 2\n"
    "deepspeed_config:\n  zero_stage: 3\n",
    message='Unknown key "deepspeed_config" in an Accelerate config for SageMaker: accelerate launch raises "The config file at accelerate.yaml had unknown keys ([\'deepspeed_config\'])".',
)
@good(
    BF16_ZERO_2,
    accelerate="compute_environment: AMAZON_SAGEMAKER\ndistributed_type: DATA_PARALLEL\nec2_instance_type: ml.p4d.24xlarge\niam_role_name: r\nnum_machines: 2\n",
)
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 3\n")
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 3\n  main_process_port: 29501\n")
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config", "gradient_checkpointing"),
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 3\n  gradient_checkpointing: true\n",
    message='Unknown key "gradient_checkpointing" in deepspeed_config: Accelerate silently ignores it.',
)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config", "fp16"),
    accelerate=ACCELERATE_HEAD + "mixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n  fp16:\n    enabled: true\n",
    message='Unknown key "fp16" in deepspeed_config: Accelerate silently ignores it.',
)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config", "configs/zero3.json"),
    accelerate=ACCELERATE_HEAD + "deepspeed_config: {configs/zero3.json}\n",
    message='Unknown key "configs/zero3.json" in deepspeed_config: Accelerate silently ignores it and uses ZeRO stage 2.',
)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config", "zero_stagee"),
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero_stagee: 3\n",
    message='Unknown key "zero_stagee" in deepspeed_config: Accelerate silently ignores it.',
)
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config: {deepspeed_config_file: configs/zero3.json}\n")
def accelerate_unknown_key(config: Config) -> Iterator[Finding]:
    """The Accelerate file has a key that Accelerate does not know.

    Accelerate silently ignores unknown keys inside `deepspeed_config`: with a misspelt `zero_stage` it trains with stage 2. A key of DeepSpeed
    with the value that is used anyway ("auto", the default) is reported only with `--pedantic`, and so is one about the log. For an unknown
    top-level key `accelerate launch` raises `ValueError: The config file at ... had unknown keys`. A file with
    `compute_environment: AMAZON_SAGEMAKER` has no `deepspeed_config`.

    Correct the spelling, or remove the key. Write DeepSpeed's own keys in a separate file, and name it in `deepspeed_config_file`.
    """
    file = accelerate_file(config)
    if file is None:
        return
    setup, release = config.setup, config.context.pinned("accelerate")
    says_stage = file.config_file is not None or "zero_stage" in file.block or "zero_stage" in file.flags
    named = setup is not None and setup.link is not None  # the arguments or the program name a config
    stage_is_default = not says_stage and not named and exports_block(config) and not makes_plugin(config)
    unused = file.is_for_sagemaker or (
        "distributed_type" in file.top and not file.is_for_deepspeed and not selects_deepspeed(config)  # DS950 reports it
    )
    for given in () if unused else file.block.values():
        if given.name not in BLOCK_KEYS and given.name not in LAUNCH_FLAGS:
            section = given.name.partition(":")[0]  # `bf16:enabled: true` is one key
            field = _precision_is_set(file, section) or FIELDS.get(section) or _of_training(section)
            meant = None if field or given.value is UNKNOWN else _similar_key(given.name, BLOCK_KEYS)
            is_path = given.value is None and given.name.endswith((".json", ".hjson")) and "deepspeed_config_file" not in file.block
            is_stage = stage_is_default and (is_path or meant == "zero_stage" or given.name == "zero_optimization")
            default = " and uses ZeRO stage 2" if is_stage else ""
            yield Finding(
                "",
                f'Unknown key "{given.name}" in deepspeed_config: Accelerate silently ignores it{default}.',
                help=f"Write deepspeed_config_file: {given.name}." if is_path else f'Write "{meant}".' if meant else field or OF_DEEPSPEED,
                elsewhere=given.related(""),
                fix=unsafe(f'rename to "{meant}"', Rename((BLOCK, given.name), meant)) if meant and meant not in file.block else None,
                cause=None if meant or is_path or is_stage or field else UNKNOWN_TO_ACCELERATE,
                pedantic=not meant
                and not is_path
                and not is_stage
                and (_loses_nothing(config, given) or _is_precision(config, file, given)),
            )
    for given in file.top.values():
        if given.name not in TOP_KEYS or (file.is_for_sagemaker and given.name in _OF_CLUSTERS):
            meant = _similar_key(given.name, TOP_KEYS) if given.name not in TOP_KEYS else None
            error = (
                f"TypeError \"__init__() got an unexpected keyword argument '{given.name}'\""
                if release is not None and release < _NAMES_UNKNOWN
                else f"\"The config file at {file.path} had unknown keys (['{given.name}'])\""
            )
            what, advice = "an Accelerate config", "Remove it, or upgrade Accelerate if a newer release has this key."
            if given.name in _OF_CLUSTERS:
                what = "an Accelerate config for SageMaker"
                advice = "Write compute_environment: LOCAL_MACHINE to train here, or pass the config to the Trainer of the program."
            yield Finding(
                "",
                f'Unknown key "{given.name}" in {what}: accelerate launch raises {error}.',
                help=f'Write "{meant}".' if meant else advice,
                elsewhere=given.related(""),
                fix=safe(f'rename to "{meant}"', Rename((given.name,), meant)) if meant and meant not in file.top else None,
                effect=Effect.CRASH,
                phase=Phase.LOAD,
            )


_OF_CLUSTERS = (
    "deepspeed_config",
    "fsdp_config",
    "megatron_lm_config",
    "num_processes",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
)
"""Keys that a file for SageMaker does not have. Source: accelerate/commands/config/config_args.py, SageMakerConfig of 0.20.3 and 1.7.0."""

_NAMES_UNKNOWN = Release(0, 23, 0)
"""The first release that names unknown keys; an older one passes them to its class, which raises TypeError."""

CLOSE = 0.86
"""The similarity from which a key counts as a misspelling. Names of other fields with the same first words are less similar."""

OF_DEEPSPEED = "Remove it. Keys that only DeepSpeed knows belong in the file that deepspeed_config_file names."

FIELDS = {
    "stage3_gather_16bit_weights_on_model_save": 'Write "zero3_save_16bit_model", which is Accelerate\'s name of it.',
    "path": "Write it as deepspeed_config_file; Accelerate then reads no other field of the block.",
    "zero_optimization": "Write its stage as zero_stage, or the whole section in the file that deepspeed_config_file names.",
    "bf16": "Write mixed_precision: bf16 at the top level.",
    "fp16": "Write mixed_precision: fp16 at the top level.",
    "zero_force_ds_cpu_optimizer": "Remove it: since 0.18.0 Accelerate replaces the program's optimizer by DeepSpeedCPUAdam where DeepSpeed requires it. "
    "For an earlier release write it in the file that deepspeed_config_file names.",
}
"""By what people write in the block: what to write instead."""

UNTESTED = "zero_allow_untested_optimizer"
_OF_THE_LOG = ("steps_per_print", "wall_clock_breakdown", "dump_state")

UNKNOWN_TO_ACCELERATE = SharedCause(
    "unknown in the block of Accelerate",
    "{count} keys in deepspeed_config are not Accelerate's, which silently ignores them: {keys}.",
    "Write those that DeepSpeed reads in a DeepSpeed config, and only deepspeed_config_file with its path here: Accelerate then reads no other "
    "field of the block. Remove the others.",
)


def _of_training(name: str) -> str | None:
    """The advice for an argument of the training that no section of DeepSpeed has: `gradient_checkpointing`."""
    if name not in ARGUMENTS or any(key.rpartition(".")[2] == name for key in KEYS):
        return None
    return "Remove it: it is an argument of the training, and belongs there."


def _loses_nothing(config: Config, given: SourcedValue) -> bool:
    """Whether a key of DeepSpeed that Accelerate ignores has the value that the training uses anyway, or only changes the log."""
    if given.name in _OF_THE_LOG or given.value in ("auto", None) or (given.name == UNTESTED and given.value is True):
        return True  # Accelerate writes UNTESTED itself where DeepSpeed asks for it
    keys = (given.name, f"zero_optimization.{given.name}")
    defaults = [default_of(KEYS[key], config.release) for key in keys if key in KEYS]
    return given.value is not UNKNOWN and any(
        given.value == one and isinstance(given.value, bool) is isinstance(one, bool) for one in defaults
    )


def _precision_is_set(file: AccelerateFile, name: str) -> str | None:
    """The help for a section of a precision beside `mixed_precision`, which alone decides it."""
    given = file.precision_flag or file.top.get("mixed_precision")
    if name not in ("bf16", "fp16") or given is None or given.value is None:
        return None
    return f"Remove it: {given.shown} sets the precision."


def _is_precision(config: Config, file: AccelerateFile, given: SourcedValue) -> bool:
    """Whether a section of a precision asks for no other precision than the one that Accelerate uses."""
    if given.name not in ("bf16", "fp16") or not file.precision:
        return False
    document = config.setup.documents.get(given.path) if config.setup is not None else None
    found = document.lookup((BLOCK, given.name, "enabled")) if document is not None else None
    enabled = found.value.value if isinstance(found, Member) and isinstance(found.value, Scalar) else UNKNOWN
    return enabled in (False, "auto") or (enabled is True and given.name == file.precision)


def _similar_key(name: str, known: Iterable[str]) -> str | None:
    longer = [one for one in known if one.startswith(name)]
    return longer[0] if len(longer) == 1 else next(iter(similar(name, known, cutoff=CLOSE)), None)
