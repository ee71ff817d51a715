"""DS9: adapters at ZeRO stage 3 with activation checkpointing that is not reentrant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Place, Range
from dslint.facts import Release
from dslint.facts.find_release import ReleaseSource
from dslint.job.arguments import SourcedValue, given_at
from dslint.job.events import MODELS, TRAINERS, is_true
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.model import makes_adapter
from dslint.rules.helpers.project import blocks_around
from dslint.rules.helpers.reentrant import checkpointed_by_default
from dslint.rules.helpers.releases import TRANSFORMERS_5, release_of
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
_BY_DEFAULT = (_CHECKPOINTED % "").replace(', gradient_checkpointing_kwargs={"use_reentrant": }', "")
_SELECTIVE = re.compile(r"selective[\"']?\s*[:=]\s*True")
_SELECTED = (
    "from peft import LoraConfig\nfrom trl import SFTConfig, SFTTrainer\n"
    'arguments = SFTConfig("out", deepspeed="ds_config.json", gradient_checkpointing_kwargs={"selective": True})\n'
    'trainer = SFTTrainer("m", arguments, peft_config=LoraConfig(r=8))\n'
)
_OPTIONS = "gradient_checkpointing_kwargs"
_MENDED = Release(0, 19, 3)
"""The first release of DeepSpeed that keeps frozen weights while checkpointing computes again: deepspeed/runtime/zero/
partitioned_param_coordinator.py, release_sub_module, `in_checkpoint_recompute`."""
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
        "https://github.com/deepspeedai/DeepSpeed/pull/8148",
        "transformers/modeling_utils.py, PreTrainedModel.gradient_checkpointing_enable of 4.57.1 and 5.0.0",
    ),
    untried="requires PEFT; frozen weights in a checkpointed block raise with DeepSpeed 0.19.2 and train with 0.19.3 and 0.19.8",
    setup=True,
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_CHECKPOINTED % "False",
    integration="transformers",
    deepspeed="0.19.2",
    message='train.py:3 sets gradient_checkpointing_kwargs to {"use_reentrant": False}, and the program trains an adapter: at ZeRO stage 3 of DeepSpeed 0.19.2 the backward pass raises CheckpointError "Recomputed values for the following tensors have different metadata".',
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
    deepspeed="0.19.2",
    message='train.py:5 sets gradient_checkpointing_kwargs to {"use_reentrant": False}, and the program trains an adapter: at ZeRO stage 3 of DeepSpeed 0.19.2 the backward pass may raise CheckpointError "Recomputed values for the following tensors have different metadata".',
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_ASSIGNED_IF % "args.gradient_checkpointing",
    integration="transformers",
    deepspeed="0.19.2",
    message='train.py:6 sets gradient_checkpointing_kwargs to {"use_reentrant": False}, and the program trains an adapter: at ZeRO stage 3 of DeepSpeed 0.19.2 the backward pass may raise CheckpointError "Recomputed values for the following tensors have different metadata".',
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
@good(_STAGE_3, program=_CHECKPOINTED % "True", integration="transformers", deepspeed="0.19.2")
@good(_STAGE_3, program=_CHECKPOINTED % "False", integration="transformers", deepspeed="0.19.3")
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_BY_DEFAULT,
    integration="transformers",
    deepspeed="0.19.2",
    pins={"transformers": Release(5, 13, 0)},
    message='train.py:3 turns on gradient checkpointing, which transformers 5.13.0 does without reentry, and the program trains an adapter: at ZeRO stage 3 of DeepSpeed 0.19.2 the backward pass raises CheckpointError "Recomputed values for the following tensors have different metadata".',
)
@good(
    _STAGE_3,
    program=_BY_DEFAULT.replace("trainer =", "model.enable_input_require_grads()\ntrainer ="),
    integration="transformers",
    deepspeed="0.19.2",
    pins={"transformers": Release(4, 57, 1)},
)
@good(_STAGE_3, program=_BY_DEFAULT, integration="transformers", pins={"transformers": Release(5, 13, 0)})
@good(_STAGE_2, program=_CHECKPOINTED % "False", integration="transformers")
@good(
    _STAGE_3,
    program="from transformers import AutoModelForCausalLM\nfrom trl import DPOConfig, DPOTrainer, ModelConfig, TrlParser, get_peft_config\n"
    'arguments = DPOConfig("out", deepspeed="ds_config.json", gradient_checkpointing_kwargs={"use_reentrant": False})\n'
    'trainer = DPOTrainer("m", args=arguments, peft_config=get_peft_config(TrlParser(ModelConfig).parse_args_and_config()[0]))\n',
    integration="transformers",
)
def adapter_checkpointed_without_reentry(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 an adapter is trained with gradient checkpointing that is not reentrant.

    The checkpointing of torch that is not reentrant compares the tensors that it saved with those that it computes again. The weights that PEFT
    freezes are gathered in the forward pass, and DeepSpeed before 0.19.3 divides them again while the backward pass computes with them: torch
    raises CheckpointError "Recomputed values for the following tensors have different metadata than during the forward pass", with the shape
    [0]. transformers checkpoints like that with `use_reentrant=False`, and from its release 5 on by default. Newer releases of TRL turn
    reentry on themselves, with a warning, and refuse `"selective": True`, which is not reentrant.

    Set `gradient_checkpointing_kwargs={"use_reentrant": True}`, install DeepSpeed 0.19.3 or newer, or use ZeRO stage 2.
    """
    program = config.setup.program if config.setup else None
    if not config.value(STAGE) >= 3:
        return
    if program is not None and makes_adapter(program):
        for event in program.events.of(r"trl\.(\w+\.)*SFTConfig"):
            given = event.argument(_OPTIONS)
            if given is not None and _SELECTIVE.search(given.raw):
                yield Finding(
                    STAGE,
                    f"{event.at.where} sets {_OPTIONS} to {given.raw}, and the program trains an adapter: at ZeRO stage 3 SFTTrainer may raise that "
                    "it is not supported with PEFT and DeepSpeed.",
                    help='Remove "selective", or use ZeRO stage 2.',
                    related=(event.at.related("set here"),),
                    certain=False,
                )
                return
    if (
        config.context.release_source is not ReleaseSource.ASSUMED
        and config.context.has_known_release
        and config.facts.deepspeed >= _MENDED
    ):
        return
    engine = release_of(config, "deepspeed")
    for at, says, certain in _not_reentrant(config, program):
        yield Finding(
            STAGE,
            f"{says}: at ZeRO stage 3 of DeepSpeed {engine or f'before {_MENDED}'} the backward pass raises CheckpointError "
            '"Recomputed values for the following tensors have different metadata".',
            help=f'Set "use_reentrant" to True, or install DeepSpeed {_MENDED} or newer.',
            related=(at.related("set here"),),
            certain=certain and engine is not None,
        )
        return


