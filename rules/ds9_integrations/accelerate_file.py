"""DS9: fields of an Accelerate file that Accelerate refuses, ignores or cannot read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dslint.config import UNKNOWN, Config
from dslint.config.sections import default_of
from dslint.diagnostics import Effect, LoadStep, Phase, SharedCause
from dslint.facts import Integration
from dslint.frameworks.accelerate import BLOCK, BLOCK_KEYS, CLASHING, LAUNCH_FLAGS, TOP_KEYS
from dslint.job.arguments import SourcedValue
from dslint.job.model import PRECISIONS, AccelerateFile
from dslint.job.training import ARGUMENTS
from dslint.rule import Finding, bad, good, rule, safe, unsafe
from dslint.rules.helpers.examples import ACCELERATE_HEAD, BF16_ZERO_2
from dslint.rules.helpers.loaders import ACCELERATE_LAUNCH, RAISED_BY_LOADER, accelerate_file
from dslint.rules.helpers.models import knows_arguments, parses_while_loading
from dslint.schemas.key_table import KEYS
from dslint.source.change import Rename, Set
from dslint.source.similar import similar
from dslint.source.tree import Member, Scalar

DOCS = "https://huggingface.co/docs/accelerate/usage_guides/deepspeed"


@rule(
    "DS911",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.PLUGIN,
    watches=("setup",),
    references=(DOCS, ACCELERATE_LAUNCH),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config", "zero_stage"),
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero_stage: 2\n",
    message="zero_stage is set together with deepspeed_config_file: Accelerate raises \"When using `deepspeed_config_file`, the following accelerate config variables will be ignored: ['gradient_accumulation_steps', 'gradient_clipping', 'zero_stage', 'offload_optimizer_device', 'offload_param_device', 'offload_param_nvme_path', 'offload_optimizer_nvme_path', 'zero3_save_16bit_model', 'mixed_precision']\".",
)
@bad(
    BF16_ZERO_2,
    at=("mixed_precision",),
    accelerate=ACCELERATE_HEAD + "mixed_precision: bf16\ndeepspeed_config:\n  deepspeed_config_file: ds_config.json\n",
    message="mixed_precision is set together with deepspeed_config_file: Accelerate raises \"When using `deepspeed_config_file`, the following accelerate config variables will be ignored: ['gradient_accumulation_steps', 'gradient_clipping', 'zero_stage', 'offload_optimizer_device', 'offload_param_device', 'offload_param_nvme_path', 'offload_optimizer_nvme_path', 'zero3_save_16bit_model', 'mixed_precision']\".",
)
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero3_init_flag: false\n")
def accelerate_fields_clash(config: Config) -> Iterator[Finding]:
    """The Accelerate file sets fields that Accelerate refuses together with `deepspeed_config_file`.

    `accelerate launch` exports the fields as environment variables, and the plugin raises ``ValueError: When using `deepspeed_config_file`,
    the following accelerate config variables will be ignored`` if any of nine is set: gradient accumulation, gradient clipping, ZeRO stage,
    offload devices and NVMe paths, `zero3_save_16bit_model`, and `mixed_precision`, even with the value "no".

    Remove them from the YAML file and set the same values in the DeepSpeed config. `--mixed_precision bf16` on the command line is allowed.
    """
    file = accelerate_file(config)
    if file is None or file.config_file is None or (config.setup and config.setup.passed_over):
        return
    # With the flag for the precision, the launcher does not look for it in the file.
    names = [name for name in CLASHING if name != "mixed_precision" or file.precision_flag is None]
    clashing = [given for name in names if (given := file.get(name)) and given.value is not None]
    if not clashing:
        return
    first, *others = clashing
    shown = ", ".join(given.name for given in clashing)
    on_command_line = " You can pass mixed_precision on the command line instead: accelerate launch --mixed_precision ..."
    yield Finding(
        "",
        f"{shown} {'are' if others else 'is'} set together with deepspeed_config_file: Accelerate raises "
        f'"When using `deepspeed_config_file`, the following accelerate config variables will be ignored: {list(CLASHING)}".',
        help=f"Remove {'them' if others else 'it'} from this file, and set the same in {file.config_file.value}."
        + (on_command_line if "mixed_precision" in shown else ""),
        elsewhere=first.related(""),
        related=(file.config_file.related("the DeepSpeed config is named here"), *(given.related("also set here") for given in others)),
    )


@rule(
    "DS914",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.LAUNCHER,
    watches=("setup",),
    references=(ACCELERATE_LAUNCH,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at=("mixed_precision",),
    accelerate=ACCELERATE_HEAD + "mixed_precision: no\ndeepspeed_config:\n  zero_stage: 2\n",
    message="Without quotes, no is the boolean false in YAML: accelerate launch raises \"'bool' object has no attribute 'lower'\".",
)
@bad(
    BF16_ZERO_2,
    at=("mixed_precision",),
    accelerate=ACCELERATE_HEAD + "mixed_precision: bfloat16\ndeepspeed_config:\n  zero_stage: 2\n",
    message="mixed_precision is bfloat16: Accelerate raises \"Unknown mixed_precision mode: bfloat16. Choose between ['no', 'fp8', 'fp16', 'bf16']\".",
)
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "mixed_precision: 'no'\ndeepspeed_config:\n  zero_stage: 2\n")
def accelerate_mixed_precision(config: Config) -> Iterator[Finding]:
    """`mixed_precision` is not "no", "fp16", "bf16" or "fp8". Without quotes, YAML reads `no` as false.

    For a boolean Accelerate raises `AttributeError: 'bool' object has no attribute 'lower'`, for any other value
    `ValueError: Unknown mixed_precision mode`.

    Write 'no' in quotes, or one of the other three words.
    """
    file = accelerate_file(config)
    given = file.top.get("mixed_precision") if file else None
    if file is None or given is None or given.value is None or given.value is UNKNOWN or file.precision_flag is not None:
        return  # a flag of the launch wins over the file
    if isinstance(given.value, str) and given.value.lower() in PRECISIONS:
        return
    advice = f"Write one of {', '.join(PRECISIONS)}."
    fix = None
    if isinstance(given.value, bool):
        message = (
            f"Without quotes, {given.raw} is the boolean {str(given.value).lower()} in YAML: "
            "accelerate launch raises \"'bool' object has no attribute 'lower'\"."
        )
        if given.value is False:
            advice = "Write 'no', in quotes."
            fix = safe("write 'no' in quotes", Set(("mixed_precision",), '"no"'))
    else:
        message = (
            f'mixed_precision is {given.raw}: Accelerate raises "Unknown mixed_precision mode: {given.value}. '
            "Choose between ['no', 'fp8', 'fp16', 'bf16']\"."
        )
    yield Finding("", message, help=advice, elsewhere=given.related(""), fix=fix)


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
def accelerate_unknown_key(config: Config) -> Iterator[Finding]:
    """The Accelerate file has a key that Accelerate does not know.

    Accelerate silently ignores unknown keys inside `deepspeed_config`: with a misspelt `zero_stage` it trains with stage 2. A key of DeepSpeed
    with the value that is used anyway ("auto", the default) is reported only with `--pedantic`, and so is one about the log. For an unknown
    top-level key `accelerate launch` raises `ValueError: The config file at ... had unknown keys`.

    Correct the spelling, or remove the key. Write DeepSpeed's own keys in a separate file, and name it in `deepspeed_config_file`.
    """
    file = accelerate_file(config)
    if file is None:
        return
    unused = "distributed_type" in file.top and not file.is_for_deepspeed and not _is_selected(config)  # DS950 reports it
    for given in () if unused else file.block.values():
        if given.name not in BLOCK_KEYS and given.name not in LAUNCH_FLAGS:
            field = _precision_is_set(file, given.name) or FIELDS.get(given.name) or _of_training(given.name)
            meant = None if field or given.value is UNKNOWN else _similar_key(given.name, BLOCK_KEYS)
            is_stage = meant == "zero_stage" or (given.name == "zero_optimization" and "zero_stage" not in file.block)
            default = " and uses ZeRO stage 2" if is_stage else ""
            yield Finding(
                "",
                f'Unknown key "{given.name}" in deepspeed_config: Accelerate silently ignores it{default}.',
                help=f'Write "{meant}".' if meant else field or OF_DEEPSPEED,
                elsewhere=given.related(""),
                fix=unsafe(f'rename to "{meant}"', Rename((BLOCK, given.name), meant)) if meant and meant not in file.block else None,
                cause=None if meant or is_stage or field else UNKNOWN_TO_ACCELERATE,
                pedantic=not meant and not is_stage and (_loses_nothing(config, given) or _is_precision(config, file, given)),
            )
    for given in file.top.values():
        if given.name not in TOP_KEYS:
            meant = _similar_key(given.name, TOP_KEYS)
            yield Finding(
                "",
                f'Unknown key "{given.name}" in an Accelerate config: '
                f"accelerate launch raises \"The config file at {file.path} had unknown keys (['{given.name}'])\".",
                help=f'Write "{meant}".' if meant else "Remove it, or upgrade Accelerate if a newer release has this key.",
                elsewhere=given.related(""),
                fix=safe(f'rename to "{meant}"', Rename((given.name,), meant)) if meant and meant not in file.top else None,
                effect=Effect.CRASH,
                phase=Phase.LOAD,
            )


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


_NUMBERS = {"zero_stage": int, "gradient_clipping": float}
"""The fields that Accelerate reads back from the environment as numbers, each with the conversion that it calls."""

_STEPS = "gradient_accumulation_steps"


@rule(
    "DS916",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.PLUGIN,
    watches=("setup",),
    references=(ACCELERATE_LAUNCH,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config", "zero_stage"),
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: three\n",
    message="zero_stage is three: every rank reads it with int() and raises \"invalid literal for int() with base 10: 'three'\".",
)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config", "gradient_accumulation_steps"),
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  gradient_accumulation_steps: 1.5\n",
    message="gradient_accumulation_steps is 1.5: Accelerate converts only digits to a number and passes DeepSpeed the text \"1.5\", which raises \"'>' not supported between instances of 'str' and 'int'\".",
)
@good(
    BF16_ZERO_2,
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: '3'\n  gradient_clipping: auto\n  offload_optimizer_device: none\n",
)
def accelerate_not_a_number(config: Config) -> Iterator[Finding]:
    """A field of `deepspeed_config` that Accelerate reads as a number is not a number.

    `accelerate launch` exports the fields as environment variables, and every rank reads them back. It converts the ZeRO stage with `int()`
    and gradient clipping with `float()`, which raise `ValueError`. It converts gradient accumulation steps only if all characters are
    digits, and otherwise passes the text to DeepSpeed.

    Write a number. Gradient clipping can also be "auto", and so can gradient accumulation steps under the Trainer: an `Accelerator` of a
    program's own reads them with `int()`.
    """
    file = accelerate_file(config)
    if file is None or file.config_file is not None:
        return
    for name, convert in _NUMBERS.items():
        given = file.block.get(name)
        value = given.value if given else None
        if given is None or value is None or value is UNKNOWN or (value in ("auto", "none", "None") and name != "zero_stage"):
            continue
        try:
            convert(str(value))
        except ValueError as error:
            yield Finding(
                "",
                f'{name} is {given.raw}: every rank reads it with {convert.__name__}() and raises "{error}".',
                help="Write 0, 1, 2 or 3." if name == "zero_stage" else 'Write a number, or "auto".',
                elsewhere=given.related(""),
            )
    given = file.block.get(_STEPS)
    if given is not None and given.value == "auto" and _makes_accelerator(config):
        yield Finding(
            "",
            f"{_STEPS} is auto: Accelerator() reads it with int() and raises \"invalid literal for int() with base 10: 'auto'\".",
            help="Write a whole number. Only the Trainer replaces auto in this file.",
            elsewhere=given.related(""),
        )
    if given is None or given.value in (None, "auto", UNKNOWN) or str(given.value).isdigit():
        return
    yield Finding(
        "",
        f'{_STEPS} is {given.raw}: Accelerate converts only digits to a number and passes DeepSpeed the text "{given.value}", which raises '
        "\"'>' not supported between instances of 'str' and 'int'\".",
        help='Write a whole number, or "auto".',
        elsewhere=given.related(""),
        phase=Phase.PARSE,
    )


def _makes_accelerator(config: Config) -> bool:
    """Whether the program makes an `Accelerator` that reads the accumulation steps from its environment."""
    program = config.setup.program if config.setup else None
    if program is None or not program.makes_accelerator or program.loader != Integration.ACCELERATE.value:
        return False
    document = config.setup.documents.get(program.path) if config.setup else None
    return document is not None and "gradient_accumulation_plugin" not in document.text


_OWN_FLAG = (
    "import accelerate\nimport argparse\nparser = argparse.ArgumentParser()\n"
    'parser.add_argument("--local_rank", type=int)\nparser.add_argument("--deepspeed_config")\nargs = parser.parse_args()\n'
    "accelerator = %s\nmodel = accelerator.prepare(model)\n"
)


@rule(
    "DS950",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(ACCELERATE_LAUNCH,),
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at=("distributed_type",),
    accelerate=ACCELERATE_HEAD.replace("DEEPSPEED", "MULTI_GPU") + "deepspeed_config:\n  zero_stage: 3\n",
    message="distributed_type is MULTI_GPU, so Accelerate ignores deepspeed_config: the training runs without DeepSpeed.",
)
@bad(
    BF16_ZERO_2,
    at="",
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 3\n",
    launch="accelerate launch --config_file accelerate.yaml --multi_gpu train.py\n",
    message="--multi_gpu overrides distributed_type (DEEPSPEED), so Accelerate ignores deepspeed_config: the training runs without DeepSpeed.",
)
@bad(
    BF16_ZERO_2,
    at="",
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 3\n",
    launch="accelerate launch --config_file accelerate.yaml --cpu train.py\n",
    message="--cpu makes Accelerate ignore the DeepSpeed config: the training runs on the CPU, without DeepSpeed.",
)
@bad(
    BF16_ZERO_2,
    at="",
    training="output_dir: out\nper_device_train_batch_size: 4\nbf16: true\ndeepspeed: ds_config.json\n",
    launch="accelerate launch --cpu train.py train.yaml\n",
    integration="transformers",
    message="--cpu makes Accelerate ignore the DeepSpeed config: the training runs on the CPU, without DeepSpeed.",
)
@bad(
    BF16_ZERO_2,
    at="",
    training="output_dir: out\nper_device_train_batch_size: 4\nbf16: true\ndeepspeed: ds_config.json\n",
    launch="ACCELERATE_USE_CPU=true torchrun --nproc_per_node 8 train.py train.yaml\n",
    integration="transformers",
    message="ACCELERATE_USE_CPU makes Accelerate ignore the DeepSpeed config: the training runs on the CPU, without DeepSpeed.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed --num_gpus 8 train.py --deepspeed_config ds_config.json\n",
    program=_OWN_FLAG % "accelerate.Accelerator()",
    message="The program leaves DeepSpeed to Accelerate, which does not read --deepspeed_config: the training runs without DeepSpeed.",
)
@good(
    BF16_ZERO_2,
    launch="deepspeed --num_gpus 8 train.py --deepspeed_config ds_config.json\n",
    program=_OWN_FLAG % "accelerate.Accelerator(deepspeed_plugin=accelerate.DeepSpeedPlugin(hf_ds_config=args.deepspeed_config))",
    integration="accelerate",
)
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "use_cpu: true\ndeepspeed_config:\n  zero_stage: 3\n")
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 3\n")
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD.replace("DEEPSPEED", "MULTI_GPU") + "deepspeed_config: {}\n")
@good(
    BF16_ZERO_2,
    accelerate=ACCELERATE_HEAD.replace("DEEPSPEED", "MULTI_GPU") + "deepspeed_config:\n  zero_stage: 3\n",
    launch="accelerate launch --config_file accelerate.yaml --use_deepspeed train.py\n",
)
def accelerate_block_unused(config: Config) -> Iterator[Finding]:
    """A config for DeepSpeed is named, but `distributed_type` of the Accelerate file or a flag selects another training.

    `accelerate launch` reads `deepspeed_config` only if `distributed_type` is DEEPSPEED, and ignores `distributed_type` if it is given
    `--multi_gpu`, `--use_fsdp`, `--use_megatron_lm` or `--tpu`. It starts the training without DeepSpeed, and each
    GPU holds the whole model, its gradients and the optimizer states. With `--cpu` it exports `ACCELERATE_USE_CPU`, and then Accelerate uses
    DeepSpeed for no program, also if the Trainer gets a config as an argument. The variable in the environment of any launcher does the same.
    `use_cpu: true` in the file has no effect on DeepSpeed.

    A program that makes an `Accelerator` without a plugin uses DeepSpeed only if `accelerate launch` starts it, or
    `ACCELERATE_USE_DEEPSPEED` is set: its own flag for a config changes nothing, also under the launcher `deepspeed`.

    Write `distributed_type: DEEPSPEED`, or remove the block. Remove the flag. Start the program with `accelerate launch`.
    """
    unread = config.setup.unread if config.setup else None
    if unread is not None:
        yield Finding(
            "",
            f"The program leaves DeepSpeed to Accelerate, which does not read {unread.name}: the training runs without DeepSpeed.",
            help="Launch it with accelerate launch --config_file and an Accelerate config that names the DeepSpeed config.",
            elsewhere=unread.related(""),
        )
        return
    file = accelerate_file(config)
    cpu = _cpu_flag(config)
    if cpu is not None and (
        cpu.name == _ON_CPU or config.arguments is not None or (file is not None and file.is_for_deepspeed and file.has_block)
    ):
        yield Finding(
            "",
            f"{cpu.name} makes Accelerate ignore the DeepSpeed config: the training runs on the CPU, without DeepSpeed.",
            help=f"Remove {cpu.name}.",
            elsewhere=cpu.related(""),
        )
        return
    kind = file.top.get("distributed_type") if file else None
    if file is None or kind is None or not isinstance(kind.value, str) or (not file.has_block and file.misplaced_path is None):
        return
    if kind.value == "DEEPSPEED":
        yield from _overridden(config, kind)
        return
    if _is_selected(config):
        return
    yield Finding(
        "",
        f"distributed_type is {kind.raw}, so Accelerate ignores deepspeed_config: the training runs without DeepSpeed.",
        help="Write distributed_type: DEEPSPEED, or remove deepspeed_config.",
        elsewhere=kind.related(""),
        fix=unsafe("write DEEPSPEED", Set(("distributed_type",), '"DEEPSPEED"')),
    )


def _cpu_flag(config: Config) -> SourcedValue | None:
    """What makes Accelerate train on the CPU, if the program leaves DeepSpeed to it: the variable, or `--cpu` of `accelerate launch`, if that
    does not raise beside `--use_deepspeed`.

    `accelerate launch` of one process sets the variable anew. At ZeRO stage 3 the Trainer loads the model with DeepSpeed all the same.
    """
    launch = config.setup.launch if config.setup else None
    if launch is None or config.facts.integration not in (Integration.ACCELERATE, Integration.TRANSFORMERS):
        return None
    is_accelerate = launch.launcher == "accelerate"
    if is_accelerate and "cpu" in launch.flags and not _is_selected(config):
        return launch.flags["cpu"]
    variable = launch.variables.get(_ON_CPU)
    if variable is None or str(variable.value).lower() not in _TRUE or (is_accelerate and launch.bare is not None):
        return None
    return None if parses_while_loading(config) and knows_arguments(config) else variable


_ON_CPU = "ACCELERATE_USE_CPU"
_TRUE = ("y", "yes", "t", "true", "on", "1")
"""Source: accelerate/utils/environment.py, str_to_bool."""


def _is_selected(config: Config) -> bool:
    """Whether a flag of the launch selects DeepSpeed, whatever the file says."""
    launch = config.setup.launch if config.setup else None
    return launch is not None and launch.launcher == "accelerate" and "use_deepspeed" in launch.flags


def _overridden(config: Config, kind: SourcedValue) -> Iterator[Finding]:
    """The finding for a flag that overrides `distributed_type: DEEPSPEED`, unless the arguments of the Trainer select DeepSpeed themselves."""
    launch = config.setup.launch if config.setup else None
    if launch is None or launch.launcher != "accelerate" or "use_deepspeed" in launch.flags:
        return
    flag = next((launch.flags[name] for name in ("multi_gpu", "use_fsdp", "use_megatron_lm", "tpu") if name in launch.flags), None)
    program = config.setup.program if config.setup else None
    makes_plugin = program is not None and any(program.events.of(r"accelerate\.(\w+\.)?DeepSpeedPlugin"))
    if flag is None or makes_plugin or config.facts.integration is Integration.TRANSFORMERS:
        return
    yield Finding(
        "",
        f"{flag.name} overrides distributed_type (DEEPSPEED), so Accelerate ignores deepspeed_config: the training runs without DeepSpeed.",
        help=f"Remove {flag.name}.",
        elsewhere=flag.related(""),
        related=(kind.related("is overridden"),),
    )


@rule(
    "DS976",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.LAUNCHER,
    watches=("setup",),
    references=("accelerate/commands/launch.py, _validate_launch_command",),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at=("distributed_type",),
    accelerate="compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n",
    launch="accelerate launch --config_file accelerate.yaml train.py\n",
    message='accelerate.yaml has no num_processes, and the launch has no --num_processes: accelerate launch raises "You need to manually pass in `--num_processes` using this config yaml.".',
)
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 2\n")
def accelerate_without_processes(config: Config) -> Iterator[Finding]:
    """A launch with an Accelerate file says nowhere how many processes to start.

    `accelerate launch --config_file` takes the number from the file, or from `--num_processes`. Without either it raises "You need to
    manually pass in `--num_processes` using this config yaml."

    Add `num_processes` to the file.
    """
    file, launch = accelerate_file(config), config.setup.launch if config.setup else None
    if file is None or launch is None or launch.launcher != "accelerate" or not launch.flags.keys() >= {"config_file"}:
        return
    kind = file.top.get("distributed_type")
    if "num_processes" in file.top or "num_processes" in launch.flags or kind is None or kind.path != file.path:
        return
    yield Finding(
        "",
        f"{file.path} has no num_processes, and the launch has no --num_processes: "
        'accelerate launch raises "You need to manually pass in `--num_processes` using this config yaml.".',
        help="Add num_processes to the file: the number of GPUs on all machines.",
        elsewhere=kind.related(""),
    )


@rule(
    "DS956",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(ACCELERATE_LAUNCH,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config",),
    accelerate=ACCELERATE_HEAD + "deepspeed_config: ds_config.json\n",
    message="deepspeed_config is the text ds_config.json, and not a mapping: accelerate launch raises \"'str' object has no attribute 'keys'\".",
)
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n")
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config:\n")
def accelerate_block_not_a_mapping(config: Config) -> Iterator[Finding]:
    """`deepspeed_config` of an Accelerate file is the path of a config, and not a block of fields.

    `accelerate launch` reads the names of the fields in the block and raises `AttributeError: 'str' object has no attribute 'keys'`.

    Write the path below the block: `deepspeed_config: {deepspeed_config_file: ds_config.json}`.
    """
    file = accelerate_file(config)
    given = file.misplaced_path if file and file.is_for_deepspeed else None
    if given is not None:
        yield Finding(
            "",
            f"deepspeed_config is the text {given.raw}, and not a mapping: accelerate launch raises \"'str' object has no attribute 'keys'\".",
            help=f"Write the path below it: deepspeed_config: {{deepspeed_config_file: {given.raw}}}.",
            elsewhere=given.related(""),
        )
