"""DS9: weights that ZeRO stage 3 has divided among the ranks, of which a program uses the elements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.job.events import MODELS, OWN_MODULE, TRAINERS, Event, Events
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.ds9_integrations.program_weights import is_gathered, saved_without_gathering, saves_gathered
from dslint.rules.helpers.model import makes_adapter
from dslint.rules.helpers.models import ENGINES, managed_models, model_of, telling
from dslint.rules.helpers.weights_in_methods import weights_read_in_methods
from dslint.rules.helpers.zero import STAGE

_GATHERED = "GatheredParameters"
_STAGE_3 = (
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, '
    '"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
)
_STAGE_2 = _STAGE_3.replace('"stage": 3', '"stage": 2')
_ENGINE = (
    "import deepspeed\nimport torch\n"
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
)
_TRAINER = (
    "import torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\n'
    'model = AutoModelForCausalLM.from_pretrained("m")\n'
)


_OWN_MODULE = (
    "import copy\nimport deepspeed\nimport torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\nnet = Net()\nema = copy.deepcopy(net)\n"
    'engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
)
_AVERAGED = f"{_OWN_MODULE}now = net.state_dict()\nfor name, weight in ema.state_dict().items():\n    weight.copy_(0.99 * weight + 0.01 * now[name])\n"
_METHOD = (
    "import deepspeed\nimport torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.embed = torch.nn.Embedding(32000, 512)\n    def forward(self, x):\n        return self.embed(x)\n"
    "    def table(self): return self.embed.weight%s\nnet = Net()\n"
    'engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
    "for x in loader:\n    scores = engine(x) @ engine.module.table().T\n    engine.backward(scores.mean())\n    engine.step()\n"
)


@rule(
    "DS968",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/partition_parameters.py, Init and GatheredParameters",
        "https://github.com/huggingface/transformers/issues/32021",
    ),
    setup=True,
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_TRAINER}model.resize_token_embeddings(32004)\nnew = model.get_input_embeddings().weight.data\n",
    integration="transformers",
    message="train.py:6 uses model.get_input_embeddings().weight.data: at ZeRO stage 3 a weight is divided among the ranks as soon as it is loaded, and may have the shape [0] here.",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_ENGINE}for name, weight in engine.module.named_parameters():\n    average[name] = weight.data.clone()\n",
    integration="deepspeed",
    message="train.py:5 uses weight.data: at ZeRO stage 3 a weight is divided among the ranks by then, and may have the shape [0] here.",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_TRAINER}if model.get_output_embeddings().weight.size(0) != 32000:\n    raise ValueError('not a valid model')\n",
    integration="transformers",
    message="train.py:5 uses model.get_output_embeddings().weight.size(0): at ZeRO stage 3 a weight is divided among the ranks as soon as it is loaded, and may have the shape [0] here.",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_TRAINER}model.load_state_dict(torch.load('trained.bin'), strict=False)\n",
    integration="transformers",
    message='train.py:5 calls load_state_dict: at ZeRO stage 3 a weight is divided among the ranks as soon as it is loaded, and PyTorch may raise RuntimeError "size mismatch", where "the shape in current model is torch.Size([0])".',
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_ENGINE}engine.module.load_state_dict(torch.load('trained.bin'))\n",
    integration="deepspeed",
    message='train.py:4 calls engine.module.load_state_dict: at ZeRO stage 3 a weight is divided among the ranks by then, and PyTorch may raise RuntimeError "size mismatch", where "the shape in current model is torch.Size([0])".',
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_TRAINER}from copy import deepcopy\nreference = deepcopy(model)\n",
    integration="transformers",
    message="train.py:6 copies a model with deepcopy: at ZeRO stage 3 its weights are divided among the ranks as soon as it is loaded, and those of the copy may have the shape [0] and stay so.",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_TRAINER}import copy\nlast = copy.deepcopy(torch.nn.ModuleList(list(model.model.layers)[-2:]))\n",
    integration="transformers",
    message="train.py:6 copies a model with copy.deepcopy: at ZeRO stage 3 its weights are divided among the ranks as soon as it is loaded, and those of the copy may have the shape [0] and stay so.",
)
@good(_STAGE_2, program=f"{_TRAINER}import copy\nlast = copy.deepcopy(model.model.layers[-2:])\n", integration="transformers")
@good(_STAGE_3, program=f"{_TRAINER}import copy\nkinds = copy.deepcopy(model.config.layer_types[-2:])\n", integration="transformers")
@bad(
    _STAGE_3,
    at="",
    program=f"{_ENGINE}average = torch.optim.swa_utils.AveragedModel(engine.module)\n",
    integration="deepspeed",
    message="train.py:4 copies a model with torch.optim.swa_utils.AveragedModel: at ZeRO stage 3 its weights are divided among the ranks by then, and those of the copy may have the shape [0] and stay so.",
)
@bad(
    _STAGE_3,
    at="",
    program=_AVERAGED,
    integration="deepspeed",
    message="train.py:10 uses net.state_dict(): at ZeRO stage 3 a weight is divided among the ranks by then, and may have the shape [0] here.",
)
@good(_STAGE_2, program=_AVERAGED, integration="deepspeed")
@good(_STAGE_3, program=_AVERAGED.replace("net.state_dict()", "list(net.state_dict().keys())"), integration="deepspeed")
@good(
    _STAGE_3,
    program=_AVERAGED.replace("now = ", "with deepspeed.zero.GatheredParameters(net.parameters()):\n    now = "),
    integration="deepspeed",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_OWN_MODULE}for p, q in zip(ema.parameters(), engine.parameters()):\n    p.data.mul_(0.99).add_(q.data, alpha=0.01)\n",
    integration="deepspeed",
    message="train.py:11 uses q.data: at ZeRO stage 3 a weight is divided among the ranks by then, and may have the shape [0] here.",
)
@good(
    _STAGE_3,
    program=f"{_OWN_MODULE}for p, q in zip(ema.parameters(), engine.parameters()):\n"
    "    with deepspeed.zero.GatheredParameters([q], enabled=True):\n        p.data.mul_(0.99).add_(q.data, alpha=0.01)\n",
    integration="deepspeed",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_OWN_MODULE}net.load_state_dict(torch.load('trained.pt'))\n",
    integration="deepspeed",
    message='train.py:10 calls net.load_state_dict: at ZeRO stage 3 a weight is divided among the ranks by then, and PyTorch may raise RuntimeError "size mismatch", where "the shape in current model is torch.Size([0])".',
)
@bad(
    _STAGE_3,
    at="",
    program=_METHOD % "",
    integration="deepspeed",
    message="train.py:13 calls engine.module.table, which uses self.embed.weight (train.py:9): at ZeRO stage 3 only the forward pass of the engine gathers weights, and this one may have the shape [0] here.",
)
@good(_STAGE_2, program=_METHOD % "", integration="deepspeed")
@good(_STAGE_3, program=_METHOD % ".shape", integration="deepspeed")
@good(
    _STAGE_3,
    program=(_METHOD % "").replace("scores = ", "with deepspeed.zero.GatheredParameters(engine.module.embed.weight):\n        scores = "),
    integration="deepspeed",
)
@good(
    _STAGE_3,
    program=(_METHOD % "")
    .replace(" @ engine.module.table().T", "")
    .replace("return self.embed(x)", "return self.embed(x) @ self.table().T"),
    integration="deepspeed",
)
@good(_STAGE_3, program=f"{_OWN_MODULE}ema.load_state_dict(torch.load('trained.pt'))\n", integration="deepspeed")
@good(_STAGE_2, program=f"{_TRAINER}from copy import deepcopy\nreference = deepcopy(model)\n", integration="transformers")
@good(
    _STAGE_3,
    program="import copy\nimport deepspeed\nfrom transformers import AutoModel\nmodel = AutoModel.from_pretrained('m')\nreference = copy.deepcopy(model)\n"
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n',
    integration="deepspeed",
)
@good(_STAGE_2, program=f"{_TRAINER}model.load_state_dict(torch.load('trained.bin'))\n", integration="transformers")
@good(
    _STAGE_3,
    program=f"{_TRAINER}import os\nif os.path.exists('projector.bin'):\n    model.projector.load_state_dict(torch.load('projector.bin'))\n",
    integration="transformers",
)
@good(
    _STAGE_3,
    program=f"{_TRAINER}from peft import LoraConfig, get_peft_model\nmodel = get_peft_model(model, LoraConfig(r=8))\n"
    "model.load_state_dict(torch.load('adapters.bin'), strict=False)\n",
    integration="transformers",
)
@good(
    _STAGE_3,
    program="import deepspeed\nimport torch\nmodel.load_state_dict(torch.load('trained.bin'))\n"
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n',
    integration="deepspeed",
)
@good(
    _STAGE_3,
    program=f"{_TRAINER}import deepspeed\nwith deepspeed.zero.GatheredParameters(model.parameters(), modifier_rank=0):\n"
    "    model.load_state_dict(torch.load('trained.bin'))\n",
    integration="transformers",
)
@good(_STAGE_2, program=f"{_TRAINER}new = model.get_input_embeddings().weight.data\n", integration="transformers")
@good(
    _STAGE_3,
    program=f"{_TRAINER}import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--upcast', action='store_true')\n"
    "if parser.parse_args().upcast:\n    model.lm_head.weight.data = model.lm_head.weight.data.float()\n",
    integration="transformers",
)
@good(
    _STAGE_3,
    program=f"{_TRAINER}import deepspeed\nwith deepspeed.zero.GatheredParameters(model.parameters(), modifier_rank=0):\n"
    "    model.lm_head.weight.data[-1] = 0\n",
    integration="transformers",
)
def partitioned_weight_used(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 the program reads or writes the elements of a weight without gathering it.

    Once transformers knows that the config is for stage 3, `from_pretrained` divides each weight among the ranks as it loads it, and otherwise
    `deepspeed.initialize` and Accelerate's `prepare` do. Outside of the forward pass the weight has the shape [0]: its mean is nan, a copy is empty, and what is written into its rows is lost without an
    error. New token embeddings that start as the mean of the others stay random, for example.

    `copy.deepcopy` of such a model, and the classes for averages of weights that begin with a copy, take the shape [0] and lose what DeepSpeed
    knows of the weight. The copy raises an error in its forward pass, or its average has no weights.

    `state_dict()` and `parameters()` of the model give such weights, too: an average of weights (EMA) gets other shapes, and may raise RuntimeError.

    `load_state_dict` compares shapes, and raises RuntimeError for a weight of the shape [0]. So does `--pretrain_mm_mlp_adapter` of LLaVA and its
    copies where the model that is loaded has a projector of its own.

    In the forward pass the engine gathers `self.embed.weight` when it is read. A method that the program calls itself, such as
    `engine.module.get_embeddings()`, gets the weight with the shape [0].

    dslint reports no use in a branch that the default of a flag switches off.

    Put the code into `with deepspeed.zero.GatheredParameters(weight, modifier_rank=0):`. Read the size from the model's config.
    """
    program = config.setup.program if config.setup else None
    if program is None or not config.value(STAGE) >= 3:
        return
    yield from _projector_loaded_again(config)
    found = [event for event in _uses_of_divided(config, program) if not event.unlikely and not is_gathered(event)]
    since = "as soon as it is loaded" if program.loader == "transformers" else "by then"
    loaded = next((event for event in found if event.name.endswith(_LOADS) and (event.certain or _WHOLE.match(event.at.raw))), None)
    if loaded is not None and not makes_adapter(program):
        yield Finding(
            "",
            f"{loaded.at.where} calls {loaded.called}: at ZeRO stage 3 a weight is divided among the ranks {since}, and PyTorch may raise "
            'RuntimeError "size mismatch", where "the shape in current model is torch.Size([0])".',
            help="Load it before, with from_pretrained, or within deepspeed.zero.GatheredParameters(weights, modifier_rank=0).",
            elsewhere=loaded.at.related(""),
            effect=Effect.CRASH,
            phase=Phase.LATER,
            certain=False,
        )
    copies = (one for one in _copies_of_divided(config, program) if not one.unlikely and not is_gathered(one))
    if (copied := next(copies, None)) is not None:
        yield Finding(
            "",
            f"{copied.at.where} copies a model with {copied.called}: at ZeRO stage 3 its weights are divided among the ranks {since}, and those of the "
            "copy may have the shape [0] and stay so.",
            help="Load the second model with from_pretrained, and give it an engine of its own; copy weights within "
            "deepspeed.zero.GatheredParameters(weights).",
            elsewhere=copied.at.related(""),
            certain=False,
        )
    uses = [event for event in found if not event.name.endswith((_LOADS, _STATE))]
    saves_itself = saves_gathered(program.events) or next(saved_without_gathering(config), None) is not None
    if not uses and not saves_itself and not makes_adapter(program):
        uses = [event for event in found if event.name.endswith(_STATE) and not event.flow and not _is_for_names(program.events, event)]
    if not uses:
        yield from _used_in_method(config, program)
    if uses:
        first, *more = uses
        lines = "" if not more else f" (and {len(more)} more place{'s' if len(more) > 1 else ''})"
        yield Finding(
            "",
            f"{first.at.where} uses {first.at.raw}{lines}: at ZeRO stage 3 a weight is divided among the ranks {since}, and may have the shape "
            "[0] here.",
            help="Use it within deepspeed.zero.GatheredParameters(weight, modifier_rank=0).",
            elsewhere=first.at.related(""),
            related=tuple(one.at.related("used here") for one in more[:5]),
            certain=False,
        )


