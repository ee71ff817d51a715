"""DS9: LoRA target names that no module of the model has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from posixpath import basename

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts.model_config import ModelConfig
from dslint.frameworks.deepspeed_chat import container_without
from dslint.frameworks.registry import of_arguments
from dslint.job.arguments import SourcedValue
from dslint.job.events import PARSED_VALUES
from dslint.job.model import Program
from dslint.job.training import MODEL_ARGUMENTS, RESUMED_ADAPTERS
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.model import counted, makes_adapter
from dslint.rules.helpers.module_names import LAYERS, OUTER, heads_of, of_own_code

_STAGE_2 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
_FILE = (
    "stage: sft\nmodel_name_or_path: m\nfinetuning_type: lora\noutput_dir: o\nlearning_rate: 1e-4\ndeepspeed: ds_config.json\nlora_target: "
)
_PROGRAM = (
    "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\nmodel = AutoModelForCausalLM.from_pretrained("m")\n'
    "model = get_peft_model(model, LoraConfig(r=8, target_modules=%s))\ntrainer = Trainer(model, arguments)\n"
)
_NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "vocab_size": 50304,
}
_LLAMA = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "vocab_size": 32000,
}

_FAMILIES = frozenset(
    [
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gpt2",
        "gpt_neox",
        "gptj",
        "opt",
        "bloom",
        "phi3",
        "olmo2",
    ]
)
"""Families whose modules have the same names in all releases of transformers, of which `counted` has the exact list.

