"""What a program gives to Accelerate's `prepare`."""

from __future__ import annotations

import ast
import re

from dslint.config import Config
from dslint.facts import Integration
from dslint.job.events import MODELS, Event, Events, GivenArgument
from dslint.rules.helpers.syntax import statements_around, tree_of

PREPARE = r"accelerate\.(\w+\.)*Accelerator\.prepare"
"""The events of `prepare`."""

BACKWARD = r"accelerate\.(\w+\.)*Accelerator\.backward"
"""The events of its `backward`."""

MICRO_BATCH = "train_micro_batch_size_per_gpu"

_MODEL = re.compile(
    f"({MODELS}|torch\\.nn\\.(modules\\.)?(?!Parameter\\b|Buffer\\b)\\w+|(transformers|diffusers)\\.(\\w+\\.)*\\w*(PreTrainedModel|ModelMixin)"
    r"|(\w+\.)+\w+For(CausalLM|ConditionalGeneration|\w+Classification|MaskedLM|QuestionAnswering)\.(from_pretrained|from_config))"
    r"(\.(to|cuda|half|bfloat16|eval|train))?"
)
_OTHERS = re.compile(
    r"(torch\.optim|transformers\.optimization|bitsandbytes|accelerate\.utils|transformers\.get_\w+)\b.*|.*(Optim|Adam|Scheduler|_schedule)\w*"
)


def models_of(event: Event) -> dict[tuple[int, str], GivenArgument]:
    """The models among the arguments of a call, each once: a part of a model has the origin of the whole, and another text."""
    return {(one.origin, one.raw): one for one in event.arguments.values() if one.origin is not None and is_model(one)}


def is_model(given: GivenArgument) -> bool:
    """Whether a library made an object as a model."""
    return _MODEL.fullmatch(given.made) is not None


def models_with_optimizers(config: Config, event: Event, events: Events) -> dict[tuple[int | None, str], GivenArgument]:
    """The models among the arguments of a call, with those of which only the `parameters()` that an optimizer or a chain gets tell that they are,
    or a method that only a module has, called by the same name in the same function.

    What a function of another package returns in a tuple has no origin: then the name counts, in the same flow of the program.
    """
    given = ((one, optimizer.flow) for optimizer in events.of(_OPTIMIZERS) for one in optimizer.arguments.values())
    trained = {(one.origin, one.raw.removesuffix(_PARAMETERS), flow) for one, flow in given if one.raw.endswith(_PARAMETERS)}
    used = _used_as_models(config, event)
    unknown = [one for one in event.arguments.values() if not _KNOWN.match(one.made) and not _OTHERS.fullmatch(one.made)]
    given_here = [
        one for one in event.arguments.values() if (one.origin, one.raw, event.flow) in trained or (one in unknown and one.raw in used)
    ]
    return {(one.origin, one.raw): one for one in (*models_of(event).values(), *given_here)}


