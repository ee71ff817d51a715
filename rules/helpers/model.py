"""The model of a run. The memory estimate is imported only when a rule counts weights."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dslint.facts import Integration
from dslint.rule import CannotJudge

if TYPE_CHECKING:
    from collections.abc import Callable

    from dslint.config import Config
    from dslint.facts.model_config import ModelConfig
    from dslint.frameworks.whole_load import WholeLoad
    from dslint.job.arguments import SourcedValue
    from dslint.job.events import Event
    from dslint.job.model import Program
    from dslint.memory.shapes import Model


def counted(model: ModelConfig) -> Model:
    """The weights of a model.

    Raises:
        CannotJudge: the family of the model is not supported, or its config is incomplete.
    """
    from dslint.memory.families import ShapeError, read_shape

    try:
        if model.parameters is not None:
            from dslint.memory.numbers import of_numbers

            return of_numbers(model.parameters)
        return read_shape(model.data, model.path)
    except ShapeError as error:
        reason = str(error).partition(";")[0]
        raise CannotJudge(f"{reason}, so its weights cannot be counted: rules about memory find nothing.") from None


def exceeds_gpu(config: Config, each: int) -> Model | None:
    """The model, if so many bytes for each of its weights exceed the memory of a GPU; None also if that is not known."""
    facts = config.facts
    if facts.model is None or facts.gpu_memory is None:
        return None
    try:
        model = counted(facts.model)
    except CannotJudge:
        return None
    return model if each * model.size > facts.gpu_memory else None


def named_model(config: Config) -> SourcedValue | None:
    """What names the model of the job: the program that loads it, or the arguments."""
    from dslint.job.training import MODEL_ARGUMENTS, OWN_MODEL_ARGUMENTS  # a plain check does not import what arguments need

    setup, arguments = config.setup, config.arguments
    if setup is not None and setup.program is not None and setup.program.model is not None:
        return setup.program.model
    names = (*MODEL_ARGUMENTS, *OWN_MODEL_ARGUMENTS)
    return next((found for name in names if (found := arguments.get(name)) is not None), None) if arguments is not None else None


def gpu_has(config: Config, memory: int) -> str:
    """The GPU and its memory: "h100 has 79.1 GiB"."""
    from dslint.facts.gpus import in_words

    gpu = config.facts.gpu
    return f"{gpu if gpu and gpu.memory == memory else 'GPU'} has {in_words(memory)}"


def told_options(config: Config) -> dict[str, Any]:
    """What training arguments say of the job, by the option of an estimate."""
    from dslint.frameworks.workload import told_by

    options = told_by(config.arguments).options if config.arguments is not None else {}
    return {name: value for name, (value, _) in options.items()}


def too_large_to_load(config: Config) -> tuple[WholeLoad, Model] | None:
    """The call that loads the whole model on every rank at ZeRO stage 3, and the model, if its weights in 16 bits alone exceed a GPU: DeepSpeed
    moves all of them to it before it partitions them.
    """
    model = exceeds_gpu(config, 2)
    if model is None or may_be_smaller(config):
        return None
    from dslint.frameworks.whole_load import whole_load  # loads the frameworks, which a check of one config does not need

    found = whole_load(config)
    return (found, model) if found is not None else None


_SMALLER = re.compile(r"[48]_?bit|quanti|gptq|awq|hqq|fp8|float8|torchao", re.IGNORECASE)
"""What a program writes, or a flag is called, that loads weights of fewer than 16 bits."""

_QUANTIZE = ("quantization_bit", "quant_bits", "quant_method", "load_in_4bit", "load_in_8bit", "gptq", "use_4bit_quantization")
"""Arguments with which a framework loads the model in fewer bits."""


def may_be_smaller(config: Config) -> bool:
    """Whether a GPU may hold less than all weights of the model in 16 bits below ZeRO stage 3: they may have fewer bits, or be divided."""
    from dslint.rules.helpers.project import programs_of  # a plain check does not import what programs need

    facts, setup = config.facts, config.setup
    program = setup.program if setup is not None else None
    if (
        facts.divided_by_program
        or (facts.tensor_parallel or 1) > 1
        or may_be_pipelined(config)
        or (facts.model and facts.model.quantization)
    ):
        return True
    if any(
        config.has(key)
        for key in ("tensor_parallel.autotp_size", "zero_optimization.mics_shard_size", "expert_parallel", "weight_quantization")
    ):
        return True
    if any(given is not None and given.value not in (False, 0, None, "") for given in map(_argument_of(config), _QUANTIZE)):
        return True
    passed = setup.launch.passed if setup is not None and setup.launch is not None else None
    if passed is not None and any(_SMALLER.search(name) or name == "bits" for name in passed.flags):
        return True
    if program is not None and (program.quantized is not None or program.device_map is not None):
        return True
    return any(map(_SMALLER.search, programs_of(config)))


_OTHER_LAYERS = re.compile(r"""num_(hidden_)?layers|n_layers?\b|init_empty_weights|["']meta["']|device_map""")


def may_load_part(config: Config) -> bool:
    """Whether a program of the setup may load fewer layers than the model has, no weights, or a part of them on each GPU."""
    from dslint.rules.helpers.project import programs_of  # a plain check does not import what programs need

    return any(map(_OTHER_LAYERS.search, programs_of(config)))


def _argument_of(config: Config) -> Callable[[str], SourcedValue | None]:
    return config.arguments.get if config.arguments is not None else lambda _: None


def makes_adapter(program: Program) -> bool:
    """Whether a program trains an adapter of PEFT.

    It may not where only the run knows a condition, and with the adapter's config from `get_peft_config`, which is None without `use_peft`.
    """
    from dslint.job.events import TRAINERS  # a plain check does not import what programs need

    made = program.events.of(r"peft\.(get_peft_model|PeftModel\w*\.from_pretrained)")
    if any(one.certain or one.likely for one in made):
        return True
    trainers = program.events.of(TRAINERS)
    return any(given.made.startswith("peft.") for one in trainers if (given := one.argument("peft_config")) is not None)


def trains_adapter(config: Config) -> bool:
    """Whether arguments or program show that an adapter is trained. A program that could train one with another flag does not."""
    program = config.setup.program if config.setup is not None else None
    return "lora_rank" in told_options(config) or (program is not None and makes_adapter(program))


def trains_part(config: Config) -> bool:
    """Whether arguments or program say that the model is not trained whole: adapters, or weights that are quantized while they are loaded."""
    program = config.setup.program if config.setup is not None else None
    if not told_options(config).keys().isdisjoint(("lora_rank", "base_bits")):
        return True
    if program is None:
        return False
    if has_unread_settings(config) and _ADAPTER.search(_command(config)):
        return True
    if program.quantized is not None or any(program.events.of(r"peft\..*", r".*\.prepare_model_for_kbit_training")):
        return True
    return _may_train_adapter(config)


_ADAPTER = re.compile(r"(?i:(?<![a-z])q?lora)(?![a-z])")
"""LoRA in a text of a program, or in the name of a flag."""
_ADAPTER_FLAG = re.compile(
    r"""(?im)add_argument\(\s*["']--?\w*lora|^[ \t]+\w{0,40}lora\w{0,40}[ \t]*:[ \t]*(?:Optional\[)?bool\b.*\bFalse\b"""
)
"""A flag for LoRA: of a parser, or a field of a class of arguments that is false where the command does not set it."""


def has_unread_settings(config: Config) -> bool:
    """Whether a command of a framework trains by settings that dslint does not read: `xtuner train llama2_7b_qlora_alpaca_e3`."""
    setup = config.setup
    program = setup.program if setup is not None else None
    return setup is not None and program is not None and program.path == program.through and setup.workload is None


def _command(config: Config) -> str:
    """The command of a script that names the config, with all its lines; "" if there is none."""
    link = config.setup.link if config.setup is not None else None
    script = config.setup.documents.get(link.path) if config.setup is not None and link is not None else None
    if script is None or link is None or link.range is None:
        return ""
    text, at = script.text.replace("\\\n", "  "), link.range.start.offset
    return text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0]