Those it builds from traits (Falcon, StarCoder 2) have the sizes of the weights, and other names."""

_ARGUMENTS = ("lora_target", "lora_target_modules", "target_modules")
_SAVED = ("modules_to_save", "lora_modules_to_save", "additional_target")
_FLAGS = ("--lora_target_modules", "lora_target_modules")
_ELSEWHERE = frozenset(
    ["score", "classifier", "lm_head", "embed_out", "v_head", "summary", "qa_outputs", "all", "auto", "default", "embedding"]
)
"""Heads of other classes of a family, which `counted` does not list, and words that frameworks replace."""

_NAME = re.compile(r"[A-Za-z_][\w.]*")


@rule(
    "DS994",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "peft/tuners/tuners_utils.py, BaseTuner.inject_adapter and check_target_module_exists",
        "DeepSpeedExamples, applications/DeepSpeed-Chat/dschat/utils/module/lora.py, convert_linear_layer_to_lora",
    ),
    untried=RAISED_BY_LOADER,
)
@bad(
    _STAGE_2,
    at=("lora_target",),
    training=f"{_FILE}q_proj,v_proj\n",
    model=_NEOX,
    message='No module of the model (gpt_neox) is named q_proj or v_proj: PEFT raises "Target modules {...} not found in the base model. Please check the target modules and try again.".',
)
@bad(
    _STAGE_2,
    at="",
    program=_PROGRAM % '["query_key_value"]',
    model=_LLAMA,
    integration="transformers",
    message='No module of the model (llama) is named query_key_value: PEFT raises "Target modules {...} not found in the base model. Please check the target modules and try again.".',
)
@bad(
    _STAGE_2,
    at="",
    program=_PROGRAM % '"q_proj"',
    integration="transformers",
    message='target_modules is the single name "q_proj": PEFT compares a text with the whole names of the modules, such as "model.layers.0.self_attn.q_proj", so none matches, and it raises "Target modules q_proj not found in the base model. Please check the target modules and try again.".',
)
@bad(
    _STAGE_2,
    at="",
    program=(_PROGRAM % '["q_proj", "v_proj"]').replace('"m"', '"THUDM/chatglm2-6b"'),
    integration="transformers",
    message='No module of THUDM/chatglm2-6b is named q_proj or v_proj: PEFT raises "Target modules {...} not found in the base model. Please check the target modules and try again.".',
)
@bad(
    _STAGE_2,
    at="",
    program=(_PROGRAM % '["q_proj"], modules_to_save=["wte", "lm_head"]'),
    model=_LLAMA,
    integration="transformers",
    message="No module of the model (llama) is named wte: PEFT silently ignores such a name in modules_to_save, and only lm_head is trained whole.",
)
@bad(
    _STAGE_2,
    at=("additional_target",),
    training=f"{_FILE}all\nadditional_target: wte,lm_head\n",
    model=_LLAMA,
    message="No module of the model (llama) is named wte: PEFT silently ignores such a name in modules_to_save, and only lm_head is trained whole.",
)
@good(_STAGE_2, program=(_PROGRAM % '["query_key_value"]').replace('"m"', '"THUDM/chatglm2-6b"'), integration="transformers")
@good(_STAGE_2, program=(_PROGRAM % '["q_proj", "v_proj"]').replace('"m"', '"THUDM/glm-4-9b-chat-hf"'), integration="transformers")
@good(_STAGE_2, program=(_PROGRAM % '["q_proj", "c_attn"]').replace('"m"', '"Qwen/Qwen-7B-Chat"'), integration="transformers")
@good(_STAGE_2, program=(_PROGRAM % '["q_proj", "v_proj"]').replace('"m"', '"Qwen/Qwen2.5-7B-Instruct"'), integration="transformers")
@good(
    _STAGE_2,
    program=(_PROGRAM % '["c_attn"], modules_to_save=["wte", "lm_head"]').replace('"m"', '"Qwen/Qwen-7B"'),
    integration="transformers",
)
@good(_STAGE_2, program=(_PROGRAM % '["q_proj"], modules_to_save=["embed_tokens", "lm_head"]'), model=_LLAMA, integration="transformers")
@good(_STAGE_2, program=(_PROGRAM % '["q_proj"], modules_to_save=["classifier", "score"]'), model=_LLAMA, integration="transformers")
@good(_STAGE_2, program=(_PROGRAM % '["q_proj"], modules_to_save=None'), model=_LLAMA, integration="transformers")
@good(_STAGE_2, program=_PROGRAM % '".*q_proj"', integration="transformers")
@good(_STAGE_2, program=_PROGRAM % '["q_proj"]', integration="transformers")
@good(_STAGE_2, training=f"{_FILE}q_proj,query_key_value\n", model=_NEOX)
@good(_STAGE_2, training=f"{_FILE}all\n", model=_NEOX)
@good(_STAGE_2, program=_PROGRAM % '["self_attn.q_proj"]', model=_LLAMA, integration="transformers")
@good(_STAGE_2, program=_PROGRAM % '"all-linear"', model=_LLAMA, integration="transformers")
@good(_STAGE_2, program=_PROGRAM % '["query_key_value"]', model={**_LLAMA, "model_type": "chatglm"}, integration="transformers")
@good(_STAGE_2, program=_PROGRAM % '["query_key_value"]', model={**_LLAMA, "model_type": "falcon"}, integration="transformers")
def lora_targets_of_other_family(config: Config) -> Iterator[Finding]:
    """The names of LoRA's target modules match no module of the model.

    PEFT compares the ends of the modules' full names with each name of a list. If none matches, it raises ValueError "Target modules {...}
    not found in the base model. Please check the target modules and try again." Names differ between families: Llama has `q_proj`,
    GPT-NeoX and BLOOM have `query_key_value`, GPT-2 has `c_attn`. The rule knows the names of some families of transformers, and is silent
    about others. A single name that is not in a list is a regular expression for the whole name of a module, and matches none; TRL makes such
    a text of `--lora_target_modules` with one name.

    DeepSpeed-Chat has LoRA of its own: it takes the linear layers whose full names contain `--lora_module_name`. If none does, no layer gets
    LoRA, and no error says so: with `--only_optimize_lora` nothing is left to train, without it all weights are trained. `decoder.layers.` is in
    the names of OPT only.

    PEFT looks for the embeddings and heads in `modules_to_save`, which are trained whole, in the same way, but it says nothing of a name that
    no module has: Llama has `embed_tokens`, and only Qwen, before 1.5, and GPT-2 have `wte`.

    Name modules of this model, or "all-linear" ("all" in LLaMA-Factory).
    """
    yield from _of_deepspeed_chat(config)
    text = _as_pattern(config)
    if text is not None:
        yield text
        return
    yield from _saved_besides(config)
    found = _in_arguments(config) or _in_program(config)
    if found is None or not found[0]:
        return
    names, given, certain = found
    own = _of_own_code(config)
    if own is not None:
        name, known, _ = own
        if LAYERS.issuperset(last := [one.rpartition(".")[2] for one in names]) and known.isdisjoint(last):
            yield _not_found(name, names, sorted(known), given, certain=certain and "/" in name)
        return
    model = config.facts.model
    if model is None or not _has_known_names(model):
        return
    if not all(_NAME.fullmatch(name) and name.rpartition(".")[2].lower() not in _ELSEWHERE for name in names):
        return
    whole = counted(model)
    weights = whole.weights
    modules = {module for weight in weights for module in accumulate(weight.module.split("."), "{}.{}".format)}
    if any(module == name or module.endswith(f".{name}") for module in modules for name in names):
        return
    layers = sorted({weight.module.rpartition(".")[2] for weight in whole.blocks[0].weights if len(weight.shape) == 2})
    yield _not_found(f"the model ({model.family})", names, layers, given, certain=certain)


def _not_found(model: str, names: list[str], layers: list[str], given: SourcedValue, *, certain: bool) -> Finding:
    return Finding(
        "",
        f'No module of {model} is named {" or ".join(names)}: PEFT {"raises" if certain else "may raise"} "Target modules {{...}} not found in '
        'the base model. Please check the target modules and try again.".',
        help=f"Name layers of this model: {', '.join(layers)}.",
        elsewhere=given.related(""),
        certain=certain,
    )


def _of_own_code(config: Config) -> tuple[str, frozenset[str], frozenset[str]] | None:
    """The name of the only model of a training, and its layers, and embeddings and heads, if its own code has other names than its family."""
    program, arguments = config.setup.program if config.setup is not None else None, config.arguments
    given = next((one for name in MODEL_ARGUMENTS if arguments is not None and (one := arguments.get(name)) is not None), None)
    given = program.model or given if program is not None else given
    if given is None or not isinstance(given.value, str):
        return None
    known = of_own_code(given.value)
    return (given.value, *known) if known is not None else None


def _saved_besides(config: Config) -> Iterator[Finding]:
    """The names of modules that should be trained whole besides the adapter, and that the model does not have: PEFT ignores them.

    Source: peft/utils/other.py, _set_trainable: it looks for modules whose full names end with one of the names.
    """
    own, model = _of_own_code(config), config.facts.model
    if own is not None:
        name, outer = own[0], own[2]
    elif model is not None and _has_known_names(model) and (heads := heads_of(model.family or "")) is not None:
        name, outer = f"the model ({model.family})", heads
    else:
        return
    found = _named_in_arguments(config, _SAVED) or _named_in_program(config, "modules_to_save")
    if found is None:
        return
    names, given, certain = found
    missing = [one for one in names if one.rpartition(".")[2] in OUTER and one.rpartition(".")[2] not in outer]
    if missing:
        rest = (
            "nothing besides the adapter" if len(missing) == len(names) else f"only {', '.join(one for one in names if one not in missing)}"
        )
        yield Finding(
            "",
            f"No module of {name} is named {' or '.join(missing)}: PEFT silently ignores such a name in modules_to_save, and {rest} is trained whole.",
            help=f"Name modules of this model: {', '.join(sorted(outer))}.",
            elsewhere=given.related(""),
            effect=Effect.SILENT,
            certain=certain and (own is None or "/" in name),
        )


def _of_deepspeed_chat(config: Config) -> Iterator[Finding]:
    """The finding for a part of names that no layer of the model has, by which DeepSpeed-Chat looks for the layers that get LoRA."""
    setup = config.setup
    passed = setup.launch.passed if setup is not None and setup.launch is not None else None
    if setup is None or passed is None or not any("convert_linear_layer_to_lora(" in one.text for one in setup.documents.values()):
        return
    part, rank, model = (passed.flags.get(name) for name in ("lora_module_name", "lora_dim", "model_name_or_path"))
    part = part or _default_of(setup.program, "lora_module_name")
    if part is None or rank is None or model is None or not str(rank.value).isdecimal() or str(rank.value) == "0":
        return
    container = container_without(model.value, part.value)
    if container is None:
        return
    name = basename(model.value.rstrip("/"))
    alone = "only_optimize_lora" in passed.flags
    what = "with --only_optimize_lora nothing is left to train, and the program may fail" if alone else "all weights are trained"
    yield Finding(
        "",
        f'{part.name} is "{part.value}", which is in no name of a layer of {name} ("{container}0..."): no layer gets LoRA, and {what}.',
        help=f"Write --lora_module_name {container.removeprefix('model.')}",
        elsewhere=part.related(""),
        effect=Effect.CRASH if alone else Effect.SILENT,
        phase=Phase.INITIALIZE if alone else None,
        certain=False,
    )


def _default_of(program: Program | None, name: str) -> SourcedValue | None:
    """The default of a flag that the only parser of a program has."""
    parsers = list(program.events.of(re.escape(PARSED_VALUES))) if program is not None else []
    given = parsers[0].argument(name) if len(parsers) == 1 else None
    return replace(parsers[0].at, name=f"the default of --{name}", value=given.value) if given is not None else None


def _as_pattern(config: Config) -> Finding | None:
    """A single name that PEFT gets as a text: it is a regular expression then, for the whole name of a module."""
    arguments, found = config.arguments, _in_arguments(config)
    advice = "Name the modules in a list."
    program = config.setup.program if config.setup is not None else None
    made = list(program.events.of(r"peft\.(\w+\.)*LoraConfig")) if program is not None and makes_adapter(program) else []
    targets = made[0].argument("target_modules") if len(made) == 1 else None
    if targets is not None and isinstance(targets.value, str):
        name, given, certain = targets.value, made[0].at, made[0].certain
    elif found is not None and len(found[0]) == 1 and arguments is not None and _parses_as_trl(config):
        (name,), given, certain = found
        advice = f'Write a pattern, ".*\\.{name}", or a second name: TRL makes a text of a list with one name.'
    else:
        return None
    if not _NAME.fullmatch(name) or name.lower() in _ELSEWHERE or "." in name:
        return None
    return Finding(
        "",
        f'{given.name if given.name in _FLAGS else "target_modules"} is the single name "{name}": PEFT compares a text with the whole names of the modules, such as '
        f'"model.layers.0.self_attn.{name}", so none matches, and it raises "Target modules {name} not found in the base model. Please check '
        'the target modules and try again.".',
        help=advice,
        elsewhere=given.related(""),
        certain=certain,
    )


def _parses_as_trl(config: Config) -> bool:
    """Whether TRL's `ModelConfig` reads the names: it makes a text of a list with one name."""
    program = config.setup.program if config.setup is not None else None
    framework = of_arguments(config.arguments)
    if framework is not None and framework.joins_one_target:
        return True
    return program is not None and any(program.events.of(r"trl\.(\w+\.)*get_peft_config"))


