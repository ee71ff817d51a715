"""The options of an estimate, completed with what the training arguments of a setup imply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dslint.config.context import Context
from dslint.facts import Integration
from dslint.facts.model_config import ModelConfig, describe, named_model
from dslint.frameworks.base import UNKNOWN_SHARE, Told
from dslint.frameworks.own_loading import own_of
from dslint.frameworks.registry import of_arguments
from dslint.frameworks.trained import freezes_towers, may_train_part
from dslint.frameworks.workload import GUESSED, IS_LIMIT, LENGTHS, told_by
from dslint.job.arguments import Arguments
from dslint.job.attention import kernel_of
from dslint.job.events import CHECKPOINTS, ENGINE, FOR_KBIT, MODELS, PARSED_FIELDS, PARSED_VALUES, TRAINERS, Event, Events, is_true
from dslint.job.model import Program
from dslint.job.training import ARGUMENTS, MODEL_ARGUMENTS, OWN_LENGTHS, PROMPT_AND_ANSWER, WORKLOAD
from dslint.memory.changes import AS_FACTS
from dslint.record import Record
from dslint.source.unknown import UNKNOWN

_FLAGS = {
    "length": "sequence-length",
    "checkpoint_every": "activation-checkpointing",
    "eager": "eager-attention",
    "expandable": "expandable-segments",
    "varying": "varying-lengths",
}
"""Options with a flag of another name."""


class Completed(Record):
    """The options of an estimate with what training arguments imply, a sentence for each of these, and the context with them.

    `of_options` are the sentences about options, `of_training` those about the rest.
    """

    said: dict[str, Any]
    context: Context
    of_options: Mapping[str, str] = MappingProxyType({})
    of_training: tuple[str, ...] = ()
    unmodelled: tuple[tuple[str, float], ...] = ()

    def notes(self, *, towers: bool) -> tuple[str, ...]:
        """The sentences. For a model without `towers`, nothing is said of an option that is about them."""
        return (*(note for name, note in self.of_options.items() if towers or name != "frozen_towers"), *self.of_training)


def completed(said: dict[str, Any], arguments: Arguments | None, context: Context) -> Completed:
    """The options of an estimate, with those that training arguments and the launch imply where they are not given."""
    arguments = _with_fields(_with_method(arguments, context), context)
    facts, told = context.facts, told_by(arguments) if arguments is not None else Told({}, ())
    notes: dict[str, str] = {}
    if (said["params"] or said["hidden"]) and "model" in dict(context.evidence):
        facts = facts._replace(model=None)  # what is given counts more than what was inferred
        context = context.but(model=None)
    if (
        told.model is not None
        and arguments is not None
        and not any(said[name] for name in ("model", "params", "hidden"))
        and facts.model is None
    ):
        facts = facts._replace(model=describe(told.model, f"GPT of {arguments.framework}"))
        context = context.but(model=facts.model)
    if told.sequence is not None and facts.sequence_parallel is None:
        context = context.but(sequence_parallel=told.sequence[0])
        notes["sequence_parallel"] = f"--sequence-parallel is {told.sequence[0]}, from {told.sequence[1]}"
    parsed = () if said["length"] or "length" in told.options else _parsed_length(context)
    chosen = tuple(_chosen(context))
    for name, (value, place) in (*_joined(told.options, arguments, facts.model).items(), *_allocator(context), *chosen, *parsed):
        if name == "optimizer" or (place == GUESSED and name in dict(chosen)):
            continue  # `used_optimizer` knows whether the config has its own optimizer
        is_said = (name == "model" and (said["params"] or said["hidden"] or facts.model)) or (name == "attention" and said["eager"])
        if (said[name] is None or said[name] is False) and not is_said:
            said = {**said, name: value}
            notes[name] = f"--{_FLAGS.get(name, name.replace('_', '-'))} is {value}, from {place}"
    if said["varying"] and "varying" in notes and (place := _pads(context)) is not None:
        said = {**said, "varying": False}
        notes["varying"] = f"all samples are as long as --sequence-length: {place} pads them"
    whole = () if said["lora_rank"] is not None else _not_whole(context, arguments)
    held = (said["frozen_copies"] or 0) + bool(said["value_model"]) + (said["teacher"] is not None)
    others = () if _HELD_BESIDE & told.options.keys() else ((what, UNKNOWN_SHARE) for what in other_models(context, held))
    of_training = (note for note in told.notes if note != IS_LIMIT or said["varying"] or "varying" not in notes)
    return Completed(said, context, notes, (*of_training, *whole), (*told.unmodelled, *others))


_TWO_SIDES = frozenset(
    ["t5", "mt5", "umt5", "longt5", "bart", "mbart", "pegasus", "led", "m2m_100", "marian", "blenderbot", "prophetnet", "whisper"]
)
"""The families of models with an encoder, which reads the source; others read source and target as one sample."""


def _joined(options: Mapping[str, tuple[Any, str]], arguments: Arguments | None, model: ModelConfig | None) -> dict[str, tuple[Any, str]]:
    """The options with the length of source and target together, for a model without an encoder."""
    source, target = (arguments.get(name) if arguments is not None else None for name in ("max_source_length", "max_target_length"))
    length = options.get("length")
    if source is not None and target is None and arguments is not None and (default := _target_of(arguments)):
        if length != (source.value, source.where) or model is None or model.family is None or model.family in _TWO_SIDES:
            return dict(options)
        told = f"--max_source_length, {source.where}, and the default of --max_target_length"
        return {**options, "length": (source.value + default, told)}
    if source is None or target is None or length is None or length != (source.value, source.where) or model is None:
        return dict(options)
    if model.family is None or model.family in _TWO_SIDES or type(target.value) is not int or target.value < 1:
        return dict(options)
    places = " and ".join(dict.fromkeys((source.where, target.where)))
    return {**options, "length": (source.value + target.value, f"--max_source_length and --max_target_length, {places}")}


def _target_of(arguments: Arguments) -> int:
    """The default length of the target in the framework of these arguments, if it has one and trains on source and target."""
    framework, stage = of_arguments(arguments), arguments.get("stage")
    return framework.target_length if framework is not None and stage is not None and stage.value != "pt" else 0


_PADS = re.compile(r"""padding["']?\s*[=:]\s*["']max_length["']""")


def _pads(context: Context) -> str | None:
    """The file of the program that pads samples to the limit of their length."""
    documents = context.setup.documents if context.setup is not None else {}
    return next((shown for shown, one in documents.items() if one.language == "python" and _PADS.search(one.text)), None)


def _not_whole(context: Context, arguments: Arguments | None) -> Iterator[str]:
    """That a setup may train a part of the model only, or nothing."""
    program = context.setup.program if context.setup is not None else None
    if program is not None and not program.trains:
        yield "all weights are trained; the program may train none, which needs neither gradients nor optimizer states"
    elif (place := may_train_part(context.setup, arguments)) is not None:
        yield f"all weights are trained; the program may train a part of them, which needs less ({place})"


def _with_method(arguments: Arguments | None, context: Context) -> Arguments | None:
    """The arguments with the method of the only trainer of TRL in a program: its class says it where no argument does."""
    program = context.setup.program if context.setup is not None else None
    if arguments is None or arguments.task or arguments.kind.startswith("trl.") or program is None:
        return arguments
    found = {match[1].lower() for one in program.events.of(TRAINERS) if (match := re.fullmatch(r"trl\.(?:\w+\.)*(\w+)Trainer", one.name))}
    return replace(arguments, task=found.pop()) if len(found) == 1 else arguments


def _with_fields(arguments: Arguments | None, context: Context) -> Arguments | None:
    """The arguments with the defaults of the fields that a program of the Trainer adds to them: `model_max_length: int = 512`."""
    program = context.setup.program if context.setup is not None else None
    if arguments is None or program is None or arguments.framework != Integration.TRANSFORMERS.label:
        return arguments
    parsers = list(program.events.of(re.escape(PARSED_FIELDS)))
    if len(parsers) != 1:
        return arguments
    parser = parsers[0]
    added = {
        name: replace(parser.at, value=one.value, name=name, raw=str(one.value))
        for name, one in parser.arguments.items()
        if name in ARGUMENTS | WORKLOAD and name not in arguments and one.value is not UNKNOWN and one.value is not None
    }
    added = {name: given for name, given in added.items() if name not in MODEL_ARGUMENTS or _loads_named(context, name)}
    return replace(arguments, values={**arguments.values, **added})


def _loads_named(context: Context, name: str) -> bool:
    """Whether the program loads what an argument names. Another one may name the model where a field keeps an old default."""
    documents = context.setup.documents.values() if context.setup is not None else ()
    loads = re.compile(rf"from_pretrained\([^()]*?\b{re.escape(name)}\b")
    return any(one.language == "python" and loads.search(one.text) is not None for one in documents)


_HELD_BESIDE = frozenset(("frozen_copies", "teacher", "value_model"))
"""The options for other models that an estimate counts."""


def other_models(context: Context, held: int = 0) -> Iterator[str]:
    """The models that a job holds besides the one that is estimated, in words: its launch names several, or its program makes several.

    `held` are as many of them as the estimate counts, because options name them.
    DeepSpeed-Chat's step 3 trains an actor and a critic, and keeps a reference and a reward model. What a branch makes does not count.
    """
    setup = context.setup
    if setup is None:
        return
    passed = setup.launch.passed if setup.launch is not None and setup.arguments is None else None
    roles = {role: given.name for name, given in passed.flags.items() if (role := _role(name)) is not None} if passed is not None else {}
    if len(roles) > 1:
        if len(roles) > 1 + held:
            yield f"the other models of the program ({', '.join(roles.values())})"
        return
    events = setup.program.events if setup.program is not None else Events()
    for pattern in (re.escape(ENGINE), MODELS):
        made = {one.start: one for one in events.of(pattern) if one.certain and not one.conditions and not one.name.startswith("peft.")}
        if len(made) > 1 + held:
            yield f"the other models of the program ({', '.join(one.at.where for one in made.values())})"
            return


_MODEL = re.compile(
    r"(?!tokenizer|peft|adapter|lora)(?:(?P<role>.*?)_?model_name_or_path|(?P<part>(?:reward|critic|ref|teacher)_)?(?:pretrain|model)(?:_path)?)"
)
"""The flags that name models: `--actor_model_name_or_path`, `--reward_pretrain`."""


def _role(flag: str) -> str | None:
    """Which of the models of a job a flag names: "" for the one that is trained, which `--model` and `--model_path` may both name."""
    found = _MODEL.fullmatch(flag)
    return None if found is None else (found["role"] or found["part"] or "").rstrip("_")


_ARGUMENTS = {"micro_batch": "per_device_train_batch_size", "accumulation": "gradient_accumulation_steps"}
"""The training arguments for options of an estimate that fill values of the config."""


def changed(context: Context, otherwise: Mapping[str, Any]) -> Context:
    """The context of a config with which other options change: facts of the run, and training arguments that are set."""
    setup = context.setup
    if setup is not None:
        own = own_of(setup.of_framework)
        arguments = _with(setup.arguments, _ARGUMENTS, otherwise)
        of_framework = _with(setup.of_framework, own.estimates if own is not None else {}, otherwise)
        context = context._replace(setup=replace(setup, arguments=arguments, of_framework=of_framework))
    return context.but(**{name: otherwise[name] for name in AS_FACTS if name in otherwise})


def _with(arguments: Arguments | None, names: Mapping[str, str], otherwise: Mapping[str, Any]) -> Arguments | None:
    """Arguments that are set, with other values where options are other ones. `names` are the arguments by option."""
    set_here = {names[option]: value for option, value in otherwise.items() if option in names}
    if arguments is None or not set_here:
        return arguments
    values = {name: replace(given, value=set_here.get(name, given.value)) for name, given in arguments.values.items()}
    return replace(arguments, values=values)


def _chosen(context: Context) -> Iterator[tuple[str, tuple[Any, str]]]:
    """What the program chooses by its calls, with the places: the kernel of attention, activation checkpointing, and the model that it
    loads unless a flag names another one.
    """
    program = context.setup.program if context.setup is not None else None
    if program is None:
        return
    kernel = kernel_of(program)
    if kernel is not None:
        yield "attention", (kernel.value, kernel.where)
    yield from _adapters(program)
    if (frozen := freezes_towers(context.setup)) is not None:
        yield "frozen_towers", (True, frozen.where)
    yield from _rewards(context)
    enabled = next((one for one in program.events.of(CHECKPOINTS) if one.certain), None)
    if enabled is None and program.quantized is not None:
        prepared = (one for one in program.events.of(FOR_KBIT) if one.certain and one.complete)
        enabled = next(
            (one for one in prepared if (given := one.argument("use_gradient_checkpointing", 1)) is None or is_true(given)), None
        )
    if enabled is not None:
        yield "checkpoint_every", (1, enabled.at.where)
    model = program.default_model
    if model is not None and isinstance(model.value, str) and named_model(model.value) is not None:
        yield "model", (model.value, f"the default of {model.raw} ({model.where})")


def _is_on(call: Event, name: str, place: int) -> bool:
    """Whether an argument of a call that is on by default is on."""
    given = call.argument(name, place)
    return is_true(given) if given is not None else call.complete


def _rewards(context: Context) -> Iterator[tuple[str, tuple[Any, str]]]:
    """That the program trains with the pairs of DeepSpeed-Chat, and that a reward model has no logits of words.

    Source: applications/DeepSpeed-Chat/dschat/utils/data/data_utils.py, DataCollatorReward, which joins the answers of a batch.
    """
    documents = context.setup.documents if context.setup is not None else {}
    for shown, one in documents.items():
        if "DataCollatorReward()" in one.text:
            yield "pairs", (True, f"DataCollatorReward in {shown}")
            if "create_critic_model(" in one.text:  # its DPO has the same pairs, and a model with logits
                yield "no_logits", (True, f"create_critic_model in {shown}")
            return


def _parsed_length(context: Context) -> Iterator[tuple[str, tuple[Any, str]]]:
    """The limit of the length of samples that the only parser of a program returns, such as the default of `--max_seq_len`."""
    program = context.setup.program if context.setup is not None else None
    parsers = list(program.events.of(re.escape(PARSED_VALUES))) if program is not None else []
    if len(parsers) != 1:
        return
    values = {name: one.value for name, one in parsers[0].arguments.items() if isinstance(one.value, int) and one.value > 1}
    name = next((name for name in (*LENGTHS, *OWN_LENGTHS) if name in values), None)
    both = next((names for names in PROMPT_AND_ANSWER if set(names) <= values.keys()), None)
    if name is not None:
        length, what = values[name], f"--{name}"
    elif both is not None:
        length, what = sum(values[one] for one in both), " and ".join(f"--{one}" for one in both)
    else:
        return
    yield "length", (length, f"{what}, parsed in {parsers[0].at.where}")
    if name != "block_size":
        yield "varying", (True, "a limit of the length of samples")


def _adapters(program: Program) -> Iterator[tuple[str, tuple[Any, str]]]:
    """What the only LoRA of PEFT says that the program certainly trains, and the bits of its base model."""
    trainers = program.events.of(TRAINERS)
    given = [one.argument("peft_config") for one in trainers if one.certain]
    used = any(one.certain for one in program.events.of(r"peft\.get_peft_model", r".*\.add_adapter"))
    used = used or any(one is not None and one.made.startswith("peft.") for one in given)
    configs = list(program.events.of(r"peft\.(\w+\.)*LoraConfig"))
    if not used or len(configs) != 1:
        return
    rank, targets = configs[0].argument("r"), configs[0].argument("target_modules")
    is_known = rank is not None and isinstance(rank.value, int) and not isinstance(rank.value, bool) and rank.value > 0
    if is_known or (rank is None and configs[0].complete):
        yield "lora_rank", (rank.value if rank is not None else _RANK, configs[0].at.where)
    else:
        yield "lora_rank", (_RANK, f"a guess: {configs[0].at.where} computes it")
    names = targets.value if targets is not None and isinstance(targets.value, list | tuple) else ()
    if names and all(isinstance(one, str) for one in names):
        yield "lora_targets", (",".join(names), configs[0].at.where)
    if program.quantized is not None and (bits := re.search("[48]", program.quantized.name)) is not None:
        yield "base_bits", (bits[0], program.quantized.where)


_RANK = 8
"""The default of `r` in PEFT's LoraConfig."""


def _allocator(context: Context) -> Iterator[tuple[str, tuple[Any, str]]]:
    """The option that the allocator's setting of a launch implies, with its place."""
    launch = context.setup.launch if context.setup is not None else None
    if launch is not None and launch.allocator is not None and "expandable_segments:True" in str(launch.allocator.value).replace(" ", ""):
        yield "expandable", (True, launch.allocator.where)