def _used_as_models(config: Config, event: Event) -> frozenset[str]:
    """What a function, or a whole class, calls with a method that only modules have: `teacher` of `teacher.requires_grad_(False)`."""
    tree = tree_of(config, event.at.path)
    around: list[ast.AST] = [one for one in statements_around(tree, event) if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    if tree is None or any(isinstance(one, ast.FunctionDef) for one in around[:-1]):
        return frozenset()  # a function in another one
    calls = [
        one.func for one in ast.walk(around[0] if around else tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
    ]
    methods: dict[str, set[str]] = {}
    for one in calls:
        methods.setdefault(ast.unparse(one.value), set()).add(one.attr)
    return frozenset(name for name, called in methods.items() if called & _OF_MODULES and not called & _OF_OTHERS)


_OF_MODULES = {
    "parameters",
    "named_parameters",
    "named_modules",
    "requires_grad_",
    "gradient_checkpointing_enable",
    "enable_gradient_checkpointing",
}
"""Methods of models; `train`, `eval` and `to` are those of optimizers and others, too."""

_OF_OTHERS = {"backward", "item", "detach", "store", "copy_to", "step", "zero_grad"}
"""Methods of tensors, of averages of weights and of optimizers."""

_KNOWN = re.compile(r"(torch\.(?!nn\.)|datasets\.|bitsandbytes\.|accelerate\.|deepspeed\.)|.*EMA")
"""What made what is certainly not a model, or that holds copies of the weights of one."""


_OPTIMIZERS = r"itertools\.chain|torch\.optim\.[A-Z]\w*|deepspeed\.ops\..*|bitsandbytes\..*|accelerate\.(\w+\.)*DummyOptim"
_PARAMETERS = ".parameters()"


def selects_plugin(config: Config) -> bool:
    """Whether a program has several plugins with a config each, and selects the one that a call of `prepare` is for.

    Source: accelerate/state.py, AcceleratorState.select_deepspeed_plugin.
    """
    program, documents = (config.setup.program, config.setup.documents.values()) if config.setup else (None, ())
    made = list(program.events.of(_PLUGIN)) if program is not None else []
    return len(made) > 1 or any(_SELECTS.search(document.text) for document in documents)


_PLUGIN = r"accelerate\.(\w+\.)*DeepSpeedPlugin"
_SELECTS = re.compile(r"select_deepspeed_plugin|deepspeed_plugins\s*=")


def without_loader(config: Config) -> Event | None:
    """The first call of `prepare`, if it gets a model but no data loader, while the micro batch size is "auto"."""
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.ACCELERATE or not config.is_auto(MICRO_BATCH):
        return None
    if any(MICRO_BATCH in path for path in program.sets) or selects_plugin(config):
        return None
    calls = (event for event in program.events.of(PREPARE) if event.certain or event.likely or not event.conditions)
    # the first one with a model fills the micro batch size for those that follow
    event = next((one for one in calls if not _has_only_loaders(one)), None)
    if event is None or not event.complete or event.tells_setups_apart:
        return None
    given = event.arguments.values()
    known = all(_MODEL.fullmatch(one.made) or _OTHERS.fullmatch(one.made) or is_named_model(one) for one in given)
    has_model = any(is_model(one) or is_named_model(one) for one in given)
    return event if known and has_model and (event.certain or event.likely) else None


_NAMED_MODEL = re.compile(r"(self\.)?(\w+_)?(model|unet|transformer|generator|discriminator|policy|actor|critic)")
"""A name of a model of which is not known what made it: 351 of 485 calls of `prepare` in public repositories have an argument named so."""


def is_named_model(given: GivenArgument) -> bool:
    """Whether an object is a model by its name, and nothing known made it."""
    return _NAMED_MODEL.fullmatch(given.raw) is not None and _LIBRARIES.match(given.made) is None


_LIBRARIES = re.compile(
    r"(torch|transformers|diffusers|accelerate|peft|bitsandbytes|deepspeed|datasets)\.|.*\.(from_pretrained|from_config)$"
)
"""What the name of a function or a class tells better."""


def _has_only_loaders(event: Event) -> bool:
    return event.complete and all(
        one.made.startswith("torch.utils.data.")
        or (_LIBRARIES.match(one.made) is None and _LOADER.fullmatch(one.raw.rpartition(".")[2]) is not None)
        for one in event.arguments.values()
    )


_NO_OPTIMIZER = re.compile(r"torch\.utils\.data\.\w+|(transformers\.get_|torch\.optim\.lr_scheduler\.|transformers\.optimization\.get_)\w+")
_LOADER = re.compile(
    r"(?!.*optim)(\w+\.)*(\w*_|[a-z]*)(data_?loader|loader|dl|data|dataset|sampler)s?(_?(\d+|train|training|val|valid|validation|eval|evaluation|test|dev))?(\[.+\])?",
    re.IGNORECASE,
)
"""A name that ends with what it is: `train_dataloader`, `loader_val`. `data_optimizer` and `loader_state` do not."""


def may_have_model(event: Event) -> bool:
    """Whether a call of `prepare` gets what may be a model: without one Accelerate makes no engine, and returns the arguments as they are."""
    others = [one for one in event.arguments.values() if kind_of(one.made) is None and not one.made.startswith("torch.utils.data.")]
    return not event.complete or any(is_model(one) or not _LOADER.fullmatch(one.raw) for one in others)


def without_optimizer(event: Event) -> bool:
    """Whether a call of `prepare` gets a model and certainly no optimizer: of what is not known here, the name says that it loads data."""
    others = [one for one in event.arguments.values() if not is_model(one)]
    known = (_NO_OPTIMIZER.fullmatch(one.made) if one.made else _LOADER.fullmatch(one.raw) for one in others)
    return event.complete and bool(models_of(event)) and all(known)


_SCHEDULES = re.compile(r"(transformers|diffusers)\.(\w+\.)*get_(scheduler|\w+_schedule(_with_\w+)?)")
"""What makes a schedule of torch. A `get_scheduler` of another package may make a `DummyScheduler` where the config has one."""


def kind_of(made: str) -> str | None:
    """The section that an object stands for."""
    short = made.rpartition(".")[2]
    if short == "DummyOptim" or (made.startswith("torch.optim.") and not made.startswith("torch.optim.lr_scheduler.")):
        return "optimizer"
    if short == "DummyScheduler" or _SCHEDULES.fullmatch(made):
        return "scheduler"
    return "scheduler" if made.startswith("torch.optim.lr_scheduler.") else None