def _may_train_adapter(config: Config) -> bool:
    """Whether a program that has LoRA of its own may use it: a flag asks for it, or nothing shows that it needs a flag which is not given."""
    from dslint.frameworks.trained import OFF
    from dslint.rules.helpers.project import programs_of  # a plain check does not import what programs need

    setup, texts = config.setup, programs_of(config)
    passed = setup.launch.passed if setup is not None and setup.launch is not None else None
    if passed is not None and any(_ADAPTER.search(name) and given.value not in OFF for name, given in passed.flags.items()):
        return True
    if not any(_ADAPTER.search(text) for text in texts):
        return False
    own = setup.documents.get(setup.program.path) if setup is not None and setup.program is not None else None
    # a start file beside the program has no flags: LLaVA's train_mem.py, which imports train.py
    asking = [own.text if own is not None else "", *(text for text in texts if "get_peft_model(" in text)]
    by_flag = any(_ADAPTER_FLAG.search(text) for text in asking) or _asks_for_flag(config, texts)
    return not by_flag or passed is None or not passed.complete


_ASKED = re.compile(r"(?im)^[ \t]*(?:el)?if[ \t]+\w+\.((?:(?:use|train|enable|with|apply|do)_)?q?lora)[ \t]*:")
"""A statement that depends on a flag for LoRA: `if args.use_lora:`. That of `merge_lora` does not say whether LoRA is used."""