def _has_known_names(model: ModelConfig) -> bool:
    """Whether the names of the modules are known. The code of `auto_map` has its own; a model of several parts has a prefix."""
    return model.family in _FAMILIES and model.inner_family in (None, model.family) and "auto_map" not in model.data


def _in_arguments(config: Config) -> tuple[list[str], SourcedValue, bool] | None:
    return _named_in_arguments(config, _ARGUMENTS)


def _named_in_arguments(config: Config, wanted: tuple[str, ...]) -> tuple[list[str], SourcedValue, bool] | None:
    """The names that training arguments give for a new adapter."""
    arguments = config.arguments
    if arguments is None or any(name in arguments for name in RESUMED_ADAPTERS):
        return None
    given = next((one for name in wanted if (one := arguments.get(name)) is not None), None)
    if given is None or not isinstance(given.value, str):
        return None
    from dslint.frameworks.workload import told_by  # most configs have no such arguments

    if "lora_rank" not in told_by(arguments).options or _is_other(config, [arguments.get(name) for name in MODEL_ARGUMENTS]):
        return None
    program = config.setup.program if config.setup is not None else None
    is_passed_on = program is None or any(program.events.of(r"trl\.(\w+\.)*get_peft_config"))
    return [name.strip() for name in given.value.split(",") if name.strip()], given, is_passed_on


