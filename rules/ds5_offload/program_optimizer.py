"""DS5: the optimizer of the program, where its states are offloaded to host memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, SharedCause
from dslint.facts import Integration, Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.cost import torch_adam_on_cpu
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, offloads_optimizer

if TYPE_CHECKING:
    from dslint.job.arguments import SourcedValue
    from dslint.job.events import Event, GivenArgument

TUTORIAL = "https://www.deepspeed.ai/tutorials/zero-offload/"
FORCE = "zero_force_ds_cpu_optimizer"
_INITIALIZE = r"deepspeed\.initialize"
_PREPARE = r"accelerate\.(\w+\.)*Accelerator\.prepare"


def _passing(optimizer: str) -> str:
    """A program that passes an optimizer to DeepSpeed, for examples."""
    return (
        "import deepspeed\nimport torch\n"
        f"optimizer = {optimizer}(model.parameters(), lr=1e-4)\n"
        'deepspeed.initialize(model=model, optimizer=optimizer, config="ds_config.json")\n'
    )


_MEGATRON = (
    "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --no-pipeline-parallel"
    "{more} --deepspeed --deepspeed_config ds_config.json\n"
)


def _configuring(optimizer: str) -> str:
    """A program whose LightningModule makes an optimizer, for examples."""
    return (
        "import deepspeed\nimport lightning as L\nimport torch\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\n\n\n"
        "class Model(L.LightningModule):\n    def configure_optimizers(self):\n"
        f"        return {optimizer}(self.parameters(), lr=1e-4)\n\n\n"
        'L.Trainer(devices=8, strategy=DeepSpeedStrategy(config="ds_config.json")).fit(Model())\n'
    )


@rule(
    "DS525",
    effect=Effect.ADVICE,
    watches=("zero_optimization.offload_optimizer",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_optimizer", TUTORIAL),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    integration="deepspeed",
    message='Without an optimizer section the program passes one, and with offload it must be DeepSpeedCPUAdam or DeepSpeedCPULion: for any other DeepSpeed raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_force_ds_cpu_optimizer": false, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    integration="deepspeed",
)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'), integration="deepspeed")
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    integration="transformers",
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    program=_passing("torch.optim.AdamW"),
    integration="deepspeed",
    message='train.py:4 passes AdamW to DeepSpeed, which raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    program=_passing("deepspeed.ops.adam.DeepSpeedCPUAdam"),
    integration="deepspeed",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}',
    program='import deepspeed\ndeepspeed.initialize(model=model, config="ds_config.json")\n',
    integration="deepspeed",
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    launch=_MEGATRON.format(more=""),
    integration="deepspeed",
    message='The program of run.sh:1 passes its own FusedAdam to DeepSpeed, which raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
)
@good(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    launch=_MEGATRON.format(more=" --cpu-optimizer"),
    integration="deepspeed",
)
@good(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    launch=_MEGATRON.format(more="").replace("pretrain_gpt.py", "train.py"),
    program="import deepspeed\nengine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())\n",
    integration="deepspeed",
)
@bad(
    '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    program=_configuring("torch.optim.AdamW"),
    integration="lightning",
    message='train.py:9 makes AdamW, which Lightning passes to DeepSpeed; with offload it raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
)
@good(
    '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    program=_configuring("deepspeed.ops.adam.DeepSpeedCPUAdam"),
    integration="lightning",
)
@bad(
    '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    program=_configuring("torch.optim.AdamW").replace(
        "return", "if self.plain:\n            return torch.optim.SGD(self.parameters())\n        return"
    ),
    integration="lightning",
    message='train.py:11 makes AdamW, which Lightning passes to DeepSpeed; with offload it raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
)
@good(
    '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    program=_configuring("torch.optim.AdamW").replace(
        "return", "if self.offload:\n            return deepspeed.ops.adam.DeepSpeedCPUAdam(self.parameters())\n        return"
    ),
    integration="lightning",
)
@good(
    '{"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    program=_configuring("torch.optim.AdamW"),
    integration="lightning",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    program="import torch\nfrom accelerate import Accelerator\nimport bitsandbytes as bnb\naccelerator = Accelerator()\n"
    "kind = bnb.optim.AdamW8bit if small else torch.optim.AdamW\noptimizer = kind(model.parameters())\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n",
    integration="accelerate",
    loader_release=Release(0, 17, 1),
    message='train.py:7 prepares AdamW8bit or AdamW, and Accelerate 0.17.1 passes it to DeepSpeed as it is, which raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    program="import torch\nfrom accelerate import Accelerator\nfrom deepspeed.ops.adam import DeepSpeedCPUAdam\naccelerator = Accelerator()\n"
    "kind = DeepSpeedCPUAdam if offload else torch.optim.AdamW\noptimizer = kind(model.parameters())\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n",
    integration="accelerate",
    loader_release=Release(0, 17, 1),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    program=_passing("(torch.optim.SGD if plain else torch.optim.AdamW)"),
    integration="deepspeed",
    message='train.py:4 passes SGD or AdamW to DeepSpeed, which raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    integration="accelerate",
    loader_release=Release(0, 17, 1),
    message='Accelerate 0.17.1 passes the program\'s optimizer to DeepSpeed as it is, and with offload it must be DeepSpeedCPUAdam or DeepSpeedCPULion: for any other DeepSpeed may raise ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
)
@good(
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    integration="accelerate",
    loader_release=Release(0, 18, 0),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    integration="deepspeed",
    deepspeed="0.16.9",
    message='Without an optimizer section the program passes one, and with offload it must be DeepSpeedCPUAdam: for any other DeepSpeed raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    program=_passing("deepspeed.ops.lion.DeepSpeedCPULion"),
    integration="deepspeed",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    program=_passing("deepspeed.ops.lion.DeepSpeedCPULion"),
    integration="deepspeed",
    deepspeed="0.16.9",
    message='train.py:4 passes DeepSpeedCPULion to DeepSpeed, which may raise ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
)
def client_optimizer_with_offload(config: Config) -> Iterator[Finding]:
    """With offload DeepSpeed accepts only its CPU optimizers from the program.

    Without an `optimizer` section, and often in addition to it, the program passes an optimizer to `deepspeed.initialize`. With offload it must be `DeepSpeedCPUAdam` or `DeepSpeedCPULion`:
    DeepSpeed raises `ZeRORuntimeException: You are using ZeRO-Offload with a client provided optimizer` for any other, such as torch's AdamW. Accelerate
    replaces the optimizer automatically since its release 0.18.0, and DeepSpeed accepts `DeepSpeedCPULion` since its release 0.17.6; Lightning passes what `configure_optimizers` returns.

    Build `deepspeed.ops.adam.DeepSpeedCPUAdam` in the program, or write an `optimizer` section. With `"zero_force_ds_cpu_optimizer": false` DeepSpeed accepts
    any optimizer: torch's are slower, and one with a kernel for the GPU, such as FusedAdam, raises at the first step.
    """
    if not offloads_optimizer(config) or config.value(FORCE) is not True:
        return
    if config.facts.integration is Integration.ACCELERATE:
        yield from _handed_on_by_accelerate(config)
    program = config.setup.program if config.setup else None
    passed = program.client_optimizer if program else None
    if config.facts.integration is Integration.LIGHTNING and config.lacks("optimizer"):
        made = passed or _refused_of_lightning(config)
        yield from _handed_on_by_lightning(config, made) if made is not None else ()
    if config.facts.integration is not Integration.DEEPSPEED:
        return
    is_read = program is not None and program.passed is not None
    of_framework = config.setup.objects.get("optimizer") if config.setup and passed is None and not is_read else None
    passed = passed or of_framework
    refused = _refused_of_all(config, _INITIALIZE, "optimizer", 2) if passed is None else None
    if refused is not None:
        event, names = refused
        message = (
            f"{event.at.where} passes {names} to DeepSpeed, which raises ZeRORuntimeException "
            '"You are using ZeRO-Offload with a client provided optimizer".'
        )
        yield Finding(
            OFFLOAD_OPTIMIZER,
            message,
            help="Build deepspeed.ops.adam.DeepSpeedCPUAdam in the program.",
            on="key",
            cause=SharedCause("optimizer of the program", message),
            related=(event.at.related("passed here"),),
            effect=Effect.CRASH,
            phase=Phase.INITIALIZE,
            certain=event.certain and event.flow == 0 and not event.tells_setups_apart,
        )
    elif passed is not None:
        if not _is_accepted(config, passed):
            name = str(passed.value).rpartition(".")[2]
            passes = f"The program of {passed.where} passes its own {name}" if of_framework else f"{passed.where} passes {name}"
            message = (
                f'{passes} to DeepSpeed, which raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".'
            )
            by_torch = str(passed.value).startswith("torch.optim.")
            build = "Build deepspeed.ops.adam.DeepSpeedCPUAdam in the program"
            if of_framework:
                build = "Remove --cpu_torch_adam" if by_torch else "Pass --cpu-optimizer"
            or_not = ', or write "zero_force_ds_cpu_optimizer": false' if by_torch else ""  # a kernel for the GPU refuses states on the CPU
            yield Finding(
                OFFLOAD_OPTIMIZER,
                message,
                help=f"{build}{or_not}.",
                on="key",
                cause=SharedCause("optimizer of the program", message),  # one key is right for all programs with this config
                related=(passed.related("passed here"),),
                effect=Effect.CRASH,
                phase=Phase.INITIALIZE,
                certain=of_framework is not None or by_torch,
            )
    elif config.lacks("optimizer") and (program is None or program.passed is None or "optimizer" in program.passed):
        passes = "The program passes the optimizer" if program is not None else "Without an optimizer section the program passes one"
        yield Finding(
            OFFLOAD_OPTIMIZER,
            f'{passes}, and with offload it must be {" or ".join(_accepted(config))}: for any other DeepSpeed raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
            help="Build DeepSpeedCPUAdam in the program, or write an optimizer section.",
            on="key",
        )


def _handed_on_by_lightning(config: Config, made: SourcedValue) -> Iterator[Finding]:
    """The finding for the optimizer of `configure_optimizers`, which Lightning passes to DeepSpeed as it is."""
    if _is_accepted(config, made):
        return
    name = str(made.value).rpartition(".")[2]
    yield Finding(
        OFFLOAD_OPTIMIZER,
        f'{made.where} makes {name}, which Lightning passes to DeepSpeed; with offload it raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
        help="Return deepspeed.ops.adam.DeepSpeedCPUAdam from configure_optimizers.",
        on="key",
        related=(made.related("made here"),),
        effect=Effect.CRASH,
        phase=Phase.INITIALIZE,
        certain=str(made.value).startswith("torch.optim."),
    )


def _refused_of_lightning(config: Config) -> SourcedValue | None:
    """The last optimizer of several classes in `configure_optimizers`, if DeepSpeed accepts none of them."""
    made = [one for one in _events(config, r"(torch\.optim|deepspeed\.ops)\..*") if one.function.endswith(".configure_optimizers")]
    optimizers = [one for one in made if _OPTIMIZERS.fullmatch(one.name) or one.name.startswith("deepspeed.")]
    refused = bool(optimizers) and all(map(_OPTIMIZERS.fullmatch, (one.name for one in optimizers)))
    from dataclasses import replace  # takes long to import, and most configs have no program

    return replace(optimizers[-1].at, value=optimizers[-1].name) if refused else None


REPLACES_OPTIMIZERS = Release(0, 18, 0)
"""The release of Accelerate that first replaces an optimizer by DeepSpeedCPUAdam (accelerate/accelerator.py, _prepare_deepspeed)."""


def _handed_on_by_accelerate(config: Config) -> Iterator[Finding]:
    """The finding for a release of Accelerate that hands the program's optimizer on to DeepSpeed as it is."""
    release = config.facts.loader_release
    if release is None or release >= REPLACES_OPTIMIZERS or config.has("optimizer"):
        return
    refused = _refused_of_all(config, _PREPARE)
    if refused is not None:
        event, names = refused
        yield Finding(
            OFFLOAD_OPTIMIZER,
            f"{event.at.where} prepares {names}, and Accelerate {release} passes it to DeepSpeed as it is, which raises ZeRORuntimeException "
            '"You are using ZeRO-Offload with a client provided optimizer".',
            help=f"Upgrade Accelerate to {REPLACES_OPTIMIZERS} or later, which replaces the optimizer, or build DeepSpeedCPUAdam in the program.",
            on="key",
            related=(event.at.related("prepared here"),),
            effect=Effect.CRASH,
            phase=Phase.INITIALIZE,
            certain=event.certain and event.flow == 0 and not event.tells_setups_apart,
        )
        return
    if any(_is_named_accepted(config, given) for event in _events(config, _PREPARE) for given in event.arguments.values()):
        return
    yield Finding(
        OFFLOAD_OPTIMIZER,
        f"Accelerate {release} passes the program's optimizer to DeepSpeed as it is, and with offload it must be {' or '.join(_accepted(config))}: "
        'for any other DeepSpeed raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
        help=f"Upgrade Accelerate to {REPLACES_OPTIMIZERS} or later, which replaces the optimizer, or build DeepSpeedCPUAdam in the program.",
        on="key",
        effect=Effect.CRASH,
        phase=Phase.INITIALIZE,
        certain=False,
    )


