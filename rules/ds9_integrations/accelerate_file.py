"""DS9: fields of an Accelerate file that Accelerate refuses or cannot read."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.evaluate.placeholders import is_blank
from dslint.facts import Integration, Release
from dslint.frameworks.accelerate import CLASHING
from dslint.job.model import PRECISIONS
from dslint.rule import Finding, bad, good, rule, safe
from dslint.rules.helpers.examples import ACCELERATE_HEAD, BF16_ZERO_2
from dslint.rules.helpers.loaders import (
    ACCELERATE_LAUNCH,
    RAISED_BY_LOADER,
    accelerate_file,
    exports_block,
    refuses_fields_beside_config,
)
from dslint.source.change import Set

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
@good(
    BF16_ZERO_2,
    accelerate=ACCELERATE_HEAD + "mixed_precision: bf16\ndeepspeed_config:\n  deepspeed_config_file: ds_config.json\n",
    pins={"accelerate": Release(0, 15, 0)},
)
def accelerate_fields_clash(config: Config) -> Iterator[Finding]:
    """The Accelerate file sets fields that Accelerate refuses together with `deepspeed_config_file`.

    `accelerate launch` tells the ranks which fields its file has, and the plugin raises ``ValueError: When using `deepspeed_config_file`,
    the following accelerate config variables will be ignored`` if any of nine is set: gradient accumulation, gradient clipping, ZeRO stage,
    offload devices and NVMe paths, `zero3_save_16bit_model`, and `mixed_precision`, even with the value "no".

    A program that calls `deepspeed.initialize` itself, and makes no `Accelerator`, makes no plugin, and reads only the config.

    Remove them from the YAML file and set the same values in the DeepSpeed config. `--mixed_precision bf16` on the command line is allowed.
    """
    file = accelerate_file(config)
    if file is None or file.config_file is None or (config.setup and config.setup.passed_over) or not exports_block(config):
        return
    # With the flag for the precision, the launcher does not look for it in the file.
    names = [name for name in CLASHING if name != "mixed_precision" or file.precision_flag is None]
    clashing = [given for name in names if (given := file.get(name)) and given.value is not None]
    if not clashing or not refuses_fields_beside_config(config):
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
    message="Without quotes, no is the boolean false in YAML: accelerate launch raises \"'bool' object has no attribute 'lower'\", except in the releases 0.19 to 0.33, which read it as 'no'.",
)
@good(
    BF16_ZERO_2,
    accelerate=ACCELERATE_HEAD + "mixed_precision: no\ndeepspeed_config:\n  zero_stage: 2\n",
    pins={"accelerate": Release(0, 27, 2)},
)
@bad(
    BF16_ZERO_2,
    at=("mixed_precision",),
    accelerate=ACCELERATE_HEAD + "mixed_precision: bfloat16\ndeepspeed_config:\n  zero_stage: 2\n",
    message="mixed_precision is bfloat16: Accelerate raises \"Unknown mixed_precision mode: bfloat16. Choose between ['no', 'fp8', 'fp16', 'bf16']\".",
)
@bad(
    BF16_ZERO_2,
    at=("mixed_precision",),
    accelerate=ACCELERATE_HEAD + "mixed_precision: FP32\ndeepspeed_config:\n  zero_stage: 2\n",
    message="mixed_precision is FP32: Accelerate raises \"Unknown mixed_precision mode: fp32. Choose between ['no', 'fp8', 'fp16', 'bf16']\".",
)
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "mixed_precision: PRECISION\ndeepspeed_config:\n  zero_stage: STAGE\n")
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "mixed_precision: 'no'\ndeepspeed_config:\n  zero_stage: 2\n")
def accelerate_mixed_precision(config: Config) -> Iterator[Finding]:
    """`mixed_precision` is not "no", "fp16", "bf16" or "fp8". Without quotes, YAML reads `no` as false.

    For a boolean Accelerate raises `AttributeError: 'bool' object has no attribute 'lower'`, for any other text
    `ValueError: Unknown mixed_precision mode`. Its releases 0.19 to 0.33 read false as "no".

    Write 'no' in quotes, or one of the other three words.
    """
    file = accelerate_file(config)
    given = file.top.get("mixed_precision") if file else None
    if file is None or given is None or given.value is None or given.value is UNKNOWN or file.precision_flag is not None:
        return  # a flag of the launch wins over the file
    if is_blank(given.value):
        return
    if isinstance(given.value, str) and given.value.lower() in PRECISIONS:
        return
    advice = f"Write one of {', '.join(PRECISIONS)}."
    fix = None
    release = config.context.pinned("accelerate")
    if not isinstance(given.value, str):
        kind = type(given.value).__name__
        is_read = given.value is False and (release is None or _FALSE_IS_NO[0] <= release < _FALSE_IS_NO[1])
        if is_read and release is not None:
            return
        told = (
            f"Without quotes, {given.raw} is the boolean {str(given.value).lower()} in YAML"
            if kind == "bool"
            else f"{given.shown} is not a text"
        )
        unless = ", except in the releases 0.19 to 0.33, which read it as 'no'" if is_read else ""
        message = f"{told}: accelerate launch raises \"'{kind}' object has no attribute 'lower'\"{unless}."
        if given.value is False:
            advice = "Write 'no', in quotes."
            fix = safe("write 'no' in quotes", Set(("mixed_precision",), '"no"'))
    else:
        message = (
            f'mixed_precision is {given.raw}: Accelerate raises "Unknown mixed_precision mode: {given.value.lower()}. '
            "Choose between ['no', 'fp8', 'fp16', 'bf16']\"."
        )
    yield Finding("", message, help=advice, elsewhere=given.related(""), fix=fix)


_FALSE_IS_NO = (Release(0, 19, 0), Release(0, 34, 0))
"""The releases that read false as "no": from the first on, before the second. Source: accelerate/commands/config/config_args.py."""

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
    if file is None or file.config_file is not None or not exports_block(config):
        return
    for name, convert in _NUMBERS.items():
        given = file.block.get(name)
        value = given.value if given and name not in file.flags and not is_blank(given.value) else None
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
    if _STEPS in file.flags or (given is not None and is_blank(given.value)):
        return
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
@bad(
    BF16_ZERO_2,
    at=("distributed_type",),
    accelerate="compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n",
    launch="accelerate launch --config_file accelerate.yaml --num_processes 8 train.py\n",
    pins={"accelerate": Release(0, 27, 2)},
    message="accelerate.yaml has no num_processes: accelerate launch raises TypeError \"__init__() missing 1 required positional argument: 'num_processes'\".",
)
@good(
    BF16_ZERO_2,
    accelerate="compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n",
    launch="accelerate launch --config_file accelerate.yaml $FLAGS train.py\n",
)
@good(
    BF16_ZERO_2,
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 2\n",
    launch="accelerate launch --config_file accelerate.yaml --num_processes 2 train.py\n",
    pins={"accelerate": Release(0, 27, 2)},
)
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 2\n")
def accelerate_without_processes(config: Config) -> Iterator[Finding]:
    """A launch with an Accelerate file says nowhere how many processes to start.

    `accelerate launch --config_file` takes the number from the file, or from `--num_processes`. Without either it raises "You need to
    manually pass in `--num_processes` using this config yaml." Before 0.34 Accelerate requires it in the file, and raises TypeError without it.

    Add `num_processes` to the file.
    """
    file, launch = accelerate_file(config), config.setup.launch if config.setup else None
    if (
        file is None
        or file.is_for_sagemaker
        or launch is None
        or launch.launcher != "accelerate"
        or not launch.flags.keys() >= {"config_file"}
    ):
        return
    kind = file.top.get("distributed_type")
    release = config.context.pinned("accelerate")
    is_required = release is not None and release < _OPTIONAL_PROCESSES
    document = config.setup.documents.get(file.path) if config.setup else None
    written = document.lookup(("num_processes",)) if document is not None else None  # a flag takes the place of the key
    if "num_processes" in file.top or written is not None or kind is None or kind.path != file.path:
        return
    if not is_required and ("num_processes" in launch.flags or launch.may_hold_more or "num_processes" in file.block):
        return
    yield Finding(
        "",
        f"{file.path} has no num_processes: accelerate launch raises TypeError "
        "\"__init__() missing 1 required positional argument: 'num_processes'\"."
        if is_required
        else f"{file.path} has no num_processes, and the launch has no --num_processes: "
        'accelerate launch raises "You need to manually pass in `--num_processes` using this config yaml.".',
        help="Add num_processes to the file: the number of GPUs on all machines.",
        elsewhere=kind.related(""),
    )


_OPTIONAL_PROCESSES = Release(0, 34, 0)
"""The first release whose file may leave the number of processes to the flag."""


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