_LOADS_PROJECTOR = re.compile(r"\bmm_projector\.load_state_dict\(")
_BUILDS_PROJECTOR = re.compile(r"hasattr\((self\.)?config, *[\"']mm_vision_tower[\"']\)")
"""How LLaVA and the many projects that began as a copy of it build the projector of a checkpoint which has one, and load another one into it."""


def _projector_loaded_again(config: Config) -> Iterator[Finding]:
    """The finding for a launch of LLaVA's program that gives a projector for a model which has one: that is divided as the model is loaded."""
    setup = config.setup
    passed = setup.launch.passed if setup is not None and setup.launch is not None else None
    if setup is None or passed is None or setup.program is None or config.facts.integration is not Integration.TRANSFORMERS:
        return
    given, model = passed.flags.get("pretrain_mm_mlp_adapter"), passed.flags.get("model_name_or_path")
    texts = {path: one.text for path, one in setup.documents.items() if path.endswith(".py")}
    loads = next(((path, found) for path, text in texts.items() if (found := _LOADS_PROJECTOR.search(text)) is not None), None)
    is_known = given is not None and isinstance(given.value, str) and given.value not in ("", "None")
    if (
        given is None
        or not is_known
        or model is None
        or not isinstance(model.value, str)
        or loads is None
        or setup.program.loaded_early is not None
    ):
        return
    path, found = loads
    before = texts[path][: found.start()]
    named = [one for one in model.value.split("/") if one and not one.startswith(("checkpoint-", "."))]
    is_llava = bool(named) and re.search(r"llava(?!.*pretrain)", named[-1], re.IGNORECASE) is not None
    if is_llava and _BUILDS_PROJECTOR.search(texts[path]) is not None and _GATHERED not in before[-600:]:
        line = before.count("\n") + 1
        yield Finding(
            "",
            f"--pretrain_mm_mlp_adapter beside --model_name_or_path {model.value}: a LLaVA model has its projector, which ZeRO stage 3 divides among the "
            f'ranks as it is loaded, and mm_projector.load_state_dict ({path}:{line}) may raise RuntimeError "size mismatch", where "the shape in current '
            'model is torch.Size([0])".',
            help="Remove --pretrain_mm_mlp_adapter, or name the language model in --model_name_or_path.",
            elsewhere=given.related(""),
            effect=Effect.CRASH,
            phase=Phase.LATER,
            certain=False,
        )