_OPTIMIZERS = re.compile(
    r"torch\.optim\.(?!lr_scheduler)(\w+\.)*[A-Z]\w*|(bitsandbytes|bnb)\.optim\.\w+|transformers\.(\w+\.)*(AdamW|Adafactor)|prodigyopt\.(\w+\.)*Prodigy"
)
"""Classes of optimizers that are none of DeepSpeed's: each inherits from torch's `Optimizer`."""


def _events(config: Config, pattern: str) -> Iterator[Event]:
    program = config.setup.program if config.setup else None
    return (one for one in program.events.of(pattern) if not one.unlikely) if program is not None else iter(())


def _refused_of_all(config: Config, pattern: str, name: str = "", index: int | None = None) -> tuple[Event, str] | None:
    """The first call that gets an optimizer which DeepSpeed refuses, whichever branch makes it, and the names of the classes.

    Without a name of the argument it is any of them. A program with several engines may have this config for another one.
    """
    calls = list(_events(config, pattern))
    for event in calls if not name or len(calls) == 1 else ():
        given = [event.argument(name, index)] if name else list(event.arguments.values())
        for one in given:
            makers = one.made_by_one_of if one is not None else ()
            if makers and all(map(_OPTIMIZERS.fullmatch, makers)):
                return event, " or ".join(maker.rpartition(".")[2] for maker in makers)
    return None


