"""DS7: gradient checkpointing that runs parts of the backward pass by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise, takewhile

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.job.events import CHECKPOINTS, ENGINE, MODELS, TRAINERS, Event
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.prepare import BACKWARD
from dslint.rules.helpers.reentrant import reentrant_by_trainer
from dslint.rules.helpers.releases import before_transformers_5
from dslint.rules.helpers.zero import STAGE
from dslint.source.tree import Document

_STAGE_2 = trained('"zero_optimization": {"stage": 2}')
_LOOP = (
    "import deepspeed\nimport torch\nfrom transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': %s})\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "for batch in loader:\n    chosen = engine(**batch['chosen']).loss\n%s    engine.backward(chosen - rejected)\n    engine.step()\n"
)
_SECOND = "    rejected = engine(**batch['rejected']).loss\n"
_FROZEN = "    with torch.no_grad():\n        rejected = engine(**batch['rejected']).loss\n"
_TEACHER = (
    "from accelerate import Accelerator\nfrom transformers import AutoModel\naccelerator = Accelerator()\n"
    "student = AutoModel.from_pretrained('s')\nstudent.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': True})\n"
    "teacher = AutoModel.from_pretrained('t')\nstudent, optimizer, loader = accelerator.prepare(student, optimizer, loader)\n"
    "for batch in loader:\n    loss = student(batch)\n    one = teacher(batch)\n    other = teacher(batch)\n    accelerator.backward(loss - one - other)\n"
)
_PAIRS = (
    "import torch\nfrom transformers import AutoModel, Trainer, TrainingArguments\n"
    "class Pairs(Trainer):\n    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):\n"
    "        chosen = model(**inputs['chosen']).logits\n%s        return (rejected - chosen).mean()\n"
    "arguments = TrainingArguments('out', deepspeed='ds_config.json', gradient_checkpointing=True)\n"
    "Pairs(AutoModel.from_pretrained('m'), arguments, train_dataset=data).train()\n"
)
_REJECTED = "        rejected = model(**inputs['rejected']).logits\n"
_OLD = {"transformers": Release(4, 45, 2)}


@rule(
    "DS709",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, reduce_independent_p_g_buckets_and_remove_grads",
        "deepspeed/runtime/zero/stage3.py, __reduce_and_partition_ipg_grads",
    ),
    untried="raised in the backward pass of the program; it was tried with two forward passes of a small model",
    setup=True,
)
@bad(
    _STAGE_2,
    at="zero_optimization.stage",
    program=_LOOP % ("True", _SECOND),
    integration="deepspeed",
    message='train.py:9 runs the model again before backward, with reentrant checkpointing (train.py:5): its weights may get gradients twice, and DeepSpeed raises "has already been reduced. Gradient computed twice for this partition".',
)
@good(_STAGE_2, program=_LOOP % ("False", _SECOND), integration="deepspeed")
@good(_STAGE_2, program=_LOOP % ("True", _FROZEN), integration="deepspeed")
@good(_STAGE_2, program=_LOOP % ("True", "    if both:\n    " + _SECOND), integration="deepspeed")
@good(_STAGE_2, program=_LOOP % ("True", _SECOND.replace(".loss", ".loss.detach()")), integration="deepspeed")
@good(_STAGE_2, program=_TEACHER, integration="accelerate")
@good(trained('"zero_optimization": {"stage": 1}'), program=_LOOP % ("True", _SECOND), integration="deepspeed")
@bad(
    _STAGE_2,
    at="zero_optimization.stage",
    program=_PAIRS % _REJECTED,
    integration="transformers",
    pins=_OLD,
    message='train.py:6 runs the model again in compute_loss, with reentrant checkpointing (train.py:8): its weights may get gradients twice, and DeepSpeed raises "has already been reduced. Gradient computed twice for this partition".',
)
@good(_STAGE_2, program=_PAIRS % _REJECTED, integration="transformers", pins={"transformers": Release(5, 1, 0)})
@good(_STAGE_2, program=_PAIRS % _REJECTED, integration="transformers")
@bad(
    _STAGE_2,
    at="zero_optimization.stage",
    program=_PAIRS % _REJECTED,
    integration="transformers",
    pins={"accelerate": Release(0, 30, 1)},
    message='train.py:6 runs the model again in compute_loss, with reentrant checkpointing (train.py:8): its weights may get gradients twice, and DeepSpeed raises "has already been reduced. Gradient computed twice for this partition".',
)
@good(_STAGE_2, program=(_PAIRS % _REJECTED).replace("ing=True", "ing=False"), integration="transformers", pins=_OLD)
@good(_STAGE_2, program=_PAIRS % "        rejected = margin\n", integration="transformers", pins=_OLD)
@good(_STAGE_2, program=_PAIRS % ("        with torch.no_grad():\n    " + _REJECTED), integration="transformers", pins=_OLD)
@good(_STAGE_2, program=_PAIRS % (_REJECTED + "        rejected = rejected.detach()\n"), integration="transformers", pins=_OLD)
@good(
    _STAGE_2,
    program=(_PAIRS % _REJECTED).replace("model(**inputs['rej", "self.teacher(**inputs['rej"),
    integration="transformers",
    pins=_OLD,
)
@good(_STAGE_2, program=_PAIRS % ("        if margin is None:\n    " + _REJECTED), integration="transformers", pins=_OLD)
@good(
    _STAGE_2,
    program=(_PAIRS % _REJECTED).replace("ing=True", "ing=True, gradient_checkpointing_kwargs={'use_reentrant': False}"),
    integration="transformers",
    pins=_OLD,
)
def forward_twice_with_reentrant_checkpointing(config: Config) -> Iterator[Finding]:
    """The program runs its model twice before one backward pass, with reentrant gradient checkpointing, at ZeRO stage 2 or 3.

    Reentrant checkpointing runs a backward pass of its own for each part of the model and each forward pass, so that each weight gets a
    gradient twice. Stage 2, and stage 1 with `overlap_comm`, reduce a gradient as soon as it is there, and raise AssertionError "The
    parameter ... has already been reduced. Gradient computed twice for this partition"; stage 3 fails an assertion without a text.
    Before its release 5 transformers checkpoints reentrantly by default.

    Set `gradient_checkpointing_kwargs={"use_reentrant": False}`, or run both inputs in one forward pass.
    """
    program, stage = config.setup.program if config.setup else None, config.value(STAGE)
    at_once = stage in (2, 3) or (stage == 1 and config.value("zero_optimization.overlap_comm") is True)
    if program is None or not at_once:
        return
    yield from _in_loss_of_trainer(config, program)
    enabled = _reentrant(config, program)
    again = _second_forward(config, program) if enabled is not None else None
    is_same = again is not None and enabled is not None and (again.name.startswith(ENGINE) or again.origin == enabled.origin)
    if enabled is not None and again is not None and is_same:
        error = "fails an assertion" if stage == 3 else 'raises "has already been reduced. Gradient computed twice for this partition"'
        yield Finding(
            STAGE,
            f"{again.at.where} runs the model again before backward, with reentrant checkpointing ({enabled.at.where}): its weights may get "
            f"gradients twice, and DeepSpeed {error}.",
            help='Set gradient_checkpointing_kwargs={"use_reentrant": False}, or run both inputs in one forward pass.',
            related=(again.at.related("the second forward pass"), enabled.at.related("reentrant")),
            certain=False,
        )


def _in_loss_of_trainer(config: Config, program: Program) -> Iterator[Finding]:
    """The finding for a `compute_loss` of a Trainer that runs its model twice: the Trainer runs one backward pass behind it."""
    stage = config.value(STAGE)
    enabled = reentrant_by_trainer(config, program.events) if before_transformers_5(config) else None
    if enabled is None:
        return
    calls = [one for one in program.events.of(rf"{TRAINERS}\.model\.__call__") if one.function.endswith(".compute_loss") and one.certain]
    documents = config.setup.documents if config.setup else {}
    for first, second in pairwise(calls):
        is_twice = first.function == second.function and first.origin == second.origin is not None and not second.loops
        free = not any(_ABOUT_GRADIENTS.search(" ".join(one.within)) for one in (first, second))
        if is_twice and free and _in_one_block(documents, first, second) and not _stops_gradients(documents, second):
            error = "fails an assertion" if stage == 3 else 'raises "has already been reduced. Gradient computed twice for this partition"'
            yield Finding(
                STAGE,
                f"{second.at.where} runs the model again in compute_loss, with reentrant checkpointing ({enabled.where}): its weights may get "
                f"gradients twice, and DeepSpeed {error}.",
                help='Set gradient_checkpointing_kwargs={"use_reentrant": False}, or run both inputs in one forward pass.',
                related=(second.at.related("the second forward pass"), enabled.related("reentrant")),
                certain=False,
            )
            return


def _stops_gradients(documents: Mapping[str, Document], call: Event) -> bool:
    """Whether something in the rest of the function stops gradients."""
    document = documents.get(call.at.path)
    if document is None or call.at.range is None:
        return True
    first, *rest = document.text.splitlines()[call.at.range.start.line - 1 :]
    depth = len(first) - len(first.lstrip())
    own = takewhile(lambda line: not line.strip() or len(line) - len(line.lstrip()) >= depth, rest)
    return any(_WITHOUT_GRADIENTS.search(line) for line in own)


_REENTRANT = re.compile(r"use_reentrant[\"']?\s*[:=]\s*True")


def _reentrant(config: Config, program: Program) -> Event | None:
    """The call that enables reentrant checkpointing for certain."""
    for call in program.events.of(CHECKPOINTS):
        given = call.argument("gradient_checkpointing_kwargs", 0)
        by_default = given is None and call.complete and before_transformers_5(config)
        if call.certain and (by_default or (given is not None and _REENTRANT.search(given.raw))):
            return call
    return None


def _second_forward(config: Config, program: Program) -> Event | None:
    """The second of two forward passes of the same model in the same lines, with one backward pass behind both."""
    names = rf"({re.escape(ENGINE)}|{MODELS})\.__call__", rf"{re.escape(ENGINE)}\.backward", BACKWARD
    calls = [one for one in program.events.of(*names) if one.certain and one.loops and not _ABOUT_GRADIENTS.search(" ".join(one.within))]
    for first, (second, last) in zip(calls, pairwise(calls[1:]), strict=False):
        is_twice = first.name.endswith(".__call__") and second.name == first.name and second.origin == first.origin is not None
        if (
            is_twice
            and last.name.endswith(".backward")
            and _in_one_block(config.setup.documents if config.setup else {}, first, second, last)
        ):
            return second
    return None


_ABOUT_GRADIENTS = re.compile(r"no_grad|inference_mode")


_WITHOUT_GRADIENTS = re.compile(r"\.detach\(|\.eval\(|set_grad_enabled\(|gradient_checkpointing_disable")


def _in_one_block(documents: Mapping[str, Document], *calls: Event) -> bool:
    """Whether calls stand in lines of the same indentation, with none of a smaller one between them, and none that stops gradients."""
    paths = {one.at.path for one in calls}
    document = documents.get(paths.pop()) if len(paths) == 1 else None
    if document is None:
        return False
    lines = document.text.splitlines()
    numbers = [one.at.range.start.line for one in calls if one.at.range is not None]
    if len(numbers) != len(calls) or sorted(set(numbers)) != numbers or numbers[-1] > len(lines):
        return False
    if any(_WITHOUT_GRADIENTS.search(line) for line in lines[numbers[0] - 1 : numbers[-1]]):
        return False
    depths = [len(line) - len(line.lstrip()) for line in lines[numbers[0] - 1 : numbers[-1]] if line.strip()]
    return {len(lines[number - 1]) - len(lines[number - 1].lstrip()) for number in numbers} == {min(depths)}