_USE = re.compile(
    f"({MODELS}|deepspeed\\.initialize|{OWN_MODULE})\\.weight(\\.(clone|cpu|detach|float|mean|norm|abs|sum|copy_|fill_|normal_|zero_|add_|mul_))?"
)


_LOADED = re.compile(rf"({MODELS}|deepspeed\.initialize|{OWN_MODULE})\.load_state_dict")
_TAKEN = re.compile(rf"({MODELS}|deepspeed\.initialize|{OWN_MODULE})\.state_dict")
_CALLED = re.compile(f"({MODELS}|deepspeed\\.initialize)\\.(size|numel|clone|detach|mean|norm|abs|sum|copy_|fill_|normal_|zero_|add_|mul_)")
"""The methods of a tensor that a model does not have."""
_OF_WEIGHT = re.compile(r"\.(weight|bias)\.\w+\(")


_LOADS = ".load_state_dict"
_STATE = ".state_dict"
_WHOLE = re.compile(r"(self\.)?\w+(\.module)?\.load_state_dict")
"""A call of the model itself: in a branch, a part may be one that the program makes anew, which is whole."""


def _is_for_names(events: Events, taken: Event) -> bool:
    """Whether a state dict is taken for the names of the weights only."""
    return any((one.at.path, one.start) == (taken.at.path, taken.start) for one in events.of(r".*\.state_dict\.keys"))


