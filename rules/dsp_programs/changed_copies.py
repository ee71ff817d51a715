"""DSP: weights of an engine's model that a program changes or freezes, while DeepSpeed trains its own copies of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.job.events import ENGINE, FROZEN, MODELS, OWN_MODULE, UNFROZEN, Event, Events
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.models import ENGINES, managed_models
from dslint.rules.helpers.precision import model_dtype
from dslint.rules.helpers.set_weights import SetWeights
from dslint.rules.helpers.syntax import is_in_a_file, statements_around, tree_of
from dslint.rules.helpers.zero import STAGE
from dslint.source.unknown import UNKNOWN

_STAGE_0, _STAGE_2, _STAGE_3 = (trained(f'"zero_optimization": {{"stage": {stage}}}') for stage in (0, 2, 3))
_ENGINE = (
    "import deepspeed\nimport torch\n"
    'engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
)
_LOOP = _ENGINE + "for batch in loader:\n    engine.backward(engine(batch).mean())\n    engine.step()\n"
_CLIPS = "    for p in engine.module.parameters():\n        p.data.clamp_(-0.01, 0.01)\n"
_ADDED = "    with torch.no_grad():\n        for name, p in engine.module.named_parameters():\n            p.add_(torch.randn_like(p))\n"


@rule(
    "DSP11",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, step: the weights are copied from single_partition_of_fp32_groups",
        "deepspeed/runtime/zero/stage3.py, step: fp32_partitioned_groups_flat",
        "deepspeed/utils/tensor_fragment.py, safe_set_full_fp32_param",
    ),
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_LOOP + _CLIPS,
    integration="deepspeed",
    message="train.py:8 changes weights of the engine's model (p.data): DeepSpeed trains copies of its own, and writes them over the change in the next step.",
)
@bad(
    _STAGE_2,
    at="",
    program=_LOOP + _ADDED,
    integration="deepspeed",
    message="train.py:9 changes weights of the engine's model (p.add_(torch.randn_like(p))): DeepSpeed trains copies of its own, and writes them over the change in the next step.",
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 0}'),
    at="",
    program=_ENGINE + "for p in engine.module.parameters():\n    torch.nn.init.normal_(p)\n" + _LOOP.removeprefix(_ENGINE),
    integration="deepspeed",
    message="train.py:5 changes weights of the engine's model (torch.nn.init.normal_(p)): DeepSpeed trains copies of its own, and writes them over the change in the next step.",
)
@bad(
    _STAGE_3,
    at="",
    program=_LOOP
    + "    with deepspeed.zero.GatheredParameters(engine.module.parameters(), modifier_rank=0):\n        engine.module.head.weight.data.clamp_(-1, 1)\n",
    integration="deepspeed",
    message="train.py:8 changes weights of the engine's model (engine.module.head.weight.data): DeepSpeed trains copies of its own, and writes them over the change in the next step.",
)
@good(_STAGE_0, program=_LOOP + _CLIPS, integration="deepspeed")
@good(_STAGE_2, program=_LOOP + _CLIPS.replace("    for", "for").replace("        p", "    p"), integration="deepspeed")
@good(_STAGE_2, program=_LOOP + _CLIPS.replace("p.data.clamp_(-0.01, 0.01)", "norms.append(p.data.norm())"), integration="deepspeed")
@good(_STAGE_2, program=_LOOP + _CLIPS.replace("p.data.clamp_(-0.01, 0.01)", "print(p.data.shape)"), integration="deepspeed")
@good(
    _STAGE_2,
    program=_LOOP
    + "    for p, q in zip(average.parameters(), engine.module.parameters()):\n        p.data.mul_(0.99).add_(q.data, alpha=0.01)\n",
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_LOOP.replace(
        "engine, *_", _CLIPS.replace("engine.module", "net").replace("    ", "", 1).replace("        p", "    p") + "engine, *_"
    ),
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_LOOP + _CLIPS + "        deepspeed.utils.safe_set_full_fp32_param(p, p.float())\n",
    integration="deepspeed",
)
def weight_changed_behind_its_copy(config: Config) -> Iterator[Finding]:
    """The program changes weights of an engine's model between steps, and the next step writes DeepSpeed's copies over them.

    With ZeRO, fp16 or bf16 the optimizer has copies of the weights, in fp32, from the time when the engine is made. A step changes the copies, and
    writes them to the model: what a program wrote to `weight.data` is gone. So clipped weights of a critic, noise, a mask or a new
    initialization have no effect beyond the next forward pass; at stage 3 also within `GatheredParameters`.

    Change the copy, with `deepspeed.utils.safe_get_full_fp32_param` and `safe_set_full_fp32_param`, or change the weights before
    `deepspeed.initialize`.
    """
    program = config.setup.program if config.setup else None
    if program is None or not _has_copies(config) or config.facts.integration not in (Integration.DEEPSPEED, Integration.ACCELERATE):
        return
    if is_in_a_file(_SETS_COPIES, config):
        return
    managed = managed_models(program.events, *ENGINES)
    engines = {one.start for one in program.events.of(re.escape(ENGINE))}
    for number, event in enumerate(program.events.all):
        if event.unlikely or event.tells_setups_apart or not _writes(config, event):
            continue
        weight = event.arguments.get("0") if event.name.startswith("torch.nn.init.") else None
        origin = weight.origin if weight is not None else event.origin
        if origin not in engines and managed.get(origin or 0, number) >= number:
            continue
        if config.value(STAGE) >= 3 and not any("Gather" in one for one in event.within):
            continue  # the weight has no elements there: DS968
        if not _is_stepped_after(config, program.events, number):
            continue
        yield Finding(
            "",
            f"{event.at.where} changes weights of the engine's model ({event.at.raw}): DeepSpeed trains copies of its own, and writes them over the "
            "change in the next step.",
            help="Use safe_get_full_fp32_param and safe_set_full_fp32_param of deepspeed.utils.",
            elsewhere=event.at.related(""),
            certain=False,
        )
        return


_SETS_COPIES = re.compile(r"safe_set_\w+param|refresh_fp32_params|_restore_from_bit16_weights|safe_update_full_grad")
_MADE = f"({re.escape(ENGINE)}|{MODELS}|{OWN_MODULE})"
_OF_WEIGHT = re.compile(rf"{_MADE}\.weight(\.\w+_)?")
_IN_PLACE = re.compile(rf"{re.escape(ENGINE)}\.\w+_")
_NAMES_WEIGHT = re.compile(r"\.(weight|bias)\b")


def _has_copies(config: Config) -> bool:
    stage = config.value(STAGE)
    return bool(stage in (1, 2, 3) or (stage == 0 and model_dtype(config) in ("fp16", "bf16")))


def _writes(config: Config, event: Event) -> bool:
    """Whether an event changes the elements of a weight."""
    if event.name.startswith("torch.nn.init."):
        given = event.arguments.get("0")
        return given is not None and re.fullmatch(rf"{_MADE}\.weight", given.made) is not None
    if _IN_PLACE.fullmatch(event.name):
        return _NAMES_WEIGHT.search(event.at.raw) is not None and "requires_grad_" not in event.name
    if _OF_WEIGHT.fullmatch(event.name) is None or event.name.endswith("requires_grad_"):
        return False
    if event.name.endswith("_"):
        return True
    around = statements_around(tree_of(config, event.at.path), event)
    written = ast.unparse(around[-1]) if around else ""
    return re.match(rf"{re.escape(event.at.raw)}((\[[^=]*\])? ([-+*/]?=)(?!=)|[\w.\[\]:]*\.[a-z]\w*_\()", written) is not None


def _is_stepped_after(config: Config, events: Events, number: int) -> bool:
    """Whether the engine makes a step after an event: behind it, or in the next turn of a loop."""
    event = events.all[number]
    is_step = re.compile(rf"{re.escape(ENGINE)}\.(step|train_batch)|accelerate\.(\w+\.)*Accelerator\.backward")
    if any(is_step.fullmatch(one.name) and one.flow == event.flow for one in events.all[number + 1 :]):
        return True
    tree = tree_of(config, event.at.path)
    loops = [one for one in statements_around(tree, event) if isinstance(one, ast.For | ast.While)]
    steps = (one for one in events.all[:number] if is_step.fullmatch(one.name) and one.at.path == event.at.path)
    return any(loop in loops for step in steps for loop in statements_around(tree, step))


_DECAY = "optimizer.params.weight_decay"
_PARTS = (
    "import deepspeed\nfrom model import Net\nmodel = Net()\n%s"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n%s"
    "for epoch in range(10):\n%s    for batch in loader:\n        engine.backward(engine(batch))\n        engine.step()\n"
)
_FREEZE = "for p in model.encoder.parameters():\n    p.requires_grad = False\n"
_LATER = "    if epoch == 3:\n        for p in engine.module.encoder.parameters():\n            p.requires_grad = False\n"
_DECAYS = _STAGE_2.replace('"params": {', '"params": {"weight_decay": 0.01, ')


@rule(
    "DSP12",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer.__init__: the trainable parameters of a group",
        "torch/optim/adamw.py: a step decays each weight that has a gradient, and moves it by its average of gradients",
    ),
    setup=True,
)
@bad(
    _DECAYS,
    at="",
    program=_PARTS % ("", _FREEZE, ""),
    integration="deepspeed",
    message="train.py:6 sets p.requires_grad to False after deepspeed.initialize (train.py:4), whose optimizer has these weights: it goes on changing them by weight decay.",
)
@bad(
    _DECAYS,
    at="",
    program=_PARTS % ("", "", _LATER),
    integration="deepspeed",
    message="train.py:8 sets p.requires_grad to False after deepspeed.initialize (train.py:4), whose optimizer has these weights: it goes on changing them by weight decay.",
)
@good(_DECAYS, program=_PARTS % (_FREEZE, "", ""), integration="deepspeed")
@good(_STAGE_2, program=_PARTS % ("", _FREEZE, ""), integration="deepspeed")
@good(_DECAYS, program=_PARTS % ("", _FREEZE + _FREEZE.replace("False", "True"), ""), integration="deepspeed")
@good(_DECAYS, program=_PARTS % ("", _FREEZE.replace("model.encoder", "teacher.encoder"), ""), integration="deepspeed")
@good(
    _DECAYS.replace('"stage": 2', '"stage": 0'),
    program=_PARTS % ("", _FREEZE, ""),
    integration="deepspeed",
)
def frozen_too_late(config: Config) -> Iterator[Finding]:
    """The program freezes weights after `deepspeed.initialize`, whose optimizer already has them, with weight decay.

    ZeRO and the half precision optimizers keep the weights in flat buffers from the time when the engine is made. A weight that is frozen later
    has no gradient, but its place in the buffer has one of 0: weight decay goes on making it smaller in each step, and the averages of
    Adam of the steps before go on moving it. `torch.optim` alone leaves out a weight without a gradient.

    Freeze the weights before `deepspeed.initialize`, or put them into a parameter group of their own, and set its learning rate to 0 later.
    """
    program = config.setup.program if config.setup else None
    decay = config.value(_DECAY) if config.has(_DECAY) else UNKNOWN
    if program is None or not _has_copies(config) or not decay > 0 or config.facts.integration is not Integration.DEEPSPEED:
        return
    changes = list(program.events.of(re.escape(ENGINE), re.escape(FROZEN), re.escape(UNFROZEN)))
    makers = [one for one in changes if one.name == ENGINE]
    weights = SetWeights.of(config, makers[0]) if len(makers) == 1 and any(one.name == FROZEN for one in changes) else None
    if weights is None:
        return
    behind = [
        (one, which)
        for one in changes[changes.index(makers[0]) + 1 :]
        if not (one.flow or one.unlikely or one.tells_setups_apart) and (which := weights.set_in(one)) is not None
    ]
    unfrozen = {which[:1] for one, which in behind if one.name == UNFROZEN}
    frozen = next((one for one, which in behind if one.name == FROZEN and which[:1] not in unfrozen), None)
    steps = any(one.loops and one.flow == 0 for one in program.events.of(rf"{re.escape(ENGINE)}\.(step|train_batch)"))
    if frozen is None or not steps or not _is_stepped_after(config, program.events, program.events.all.index(frozen)):
        return
    yield Finding(
        "",
        f"{frozen.at.where} sets {frozen.at.raw} to False after deepspeed.initialize ({makers[0].at.where}), whose optimizer has these weights: it goes "
        "on changing them by weight decay.",
        help="Freeze them before deepspeed.initialize.",
        elsewhere=frozen.at.related(""),
        related=(makers[0].at.related("the engine is made here"),),
        certain=not frozen.handled and not frozen.conditions,
    )