def _not_reentrant(config: Config, program: Program | None) -> Iterator[tuple[SourcedValue, str, bool]]:
    """What turns on checkpointing that is not reentrant where an adapter is trained, what it does in words, and whether that is certain."""
    argument = _not_reentrant_argument(config)
    if argument is not None:
        yield argument, f"{argument.where} sets use_reentrant to {argument.raw}, and an adapter is trained", False
    if program is None or not makes_adapter(program):
        return
    by_trl = any(one.name.startswith("trl.") for one in program.events.of(TRAINERS))
    for event in program.events.of(r"(transformers|trl)\.(\w+\.)*\w*(Arguments|Config)", rf"({MODELS})\.gradient_checkpointing_enable"):
        given = event.argument(_OPTIONS, 0 if event.name.endswith("_enable") else None)
        on = event.name.endswith("_enable") or is_true(event.argument("gradient_checkpointing"))
        if given is not None and on and _NOT_REENTRANT.search(given.raw):
            yield event.at, f"{event.at.where} sets {_OPTIONS} to {given.raw}, and the program trains an adapter", not by_trl
    assigned = _assigned_not_reentrant(config, program)
    if assigned is not None:
        yield assigned, f"{assigned.where} sets {_OPTIONS} to {assigned.raw}, and the program trains an adapter", False
    loader = config.context.pinned("transformers")
    by_default = checkpointed_by_default(config, program.events) if loader is not None and loader >= TRANSFORMERS_5 else None
    if by_default is not None:
        says = f"{by_default.where} turns on gradient checkpointing, which transformers {loader} does without reentry, and the program trains an adapter"
        yield by_default, says, True


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