def _is_named_accepted(config: Config, given: GivenArgument) -> bool:
    """Whether DeepSpeed may accept the optimizer that an argument is."""
    return any(maker.rpartition(".")[2] in _accepted(config) for maker in given.made_by_one_of)


LION_ACCEPTED = Release(0, 17, 6)
"""The release of DeepSpeed that first accepts DeepSpeedCPULion from the program (deepspeed/runtime/engine.py, _configure_optimizer)."""


def _accepted(config: Config) -> tuple[str, ...]:
    """The optimizers for offloaded states that DeepSpeed accepts from the program."""
    return ("DeepSpeedCPUAdam", "DeepSpeedCPULion") if config.release >= LION_ACCEPTED else ("DeepSpeedCPUAdam",)


def _is_accepted(config: Config, optimizer: SourcedValue) -> bool:
    """Whether DeepSpeed accepts an optimizer of the program for offloaded states."""
    return str(optimizer.value).rpartition(".")[2] in _accepted(config)


@rule(
    "DS526",
    effect=Effect.SLOW,
    watches=("zero_force_ds_cpu_optimizer",),
    references=("https://github.com/deepspeedai/DeepSpeed/pull/2971", "https://github.com/deepspeedai/DeepSpeed/issues/6695"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_force_ds_cpu_optimizer": false, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_force_ds_cpu_optimizer",
    message="zero_force_ds_cpu_optimizer false accepts torch's optimizers for the offloaded states: on the CPU they are several times slower than DeepSpeed's CPU Adam.",
)
@bad(
    trained('"zero_force_ds_cpu_optimizer": false, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_force_ds_cpu_optimizer",
    message="DeepSpeed does not read zero_force_ds_cpu_optimizer with an optimizer section: it applies only to optimizers that the program passes.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}')
@good('{"train_micro_batch_size_per_gpu": 4, "zero_force_ds_cpu_optimizer": false, "zero_optimization": {"stage": 2}}')
def unforced_cpu_optimizer(config: Config) -> Iterator[Finding]:
    """`zero_force_ds_cpu_optimizer: false` lets the program use an optimizer that is slow on the CPU.

    DeepSpeed's CPU Adam and Lion use the vector units and all cores of the CPU. torch's optimizers also work on the offloaded states, but are several times
    slower, and the GPU waits for them in every step. An optimizer that needs the GPU, such as DeepSpeed's FusedAdam, raises at the first step. With an `optimizer` section DeepSpeed builds its own optimizer and does not read the key.
    Unless the program is seen to pass another optimizer, the finding is reported only with `--pedantic`.

    Build `deepspeed.ops.adam.DeepSpeedCPUAdam` in the program, and remove the key.
    """
    if config.value(FORCE) is not False or not offloads_optimizer(config):
        return
    if config.has("optimizer.type"):
        yield Finding(
            FORCE,
            "DeepSpeed does not read zero_force_ds_cpu_optimizer with an optimizer section: it applies only to optimizers that the program passes.",
            help="Remove it.",
            fix=without(config, FORCE),
            effect=Effect.ADVICE,
            pedantic=True,
        )
    elif config.facts.integration not in (Integration.TRANSFORMERS, Integration.ACCELERATE):  # Accelerate replaces torch's Adam
        passed = config.setup.replaced.get("optimizer") if config.setup else None
        if passed is not None and str(passed.value).rpartition(".")[2] in ("DeepSpeedCPUAdam", "DeepSpeedCPULion"):
            return
        yield Finding(
            FORCE,
            "zero_force_ds_cpu_optimizer false accepts torch's optimizers for the offloaded states: on the CPU they are several times slower than DeepSpeed's CPU Adam.",
            help="Build DeepSpeedCPUAdam in the program, and remove the key." + torch_adam_on_cpu(config),
            pedantic=passed is None,  # the program may build DeepSpeedCPUAdam
        )