def _in_program(config: Config) -> tuple[list[str], SourcedValue, bool] | None:
    return _named_in_program(config, "target_modules")


def _named_in_program(config: Config, wanted: str) -> tuple[list[str], SourcedValue, bool] | None:
    """The names in the only `LoraConfig` of a program that loads one model of transformers."""
    program = config.setup.program if config.setup is not None else None
    if program is None or not makes_adapter(program):
        return None
    made = list(program.events.of(r"peft\.(\w+\.)*LoraConfig"))
    loads = list(program.events.of(r"transformers\.(\w+\.)*\w*(Model|For[A-Z]\w*)\.(from_pretrained|from_config)"))
    if len(made) != 1 or len(loads) != 1 or any(program.events.of(r"peft\.(\w+\.)*PeftModel\w*\.from_pretrained")):
        return None
    targets, name = made[0].argument(wanted), loads[0].argument("pretrained_model_name_or_path", 0)
    if targets is None or not isinstance(targets.value, list | tuple | set) or not all(isinstance(one, str) for one in targets.value):
        return None
    if name is not None and _is_other(config, [replace(made[0].at, value=name.value)]):
        return None
    return sorted(targets.value), made[0].at, made[0].certain and loads[0].certain


def _is_other(config: Config, names: list[SourcedValue | None]) -> bool:
    """Whether a training names another model than the one that is known."""
    known = str(config.facts.model)
    given = next((one.value for one in names if one is not None and isinstance(one.value, str)), None)
    return given is not None and "/" in given and "/" in known and basename(given).lower() not in known.lower()