def _asks_for_flag(config: Config, texts: list[str]) -> bool:
    """Whether a program asks for a flag for LoRA that another file of its project adds, false by default."""
    from dslint.setups.project import project_of  # a plain check does not import what programs need

    program = config.setup.program if config.setup is not None else None
    names = {name.replace("_", "[-_]") for text in texts for name in _ASKED.findall(text)}
    if program is None or not names:
        return False
    flags = re.compile(rf"""add_argument\(\s*["']--(?:{"|".join(sorted(names))})["'][^)]{{0,200}}\bstore_true\b""")
    project = project_of(program.path)
    return any(flags.search(project.text(path)) for path in project.programs if "lora" in project.text(path))


def may_train_nothing(config: Config) -> bool:
    """Whether the run may train nothing, so that DeepSpeed gets no optimizer."""
    from dslint.frameworks.engine_optimizer import runs_without_optimizer

    program = config.setup.program if config.setup is not None else None
    if runs_without_optimizer(config):
        return True
    return (
        program is not None and not program.trains and (config.lacks("optimizer") or config.facts.integration is Integration.TRANSFORMERS)
    )


def holds_more_models(config: Config) -> bool:
    """Whether the program holds more than the model that it trains: a reference, a teacher, an engine that generates."""
    from dslint.frameworks.workload import told_by
    from dslint.job.events import ENGINE, MODELS

    told = told_by(config.arguments) if config.arguments is not None else None
    if told is not None and (told.unmodelled or not told.options.keys().isdisjoint(_HELD_BESIDE)):
        return True
    program = config.setup.program if config.setup is not None else None
    if program is None:
        return False
    models = {one.start for one in program.events.of(MODELS) if not one.name.startswith("peft.")}  # which wraps a model
    engines = {one.start for one in program.events.of(re.escape(ENGINE))}
    return len(models) > 1 or len(engines) > 1 or any(program.events.of(r"trl\.(\w+\.)*(?!SFT)\w*Trainer"))


_HELD_BESIDE = ("frozen_copies", "teacher", "value_model", "generates", "vllm_share", "pairs")
"""The options of an estimate for what stands on the GPU beside the model that is trained."""


def may_be_pipelined(config: Config) -> bool:
    """Whether the model may be a pipeline: by its number of stages, the section about it, or the program."""
    program = config.setup.program if config.setup is not None else None
    return (config.facts.pipeline_parallel or 1) > 1 or config.has("pipeline") or (program is not None and program.pipeline is not None)


def may_train_part(config: Config) -> bool:
    """Whether something may make a program train only a part of the model: `--freeze_backbone`, `requires_grad_(False)`."""
    from dslint.frameworks import trained
    from dslint.job.events import ENGINE

    program = config.setup.program if config.setup is not None else None
    if trained.may_train_part(config.setup, config.arguments) is not None:
        return True
    return program is not None and any(_of_a_part(one) for one in program.events.of(re.escape(ENGINE)))


def _of_a_part(engine: Event) -> bool:
    """Whether an engine gets the parameters of a part of its model: `model=model, model_parameters=model.head.parameters()`."""
    model, parameters = engine.argument("model", 1), engine.argument("model_parameters", 3)
    return model is not None and parameters is not None and re.match(rf"{re.escape(model.raw)}\.\w+\.", parameters.raw) is not None
