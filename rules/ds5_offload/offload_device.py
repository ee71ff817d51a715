"""DS5: the device of offload, and the ZeRO stages at which it is used."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Integration
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.host_offload import exceeds_host
from dslint.rules.helpers.offload import CPU_OPTIMIZERS, OFFLOAD_DOCS, OFFLOAD_OPTIMIZER, OFFLOAD_PARAM, offload_to_cpu, offloads_optimizer
from dslint.rules.helpers.precision import uses_bf16_optimizer
from dslint.rules.helpers.project import project_around
from dslint.rules.helpers.zero import STAGE, ZERO_INIT, excludes_stage_3, related_stage

ENGINE = "deepspeed/runtime/engine.py, DeepSpeedEngine"
NO_OFFLOAD = (None, "none")
LOWEST_STAGE = ((OFFLOAD_OPTIMIZER, 1), (OFFLOAD_PARAM, 3))
"""The offload sections with the lowest ZeRO stage at which each works."""


_PARTITIONS = (
    "import argparse\nimport deepspeed\nimport torch\nparser = argparse.ArgumentParser()\nparser.add_argument('--enable_zero3', action='store_true')\n"
    "args = parser.parse_args()\nif %s:\n    with deepspeed.zero.Init(config_dict_or_path='ds_config.json'):\n        model = torch.nn.Linear(8, 8)\n"
    "else:\n    model = torch.nn.Linear(8, 8)\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
)


def _calls_zero_init(config: Config) -> bool:
    """Whether the program may build the model in `zero.Init`, which reads `offload_param` at any stage."""
    program = config.setup.program if config.setup else None
    return program is not None and next(program.events.of(ZERO_INIT), None) is not None


def _name(section: str) -> str:
    return section.partition(".")[2]


@rule(
    "DS501",
    effect=Effect.IGNORED,
    watches=("zero_optimization.offload_param",),
    references=(OFFLOAD_DOCS, f"{ENGINE}._configure_zero_optimizer"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}',
    at="zero_optimization.offload_param",
    message='offload_param to "cpu" does nothing at ZeRO stage 2: the parameters stay on the GPU.',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/local"}}}',
    at="zero_optimization.offload_param",
    message='offload_param to "nvme" does nothing at ZeRO stage 0, the default: the parameters stay on the GPU.',
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}')
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_param": {"device": "none"}}}')
@good(
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": "auto", "offload_param": {"device": "cpu"}}}',
    program='from accelerate import Accelerator, DeepSpeedPlugin\nAccelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds_config.json", zero_stage=3))\n',
    integration="accelerate",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}',
    program=_PARTITIONS % "args.enable_zero3",
    integration="deepspeed",
)
def offload_param_below_stage_3(config: Config) -> Iterator[Finding]:
    """Parameter offload works only at ZeRO stage 3. Below it the parameters stay on the GPU.

    Stages 1 and 2 keep a whole copy of the parameters on every rank, and their optimizer does not read `offload_param`. DeepSpeed prints neither an error nor
    a warning, and uses all the memory that offload should save.

    Set `"stage": 3` to offload parameters, or remove the section. To save memory at stages 1 and 2, use `offload_optimizer`: it moves the optimizer states
    and the fp32 master weights to the host.
    """
    stage, device = config.value(STAGE), config.value(f"{OFFLOAD_PARAM}.device")
    if not (stage < 3 and isinstance(device, str)) or device in NO_OFFLOAD or _calls_zero_init(config):
        return
    stage_written = config.has(STAGE)
    yield Finding(
        OFFLOAD_PARAM,
        f'offload_param to "{device}" does nothing at ZeRO stage {stage}{"" if stage_written else ", the default"}: the parameters stay on the GPU.',
        help="Remove it. To save memory at stages 1 and 2, use offload_optimizer."
        if excludes_stage_3(config)
        else 'Set "stage": 3 to offload parameters, or remove the section. To save memory at stages 1 and 2, use offload_optimizer.',
        fix=without(config, OFFLOAD_PARAM) if stage_written and offloads_optimizer(config) else None,  # it offloads what it can
        related=related_stage(config),
    )


@rule(
    "DS503",
    effect=Effect.SILENT,
    watches=("zero_optimization.offload_optimizer.device",),
    references=(f"{ENGINE}._configure_zero_optimizer",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}}}',
    at="zero_optimization.offload_optimizer.device",
    message='offload_optimizer to "nvme" works only at ZeRO stage 3: at stage 2 DeepSpeed moves the optimizer states to host memory and does not read nvme_path.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "nvme_path": "/local"}}}',
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}}'),
    at="zero_optimization.offload_optimizer.device",
    model={
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 32000,
    },
    host_memory=64 * 2**30,
    world_size=8,
    nodes=1,
    message='offload_optimizer to "nvme" works only at ZeRO stage 3: at stage 2 DeepSpeed moves the optimizer states to host memory and does not read nvme_path.',
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}')
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}}}'
)
@good(
    trained(
        '"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}}'
    )
)
def nvme_offload_below_stage_3(config: Config) -> Iterator[Finding]:
    """Optimizer offload to NVMe works only at ZeRO stage 3. At stages 1 and 2 the states go to host memory.

    At stages 1 and 2 DeepSpeed treats every device except "none" as host memory, and never opens `nvme_path`. The host must then hold 16 to 18 bytes for
    each parameter of the rank's share.

    Set `"stage": 3`, or write `"device": "cpu"` if the host has enough memory.
    """
    key, stage = f"{OFFLOAD_OPTIMIZER}.device", config.value(STAGE)
    if config.value(key) == "nvme" and stage < 3 and stage > 0 and not uses_bf16_optimizer(config):  # which offloads nothing: DS328
        fits = not exceeds_host(config)
        instead = 'write "device": "cpu".' if fits else "use more nodes: this host has too little memory for the states."
        yield Finding(
            key,
            f'offload_optimizer to "nvme" works only at ZeRO stage 3: at stage {stage} DeepSpeed moves the optimizer states to host memory and does not read nvme_path.',
            help=instead[0].upper() + instead[1:] if excludes_stage_3(config) else f'Set "stage": 3, or {instead}',
            fix=write(config, key, '"cpu"') if fits else None,
            related=((STAGE, "the stage is set here"),),
        )


@rule(
    "DS504",
    effect=Effect.IGNORED,
    watches=("zero_optimization.offload_optimizer",),
    references=(f"{ENGINE}.zero_use_cpu_optimizer", "deepspeed/ops/adam/cpu_adam.py, DeepSpeedCPUAdam.step"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    message='offload_optimizer to "cpu" offloads nothing at ZeRO stage 0: the optimizer states stay on the GPU.',
)
@bad(
    trained('"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    message='offload_optimizer to "cpu" offloads nothing at ZeRO stage 0: the parameters stay on the GPU, and the first step raises AssertionError "CPUAdam param is on cuda:0 and must be \'cpu\'".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 0}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    integration="deepspeed",
    message='offload_optimizer to "cpu" offloads nothing at ZeRO stage 0: DeepSpeed may raise ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer" for an optimizer of the program, and its CPU Adam refuses parameters on the GPU.',
)
@bad(
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    integration="transformers",
    message='offload_optimizer to "cpu" offloads nothing at ZeRO stage 0: the parameters stay on the GPU, and the first step of the DeepSpeedCPUAdam that Accelerate makes may raise AssertionError "CPUAdam param is on cuda:0 and must be \'cpu\'".',
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}')
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "none"}}}')
def offload_optimizer_without_zero(config: Config) -> Iterator[Finding]:
    """Optimizer offload is part of ZeRO. At stage 0 DeepSpeed offloads nothing.

    The optimizer states stay on the device of the parameters. For Adam, AdamW, Adagrad or Lion in the config DeepSpeed still builds its CPU optimizer, which
    asserts at the first step that the parameters are on the CPU. On a GPU they are not. The Trainer and Accelerate replace the optimizer of the program
    by DeepSpeed's CPU Adam; from other programs DeepSpeed accepts no other optimizer.

    Set `"stage": 1` or higher, or remove the section.
    """
    device, name = config.value(f"{OFFLOAD_OPTIMIZER}.device"), config.value("optimizer.type")
    if not (config.value(STAGE) == 0 and isinstance(device, str)) or device in NO_OFFLOAD or not config.has(STAGE):
        return
    optimizer = CPU_OPTIMIZERS.get(name.lower()) if config.has("optimizer.type") and isinstance(name, str) else None
    torch_adam = config.may_be_written("optimizer.params.torch_adam") or getattr(config.node("optimizer.params.torch_adam"), "value", False)
    crashes = optimizer is not None and not torch_adam
    refuses = config.lacks("optimizer") and config.value("zero_force_ds_cpu_optimizer") is True and not runs_without_optimizer(config)
    refuses = refuses and config.facts.integration is not None
    by_accelerate = refuses and config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE)
    if crashes or by_accelerate:
        step = "the first step" if crashes else "the first step of the DeepSpeedCPUAdam that Accelerate makes"
        consequence = f"the parameters stay on the GPU, and {step} raises AssertionError \"{optimizer or 'CPUAdam'} param is on cuda:0 and must be 'cpu'\"."
    elif refuses:
        consequence = (
            'DeepSpeed raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer" for an optimizer of the program, '
            "and its CPU Adam refuses parameters on the GPU."
        )
    else:
        consequence = "the optimizer states stay on the GPU."
    yield Finding(
        OFFLOAD_OPTIMIZER,
        f'offload_optimizer to "{device}" offloads nothing at ZeRO stage 0: {consequence}',
        help='Set "stage": 1 or higher, or remove the offload.',
        fix=without(config, OFFLOAD_OPTIMIZER, Applicability.UNSAFE) if crashes else None,
        related=((STAGE, "the stage is set here"),),
        effect=Effect.CRASH if crashes or refuses else None,
        phase=Phase.STEP if crashes or by_accelerate else Phase.INITIALIZE if refuses else None,
        certain=not refuses,
    )


@rule(
    "DS529",
    effect=Effect.SILENT,
    watches=("zero_optimization.offload_optimizer", "zero_optimization.offload_param"),
    references=("deepspeed/runtime/zero/offload_config.py",),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"pin_memory": true}}'),
    at="zero_optimization.offload_optimizer",
    message='offload_optimizer has no device: DeepSpeed uses "none" and offloads nothing.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"pin_memory": true, "device": "cpu"}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {}}'),
    at="zero_optimization.offload_param",
    message='offload_param has no device: DeepSpeed uses "none" and offloads nothing.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}',
)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none", "pin_memory": true}}'))
@good(trained('"zero_optimization": {"stage": 0, "offload_optimizer": {"pin_memory": true}}'))
def offload_without_device(config: Config) -> Iterator[Finding]:
    """An offload section without a device offloads nothing: the default device is "none".

    The section does not enable offload by itself. DeepSpeed accepts it with any of its settings, and everything stays on the GPU.

    Write `"device": "cpu"`, or `"device": "none"` to offload nothing.
    """
    for section, lowest in LOWEST_STAGE:
        key = f"{section}.device"
        members = getattr(config.node(section), "members", None)
        defaults_to_none = not config.has(key) and config.value(key) == "none"
        if members is None or not defaults_to_none or not config.value(STAGE) >= lowest:
            continue
        if any(violation.raises or violation.meant == (*section.split("."), "device") for violation in config.violations):
            continue
        yield Finding(
            section,
            f'{_name(section)} has no device: DeepSpeed uses "none" and offloads nothing.',
            help='Add "device": "cpu", or "device": "none" to offload nothing.',
            fix=offload_to_cpu(config, section),
            on="key",
            effect=None if members else Effect.IGNORED,
        )


@rule(
    "DS530",
    effect=Effect.SILENT,
    watches=("zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"),
    references=("accelerate/utils/dataclasses.py, DeepSpeedPlugin.__post_init__",),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "auto"}}'),
    at="zero_optimization.offload_optimizer.device",
    integration="transformers",
    message='offload_optimizer has the device "auto", which may offload nothing: the Hugging Face Trainer fills in "none" unless its plug-in or the environment sets a device.',
)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'), integration="transformers")
@good(trained('"zero_optimization": {"stage": 2, "offload_param": {"device": "auto"}}'), integration="transformers")
@good(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "auto"}}'),
    program="from accelerate import Accelerator, DeepSpeedPlugin\n"
    'Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds_config.json", offload_optimizer_device="cpu"))\n',
    integration="accelerate",
)
def automatic_offload_device(config: Config) -> Iterator[Finding]:
    """The Trainer and Accelerate replace the offload device "auto" by "none" unless it is set elsewhere.

    They use the device that `DeepSpeedPlugin` or the variables `ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE` and `..._PARAM_DEVICE` give, and "none" without
    them: DeepSpeed then offloads nothing. `accelerate launch` does not set these variables if there is a config file.

    Write `"device": "cpu"`, or `"device": "none"` to offload nothing.
    """
    if config.facts.integration not in (Integration.TRANSFORMERS, Integration.ACCELERATE):
        return
    for section, lowest in LOWEST_STAGE:
        key = f"{section}.device"
        if config.has(key) and config.is_auto(key) and config.value(key) not in ("cpu", "nvme") and config.value(STAGE) >= lowest:
            yield Finding(
                key,
                f'{_name(section)} has the device "auto", which may offload nothing{_unless_set(config)}.',
                help='Write "device": "cpu", or "device": "none" to offload nothing.',
                certain=False,
            )


def _unless_set(config: Config) -> str:
    """What replaces the device: the loader, or the program, where only "auto" shows the loader and the project calls DeepSpeed itself."""
    project = project_around(config) if config.context.may_be_for_accelerate else None
    if project is not None and project.own_loop is not None and not project.uses("accelerate"):
        return " unless the program that reads the file replaces it"
    assert config.facts.integration is not None
    return f': {config.facts.integration.label} fills in "none" unless its plug-in or the environment sets a device'
