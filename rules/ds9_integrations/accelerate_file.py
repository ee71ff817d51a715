"""DS9, continued: the YAML file of Accelerate, and the config that it leads to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase, Related, Severity
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule, safe, unsafe
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.setup.accelerate import BLOCK, BLOCK_KEYS, CLASHING, MODES, TOP_KEYS, AccelerateFile
from dslint.source.change import Remove, Rename, Set
from dslint.source.tree import Mapping

DOCS = "https://huggingface.co/docs/accelerate/usage_guides/deepspeed"
LAUNCH = "accelerate/commands/launch.py and accelerate/utils/launch.py"

CONFIG = (
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
)
HEAD = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n"


def _file(config: Config) -> AccelerateFile | None:
    return config.setup.accelerate if config.setup else None


def _listed(names: list[str]) -> str:
    return str(names)


@rule(
    "DS911",
    "accelerate-fields-clash",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(DOCS, LAUNCH),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    CONFIG,
    at=("deepspeed_config", "zero_stage"),
    accelerate=HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero_stage: 2\n",
)
@bad(
    CONFIG, at=("mixed_precision",), accelerate=HEAD + "mixed_precision: bf16\ndeepspeed_config:\n  deepspeed_config_file: ds_config.json\n"
)
@good(CONFIG, accelerate=HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero3_init_flag: false\n")
def accelerate_fields_clash(config: Config) -> Iterator[Finding]:
    """Fields stand beside `deepspeed_config_file` that Accelerate wants in the DeepSpeed config alone.

    `accelerate launch` sets the fields in the environment, and the plugin raises ``ValueError: When using `deepspeed_config_file`, the following accelerate config variables
    will be ignored`` for any of nine: accumulation, clipping, ZeRO stage, offload devices and paths, `zero3_save_16bit_model`, and `mixed_precision`, which counts even as "no".

    Take them out of the YAML, and write what they say in the DeepSpeed config. For mixed precision `--mixed_precision bf16` on the command line is allowed.
    """
    file = _file(config)
    if file is None or file.config_file is None or (config.setup and config.setup.passed_over):
        return
    clashing = [given for name in CLASHING if (given := file.get(name)) and given.value is not None]
    if not clashing:
        return
    first, *others = clashing
    names = ", ".join(given.name for given in clashing)
    yield Finding(
        "",
        f'{names} {"stands" if not others else "stand"} beside deepspeed_config_file: Accelerate raises "When using `deepspeed_config_file`, the following accelerate config variables will be ignored: {_listed(list(CLASHING))}".',
        help=f"Take {'it' if not others else 'them'} out of this file, and say it in {file.config_file.value}."
        + (
            " mixed_precision may be given on the command line: accelerate launch --mixed_precision ..."
            if "mixed_precision" in names
            else ""
        ),
        elsewhere=first.related(""),
        related=(file.config_file.related("names a DeepSpeed config"), *(given.related("clashes too") for given in others)),
    )


@rule(
    "DS912",
    "accelerate-precision-off",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("accelerate/utils/dataclasses.py, DeepSpeedPlugin.set_mixed_precision",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
    at="bf16.enabled",
    accelerate=HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n",
    program="from accelerate import Accelerator\naccelerator = Accelerator()\n",
)
@good(
    CONFIG,
    accelerate=HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n",
    program="from accelerate import Accelerator\naccelerator = Accelerator()\n",
)
def accelerate_precision_off(config: Config) -> Iterator[Finding]:
    """Accelerate fills fp16 and bf16 from a mixed precision that nobody gave: both become false.

    With `deepspeed_config_file` the YAML must not have `mixed_precision`, so that Accelerate has "no" for it unless the program or the command line says otherwise. It then
    replaces `"enabled": "auto"` by false in both sections, and the training runs in fp32, without a word. The Hugging Face Trainer fills them from its own arguments instead.

    Write true for the precision that is meant, or start with `accelerate launch --mixed_precision bf16`.
    """
    file = _file(config)
    if file is None or file.config_file is None or file.precision != "no" or config.facts.integration is not Integration.ACCELERATE:
        return
    program = config.setup.program if config.setup else None
    for kind in ("bf16", "fp16"):
        if config.has(f"{kind}.enabled") and config.quote(f"{kind}.enabled") == '"auto"':
            yield Finding(
                f"{kind}.enabled",
                f'{kind}.enabled is "auto", and {file.path} can give no mixed_precision beside deepspeed_config_file: Accelerate fills in false, and trains in fp32 unless the program or --mixed_precision says otherwise.',
                help=f'Write "enabled": true in {kind}, if {kind} is meant.',
                on="value",
                related=(file.config_file.related("names this config"),),
                severity=None if program is not None and program.loader == "accelerate" else Severity.INFO,
            )
            return


@rule(
    "DS913",
    "accelerate-nvme-path-lost",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=(LAUNCH,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    CONFIG,
    at=("deepspeed_config", "offload_param_device"),
    accelerate=HEAD + "deepspeed_config:\n  zero_stage: 3\n  offload_param_device: nvme\n  offload_param_nvme_path: /local_nvme\n",
)
@good(CONFIG, accelerate=HEAD + "deepspeed_config:\n  zero_stage: 3\n  offload_param_device: cpu\n")
def accelerate_nvme_path_lost(config: Config) -> Iterator[Finding]:
    """Offload to NVMe is asked for in Accelerate's YAML, which never hands the path on.

    `accelerate launch` passes its fields on in the environment, and has no variable for `offload_optimizer_nvme_path` and `offload_param_nvme_path`, in no release that was read
    (0.20 to 1.15). DeepSpeed gets the path "none": it makes a folder of that name in the working directory, or fails there.

    Write a DeepSpeed config with `nvme_path`, and name it with `deepspeed_config_file`.
    """
    file = _file(config)
    for kind in ("optimizer", "param") if file is not None and file.config_file is None else ():
        assert file is not None
        given = file.block.get(f"offload_{kind}_device")
        path = file.block.get(f"offload_{kind}_nvme_path")
        if given is None or given.value != "nvme":
            continue
        lost = f"{path.name} ({path.raw})" if path else "a path"
        yield Finding(
            "",
            f'{given.name} is nvme, but Accelerate never hands {lost} on: DeepSpeed gets nvme_path "none", and offloads into a folder of that name in the working directory, if it can.',
            help="Write a DeepSpeed config with nvme_path, and name it with deepspeed_config_file.",
            elsewhere=given.related(""),
            related=(path.related("not handed on"),) if path else (),
            effect=Effect.SILENT,
        )


@rule(
    "DS914",
    "accelerate-mixed-precision",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(LAUNCH,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(CONFIG, at=("mixed_precision",), accelerate=HEAD + "mixed_precision: no\ndeepspeed_config:\n  zero_stage: 2\n")
@bad(CONFIG, at=("mixed_precision",), accelerate=HEAD + "mixed_precision: bfloat16\ndeepspeed_config:\n  zero_stage: 2\n")
@good(CONFIG, accelerate=HEAD + "mixed_precision: 'no'\ndeepspeed_config:\n  zero_stage: 2\n")
def accelerate_mixed_precision(config: Config) -> Iterator[Finding]:
    """`mixed_precision` is none of "no", "fp16", "bf16" and "fp8"; `no` without quotes is the boolean false in YAML.

    Accelerate raises `AttributeError: 'bool' object has no attribute 'lower'` for the one, and `ValueError: Unknown mixed_precision mode` for the others.

    Write 'no' in quotes, or the precision.
    """
    file = _file(config)
    given = file.top.get("mixed_precision") if file else None
    if (
        given is None
        or given.value in (*MODES, None)
        or given.value is UNKNOWN
        or (isinstance(given.value, str) and given.value.lower() in MODES)
    ):
        return
    if isinstance(given.value, bool):
        said = f"{given.raw} without quotes is the boolean {str(given.value).lower()} in YAML: accelerate launch raises \"'bool' object has no attribute 'lower'\"."
        advice = "Write 'no', in quotes." if given.value is False else f"Write one of {', '.join(MODES)}."
    else:
        said = f"mixed_precision is {given.raw}: Accelerate raises \"Unknown mixed_precision mode: {given.value}. Choose between ['no', 'fp8', 'fp16', 'bf16']\"."
        advice = f"Write one of {', '.join(MODES)}."
    quoted = safe("write 'no' in quotes", Set(("mixed_precision",), '"no"')) if given.value is False else None
    yield Finding("", said, help=advice, elsewhere=given.related(""), fix=quoted)


@rule("DS915", "accelerate-unknown-key", effect=Effect.IGNORED, watches=("setup",), references=(LAUNCH,), setup=True)
@bad(CONFIG, at=("deepspeed_config", "zero_stagee"), accelerate=HEAD + "deepspeed_config:\n  zero_stagee: 3\n")
@bad(CONFIG, at=("num_procesess",), accelerate=HEAD + "num_procesess: 3\ndeepspeed_config:\n  zero_stage: 3\n")
@good(CONFIG, accelerate=HEAD + "deepspeed_config:\n  zero_stage: 3\n")
def accelerate_unknown_key(config: Config) -> Iterator[Finding]:
    """A key that Accelerate does not know, in its YAML file.

    Inside `deepspeed_config` it is ignored without a word, so that a misspelt `zero_stage` trains with stage 2. At the top `accelerate launch` raises `ValueError: The config
    file at ... had unknown keys`.

    Correct the spelling, or take the key out. Keys of DeepSpeed's own belong in a file of their own, named by `deepspeed_config_file`.
    """
    file = _file(config)
    if file is None:
        return
    for given in file.block.values():
        if given.name not in BLOCK_KEYS:
            meant = _meant(given.name, BLOCK_KEYS)
            yield Finding(
                "",
                f'"{given.name}" is no key of the block deepspeed_config: Accelerate ignores it without a word{_default(meant)}.',
                help=f'Write "{meant}".'
                if meant
                else "Take it out; what only DeepSpeed knows belongs in a file that deepspeed_config_file names.",
                elsewhere=given.related(""),
                fix=unsafe(f'write "{meant}"', Rename((BLOCK, given.name), meant)) if meant and meant not in file.block else None,
            )
    for given in file.top.values():
        if given.name not in TOP_KEYS:
            meant = _meant(given.name, TOP_KEYS)
            yield Finding(
                "",
                f'"{given.name}" is no key of an Accelerate config: accelerate launch raises "The config file at {file.path} had unknown keys ([\'{given.name}\'])".',
                help=f'Write "{meant}".' if meant else "Take it out, or upgrade Accelerate if a newer release has it.",
                elsewhere=given.related(""),
                fix=safe(f'write "{meant}"', Rename((given.name,), meant)) if meant and meant not in file.top else None,
                effect=Effect.CRASH,
                phase=Phase.LOAD,
            )


def _default(meant: str | None) -> str:
    return " and uses ZeRO stage 2" if meant == "zero_stage" else ""


def _meant(name: str, known: Any) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.75)), None)


_NUMBERS = {"zero_stage": int, "gradient_clipping": float}
"""The fields that Accelerate reads back from the environment as numbers, and how."""

STEPS = "gradient_accumulation_steps"


@rule(
    "DS916",
    "accelerate-no-number",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(LAUNCH,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(CONFIG, at=("deepspeed_config", "zero_stage"), accelerate=HEAD + "deepspeed_config:\n  zero_stage: three\n")
@bad(
    CONFIG,
    at=("deepspeed_config", "gradient_accumulation_steps"),
    accelerate=HEAD + "deepspeed_config:\n  gradient_accumulation_steps: 1.5\n",
)
@good(CONFIG, accelerate=HEAD + "deepspeed_config:\n  zero_stage: '3'\n  gradient_clipping: auto\n  offload_optimizer_device: none\n")
def accelerate_no_number(config: Config) -> Iterator[Finding]:
    """A field of the block `deepspeed_config` that is no number, where Accelerate reads one.

    `accelerate launch` puts the fields into the environment, and every rank reads them back: stage and clipping with `int()` and `float()`, which raise `ValueError: invalid
    literal`; the accumulation only if it is of digits alone, and hands DeepSpeed the text otherwise.

    Write a number; "auto" is allowed for accumulation and clipping.
    """
    file = _file(config)
    for name, number in _NUMBERS.items() if file and file.config_file is None else ():
        given = file.block.get(name) if file else None
        value = given.value if given else None
        if given is None or value is None or value is UNKNOWN or (value in ("auto", "none", "None") and name != "zero_stage"):
            continue
        try:
            number(str(value))
        except ValueError as error:
            kind = "0, 1, 2 or 3" if number is int else "a number"
            also = "" if name == "zero_stage" else ', or "auto"'
            yield Finding(
                "",
                f'{name} is {given.raw}: every rank reads it with {number.__name__}() and raises "{error}".',
                help=f"Write {kind}{also}.",
                elsewhere=given.related(""),
            )
    given = file.block.get(STEPS) if file and file.config_file is None else None
    if given is None or given.value in (None, "auto", UNKNOWN) or str(given.value).isdigit():
        return
    yield Finding(
        "",
        f"{STEPS} is {given.raw}: Accelerate takes digits alone for a number and hands DeepSpeed the text \"{given.value}\", which raises \"'>' not supported between instances of 'str' and 'int'\".",
        help='Write a whole number, or "auto".',
        elsewhere=given.related(""),
        phase=Phase.PARSE,
    )


@rule(
    "DS917",
    "processes-do-not-divide",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("accelerate/utils/launch.py, prepare_deepspeed_cmd_env",),
    setup=True,
)
@bad(
    CONFIG,
    at=("num_processes",),
    accelerate="compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 9\ndeepspeed_config:\n  zero_stage: 2\n",
)
@good(
    CONFIG,
    accelerate="compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 16\ndeepspeed_config:\n  zero_stage: 2\n",
)
def processes_do_not_divide(config: Config) -> Iterator[Finding]:
    """`num_processes` is no multiple of `num_machines`, and some processes are never started.

    `num_processes` counts the processes of all machines. Accelerate starts `num_processes // num_machines` of them on each: with 9 on 2 machines 4 on each, 8 in all. The batch
    is then smaller than was meant, and a written `train_batch_size` no longer multiplies out.

    Write the number of all processes, a multiple of the machines.
    """
    file = _file(config)
    processes, machines = (file.number("num_processes"), file.number("num_machines")) if file else (None, None)
    if file is None or processes is None or machines is None or processes % machines == 0:
        return
    each = processes // machines
    yield Finding(
        "",
        f"num_processes {processes} is no multiple of num_machines {machines}: Accelerate starts {each} on each machine, {each * machines} in all.",
        help=f"Write a multiple of {machines}, such as {max(1, round(processes / machines)) * machines}: num_processes counts those of all machines.",
        elsewhere=file.top["num_processes"].related(""),
        related=(file.top["num_machines"].related("so many machines"),),
    )


@rule(
    "DS918",
    "zero3-init-below-stage-3",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=("accelerate/utils/dataclasses.py, DeepSpeedPlugin.__post_init__",),
    setup=True,
)
@bad(
    CONFIG,
    at=("deepspeed_config", "zero3_init_flag"),
    accelerate=HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero3_init_flag: true\n",
)
@good(CONFIG, accelerate=HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero3_init_flag: false\n")
def zero3_init_below_stage_3(config: Config) -> Iterator[Finding]:
    """`zero3_init_flag` is on where the ZeRO stage is not 3.

    Accelerate warns "DeepSpeed Zero3 Init flag is only applicable for ZeRO Stage 3. Setting it to False." and goes on: the model is made whole on every rank.

    Take the flag out, or raise the stage to 3.
    """
    file = _file(config)
    given = file.block.get("zero3_init_flag") if file else None
    stage = config.value("zero_optimization.stage")
    if given is None or given.value is not True or stage not in (0, 1, 2) or not isinstance(config.document.root, Mapping):
        return
    yield Finding(
        "",
        f"zero3_init_flag is true, but the ZeRO stage is {stage}: Accelerate sets the flag to false, and every rank makes the whole model.",
        help="Take it out, or write stage 3.",
        elsewhere=given.related(""),
        fix=safe(f"remove {given.name}", Remove((BLOCK, given.name))),
        related=_stage_place(config),
    )


def _stage_place(config: Config) -> tuple[Related, ...] | tuple[tuple[str, str], ...]:
    return (("zero_optimization.stage", "the stage"),) if config.has("zero_optimization.stage") else ()
