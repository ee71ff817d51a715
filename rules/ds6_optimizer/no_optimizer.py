"""DS6: programs that give DeepSpeed no optimizer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.prepare import PREPARE, selects_plugin, without_loader, without_optimizer
from dslint.rules.helpers.zero import STAGE

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
_STAGE_3 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}'
_PROGRAM = (
    "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters()%s, config='ds_config.json')\n"
)
_FABRIC = (
    "import lightning as L\nfrom lightning.fabric.strategies import DeepSpeedStrategy\n"
    "fabric = L.Fabric(strategy=DeepSpeedStrategy(config='ds_config.json'))\n"
)
_PREPARED = "from accelerate import Accelerator\nfrom transformers import AutoModel\naccelerator, model = Accelerator(), AutoModel.from_pretrained('m')\n"
_BACKWARD = "engine.backward(engine(batch))\n"
_TRAINED = "actor, *_ = deepspeed.initialize(model=trained, optimizer=optimizer, config='ds_config.json')\nactor.backward(actor(batch) - engine(batch))\nactor.step()\n"


@rule(
    "DS654",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("!optimizer",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_zero_optimizer",),
    untried="raised where the program passes no optimizer; a test of its own initializes without one",
)
@bad(
    _STAGE_2,
    at="zero_optimization.stage",
    program=_PROGRAM % "",
    integration="deepspeed",
    message='The program passes no optimizer to deepspeed.initialize, and the config has no section optimizer: DeepSpeed raises AssertionError "zero stage 2 requires an optimizer".',
)
@bad(
    _STAGE_3,
    at="",
    program=_PROGRAM % "" + _BACKWARD,
    integration="deepspeed",
    message="The program passes no optimizer to deepspeed.initialize, and the config has no section optimizer: DeepSpeed may raise at the first backward of the engine.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4}',
    at="",
    program=_PROGRAM % "" + _BACKWARD,
    integration="deepspeed",
    message="The program passes no optimizer to deepspeed.initialize, and the config has no section optimizer: DeepSpeed may raise at the first backward of the engine.",
)
@bad(
    _STAGE_2,
    at="zero_optimization.stage",
    program=_PREPARED + "model, loader = accelerator.prepare(model, loader)\n",
    integration="accelerate",
    message='train.py:4 prepares the model without an optimizer, and the config has no section optimizer: DeepSpeed raises AssertionError "zero stage 2 requires an optimizer".',
)
@good(_STAGE_2, program=_PREPARED + "model, what, loader = accelerator.prepare(model, what, loader)\n", integration="accelerate")
@good(_STAGE_2, program=_PREPARED + "model, data_opt, loader = accelerator.prepare(model, data_opt, loader)\n", integration="accelerate")
@good(_STAGE_2, program=_PREPARED + "model, loader_state = accelerator.prepare(model, loader_state)\n", integration="accelerate")
@good(_STAGE_3, program=_PREPARED + "model, loader = accelerator.prepare(model, loader)\n", integration="accelerate")
@good(
    _STAGE_2,
    program=_PREPARED + "accelerator.state.select_deepspeed_plugin('teacher')\nmodel = accelerator.prepare(model)\n",
    integration="accelerate",
)
@bad(
    _STAGE_2,
    at="zero_optimization.stage",
    program=_FABRIC + "model, optimizer = fabric.setup(model, optimizer)\nencoder = fabric.setup(encoder)\n",
    integration="lightning",
    message='train.py:5 sets the model up without an optimizer, and Fabric gives it to DeepSpeed, which raises AssertionError "zero stage 2 requires an optimizer".',
)
@bad(
    _STAGE_2,
    at="zero_optimization.stage",
    program=_FABRIC + "model = fabric.setup_module(model)\noptimizer = fabric.setup_optimizers(optimizer)\n",
    integration="lightning",
    message='train.py:4 sets the model up without an optimizer, and Fabric gives it to DeepSpeed, which raises AssertionError "zero stage 2 requires an optimizer".',
)
@good(_STAGE_2, program=_FABRIC + "model, optimizer = fabric.setup(model, optimizer)\n", integration="lightning")
@good(
    _STAGE_2,
    program=_FABRIC + "other = L.Fabric(devices=1)\nmodel, optimizer = fabric.setup(model, optimizer)\nteacher = other.setup(teacher)\n",
    integration="lightning",
)
@good(
    _STAGE_2,
    program=_FABRIC + "def evaluate():\n    return fabric.setup(model)\nmodel, optimizer = fabric.setup(model, optimizer)\n",
    integration="lightning",
)
@good(_STAGE_3, program=_FABRIC + "model = fabric.setup(model)\n", integration="lightning")
@good(_STAGE_2, program=_PROGRAM % ", optimizer=optimizer", integration="deepspeed")
@good(_STAGE_3, program=_PROGRAM % "", integration="deepspeed")
@good(_STAGE_3, program=_PROGRAM % "" + _TRAINED, integration="deepspeed")
@good(trained('"zero_optimization": {"stage": 2}'), program=_PROGRAM % "", integration="deepspeed")
def no_optimizer(config: Config) -> Iterator[Finding]:
    """Neither the config nor the program gives DeepSpeed an optimizer.

    DeepSpeed uses the optimizer that the program passes to `deepspeed.initialize`, or builds the one of the section `optimizer`. ZeRO stages
    1 and 2 partition its states: without both DeepSpeed raises "zero stage 2 requires an optimizer". At the other stages it raises at the
    first `backward` of the engine. An optimizer that the program only creates does not count, and neither do `model_parameters`.

    Accelerate calls `deepspeed.initialize` for each `prepare` with a model, and passes the optimizer of the same call. A reference model that
    is prepared alone at stage 1 or 2 raises, too.

    So does Fabric for a `setup` with a model alone, also of a frozen encoder.

    Pass `optimizer=` to `deepspeed.initialize`, the optimizer to the `prepare` of its model, or write the section. A program that only evaluates needs stage 0, or stage 3.
    """
    program, stage = config.setup.program if config.setup else None, config.value(STAGE)
    if config.facts.integration is Integration.ACCELERATE and program is not None and stage in (1, 2):
        yield from _prepared(config, program, stage)
        return
    if config.facts.integration is Integration.LIGHTNING and program is not None and program.fabric and stage in (1, 2):
        yield from _set_up_by_fabric(config, program, stage)
        return
    if program is None or program.passed is None or "optimizer" in program.passed or config.has("optimizer"):
        return
    if config.facts.integration is not Integration.DEEPSPEED or not (stage in (1, 2) or (program.engine_backward and stage in (0, 3))):
        return
    link, own = config.setup.link if config.setup else None, config.context.own_loader
    created = program.torch_optimizer
    partitions = stage in (1, 2)
    outcome = f'AssertionError "zero stage {stage} requires an optimizer"' if partitions else "at the first backward of the engine"
    yield Finding(
        STAGE if partitions else "",
        f"{own.name if own is not None else 'The program'} passes no optimizer to deepspeed.initialize, and the config has no section optimizer: DeepSpeed raises {outcome}.",
        help=f"Pass {'optimizer=' if created is None else 'the optimizer'} to deepspeed.initialize, or write the section."
        if own is None
        else "Write the section.",
        related=tuple(
            one.related(text) for one, text in ((created, "created, but not passed"), (link, "passes no optimizer")) if one is not None
        ),
        phase=Phase.INITIALIZE if partitions else Phase.STEP,
        certain=partitions and not _in_branch(program),
    )


def _in_branch(program: Program) -> bool:
    """Whether only the run knows which of several engines the program makes, and another one gets an optimizer."""
    engines = list(program.events.of(r"deepspeed\.initialize"))
    without = [one for one in engines if one.argument("optimizer", 2) is None]
    return len(without) < len(engines) and not any(one.certain for one in without)


def _prepared(config: Config, program: Program, stage: int) -> Iterator[Finding]:
    """The first `prepare` of Accelerate with a model and no optimizer. A program that selects between several configs is left out."""
    if without_loader(config) is not None:
        return  # that call raises before
    if config.has("optimizer") or any("zero_optimization" in path for path in program.sets):
        return
    if selects_plugin(config):
        return
    for call in program.events.of(PREPARE):
        if not (call.certain or call.likely) or call.tells_setups_apart or not without_optimizer(call):
            continue
        yield Finding(
            STAGE,
            f"{call.at.where} prepares the model without an optimizer, and the config has no section optimizer: DeepSpeed raises "
            f'AssertionError "zero stage {stage} requires an optimizer".',
            help="Pass the optimizer to the same prepare. A model that is not trained needs only accelerator.device, or stage 3.",
            related=(call.at.related("prepared here"),),
            certain=call.certain and call.flow == 0,
        )
        return


def _set_up_by_fabric(config: Config, program: Program, stage: int) -> Iterator[Finding]:
    """The first `setup` of Fabric with a model and no optimizer, unless a call of `setup_optimizers` raises before (DS990)."""
    first = next(program.events.of(r"lightning.*\.Fabric\.(setup|setup_module|setup_optimizers)"), None)
    if config.has("optimizer") or first is None or first.name.endswith("setup_optimizers"):
        return
    documents = config.setup.documents.values() if config.setup else ()
    if sum(len(_FABRICS.findall(document.text)) for document in documents if document.language == "python") > 1:
        return  # one of them may be without DeepSpeed
    for call in program.events.of(r"lightning.*\.Fabric\.(setup|setup_module)"):
        alone = call.name.endswith("setup_module") or not call.arguments.keys() - {"0", "module", "move_to_device", "_reapply_compile"}
        if call.flow or not (call.certain or call.likely) or call.tells_setups_apart or not call.complete or not alone:
            continue  # nothing calls the function, or what it gives is not known
        yield Finding(
            STAGE if config.has(STAGE) else "",
            f"{call.at.where} sets the model up without an optimizer, and Fabric gives it to DeepSpeed, which raises AssertionError "
            f'"zero stage {stage} requires an optimizer".',
            help="Pass the optimizer to the same setup. Move a model that is not trained with model.to(fabric.device).",
            related=(call.at.related("set up here"),),
            certain=call.certain,
        )
        return


_FABRICS = re.compile(r"\bFabric\s*\(")
