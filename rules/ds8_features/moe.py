"""DS8: DeepSpeed's own layers of experts, as programs use them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.job.events import ENGINE, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.batch import place_of_ranks
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.zero import STAGE

_LAYERS = r"deepspeed\.moe\.(layer\.)?MoE"
_SPLITS = r"deepspeed\.moe\.utils\.(split_params_\w+|configure_moe_param_groups)"
_SPLITS_ITSELF = Release(0, 15, 0)
"""The first release that splits the parameters for the optimizer of the config; it is not in 0.14.0."""
_NATIVE = Release(0, 19, 3)
"""The first release with experts of its own at stage 3, and another text for these layers."""
_CONTIGUOUS = "zero_optimization.contiguous_gradients"
_SCATTER = "zero_optimization.reduce_scatter"
_UNMARKED = '"The model has moe layers, but None of the param groups are marked as MoE"'

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
_MODEL = (
    "import deepspeed\nimport torch\nfrom deepspeed.moe.layer import MoE\n"
    "class Net(torch.nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.experts = MoE(64, expert=torch.nn.Linear(64, 64), num_experts=4, ep_size=2)\n"
    "net = Net()\n"
)
_CLIENT = _MODEL + (
    "optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)\n"
    'engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config="ds_config.json")\n'
)
_SPLIT = _MODEL + (
    "from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split\n"
    'groups = split({"params": list(net.parameters()), "name": "all"})\n'
    'engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(groups), config="ds_config.json")\n'
)
_DENSE = (
    "class Dense(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layer = torch.nn.Linear(64, 64)\n%s\n"
)
_BY_CONFIG = _MODEL + 'engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'


@rule(
    "DS870",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, _configure_moe_settings",
        "deepspeed/runtime/engine.py, _configure_optimizer and _validate_zero3_moe_compatibility",
        "deepspeed/moe/layer.py, MoE.__init__",
        "deepspeed/utils/groups.py, _create_expert_and_data_parallel",
    ),
    untried="depends on the layers of the program, which the model of the suite does not have",
)
@bad(
    _STAGE_2,
    at="zero_optimization.stage",
    program=_CLIENT,
    integration="deepspeed",
    message='train.py:10 passes an optimizer of the parameters as they are, and the model has layers of experts (train.py:7): at ZeRO stage 2 DeepSpeed raises AssertionError "The model has moe layers, but None of the param groups are marked as MoE".',
)
@bad(
    trained('"zero_optimization": {"stage": 1}'),
    at="zero_optimization.stage",
    program=_BY_CONFIG,
    integration="deepspeed",
    deepspeed="0.10.3",
    message='train.py:9 passes the parameters as they are, and the model has layers of experts (train.py:7): at ZeRO stage 1 DeepSpeed raises AssertionError "The model has moe layers, but None of the param groups are marked as MoE".',
)
@bad(
    trained('"zero_optimization": {"stage": 3}'),
    at="zero_optimization.stage",
    program=_BY_CONFIG,
    integration="deepspeed",
    message='The model has layers of experts (train.py:7): DeepSpeed raises AssertionError "Native DeepSpeed MoE is not supported with ZeRO Stage 3.".',
    fixed=trained('"zero_optimization": {"stage": 2}'),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "contiguous_gradients": false}'),
    at="zero_optimization.contiguous_gradients",
    program=_BY_CONFIG,
    integration="deepspeed",
    message='The model has layers of experts (train.py:7): DeepSpeed raises AssertionError "Contiguous Gradients in ZeRO Stage 2 must be set to True for MoE".',
)
@bad(
    trained('"zero_optimization": {"stage": 1, "reduce_scatter": false}'),
    at="zero_optimization.reduce_scatter",
    program=_BY_CONFIG,
    integration="deepspeed",
    message='The model has layers of experts (train.py:7): DeepSpeed raises AssertionError "Reduce Scatter in ZeRO Stage 2 must be set to True for MoE".',
)
@bad(
    trained('"zero_optimization": {"stage": 1}'),
    at="",
    program=_BY_CONFIG.replace("num_experts=4", "num_experts=5"),
    integration="deepspeed",
    message='train.py:7: 5 experts are not divisible by ep_size 2: MoE raises AssertionError "Number of experts (5) should be divisible by expert parallel size (2)".',
)
@bad(
    trained('"zero_optimization": {"stage": 1}'),
    at="",
    program=_BY_CONFIG,
    integration="deepspeed",
    world_size=3,
    message='train.py:7: ep_size 2 does not divide 3 ranks: DeepSpeed raises AssertionError "3 is not divisible by 2" where it forms the groups of experts.',
)
@good(_STAGE_2, program=_SPLIT, integration="deepspeed", world_size=8)
@good(trained('"zero_optimization": {"stage": 1}'), program=_BY_CONFIG, integration="deepspeed", world_size=8)
@bad(
    trained('"zero_optimization": {"stage": 3}'),
    at="zero_optimization.stage",
    program=_BY_CONFIG.replace("net = Net()", "def build():\n    return Net().to('cuda')\nnet = build()\nnet.train()"),
    integration="deepspeed",
    message='The model has layers of experts (train.py:7): DeepSpeed raises AssertionError "Native DeepSpeed MoE is not supported with ZeRO Stage 3.".',
    fixed=trained('"zero_optimization": {"stage": 2}'),
)
@good(_STAGE_2, program=_CLIENT.replace("net = Net()\n", _DENSE % "net = Dense()"), integration="deepspeed")
@good(_STAGE_2, program=_CLIENT.replace("net = Net()\n", _DENSE % "teacher, net = Net(), Dense()"), integration="deepspeed")
@good(_STAGE_2, program=_CLIENT.replace("net = Net()\n", "teacher = Net()\nnet = torch.nn.Linear(64, 64)\n"), integration="deepspeed")
@good(
    trained('"zero_optimization": {"stage": 3}'),
    program=_BY_CONFIG.replace("net = Net()\n", _DENSE % 'net = {"dense": Dense, "sparse": Net}[kind]()'),
    integration="deepspeed",
)
@good(
    trained('"zero_optimization": {"stage": 1}'),
    program=_BY_CONFIG.replace("net = Net()\n", "net = torch.nn.Linear(64, 64)\n"),
    integration="deepspeed",
    world_size=3,
)
@good(
    _STAGE_2,
    program=_CLIENT.replace("engine, ", 'optimizer.add_param_group({"params": experts, "moe": True, "name": "ep_size_2"})\nengine, '),
    integration="deepspeed",
)
@good(trained('"zero_optimization": {"stage": 0}'), program=_CLIENT, integration="deepspeed")
def experts_of_program(config: Config) -> Iterator[Finding]:
    """The model of the program has DeepSpeed's layers of experts, and the config or the optimizer does not fit them.

    ZeRO stages 1 and 2 need the experts in parameter groups of their own, `contiguous_gradients` (stage 2) and `reduce_scatter`. DeepSpeed makes
    the groups itself for the optimizer of the config, from 0.15.0 on; otherwise the program has to. Stage 3 does not support `deepspeed.moe.layer.MoE`.
    `ep_size` must divide the number of experts, and the number of ranks.

    Pass the groups of `deepspeed.moe.utils.split_params_into_different_moe_groups_for_optimizer` to the optimizer, use stage 1 or 2, and an `ep_size` that
    divides both numbers.
    """
    setup = config.setup
    program = setup.program if setup is not None else None
    if setup is None or program is None or config.facts.integration is not Integration.DEEPSPEED:
        return
    engines = list(program.events.of(ENGINE.replace(".", r"\.")))
    layers = [one for one in program.events.of(_LAYERS) if one.certain and not one.conditions]
    if len(engines) != 1:
        return
    engine = engines[0]
    layers = [one for one in layers if one.flow == engine.flow]  # the others are in classes that nothing makes
    held = [one for one in layers if _holds(engine, one)]
    yield from _sizes(config, layers, held)
    if not held:
        return
    stage, layer = config.value(STAGE), held[0]
    has, related = f"the model has layers of experts ({layer.at.where})", (layer.at.related("the experts"),)
    if stage >= 3:
        refuses = (
            "Native DeepSpeed MoE is not supported with ZeRO Stage 3." if config.release >= _NATIVE else "MoE not supported with Stage 3"
        )
        yield Finding(
            STAGE,
            f'{has[0].upper()}{has[1:]}: DeepSpeed raises AssertionError "{refuses}".',
            help="Use ZeRO stage 1 or 2.",
            fix=write(config, STAGE, "2"),
            related=related,
        )
    if stage not in (1, 2):
        return
    for key, name, text in ((_CONTIGUOUS, "Contiguous Gradients", stage == 2), (_SCATTER, "Reduce Scatter", True)):
        if text and config.value(key) is False:
            yield Finding(
                key,
                f'{has[0].upper()}{has[1:]}: DeepSpeed raises AssertionError "{name} in ZeRO Stage 2 must be set to True for MoE".',
                help=f"Remove {key.rpartition('.')[2]}, or set it to true.",
                related=related,
            )
            return
    if (
        any(program.events.of(_SPLITS, r".*\.add_param_group"))
        or not engine.complete
        or any(document.language == "python" and _OWN_SPLIT.search(document.text) for document in setup.documents.values())
    ):
        return
    passes = _unsplit(config, engine)
    if passes:
        yield Finding(
            STAGE,
            f"{engine.at.where} passes {passes} as they are, and {has}: at ZeRO stage {stage} DeepSpeed raises AssertionError {_UNMARKED}.",
            help="Give the optimizer the groups of deepspeed.moe.utils.split_params_into_different_moe_groups_for_optimizer.",
            related=(engine.at.related("passed here"), *related),
            certain=engine.certain,
        )


_OWN_SPLIT = re.compile(
    r"param_groups(?:\[[^\]\n]*\])*\s*\+?=(?!=)|param_groups\s*\.\s*(?:append|extend|insert)|add_param_group|is_moe_param|[\"']moe[\"']|\bmoe\s*=(?!=)"
)
"""The program may mark the groups of the experts itself."""


def _holds(engine: Event, layer: Event) -> bool:
    """Whether the model of the engine certainly holds a layer of experts: it is the layer, or the object that makes it."""
    model = engine.argument("model", 1)
    origin = model.origin if model is not None else None
    return origin is not None and (origin in layer.parts_of or (origin == layer.start and engine.at.path == layer.at.path))


def _unsplit(config: Config, engine: Event) -> str:
    """What a call gives to DeepSpeed in place of groups with the experts apart; "" if that is not known."""
    program = config.setup.program if config.setup else None
    optimizer = engine.argument("optimizer", 2)
    if optimizer is not None and optimizer.value is not None:
        makers = program.events.of(r"torch\.optim\.\w+|deepspeed\.ops\..*") if program is not None else ()
        made = next((one for one in makers if one.start == optimizer.origin), None)
        given = made.argument("params", 0) if made is not None else None
        return "an optimizer of the parameters" if given is not None and given.raw.endswith(".parameters()") else ""
    given = engine.argument("model_parameters", 3)
    if config.has("optimizer") and config.release < _SPLITS_ITSELF and given is not None and given.raw.endswith(".parameters()"):
        return "the parameters"
    return ""


def _sizes(config: Config, layers: list[Event], held: list[Event]) -> Iterator[Finding]:
    """Whether the experts fit their groups, and these the ranks. Only the engine forms groups, for the layers of its model."""
    ranks = config.facts.world_size
    for layer in layers:
        experts, size = (
            given.value if (given := layer.argument(name, index)) is not None else 1 for name, index in (("num_experts", 2), ("ep_size", 3))
        )
        if type(experts) is not int or type(size) is not int or size < 1 or not layer.complete:
            continue
        if experts % size:
            text = (
                f"{experts:,} experts are not divisible by ep_size {size:,}: MoE raises AssertionError "
                f'"Number of experts ({experts}) should be divisible by expert parallel size ({size})"'
            )
        elif ranks is not None and ranks % size and layer in held:
            text = (
                f'ep_size {size:,} does not divide {ranks:,} ranks: DeepSpeed raises AssertionError "{ranks} is not divisible by {size}" '
                "where it forms the groups of experts"
            )
        else:
            continue
        yield Finding(
            "",
            f"{layer.at.where}: {text}.",
            help="Use an ep_size that divides the number of experts, and the number of ranks.",
            elsewhere=layer.at.related(""),
            related=() if experts % size else place_of_ranks(config),
        )
        return