def _is_use(event: Event) -> bool:
    """Whether a program reads or writes the elements of a weight of a model, or takes them all."""
    return (
        _LOADED.fullmatch(event.name) is not None
        or _TAKEN.fullmatch(event.name) is not None
        or _USE.fullmatch(event.name) is not None
        or (_CALLED.fullmatch(event.name) is not None and bool(_OF_WEIGHT.search(event.at.raw)))
    )


def _uses_of_divided(config: Config, program: Program) -> Iterator[Event]:
    """The uses of weights that stage 3 has divided among the ranks: when the model was loaded, or when DeepSpeed got it."""
    is_divided = _divided(config, program)
    return (event for number, event in enumerate(program.events.all) if _is_use(event) and is_divided(number, event.name, event.origin))


def _copies_of_divided(config: Config, program: Program) -> Iterator[Event]:
    """The copies of a whole model whose weights stage 3 has divided, which have no weights."""
    is_divided = _divided(config, program)
    for number, event in enumerate(program.events.all):
        if event.name.endswith(".deepcopy"):
            made, origin = event.name.removesuffix(".deepcopy"), event.origin
        elif _AVERAGES.fullmatch(event.name):
            given = event.argument("parameters", 0) or event.argument("model")
            made, origin = (given.made.removesuffix(".parameters"), given.origin) if given is not None else ("", None)
        else:
            continue
        if _WHOLE_MODEL.fullmatch(made) and is_divided(number, made, origin):
            yield event


