"""DS9: fields of an Accelerate file that `accelerate launch` accepts and that have another effect than written."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.frameworks.accelerate import BLOCK, bare_plugin
from dslint.rule import Finding, bad, good, rule, safe
from dslint.rules.helpers.examples import ACCELERATE_HEAD, BF16_ZERO_2
from dslint.rules.helpers.loaders import (
    ACCELERATE_LAUNCH,
    RAISED_BY_LOADER,
    WITH_HOSTFILE,
    accelerate_file,
    exports_block,
    makes_plugin,
    starts_deepspeed,
)
from dslint.rules.helpers.releases import release_of
from dslint.source.change import Remove
from dslint.source.tree import Mapping

STAGE = "zero_optimization.stage"


@rule(
    "DS912",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("accelerate/utils/dataclasses.py, DeepSpeedPlugin.set_mixed_precision",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
    at="bf16.enabled",
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n",
    program="from accelerate import Accelerator\naccelerator = Accelerator()\n",
    message='bf16.enabled is "auto", and accelerate.yaml cannot set mixed_precision together with deepspeed_config_file. Accelerate fills in false, and the model trains in the data type that it is loaded in, such as fp32, unless --mixed_precision sets the precision.',
)
@good(
    BF16_ZERO_2,
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n",
    program="from accelerate import Accelerator\naccelerator = Accelerator()\n",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n",
    program="from accelerate import Accelerator\n\n\ndef main(args):\n    return Accelerator(mixed_precision=args.mixed_precision)\n",
)
def accelerate_precision_off(config: Config) -> Iterator[Finding]:
    """Accelerate fills in false for `fp16.enabled` and `bf16.enabled`, because no mixed precision is set.

    With `deepspeed_config_file` the YAML file must not set `mixed_precision`, so Accelerate uses "no" unless the program or the command
    line sets it. It then silently replaces `"enabled": "auto"` by false in both sections, and DeepSpeed does not cast the model: it trains in
    fp32, or in the data type in which the program loads it. The Hugging Face Trainer fills in its own arguments instead.

    Write true for the precision you want, or start with `accelerate launch --mixed_precision bf16`.
    """
    file = accelerate_file(config)
    if file is None or file.config_file is None or file.precision != "no" or config.facts.integration is not Integration.ACCELERATE:
        return
    program = config.setup.program if config.setup else None
    given = program.mixed_precision if program else None
    if given is not None and not given.value == "no":  # noqa: SIM201 - UNKNOWN is neither equal nor unequal
        return  # the program decides, perhaps from its own arguments
    if config.setup and any(_PRECISION in one.text for one in config.setup.documents.values()):
        return  # the program may set it
    known = program is not None and program.loader == "accelerate" and program.makes_accelerator
    trains = "in the data type that it is loaded in, such as fp32"
    outcome = f"fills in false, and the model trains {trains}" if known else f"may fill in false, and the model then trains {trains}"
    for kind in ("bf16", "fp16"):
        if config.is_auto(f"{kind}.enabled"):
            yield Finding(
                f"{kind}.enabled",
                f'{kind}.enabled is "auto", and {file.path} cannot set mixed_precision together with deepspeed_config_file. '
                f"Accelerate {outcome}, unless {'' if known else 'the program or '}--mixed_precision sets the precision.",
                help=f'To train in {kind}, write "enabled": true.',
                on="value",
                related=(file.config_file.related("this config is named here"),),
                certain=known,
                effect=None if known else Effect.ADVICE,
            )
            return


_PRECISION = "ACCELERATE_MIXED_PRECISION"
"""The variable that an `Accelerator` reads."""

_FIRST_WITH_PATH = Release(0, 20, 0)
"""The first release of Accelerate whose plugin has paths; their default is the text "none"."""

_WITHOUT_PATH = {
    "optimizer": 'TypeError "expected str, bytes or os.PathLike object, not NoneType"',
    "param": 'AssertionError ""nvme_path" in DeepSpeed Config cannot be None"',
}
"""What DeepSpeed raises for an offload to NVMe without a path."""


@rule(
    "DS913",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=(ACCELERATE_LAUNCH,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config", "offload_param_device"),
    accelerate=ACCELERATE_HEAD
    + "deepspeed_config:\n  zero_stage: 3\n  offload_param_device: nvme\n  offload_param_nvme_path: /local_nvme\n",
    message='offload_param_device is nvme, but Accelerate does not pass offload_param_nvme_path (/local_nvme) to DeepSpeed. DeepSpeed gets nvme_path "none" and, if it can, offloads into a folder of that name in the working directory.',
)
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 3\n  offload_param_device: cpu\n")
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 2\n  offload_param_device: nvme\n")
@good(
    BF16_ZERO_2,
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  zero_stage: 3\n  offload_param_device: nvme\n",
    program="from accelerate import Accelerator, DeepSpeedPlugin\n"
    "plugin = DeepSpeedPlugin(offload_param_nvme_path='/local_nvme')\naccelerator = Accelerator(deepspeed_plugin=plugin)\n",
)
def accelerate_nvme_path_lost(config: Config) -> Iterator[Finding]:
    """The Accelerate file offloads to NVMe, but Accelerate does not pass the path to DeepSpeed.

    `accelerate launch` passes its fields in environment variables, and has none for `offload_optimizer_nvme_path` and
    `offload_param_nvme_path` (checked in the releases 0.20 to 1.15). DeepSpeed gets the path "none": it creates a folder with that name in
    the working directory, or fails there. Releases before 0.20 have no path at all, and DeepSpeed raises.

    Write a DeepSpeed config with `nvme_path`, and name it in `deepspeed_config_file`.
    """
    file = accelerate_file(config)
    if file is None or file.config_file is not None or not exports_block(config):
        return
    program = config.setup.program if config.setup else None
    if (config.setup and config.setup.link is not None) or (makes_plugin(config) and not bare_plugin(program)):
        return  # another config is used, or the plugin of the program may have the path
    stage = file.flags.get("zero_stage") or file.block.get("zero_stage")
    if stage is None or str(stage.value) in ("0", "1", "2"):
        return  # DS501 and DS503 report that DeepSpeed offloads nothing to NVMe there
    for kind in ("optimizer", "param"):
        given = file.block.get(f"offload_{kind}_device")
        path = file.block.get(f"offload_{kind}_nvme_path")
        if given is None or not given.value == "nvme":  # noqa: SIM201 - false for an unknown value, too
            continue
        lost = f"{path.name} ({path.raw})" if path else "a path"
        release = release_of(config, "accelerate")
        raised = _WITHOUT_PATH[kind] if release is not None and release < _FIRST_WITH_PATH else None
        outcome = (
            f"DeepSpeed raises {raised}."
            if raised
            else 'DeepSpeed gets nvme_path "none" and, if it can, offloads into a folder of that name in the working directory.'
        )
        yield Finding(
            "",
            f"{given.name} is nvme, but Accelerate{f' {release}' if raised else ''} does not pass {lost} to DeepSpeed. {outcome}",
            help="Write a DeepSpeed config with nvme_path, and name it in deepspeed_config_file.",
            elsewhere=given.related(""),
            related=(path.related("not passed to DeepSpeed"),) if path else (),
            effect=None if raised else Effect.SILENT,
        )


@rule(
    "DS918",
    effect=Effect.ADVICE,
    pedantic=True,
    watches=("setup",),
    references=("accelerate/utils/dataclasses.py, DeepSpeedPlugin.__post_init__",),
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config", "zero3_init_flag"),
    accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero3_init_flag: true\n",
    message="zero3_init_flag is true, but the ZeRO stage is 2: Accelerate sets the flag to false, and every rank creates the whole model.",
)
@good(BF16_ZERO_2, accelerate=ACCELERATE_HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero3_init_flag: false\n")
def zero3_init_below_stage_3(config: Config) -> Iterator[Finding]:
    """`zero3_init_flag` is on, but the ZeRO stage is below 3.

    Accelerate warns "DeepSpeed Zero3 Init flag is only applicable for ZeRO Stage 3. Setting it to False." and continues: every rank creates
    the whole model.

    Remove the flag, or use stage 3.
    """
    file = accelerate_file(config)
    given = file.block.get("zero3_init_flag") if file else None
    stage = config.value(STAGE)
    if (
        given is None
        or given.value is not True
        or stage not in (0, 1, 2)
        or not isinstance(config.document.root, Mapping)
        or not exports_block(config)
    ):
        return
    yield Finding(
        "",
        f"zero3_init_flag is true, but the ZeRO stage is {stage}: Accelerate sets the flag to false, and every rank creates the whole model.",
        help="Remove it, or use stage 3.",
        elsewhere=given.related(""),
        fix=safe(f'remove "{given.name}"', Remove((BLOCK, given.name))),
        related=((STAGE, "the stage is set here"),) if config.has(STAGE) else (),
    )


_MACHINES = ACCELERATE_HEAD + "num_machines: 2\nnum_processes: 16\nmixed_precision: bf16\n"

_BY_COMMAND = ("--deepspeed_multinode_launcher", "--deepspeed_hostfile")


@rule(
    "DS987",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "accelerate/utils/launch.py, prepare_deepspeed_cmd_env",
        "deepspeed/launcher/runner.py, fetch_hostfile and main",
    ),
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at=("num_machines",),
    accelerate=f"{_MACHINES}deepspeed_config:\n  zero_stage: 2\n",
    launch="accelerate launch --config_file accelerate.yaml train.py\n",
    message="2 machines, but no deepspeed_hostfile: accelerate launch starts DeepSpeed's launcher, which finds only the GPUs of its own machine, and trains on these alone.",
)
@bad(
    BF16_ZERO_2,
    at=("deepspeed_config", "deepspeed_multinode_launcher"),
    accelerate=f"{_MACHINES}deepspeed_config:\n  zero_stage: 2\n  deepspeed_multinode_launcher: pdsh\n",
    message="2 machines, but no deepspeed_hostfile: accelerate launch starts DeepSpeed's launcher, which finds only the GPUs of its own machine, and trains on these alone.",
)
@good(
    BF16_ZERO_2,
    accelerate=f"{_MACHINES}deepspeed_config:\n  zero_stage: 2\n  deepspeed_multinode_launcher: pdsh\n  deepspeed_hostfile: hosts\n",
)
@bad(
    BF16_ZERO_2,
    at="",
    accelerate=f"{_MACHINES.replace('num_machines: 2', 'num_machines: 1')}deepspeed_config:\n  zero_stage: 2\n",
    launch="accelerate launch --config_file accelerate.yaml --num_machines 4 train.py\n",
    message="4 machines, but no deepspeed_hostfile: accelerate launch starts DeepSpeed's launcher, which finds only the GPUs of its own machine, and trains on these alone.",
)
@bad(
    BF16_ZERO_2,
    at=("num_machines",),
    accelerate=f"{_MACHINES}deepspeed_config:\n  zero_stage: 2\n",
    message="2 machines, but neither deepspeed_hostfile nor deepspeed_multinode_launcher: unless the command names one, accelerate launch starts DeepSpeed's launcher, which may find only the GPUs of its own machine, and train on these alone.",
)
@good(BF16_ZERO_2, accelerate=f"{_MACHINES}deepspeed_config:\n  zero_stage: 2\n  deepspeed_multinode_launcher: standard\n")
@bad(
    BF16_ZERO_2,
    at=("num_machines",),
    accelerate=f"{_MACHINES}deepspeed_config:\n  zero_stage: 2\n  deepspeed_multinode_launcher: nossh\n",
    launch="accelerate launch --config_file accelerate.yaml train.py\n",
    message='2 machines, but no deepspeed_hostfile: accelerate launch starts DeepSpeed\'s launcher, which finds only the GPUs of its own machine: the first machine trains alone, and the others raise AssertionError "Launching training without ssh, but --node_rank is not set correctly.".',
)
@good(
    BF16_ZERO_2,
    accelerate=f"{_MACHINES}deepspeed_config:\n  zero_stage: 2\n",
    launch="accelerate launch --config_file accelerate.yaml --num_machines $NODES train.py\n",
)
@good(
    BF16_ZERO_2,
    accelerate=f"{_MACHINES}deepspeed_config:\n  zero_stage: 2\n  deepspeed_multinode_launcher: standard\n",
    launch="accelerate launch --config_file accelerate.yaml train.py\n",
)
@good(
    BF16_ZERO_2,
    accelerate=f"{_MACHINES}deepspeed_config:\n  zero_stage: 2\n  deepspeed_hostfile: hosts\n",
    launch="accelerate launch --config_file accelerate.yaml train.py\n",
)
@good(
    BF16_ZERO_2,
    accelerate=f"{_MACHINES}deepspeed_config:\n  zero_stage: 2\n",
    launch="accelerate launch --config_file accelerate.yaml --deepspeed_multinode_launcher standard train.py\n",
)
def machines_without_hostfile(config: Config) -> Iterator[Finding]:
    """The Accelerate file is for several machines, and gives DeepSpeed's launcher no hostfile.

    On several machines `accelerate launch` starts the `deepspeed` launcher, with `--launcher pdsh` by default. Without `deepspeed_hostfile` that finds
    no other machine: it warns "Unable to find hostfile, will proceed with training with local resources only", and each machine
    on which it is started trains a model of its own with its own GPUs. Where no launch of the file is known, its command may still name a launcher or a hostfile.

    Set `deepspeed_multinode_launcher: standard`, which starts each machine as torchrun does, or name a `deepspeed_hostfile`.
    """
    file, launch = accelerate_file(config), config.setup.launch if config.setup else None
    if (
        file is None
        or file.is_for_sagemaker
        or not file.is_for_deepspeed
        or not starts_deepspeed(config)
        or (launch is not None and launch.launcher != "accelerate")
    ):
        return
    by_flag = launch.flags.get("num_machines") if launch is not None else None
    machines = file.number("num_machines") if launch is None or by_flag is None else launch.nodes
    given = {**file.block, **(launch.flags if launch is not None else {})}
    launcher, hostfile = given.get("deepspeed_multinode_launcher"), given.get("deepspeed_hostfile")
    is_standard = launcher is not None and launcher.value not in (*WITH_HOSTFILE, None)
    if machines is None or machines < 2 or is_standard or (hostfile is not None and hostfile.value is not None):
        return
    if launch is not None and launch.may_hold_more:
        return
    if launch is None and (launcher is None or launcher.value not in WITH_HOSTFILE):
        documents = config.setup.documents.values() if config.setup is not None else ()
        if launcher is None and not any(name in one.text for one in documents for name in _BY_COMMAND):
            yield Finding(
                "",
                f"{machines} machines, but neither deepspeed_hostfile nor deepspeed_multinode_launcher: unless the command names one, accelerate "
                "launch starts DeepSpeed's launcher, which may find only the GPUs of its own machine, and train on these alone.",
                help="Set deepspeed_multinode_launcher: standard, and start the command on each machine.",
                elsewhere=file.top["num_machines"].related(""),
                certain=False,
            )
        return
    alone = (
        ': the first machine trains alone, and the others raise AssertionError "Launching training without ssh, but --node_rank is not set correctly."'
        if launcher is not None and launcher.value == "nossh"
        else ", and trains on these alone"
    )
    yield Finding(
        "",
        f"{machines} machines, but no deepspeed_hostfile: accelerate launch starts DeepSpeed's launcher, which finds only the GPUs of its own "
        f"machine{alone}.",
        help="Set deepspeed_multinode_launcher: standard, and start the command on each machine.",
        elsewhere=(by_flag or (file.top["num_machines"] if launch is not None or launcher is None else launcher)).related(""),
        certain=launch is not None,  # its flags may name a hostfile
    )
