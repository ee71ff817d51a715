"""DS9: adapters at ZeRO stage 3 with activation checkpointing that is not reentrant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Place, Range
from dslint.job.arguments import SourcedValue, given_at
from dslint.job.events import MODELS, TRAINERS, is_true
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.model import makes_adapter
from dslint.rules.helpers.project import blocks_around
from dslint.rules.helpers.zero import STAGE
from dslint.source.tree import Member, Scalar

_STAGE_3 = (
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, '
    '"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
)
_STAGE_2 = _STAGE_3.replace('"stage": 3', '"stage": 2')

_CHECKPOINTED = (
    "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json", gradient_checkpointing=True, '
    'gradient_checkpointing_kwargs={"use_reentrant": %s})\n'
    'model = get_peft_model(AutoModelForCausalLM.from_pretrained("m"), LoraConfig(r=8))\ntrainer = Trainer(model, arguments)\n'
)
_SELECTIVE = re.compile(r"selective[\"']?\s*[:=]\s*True")
_SELECTED = (
    "from peft import LoraConfig\nfrom trl import SFTConfig, SFTTrainer\n"
    'arguments = SFTConfig("out", deepspeed="ds_config.json", gradient_checkpointing_kwargs={"selective": True})\n'
    'trainer = SFTTrainer("m", arguments, peft_config=LoraConfig(r=8))\n'
)
_NOT_REENTRANT = re.compile(r"use_reentrant[\"']?\s*[:=]\s*False")
_SETS_IT = re.compile(
    r"(?m)^([ \t]*)(\w*args|arguments)\.gradient_checkpointing_kwargs[ \t]*=[ \t]*(\{[^{}\n]{0,200}\}|dict\([^()\n]{0,200}\))[ \t]*(?:#.*)?$"
)
_CHANGES_IT = re.compile(r"\.gradient_checkpointing_kwargs[ \t]*(?:[\[.]|=(?!=))")
_BRANCH = re.compile(r"(?:if|elif|else|for|while|try|except|match|case)\b")
_ASSIGNED = (
    "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'args = TrainingArguments("out", deepspeed="ds_config.json", gradient_checkpointing=%s)\n'
    'model = get_peft_model(AutoModelForCausalLM.from_pretrained("m"), LoraConfig(r=8))\n'
    'args.gradient_checkpointing_kwargs = {"use_reentrant": %s}\ntrainer = Trainer(model, args)\n'
)
_ASSIGNED_IF = (_ASSIGNED % (True, False)).replace("args.gradient_checkpointing_kwargs", "if %s:\n    args.gradient_checkpointing_kwargs")


@rule(
    "DS972",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "https://github.com/huggingface/transformers/issues/47254",
        "https://github.com/huggingface/trl/pull/6356",
        "https://github.com/deepspeedai/DeepSpeed/issues/4332",
    ),
    untried="requires several ranks, and PEFT; taken from the issues",
    setup=True,
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_CHECKPOINTED % "False",
    integration="transformers",
    message='train.py:3 sets gradient_checkpointing_kwargs to {"use_reentrant": False}, and the program trains an adapter: at ZeRO stage 3 the backward pass raises CheckpointError "Recomputed values for the following tensors have different metadata".',
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_SELECTED,
    integration="transformers",
    message='train.py:3 sets gradient_checkpointing_kwargs to {"selective": True}, and the program trains an adapter: at ZeRO stage 3 SFTTrainer may raise that it is not supported with PEFT and DeepSpeed.',
)
@good(_STAGE_2, program=_SELECTED, integration="transformers")
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_ASSIGNED % (True, False),
    integration="transformers",
    message='train.py:5 sets gradient_checkpointing_kwargs to {"use_reentrant": False}, and the program trains an adapter: at ZeRO stage 3 the backward pass may raise CheckpointError "Recomputed values for the following tensors have different metadata".',
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_ASSIGNED_IF % "args.gradient_checkpointing",
    integration="transformers",
    message='train.py:6 sets gradient_checkpointing_kwargs to {"use_reentrant": False}, and the program trains an adapter: at ZeRO stage 3 the backward pass may raise CheckpointError "Recomputed values for the following tensors have different metadata".',
)
@good(_STAGE_3, program=_ASSIGNED_IF % "not args.gradient_checkpointing", integration="transformers")
@good(_STAGE_3, program=_ASSIGNED_IF % "args.gradient_checkpointing and stage < 3", integration="transformers")
@good(_STAGE_3, program=_ASSIGNED_IF % "other_args.gradient_checkpointing", integration="transformers")
@good(_STAGE_3, program=_ASSIGNED_IF % "args.gradient_checkpointing:\n    pass\nelse", integration="transformers")
@good(_STAGE_2, program=_ASSIGNED_IF % "args.gradient_checkpointing", integration="transformers")
@good(_STAGE_3, program=_ASSIGNED % (True, True), integration="transformers")
@good(_STAGE_3, program=_ASSIGNED % (False, False), integration="transformers")
@good(_STAGE_3, program=(_ASSIGNED % (True, "False} if half else {'use_reentrant': True")), integration="transformers")
@good(
    _STAGE_3,
    program=(_ASSIGNED % (True, False)).replace("args.gradient_checkpointing_kwargs", "other_args.gradient_checkpointing_kwargs"),
    integration="transformers",
)
@good(
    _STAGE_3,
    program=(_ASSIGNED % (True, False)).replace("trainer =", 'args.gradient_checkpointing_kwargs["use_reentrant"] = True\ntrainer ='),
    integration="transformers",
)
@good(
    _STAGE_3,
    program=(_ASSIGNED % (True, False)).replace(
        "args.gradient_checkpointing_kwargs", "if without_zero_3:\n    args.gradient_checkpointing_kwargs"
    ),
    integration="transformers",
)
@good(_STAGE_3, program=_CHECKPOINTED % "True", integration="transformers")
@good(_STAGE_2, program=_CHECKPOINTED % "False", integration="transformers")
@good(
    _STAGE_3,
    program="from transformers import AutoModelForCausalLM\nfrom trl import DPOConfig, DPOTrainer, ModelConfig, TrlParser, get_peft_config\n"
    'arguments = DPOConfig("out", deepspeed="ds_config.json", gradient_checkpointing_kwargs={"use_reentrant": False})\n'
    'trainer = DPOTrainer("m", args=arguments, peft_config=get_peft_config(TrlParser(ModelConfig).parse_args_and_config()[0]))\n',
    integration="transformers",
)
def adapter_checkpointed_without_reentry(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 an adapter is trained with gradient checkpointing and `use_reentrant=False`.

    The checkpointing of torch that is not reentrant compares the tensors that it saved with those that it computes again. The weights that PEFT
    freezes are gathered in the forward pass, and divided again when the backward pass computes them: torch raises CheckpointError "Recomputed
    values for the following tensors have different metadata than during the forward pass", with the shape [0]. Newer releases of TRL turn
    reentry on themselves, with a warning, and refuse `"selective": True`, which is not reentrant.

    Set `gradient_checkpointing_kwargs={"use_reentrant": True}`, or use ZeRO stage 2.
    """
    program = config.setup.program if config.setup else None
    if not config.value(STAGE) >= 3:
        return
    argument = _not_reentrant_argument(config)
    if argument is not None:
        yield Finding(
            STAGE,
            f"{argument.where} sets use_reentrant to {argument.raw}, and an adapter is trained: at ZeRO stage 3 the backward pass may raise "
            'CheckpointError "Recomputed values for the following tensors have different metadata".',
            help="Set use_reentrant to true.",
            related=(argument.related("set here"),),
            certain=False,
        )
        return
    if program is None:
        return
    events = program.events
    trainers = list(events.of(TRAINERS))
    if not makes_adapter(program):
        return
    name = "gradient_checkpointing_kwargs"
    for event in events.of(r"(transformers|trl)\.(\w+\.)*\w*(Arguments|Config)", rf"({MODELS})\.gradient_checkpointing_enable"):
        given = event.argument(name, 0 if event.name.endswith("_enable") else None)
        on = event.name.endswith("_enable") or is_true(event.argument("gradient_checkpointing"))
        if given is not None and event.name.endswith("SFTConfig") and _SELECTIVE.search(given.raw):
            raises = "SFTTrainer may raise that it is not supported with PEFT and DeepSpeed"
            advice, certain = 'Remove "selective", or use ZeRO stage 2.', False
        elif given is not None and on and _NOT_REENTRANT.search(given.raw):
            raises = 'the backward pass raises CheckpointError "Recomputed values for the following tensors have different metadata"'
            advice, certain = 'Set "use_reentrant" to True.', not any(one.name.startswith("trl.") for one in trainers)
        else:
            continue
        yield Finding(
            STAGE,
            f"{event.at.where} sets {name} to {given.raw}, and the program trains an adapter: at ZeRO stage 3 {raises}.",
            help=advice,
            related=(event.at.related("set here"),),
            certain=certain,
        )
        return
    assigned = _assigned_not_reentrant(config, program)
    if assigned is not None:
        yield Finding(
            STAGE,
            f"{assigned.where} sets {name} to {assigned.raw}, and the program trains an adapter: at ZeRO stage 3 the backward pass may raise "
            'CheckpointError "Recomputed values for the following tensors have different metadata".',
            help='Set "use_reentrant" to True.',
            related=(assigned.related("set here"),),
            certain=False,
        )


