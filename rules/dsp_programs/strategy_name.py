"""DSP: the name of a strategy of Lightning that does not exist."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.frameworks.lightning import STAGE_1_OF_FABRIC, arguments_of, nearest_strategy
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LIGHTNING, lightning_program

_STAGE_2 = '{"zero_optimization": {"stage": 2}}'
_TRAINER = "from lightning.pytorch import Trainer\ntrainer = Trainer(strategy=%s, devices=4)\n"
_FABRIC = "import lightning as L\nfabric = L.Fabric(strategy=%s, devices=4)\n"
_REGISTERED = (
    "from lightning.pytorch.strategies import DeepSpeedStrategy, StrategyRegistry\n"
    "StrategyRegistry.register('deepspeed_small', DeepSpeedStrategy, stage=1, allgather_bucket_size=1000)\n"
)

_IN_FABRIC_SINCE = Release(2, 2, 0)
"""The first release whose `Fabric` has the strategy deepspeed_stage_1_offload: 2.1.0 does not register it, 2.2.0 does."""


@rule(
    "DSP19",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "lightning/pytorch/trainer/connectors/accelerator_connector.py, _AcceleratorConnector._check_config_and_set_final_flags",
        "lightning/pytorch/strategies/deepspeed.py, DeepSpeedStrategy.register_strategies",
    ),
    untried=RAISED_BY_LIGHTNING,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_TRAINER % "'deepspeed_stage2'",
    integration="lightning",
    message='Lightning\'s Trainer has no strategy "deepspeed_stage2": Lightning 2 raises ValueError "You selected an invalid strategy name: `strategy=\'deepspeed_stage2\'`".',
)
@bad(
    _STAGE_2,
    at="",
    program=_TRAINER % "'deepspeed_stage_1_offload'",
    integration="lightning",
    message='Lightning\'s Trainer has no strategy "deepspeed_stage_1_offload": Lightning 2 raises ValueError "You selected an invalid strategy name: `strategy=\'deepspeed_stage_1_offload\'`".',
)
@bad(
    _STAGE_2,
    at="",
    program=_FABRIC % "'deepspeed_zero_3'",
    integration="lightning",
    message='Lightning\'s Fabric has no strategy "deepspeed_zero_3": Lightning 2 raises ValueError "You selected an invalid strategy name: `strategy=\'deepspeed_zero_3\'`".',
)
@bad(
    _STAGE_2,
    at="",
    program="import os\n" + _TRAINER % "'deepspeed_stage_3' if 'BIG' in os.environ else 'deepspeed_stage2'",
    integration="lightning",
    message='Lightning\'s Trainer has no strategy "deepspeed_stage2": Lightning 2 may raise ValueError "You selected an invalid strategy name: `strategy=\'deepspeed_stage2\'`".',
)
@bad(
    _STAGE_2,
    at="",
    program=_FABRIC % "'deepspeed_stage_1_offload'",
    integration="lightning",
    loader_release=Release(2, 1, 0),
    message='Lightning\'s Fabric has no strategy "deepspeed_stage_1_offload": Lightning 2 raises ValueError "You selected an invalid strategy name: `strategy=\'deepspeed_stage_1_offload\'`".',
)
@good(_STAGE_2, program=_TRAINER % "'deepspeed_stage_2'")
@good(_STAGE_2, program=_TRAINER % "'DeepSpeed_Stage_2'")
@good(_STAGE_2, program=_FABRIC % "'deepspeed_stage_1_offload'")
@good(_STAGE_2, program="import os\n" + _TRAINER % "os.environ['STRATEGY']", integration="lightning")
@good(_STAGE_2, program=_REGISTERED + _TRAINER % "'deepspeed_small'", integration="lightning")
@good(
    _STAGE_2,
    program="from lightning.pytorch.strategies import DeepSpeedStrategy\n" + _TRAINER % "DeepSpeedStrategy(config='ds_config.json')",
)
def unknown_strategy_name(config: Config) -> Iterator[Finding]:
    """Lightning gets the name of a DeepSpeed strategy that it does not have.

    Lightning registers `deepspeed`, `deepspeed_stage_1`, `deepspeed_stage_2`, `deepspeed_stage_2_offload`, `deepspeed_stage_3`,
    `deepspeed_stage_3_offload` and `deepspeed_stage_3_offload_nvme`; since 2.2 `Fabric` has `deepspeed_stage_1_offload`, too. For any other
    name Lightning 2 raises ValueError "You selected an invalid strategy name" before it trains. Earlier releases raise other errors. A
    program that registers strategies itself is not judged.

    Write one of these names, or pass a `DeepSpeedStrategy` with the arguments that are meant.
    """
    program = lightning_program(config)
    said = program.unknown_strategy if program is not None else None
    if program is None or said is None or said.given is None:
        return
    name, release = str(said.value), config.facts.loader_release
    is_of_fabric = name.lower() == STAGE_1_OF_FABRIC
    if is_of_fabric and program.fabric and (release is None or release >= _IN_FABRIC_SINCE):
        return
    user = "Fabric" if program.fabric else "Trainer"
    meant = f", or pass DeepSpeedStrategy({arguments_of(name)})" if is_of_fabric else ""
    yield Finding(
        "",
        f'Lightning\'s {user} has no strategy "{name}": Lightning 2 raises ValueError "You selected an invalid strategy name: '
        f'`strategy={name.lower()!r}`".',
        help=f'Write strategy="{nearest_strategy(name)}"{meant}.',
        elsewhere=said.given.related(""),
        certain=said.sure,
    )
