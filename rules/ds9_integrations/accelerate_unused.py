"""DS9: a config for DeepSpeed with which Accelerate starts another training."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.job.arguments import SourcedValue
from dslint.job.events import TRAINER_ARGUMENTS
from dslint.rule import Finding, bad, good, rule, unsafe
from dslint.rules.helpers.examples import ACCELERATE_HEAD, BF16_ZERO_2
from dslint.rules.helpers.loaders import ACCELERATE_LAUNCH, accelerate_file, overriding_flag, selects_deepspeed
from dslint.rules.helpers.models import knows_arguments, parses_while_loading
from dslint.rules.helpers.project import programs_of, project_around
from dslint.source.change import Set

_OWN_FLAG = (
    "import accelerate\nimport argparse\nparser = argparse.ArgumentParser()\n"
    'parser.add_argument("--local_rank", type=int)\nparser.add_argument("--deepspeed_config")\nargs = parser.parse_args()\n'
    "accelerator = %s\nmodel = accelerator.prepare(model)\n"
)

_OF_TRAINER = "import transformers\ntransformers.Trainer(model, %s).train()\n"


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
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed --num_gpus 8 train.py --deepspeed ds_config.json\n",
    program=_OF_TRAINER % "transformers.TrainingArguments('out')",
    message="The program makes the arguments of its Trainer itself, and does not read --deepspeed: the training runs without DeepSpeed.",
)
@good(
    BF16_ZERO_2,
    launch="deepspeed --num_gpus 8 train.py --output_dir out --deepspeed ds_config.json\n",
    program=_OF_TRAINER % "transformers.HfArgumentParser(transformers.TrainingArguments).parse_args_into_dataclasses()[0]",
    integration="transformers",
)
@good(
    BF16_ZERO_2,
    launch="deepspeed --num_gpus 8 train.py\n",
    program=_OF_TRAINER % "transformers.TrainingArguments('out', deepspeed='ds_config.json')",
    integration="transformers",
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

    The Trainer uses DeepSpeed if `TrainingArguments` get a config as `deepspeed`. The launcher `deepspeed` only starts the ranks: without a
    config the Trainer wraps the model in DDP. A program that makes its `TrainingArguments` itself does not read `--deepspeed`.

    Write `distributed_type: DEEPSPEED`, or remove the block. Remove the flag. Start the program with `accelerate launch`.
    """
    yield from _trainer_without_config(config)
    unread = config.setup.unread if config.setup else None
    if unread is not None and config.setup and config.setup.program and config.setup.program.loader == Integration.TRANSFORMERS:
        return
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
    if file.is_for_sagemaker:
        return  # DS915 reports it
    if kind.value == "DEEPSPEED":
        yield from _overridden(config, kind)
        return
    if selects_deepspeed(config):
        return
    outcome, certain = _outcome(config)
    yield Finding(
        "",
        f"distributed_type is {kind.raw}, so Accelerate ignores deepspeed_config: {outcome}.",
        help="Write distributed_type: DEEPSPEED, or remove deepspeed_config.",
        elsewhere=kind.related(""),
        fix=unsafe("write DEEPSPEED", Set(("distributed_type",), '"DEEPSPEED"')),
        certain=certain,
    )


def _outcome(config: Config) -> tuple[str, bool]:
    """What follows where Accelerate ignores the block of its file, and whether it is certain: a program that makes a plugin itself uses
    DeepSpeed all the same.
    """
    project = project_around(config)
    texts = [*programs_of(config), *(map(project.text, project.programs) if project is not None else ())]
    if any("DeepSpeedPlugin(" in text for text in texts):
        return "unless the program makes a DeepSpeedPlugin, the training runs without DeepSpeed", False
    return "the training runs without DeepSpeed", True


def _trainer_without_config(config: Config) -> Iterator[Finding]:
    """The finding for a program of the Trainer whose arguments get no config."""
    setup = config.setup
    program = setup.program if setup else None
    if setup is None or program is None or program.loader != Integration.TRANSFORMERS:
        return
    made = next(program.events.of(TRAINER_ARGUMENTS), None)
    in_program = (
        f'Pass the config to {made.called} ({made.at.where}): deepspeed="ds_config.json".' if made is not None and made.complete else ""
    )
    if setup.unread is not None:
        yield Finding(
            "",
            f"The program makes the arguments of its Trainer itself, and does not read {setup.unread.name}: the training runs without DeepSpeed.",
            help=in_program,
            elsewhere=setup.unread.related(""),
        )
    elif setup.unconfigured is not None:
        yield Finding(
            "",
            f"The launcher of DeepSpeed starts {setup.unconfigured.raw}, but neither the command nor the program names a DeepSpeed config: "
            "the Trainer trains without DeepSpeed, and each GPU holds the whole model with its gradients and optimizer states.",
            help=in_program or "Add --deepspeed ds_config.json to the arguments of the program.",
            effect=Effect.MEMORY,
            elsewhere=setup.unconfigured.related(""),
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
    if is_accelerate and "cpu" in launch.flags and not selects_deepspeed(config):
        return launch.flags["cpu"]
    variable = launch.variables.get(_ON_CPU)
    if variable is None or str(variable.value).lower() not in _TRUE or (is_accelerate and launch.bare is not None):
        return None
    return None if parses_while_loading(config) and knows_arguments(config) else variable


_ON_CPU = "ACCELERATE_USE_CPU"
_TRUE = ("y", "yes", "t", "true", "on", "1")
"""Source: accelerate/utils/environment.py, str_to_bool."""


def _overridden(config: Config, kind: SourcedValue) -> Iterator[Finding]:
    """The finding for a flag that overrides `distributed_type: DEEPSPEED`, unless the arguments of the Trainer select DeepSpeed themselves."""
    flag = overriding_flag(config)
    if flag is None:
        return
    outcome, certain = _outcome(config)
    yield Finding(
        "",
        f"{flag.name} overrides distributed_type (DEEPSPEED), so Accelerate ignores deepspeed_config: {outcome}.",
        help=f"Remove {flag.name}.",
        elsewhere=flag.related(""),
        related=(kind.related("is overridden"),),
        certain=certain,
    )