def _assigned_not_reentrant(config: Config, program: Program) -> SourcedValue | None:
    """The only assignment to `gradient_checkpointing_kwargs` of the arguments that a Trainer gets, where checkpointing is on: outside of
    branches, but for one that asks whether it is on.
    """
    given = config.arguments.get("gradient_checkpointing") if config.arguments is not None else None
    made = program.events.of(r"(transformers|trl)\.(\w+\.)*\w*(Arguments|Config)")
    on = given.value is True if given is not None else any(is_true(one.argument("gradient_checkpointing")) for one in made)
    documents = config.setup.documents.items() if on and config.setup is not None else ()
    programs = [(path, one) for path, one in documents if one.language == "python"]
    found = [(path, one, match) for path, one in programs for match in _SETS_IT.finditer(one.text)]
    if len(found) != 1 or sum(len(_CHANGES_IT.findall(one.text)) for _, one in programs) != 1:
        return None
    path, document, match = found[0]
    if all(given is None or given.raw != match[2] for given in (one.argument("args", 1) for one in program.events.of(TRAINERS))):
        return None
    around = blocks_around(document.text[: match.start(2)])
    is_on = re.compile(rf"if {match[2]}\.gradient_checkpointing[ \t]*:")
    if not _NOT_REENTRANT.search(match[3]) or any(_BRANCH.match(one) and "__name__" not in one and not is_on.match(one) for one in around):
        return None
    line, begin = document.text.count("\n", 0, match.start()) + 1, match.start()
    start, end = (Place(line, at - begin + 1, at) for at in (match.start(2), match.end(3)))
    return SourcedValue(None, "gradient_checkpointing_kwargs", match[3], path, Range(start, end))


def _not_reentrant_argument(config: Config) -> SourcedValue | None:
    """`use_reentrant: false` in a training file that trains an adapter with gradient checkpointing.

    Source: axolotl/utils/schemas/validation.py, warn_qlora_zero3_w_use_reentrant.
    """
    arguments = config.arguments
    checkpointing = arguments.get("gradient_checkpointing") if arguments is not None else None
    document = config.setup.documents.get(arguments.path) if config.setup is not None and arguments is not None else None
    program = config.setup.program if config.setup is not None else None
    if document is None or arguments is None or checkpointing is None or checkpointing.value is not True:
        return None
    from dslint.frameworks.workload import told_by  # most configs have no such arguments

    trains_adapter = "lora_rank" in told_by(arguments).options or (program is not None and makes_adapter(program))
    if not trains_adapter:
        return None
    path = ("gradient_checkpointing_kwargs", "use_reentrant")
    found = document.lookup(path)
    value = found.value.value if isinstance(found, Member) and isinstance(found.value, Scalar) else None
    return given_at(document, arguments.path, path, "", value) if value is False else None
