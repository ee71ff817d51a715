"""DS8: several engines in one program."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.job.events import ENGINE, FABRIC_SETUP, Event, GivenArgument
from dslint.job.model import Program
from dslint.record import Record
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.precision import model_dtype
from dslint.rules.helpers.zero import STAGE

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": true}'
_STAGE_1 = _STAGE_2.replace('"stage": 2', '"stage": 1')
_GAN = (
    "import deepspeed\nimport torch\n"
    "judge, _, _, _ = deepspeed.initialize(model=net_d, optimizer=torch.optim.Adam(net_d.parameters()), config='ds_config.json')\n"
    "maker, _, _, _ = deepspeed.initialize(model=net_g, optimizer=torch.optim.Adam(net_g.parameters()), config='ds_config.json')\n"
    "for real in loader:\n"
    "    fake = maker(torch.randn(4, 8))\n"
    "    judge.backward(judge(real).mean() - judge(fake.detach()).mean())\n"
    "    judge.step()\n"
    "%s"
    "    loss = criterion(%s, ones)\n"
    "    maker.backward(loss)\n"
    "    maker.step()\n"
)
_SHARED = (
    "import deepspeed\nimport torch\n"
    "optimizer = torch.optim.AdamW([*unet.parameters(), *encoder.parameters()])\n"
    "encoder, %s, _, _ = deepspeed.initialize(model=encoder, optimizer=optimizer, config='ds_config.json')\n"
    "unet, _, _, _ = deepspeed.initialize(model=unet, optimizer=%s, config='ds_config.json')\n"
)
_FABRIC_GAN = (
    "import lightning as L\nimport torch\nfrom lightning.fabric.strategies import DeepSpeedStrategy\n"
    "fabric = L.Fabric(strategy=DeepSpeedStrategy(config='ds_config.json'))\n"
    "judge, first = fabric.setup(judge, torch.optim.Adam(judge.parameters()))\n"
    "maker, second = fabric.setup(maker, torch.optim.Adam(maker.parameters()))\n"
    "for real in loader:\n"
    "    fake = maker(torch.randn(4, 8))\n"
    "    fabric.backward(judge(real).mean() - judge(fake.detach()).mean(), model=judge)\n"
    "    first.step()\n"
    "    loss = criterion(judge(fake).view(-1), ones)\n"
    "    fabric.backward(loss, model=maker)\n"
    "    second.step()\n"
)


@rule(
    "DS878",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, reduce_ipg_grads",
        "deepspeed/runtime/zero/stage3.py, __reduce_and_partition_ipg_grads",
        "https://github.com/deepspeedai/DeepSpeed/issues/4923",
    ),
    untried="the toy model of the test has one engine",
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_GAN % ("", "judge(fake).view(-1)"),
    integration="deepspeed",
    message="train.py:10 computes the gradients of another engine, too: its loss is made with judge. At ZeRO stage 2 the next backward pass of that engine raises AssertionError.",
)
@bad(
    _STAGE_2.replace('"stage": 2', '"stage": 3'),
    at="",
    program=_GAN % ("    output = net_d(fake)\n", "output"),
    integration="deepspeed",
    message="train.py:11 computes the gradients of another engine, too: its loss is made with net_d. At ZeRO stage 3 the next backward pass of that engine raises AssertionError.",
)
@bad(
    _STAGE_2,
    at="",
    program=_GAN % ("", "judge(fake)"),
    integration="deepspeed",
    deepspeed="0.14.0",
    message="train.py:10 computes the gradients of another engine, too: its loss is made with judge. At ZeRO stage 2 the next backward pass of that engine may fail.",
)
@bad(
    _STAGE_2,
    at="",
    program=_FABRIC_GAN,
    integration="lightning",
    message="train.py:12 computes the gradients of another engine, too: its loss is made with judge. At ZeRO stage 2 the next backward pass of that engine raises AssertionError.",
)
@good(_STAGE_2, program=_FABRIC_GAN.replace("judge(fake).view", "fake.view"), integration="lightning")
@good(_STAGE_1, program=_GAN % ("", "judge(fake)"), integration="deepspeed")
@good(_STAGE_2, program=_GAN % ("    net_d.requires_grad_(False)\n", "judge(fake)"), integration="deepspeed")
@good(
    _STAGE_2, program=_GAN % ("    with torch.no_grad():\n        output = judge(fake)\n", "output * maker(real)"), integration="deepspeed"
)
@good(_STAGE_2, program=_GAN % ("", "judge(fake).detach() * fake"), integration="deepspeed")
@good(_STAGE_2, program=_GAN % ("", "fake"), integration="deepspeed")
@good(_STAGE_2, program=(_GAN % ("", "judge(fake)")).replace(" - judge(fake.detach()).mean()", ""), integration="deepspeed")
@good(
    _STAGE_2,
    program=(_GAN % ("", "judge(fake)")).replace("net_g.parameters()), config='ds", "net_g.parameters()), config='other"),
    integration="deepspeed",
)
@good(_STAGE_2, program=(_GAN % ("", "judge(fake) - judge(fake)")).replace("judge.backward(", "print("), integration="deepspeed")
@good(_STAGE_2, program=_GAN % ("    choice = judge(fake) > 0\n", "choice * fake"), integration="deepspeed")
@good(
    _STAGE_2,
    program=_GAN % ("    output = judge(fake)\n    for output in loader:\n        pass\n", "output * fake"),
    integration="deepspeed",
)
def backward_through_another_engine(config: Config) -> Iterator[Finding]:
    """The loss of one engine is computed with the model of another one that trains, too, as in a GAN.

    Its backward pass also gives the other model gradients. At ZeRO stages 2 and 3 the hooks of the other engine collect them, and nobody
    tells that engine of the pass. If one of the two passes calls the other model more than once, as for real and for generated samples, the
    gradients are there already in the next backward pass of its engine, and DeepSpeed raises AssertionError (0.19.8 does with bf16, offload
    and accumulation, too). Of older releases people report a TypeError at the same place.

    Take the parameters of the other model out of this pass: `requires_grad_(False)` before it, and True after it.
    """
    program = config.setup.program if config.setup is not None else None
    if program is None or config.value(STAGE) not in (2, 3):
        return
    is_tried = config.facts.deepspeed >= _TRIED
    for event, other, is_called_again in _through_others(config, program):
        if is_tried and not is_called_again:
            continue
        yield Finding(
            STAGE,
            f"{event.at.where} computes the gradients of another engine, too: its loss is made with {other}. At ZeRO stage {config.value(STAGE)} "
            f"the next backward pass of that engine {'raises AssertionError' if is_tried else 'may fail'}.",
            help=f"Call requires_grad_(False) on the parameters of {other} before this backward pass, and requires_grad_(True) after it.",
            elsewhere=event.at.related("this backward pass"),
            certain=is_tried and event.certain and not event.unlikely,
        )


@rule(
    "DS879",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._do_sanity_check", "https://github.com/huggingface/diffusers/issues/3342"),
    untried="the toy model of the test has one engine",
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_SHARED % ("optimizer", "optimizer"),
    integration="deepspeed",
    message='train.py:5 passes the optimizer of another engine to deepspeed.initialize: DeepSpeed raises AssertionError "Client Optimizer is of unexpected type".',
)
@bad(
    _STAGE_2,
    at="",
    program=_SHARED % ("_", "optimizer"),
    integration="deepspeed",
    message="train.py:5 passes the optimizer that another engine has got, too (train.py:4): both engines divide all of its parameters, those of the other model, too.",
)
@good(_STAGE_2, program=_SHARED % ("_", "torch.optim.AdamW(unet.parameters())"), integration="deepspeed")
@good(_STAGE_2.replace('"stage": 2', '"stage": 0'), program=_SHARED % ("optimizer", "optimizer"), integration="deepspeed")
@good(
    _STAGE_2,
    program=(_SHARED % ("_", "optimizer"))
    .replace("encoder, _", "if args.encoder:\n    encoder, _")
    .replace("unet, _", "else:\n    unet, _"),
    integration="deepspeed",
)
def optimizer_of_two_engines(config: Config) -> Iterator[Finding]:
    """One optimizer for the weights of two models goes into two engines.

    An engine takes over the optimizer that it gets: ZeRO, fp16 and bf16 replace its parameters by parts of them in a wrapper of DeepSpeed. That
    wrapper is what `deepspeed.initialize` returns, and another engine refuses it with AssertionError. The optimizer itself, given to both
    engines, has weights of a model that the engine does not run.

    Give each engine an optimizer with the parameters of its model. Or put both models into one module, with one engine.
    """
    program = config.setup.program if config.setup is not None else None
    if program is None or not (config.value(STAGE) >= 1 or model_dtype(config) in ("fp16", "bf16")):
        return
    engines = [one for one in program.events.of(re.escape(ENGINE)) if one.argument("optimizer", 2) is not None]
    for number, engine in enumerate(engines):
        given = engine.argument("optimizer", 2)
        before = [one for one in engines[:number] if one.flow == engine.flow and not engine.excludes(one)]
        shared = next((one for one in before if _is_same(one.argument("optimizer", 2), given)), None)
        if given is None or engine.tells_setups_apart or engine.loops:
            continue
        if given.made == f"{ENGINE}.optimizer" and before:
            yield Finding(
                "",
                f"{engine.at.where} passes the optimizer of another engine to deepspeed.initialize: DeepSpeed raises AssertionError "
                '"Client Optimizer is of unexpected type".',
                help="Give each engine an optimizer with the parameters of its model.",
                elsewhere=engine.at.related(""),
                certain=engine.always,
            )
            return
        if shared is not None and _model(shared) != _model(engine):
            yield Finding(
                "",
                f"{engine.at.where} passes the optimizer that another engine has got, too ({shared.at.where}): both engines divide all of its parameters, "
                "those of the other model, too.",
                help="Give each engine an optimizer with the parameters of its model.",
                elsewhere=engine.at.related(""),
                related=(shared.at.related("also passed here"),),
                certain=False,
            )
            return


def _is_same(one: GivenArgument | None, other: GivenArgument | None) -> bool:
    return one is not None and other is not None and one.origin is not None and one.origin == other.origin


def _model(engine: Event) -> str:
    given = engine.argument("model", 1)
    return given.raw if given is not None else ""


_TRIED = Release(0, 19, 0)
"""The oldest minor release in which the error was seen."""

_MOST_PASSES = 10
"""How many backward passes of a program are followed. The GAN of DeepSpeedExamples has 3."""

_FREEZES = re.compile(r"requires_grad|toggle_|freeze|set_grad_enabled|detach_\(")
"""What may take the parameters of a model out of a backward pass."""


class _Pass(Record):
    """A backward pass: the engine that makes it, by the place of its call, and the names by which its loss calls models that have an engine."""

    event: Event
    engine: int | None
    models: tuple[str, ...]


def _through_others(config: Config, program: Program) -> Iterator[tuple[Event, str, bool]]:
    """The backward passes that go through the model of another engine that trains, each with the name of that model, and whether this pass
    or one of that engine calls it more than once.
    """
    engines = [one for one in program.events.of(re.escape(ENGINE), FABRIC_SETUP) if _trains(one) or config.has("optimizer")]
    events = list(program.events.of(re.escape(ENGINE) + r"\.backward", _FABRIC_BACKWARD))
    losses = [one.raw for each in events if (one := _loss(each)) is not None]
    if len(set(losses)) < len(losses):
        return  # one loss for both, whose graph the first pass frees
    if len(engines) != 2 or len({one.at.path for one in (*engines, *events)}) != 1 or config.setup is None:
        return
    if _config_of(engines[0]) != _config_of(engines[1]):
        return  # the other one may have another ZeRO stage
    document = config.setup.documents.get(engines[0].at.path)
    texts = [one.text for one in config.setup.documents.values() if one.language == "python"]
    if document is None or any(map(_FREEZES.search, texts)):
        return
    from dslint.rules.helpers.data_flow import Flow, names_set  # few programs have two engines
    from dslint.source.posted import tree_of_text

    tree = tree_of_text(document.text)
    if tree is None:
        return  # a notebook's cell
    try:
        owners = {name: one.start for one in engines for name in _names(one, names_set(tree, _line(one)))}
        passes = [
            _Pass(
                event, owners.get(_called_on(event)), tuple(name for name in Flow(tree, _line(event)).called_in(loss.raw) if name in owners)
            )
            for event in events[:_MOST_PASSES]
            if (loss := _loss(event)) is not None
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # an expression that is cut short
    for each in passes:
        other = next((name for name in each.models if owners[name] != each.engine), None)
        of_other = [its for its in passes if other is not None and its.engine == owners[other]]
        if each.engine is not None and other is not None and of_other:
            calls = ([owners[name] for name in its.models].count(owners[other]) for its in (each, *of_other))
            yield each.event, other, max(calls) > 1


_FABRIC_BACKWARD = r"lightning.*\.Fabric\.backward"


def _trains(engine: Event) -> bool:
    """Whether an engine gets an optimizer: with Fabric after the model."""
    return engine.argument("optimizer") is not None or (engine.name != ENGINE and engine.argument("", 1) is not None)


def _loss(event: Event) -> GivenArgument | None:
    return event.argument("loss", 0) or event.argument("tensor", 0)


def _config_of(engine: Event) -> tuple[str, ...]:
    """What a program writes for the config of an engine. Those of one Fabric have its config."""
    if engine.name != ENGINE:
        return (str(engine.origin),)
    given = (engine.argument("args", 0), engine.argument("config"), engine.argument("config_params"))
    return tuple(one.raw if one is not None else "" for one in given)


def _called_on(event: Event) -> str:
    """The engine of a backward pass: `engine.backward(loss)`, `fabric.backward(loss, model=engine)`."""
    given = event.argument("model")
    return given.raw if given is not None else event.at.raw.partition(".backward")[0]


def _names(engine: Event, set_names: list[str]) -> list[str]:
    """What the program calls the model of an engine: by the engine, and by the model."""
    model = engine.argument("model", 1) if engine.name == ENGINE else engine.argument("module", 0)
    return [*set_names[:1], *([model.raw] if model is not None else [])]


def _line(event: Event) -> int:
    return event.at.range.start.line if event.at.range is not None else 0