def _used_in_method(config: Config, program: Program) -> Iterator[Finding]:
    """The finding for a method of the project's own model that reads a weight, and that the program calls outside of the forward pass."""
    is_divided, read_in = _divided(config, program), weights_read_in_methods(config)
    for number, event in enumerate(program.events.all):
        made, _, method = event.name.rpartition(".")
        read = read_in.get(method)
        if read is None or _WHOLE_MODEL.fullmatch(made) is None or not is_divided(number, made, event.origin):
            continue
        if event.unlikely or event.tells_setups_apart or is_gathered(event) or event.function.endswith(".forward"):
            continue
        yield Finding(
            "",
            f"{event.at.where} calls {event.called}, which uses {read.written} ({read.path}:{read.line}): at ZeRO stage 3 only the forward pass of the "
            "engine gathers weights, and this one may have the shape [0] here.",
            help="Return it from forward, or call the method within deepspeed.zero.GatheredParameters(weight).",
            elsewhere=event.at.related(""),
            certain=False,
        )
        return


_AVERAGES = re.compile(
    r"diffusers\.(\w+\.)*EMAModel|torch\.optim\.swa_utils\.AveragedModel|timm\.utils\.(\w+\.)*ModelEma\w*|ema_pytorch\.(\w+\.)*EMA"
)
"""What keeps averages of the weights of a model, in a copy that it makes of them."""
_WHOLE_MODEL = re.compile(f"{MODELS}|{OWN_MODULE}|deepspeed\\.initialize|{TRAINERS}\\.model")


def _divided(config: Config, program: Program) -> Callable[[int, str, int | None], bool]:
    """Whether stage 3 has divided a model at an event: by its number, what made the model, and the origin of the model."""
    if config.facts.integration is Integration.TRANSFORMERS:
        # otherwise the model is whole until the Trainer hands it to DeepSpeed
        return lambda _number, made, _origin: program.loaded_early is None and not made.startswith(("diffusers.", "torch."))
    tells = telling(config, program)
    order = {one.start: number for number, one in enumerate(program.events.all)}
    managed = managed_models(program.events, *ENGINES)

    def is_divided(number: int, made: str, origin: int | None) -> bool:
        origin = model_of(program.events, made, origin)
        if origin is None:
            return False
        # diffusers loads no model inside of zero.Init, and transformers none of the project's own
        divided_at_load = tells is not None and not made.startswith(("diffusers.", "torch.")) and order[tells] < order.get(origin, -1)
        return divided_at_load or made.startswith("deepspeed.") or managed.get(origin, number) < number

    return is_divided
