"""DS9: weights that ZeRO stage 3 has divided among the ranks, used by a program as if they were whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.job.events import HOOK, MODELS, TRAINERS, Event, Events
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.model import makes_adapter
from dslint.rules.helpers.models import ENGINES, managed_models, telling
from dslint.rules.helpers.zero import STAGE

_STAGE_3 = (
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, '
    '"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
)
_STAGE_2 = _STAGE_3.replace('"stage": 3', '"stage": 2')

_GATHERED = "GatheredParameters"

_ENGINE = (
    "import deepspeed\nimport torch\n"
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
)
_GATHERING = (
    f"{_ENGINE}def save_gathered(engine):\n    weights = {{}}\n    for name, weight in engine.module.named_parameters():\n"
    "        with deepspeed.zero.GatheredParameters([weight]):\n            weights[name] = weight.data.cpu()\n    torch.save(weights, 'model.pt')\n"
)
_TRAINER = (
    "import torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\n'
    'model = AutoModelForCausalLM.from_pretrained("m")\n'
)

_PREPARED = (
    "from accelerate import Accelerator\nfrom safetensors.torch import save_file\nfrom transformers import AutoModelForCausalLM\n"
    'accelerator = Accelerator()\nmodel = accelerator.prepare(AutoModelForCausalLM.from_pretrained("m"))\n'
)
_COPIED = f"{_PREPARED}weights = model.state_dict()\nfor name in list(weights):\n    weights[name] = weights[name].cpu()\n"


_OWN_SAVE = (
    "import torch\nfrom transformers import AutoModel, Trainer, TrainingArguments\n"
    "class Encoder(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.encoder = AutoModel.from_pretrained('m')\n"
    "    def save(self, folder):\n        self.encoder.save_pretrained(folder, state_dict=self.encoder.state_dict())\n"
    "class OwnTrainer(Trainer):\n    def _save(self, output_dir=None, state_dict=None):\n        self.model.save(output_dir)\n"
    "OwnTrainer(Encoder(), TrainingArguments('out', deepspeed='ds_config.json')).train()\n"
)


_OWN_SAVE_MODEL = (
    "import torch\nfrom transformers import AutoModel, Trainer, TrainingArguments\n"
    "class AdapterTrainer(Trainer):\n    def save_model(self, output_dir=None, _internal_call=False):\n"
    "        weights = {k: v.cpu() for k, v in self.model.named_parameters() if v.requires_grad}\n"
    "        torch.save(weights, f'{output_dir}/adapter_model.bin')\n"
    "arguments = TrainingArguments('out', deepspeed='ds_config.json')\n"
    "AdapterTrainer(AutoModel.from_pretrained('m'), arguments).train()\n"
)
_CALLBACK = (
    "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModel, Trainer, TrainerCallback, TrainingArguments\n"
    "class SaveAdapter(TrainerCallback):\n    def on_save(self, args, state, control, **kwargs):\n"
    "        kwargs['model'].save_pretrained(f'{args.output_dir}/adapter')\n"
    "arguments = TrainingArguments('out', deepspeed='ds_config.json')\n"
    "trainer = Trainer(get_peft_model(AutoModel.from_pretrained('m'), LoraConfig(r=8)), arguments)\n"
    "trainer.add_callback(SaveAdapter())\ntrainer.train()\n"
)
_COPIES = (
    f"{_TRAINER}from peft import LoraConfig, get_peft_model\n"
    "def get_peft_state_maybe_zero_3(named, bias):\n    return {name: maybe_zero_3(weight) for name, weight in named if 'lora_' in name}\n"
    "model = get_peft_model(model, LoraConfig(r=8))\ntrainer = Trainer(model, arguments)\ntrainer.train()\n"
    "weights = get_peft_state_maybe_zero_3(model.state_dict(), 'none')\nmodel.save_pretrained('out', state_dict=weights)\n"
)


def _is_gathered(event: Event) -> bool:
    return event.tells_setups_apart or any(one.endswith(_GATHERED) for one in event.within)


@rule(
    "DS967",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/partition_parameters.py: a partitioned parameter has the shape [0]",
        "https://github.com/deepspeedai/DeepSpeed/issues/5232",
        "https://huggingface.co/docs/accelerate/usage_guides/deepspeed#saving-and-loading",
    ),
    setup=True,
)
@bad(
    _STAGE_3,
    at="",
    program=f'{_ENGINE}torch.save(engine.module.state_dict(), "model.pt")\n',
    integration="deepspeed",
    message="train.py:4 saves the weights with torch.save(engine.module.state_dict()): at ZeRO stage 3 each rank has only a part of them, and the file holds empty tensors.",
)
@bad(
    _STAGE_3,
    at="",
    program=f'{_ENGINE}torch.save({{"model": engine.module.state_dict(), "epoch": 3}}, "model.pt")\n',
    integration="deepspeed",
    message='train.py:4 saves the weights with torch.save({"model": engine.module.state_dict(), "epoch": 3}): at ZeRO stage 3 each rank has only a part of them, and the file holds empty tensors.',
)
@good(_STAGE_3, program=f'{_ENGINE}torch.save({{"optimizer": optimizer.state_dict(), "epoch": 3}}, "model.pt")\n', integration="deepspeed")
@bad(
    _STAGE_3,
    at="",
    program=f'{_TRAINER}trainer = Trainer(model, arguments)\ntrainer.train()\ntorch.save(trainer.model.state_dict(), "model.pt")\n',
    integration="transformers",
    message="train.py:7 saves the weights with torch.save(trainer.model.state_dict()): at ZeRO stage 3 each rank has only a part of them, and the file holds empty tensors.",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_TRAINER}from peft import LoraConfig, get_peft_model\nmodel = get_peft_model(model, LoraConfig(r=8))\n"
    "trainer = Trainer(model, arguments)\ntrainer.train()\ntorch.save(trainer.model.state_dict(), 'model.pt')\n",
    integration="transformers",
    message="train.py:9 saves the weights with torch.save(trainer.model.state_dict()): at ZeRO stage 3 each rank has only a part of them, and the file may hold empty tensors.",
)
@bad(
    _STAGE_3,
    at="",
    program=f'{_TRAINER}trainer = Trainer(model, arguments)\ntrainer.train()\nmodel.save_pretrained("out")\n',
    integration="transformers",
    message="train.py:7 saves the weights with model.save_pretrained: at ZeRO stage 3 each rank has only a part of them, and the file may hold empty tensors.",
)
@good(_STAGE_3, program=f'{_ENGINE}engine.save_16bit_model("out")\n', integration="deepspeed")
@good(_STAGE_3, program=f"{_GATHERING}torch.save(engine.module.state_dict(), 'model.pt')\nsave_gathered(engine)\n", integration="deepspeed")
@good(_STAGE_2, program=f'{_ENGINE}torch.save(engine.module.state_dict(), "model.pt")\n', integration="deepspeed")
@good(
    _STAGE_3,
    program=f'{_TRAINER}trainer = Trainer(model, arguments)\ntrainer.train()\ntrainer.save_model("out")\n',
    integration="transformers",
)
@good(
    _STAGE_3,
    program=f'{_TRAINER}trainer = Trainer(model, arguments)\ntrainer.train()\ntrainer.model.get_vision_tower().image_processor.save_pretrained("out")\n',
    integration="transformers",
)
@good(
    _STAGE_3,
    program=f'{_ENGINE}with deepspeed.zero.GatheredParameters(engine.module.parameters()):\n    torch.save(engine.module.state_dict(), "model.pt")\n',
    integration="deepspeed",
)
@good(
    _STAGE_3,
    program=f'{_ENGINE}with deepspeed.zero.GatheredParameters(engine.module.parameters(), modifier_rank=0):\n    weights = engine.module.state_dict()\ntorch.save(weights, "model.pt")\n',
    integration="deepspeed",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_PREPARED}accelerator.save(accelerator.unwrap_model(model).state_dict(), 'model.pt')\n",
    integration="accelerate",
    message="train.py:6 saves the weights with accelerator.save(accelerator.unwrap_model(model).state_dict()): at ZeRO stage 3 each rank has only a part of them, and the file holds empty tensors.",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_COPIED}save_file(weights, 'model.safetensors')\n",
    integration="accelerate",
    message="train.py:9 saves the weights with safetensors.torch.save_file(weights), which train.py:6 takes from the model: at ZeRO stage 3 each rank has only a part of them, and the file may hold empty tensors.",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_PREPARED}def hook(models, weights, output_dir):\n    for one in models:\n        one.save_pretrained(output_dir)\n"
    "accelerator.register_save_state_pre_hook(hook)\n",
    integration="accelerate",
    message="train.py:8 saves the weights with one.save_pretrained: at ZeRO stage 3 each rank has only a part of them, and the file may hold empty tensors.",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_PREPARED}from peft import get_peft_model_state_dict\ndef hook(models, weights, output_dir):\n"
    "    layers = get_peft_model_state_dict(accelerator.unwrap_model(models[0]))\n    pipeline.save_lora_weights(output_dir, layers)\n"
    "accelerator.register_save_state_pre_hook(hook)\n",
    integration="accelerate",
    message="train.py:8 saves the weights with get_peft_model_state_dict: at ZeRO stage 3 each rank has only a part of them, and the file may hold empty tensors.",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_PREPARED}whole = accelerator.unwrap_model(model)\nwhole.save_pretrained('out', state_dict=accelerator.get_state_dict(whole))\n",
    integration="accelerate",
    message="train.py:7 passes whole to accelerator.get_state_dict, which is not the engine: at ZeRO stage 3 it raises \"object has no attribute 'zero_gather_16bit_weights_on_model_save'\".",
)
@good(
    _STAGE_3,
    program=f"{_PREPARED}def unwrapped(model):\n    model = accelerator.unwrap_model(model)\n    return model\n"
    "unwrapped(model).save_pretrained('out', state_dict=accelerator.get_state_dict(model))\n",
    integration="accelerate",
)
@good(_STAGE_2, program=f"{_COPIED}save_file(weights, 'model.safetensors')\n", integration="accelerate")
@good(
    _STAGE_3,
    program=_COPIED.replace("model.state_dict()", "accelerator.get_state_dict(model)") + "save_file(weights, 'model.safetensors')\n",
    integration="accelerate",
)
@good(
    _STAGE_3,
    program=f"{_PREPARED}accelerator.unwrap_model(model).save_pretrained('out', state_dict=accelerator.get_state_dict(model))\n",
    integration="accelerate",
)
@bad(
    _STAGE_3,
    at="",
    program=_OWN_SAVE,
    integration="transformers",
    message="train.py:11 saves the weights with self.model.save in the _save of a Trainer, which does not use the state_dict that it gets: at ZeRO stage 3 each rank has only a part of them, and the file may hold empty tensors.",
)
@bad(
    _STAGE_3,
    at="",
    program=_COPIES,
    integration="transformers",
    message="train.py:11 gives model.state_dict() to get_peft_state_maybe_zero_3: the tensors of a state dict are copies without ds_id, so at ZeRO stage 3 it gathers nothing, and the file may hold empty tensors.",
)
@good(_STAGE_2, program=_COPIES, integration="transformers")
@good(_STAGE_3, program=_COPIES.replace("state_dict(), ", "named_parameters(), "), integration="transformers")
@bad(
    _STAGE_3,
    at="",
    program=_OWN_SAVE_MODEL,
    integration="transformers",
    message="train.py:5 saves the weights with self.model.named_parameters() in the save_model of a Trainer, which gathers nothing: at ZeRO stage 3 each rank has only a part of them, and the file may hold empty tensors.",
)
@bad(
    _STAGE_3,
    at="",
    program=_CALLBACK,
    integration="transformers",
    message="train.py:5 saves the weights with kwargs['model'].save...trained(f'{args.output_dir}/adapter') in a callback of a Trainer, which gathers nothing: at ZeRO stage 3 each rank has only a part of them, and the file may hold empty tensors.",
)
@good(_STAGE_2, program=_CALLBACK, integration="transformers")
@good(_STAGE_3, program=_CALLBACK.replace("(SaveAdapter())", "(Other())"), integration="transformers")
@good(
    _STAGE_3,
    program=_CALLBACK.replace("        kwargs['model']", "        with whole(kwargs['model']):\n            kwargs['model']"),
    integration="transformers",
)
@good(_STAGE_2, program=_OWN_SAVE_MODEL, integration="transformers")
@good(
    _STAGE_3,
    program=_OWN_SAVE_MODEL.replace("        torch.save", "        super().save_model(output_dir)\n        torch.save"),
    integration="transformers",
)
@good(
    _STAGE_3,
    program=_OWN_SAVE_MODEL.replace("        torch.save", "        Trainer.save_model(self, output_dir)\n        torch.save"),
    integration="transformers",
)
@good(
    _STAGE_3,
    program=_OWN_SAVE_MODEL.replace("{k: v.cpu() for k, v", "[k for k, _").replace("if v.requires_grad}", "if 'lora' in k]"),
    integration="transformers",
)
@good(_STAGE_3, program=_OWN_SAVE_MODEL.replace("v.cpu()", "gathered(v)"), integration="transformers")
@good(_STAGE_2, program=_OWN_SAVE, integration="transformers")
@good(_STAGE_3, program=_OWN_SAVE.replace("save(output_dir)", "save(output_dir, state_dict)"), integration="transformers")
@good(
    _STAGE_3,
    program=_OWN_SAVE.replace(
        "        self.model.save(", "        with deepspeed.zero.GatheredParameters(self.model.parameters()): self.model.save("
    ),
    integration="transformers",
)
@good(_STAGE_3, program=_OWN_SAVE.replace("self.encoder.state_dict()", "gathered(self.encoder)"), integration="transformers")
def partitioned_weights_saved(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 the program saves the state dict of a model without gathering its weights.

    Stage 3 divides each weight among the ranks. What `state_dict()` then returns are tensors with the shape [0]: the file is small, and
    loading it fails or starts from random weights. Only DeepSpeed's checkpoint has the trained weights.

    The tensors of a state dict are copies: a function that gathers parameters by their attribute `ds_id`, as FastChat's
    `get_peft_state_maybe_zero_3`, has to get `named_parameters()`.

    `accelerator.get_state_dict` gathers the weights only if it gets what `prepare` returned: with the unwrapped model it raises AttributeError.

    Call `engine.save_16bit_model` on every rank, or `accelerator.get_state_dict(model)` and give the result to `save_pretrained`, or
    `trainer.save_model`; each requires `stage3_gather_16bit_weights_on_model_save`. `zero_to_fp32.py` makes the weights of a checkpoint.
    """
    program = config.setup.program if config.setup else None
    if program is None or not config.value(STAGE) >= 3 or _saves_gathered(program.events):
        return
    events = program.events
    managed = managed_models(events, *ENGINES, TRAINERS)
    adapts = makes_adapter(program)  # its weights may be below stage3_param_persistence_threshold, and then they are whole on every rank
    for event in events.of(*_SAVES):
        given = event.argument(*_SAVES[next(name for name in _SAVES if re.fullmatch(name, event.name))])
        if given is None or _is_gathered(event):
            continue
        if not given.made:
            taken = _copied(program, event, given.raw, managed)
            if taken is not None:
                yield _saved(event, given.raw, event.name, certain=False, of=taken)
            continue
        if not given.made.endswith(".state_dict") or _is_taken_gathered(events, given.made):
            continue
        of_engine = re.fullmatch(f"(deepspeed\\.initialize|{TRAINERS}\\.model|{HOOK})\\.state_dict", given.made) is not None
        if of_engine or given.origin in managed:
            by_rank = bool(event.conditions) and all(one.ranks for one in event.conditions)
            how = event.name if event.name == "torch.save" else event.called
            is_certain = by_rank or (event.certain and not event.conditions)
            yield _saved(event, given.raw, how, certain=is_certain and not given.made.startswith(HOOK) and not adapts)
    for event in events.of(f"({MODELS}|deepspeed\\.initialize|{TRAINERS}\\.model)\\.save_pretrained"):
        number = events.all.index(event)
        trained = re.match(f"deepspeed\\.|{TRAINERS}", event.name) is not None or managed.get(event.origin or 0, number) < number
        given = event.argument("state_dict", 2)
        divided = given is None or given.made.endswith(".state_dict")
        if trained and event.complete and divided and not _is_gathered(event):
            yield _saved(event, event.called, "save_pretrained", certain=False)
    for event in events.of(rf"{HOOK}\.save_pretrained", r"peft\.(\w+\.)*get_peft_model_state_dict"):
        model = event.argument("model", 0)
        of_hook = event.name.startswith(HOOK) or (model is not None and model.made == HOOK)
        if of_hook and event.complete and event.argument("state_dict", 1) is None and not _is_gathered(event) and not event.unlikely:
            yield _saved(event, event.called, "save_pretrained", certain=False)
            break
    yield from _gathered_without_engine(program)
    yield from _gathered_copies(config, program, managed)
    own = program.own_save if config.facts.integration is Integration.TRANSFORMERS else None
    if own is not None:
        is_gathered = own.name == "_save"
        why = "which does not use the state_dict that it gets" if is_gathered else "which gathers nothing"
        place = "a callback" if own.name == "callback" else f"the {own.name}"
        yield Finding(
            "",
            f"{own.where} saves the weights with {own.raw} in {place} of a Trainer, {why}: at ZeRO stage 3 each rank has only a part of them, and "
            "the file may hold empty tensors.",
            help=_INSTEAD[own.name],
            elsewhere=own.related(""),
            certain=False,
        )


def _saves_gathered(events: Events) -> bool:
    """Whether a function of the program gathers weights and saves a file: it may replace that of another function at stage 3, as
    `save_zero_three_model` of DeepSpeed-Chat does with that of `save_hf_format`.
    """
    gathers = {(one.at.path, one.function) for one in events.of(rf".*{_GATHERED}") if one.function}
    return any((one.at.path, one.function) in gathers for one in events.of(*_SAVES))


_INSTEAD = {
    "_save": "Give the state_dict that _save gets to save_pretrained: the Trainer has gathered it.",
    "save_model": "Remove the method: that of the Trainer saves adapters, too. Otherwise save self.accelerator.get_state_dict(self.deepspeed).",
    "callback": "Remove the callback: with stage3_gather_16bit_weights_on_model_save each checkpoint of the Trainer has the gathered weights.",
}
"""What to do about the place that saves weights which are not gathered."""


def _is_taken_gathered(events: Events, made: str) -> bool:
    """Whether a program takes such a state dict only where the weights are gathered, and may save it elsewhere."""
    taken = list(events.of(re.escape(made)))
    return bool(taken) and all(_is_gathered(one) for one in taken)


def _copied(program: Program, save: Event, name: str, managed: dict[int, int]) -> Event | None:
    """The state dict of a model that DeepSpeed trains, if a program has it under a name, changes it, and saves it by this name."""
    number = program.events.all.index(save)
    found = None
    for place, one in enumerate(program.events.all[:number]):
        is_here = (one.bound, one.function, one.at.path, one.flow) == (name, save.function, save.at.path, save.flow)
        if is_here and one.name.endswith(_READS) and one.origin is not None:
            found = one if managed.get(one.origin, number) < place and not _is_gathered(one) else None
    return found


_READS = (".state_dict", ".state_dict.items", ".named_parameters")


def _gathered_without_engine(program: Program) -> Iterator[Finding]:
    """The finding for a call of `get_state_dict` that gets the model without its engine, which alone can gather the weights."""
    unwrapped: set[tuple[str, str, str]] = set()
    for event in program.events.of(r"accelerate\.(\w+\.)?Accelerator\.(unwrap_model|get_state_dict)"):
        if event.name.endswith("unwrap_model"):
            unwrapped.add((event.at.path, event.function, event.bound))
            continue
        given = event.argument("model", 0)
        if given is None or event.tells_setups_apart:
            continue
        if re.search(r"unwrap_model\(|\.module$", given.raw) or (event.at.path, event.function, given.raw) in unwrapped:
            yield Finding(
                "",
                f'{event.at.where} passes {given.raw} to accelerator.get_state_dict, which is not the engine: at ZeRO stage 3 it raises "object '
                "has no attribute 'zero_gather_16bit_weights_on_model_save'\".",
                help="Pass what accelerator.prepare returned.",
                elsewhere=event.at.related(""),
                effect=Effect.CRASH,
                phase=Phase.SAVE,
                certain=event.certain or event.likely or all(one.ranks for one in event.conditions),
            )


_GATHERS = re.compile(r"\b\w*maybe_zero_3\(\s*$")
"""The call of a function that gathers what has the attribute `ds_id`, by its usual name: FastChat and LLaVA have it, and the many trainers that
began as a copy of one. It was written for a state dict first; of ten public copies that still pass one, none gathers at stage 3.
"""


def _gathered_copies(config: Config, program: Program, managed: dict[int, int]) -> Iterator[Finding]:
    """The finding for a state dict that goes to a function which gathers parameters: its tensors are copies, of which DeepSpeed does not know."""
    texts = {path: one.text for path, one in config.setup.documents.items()} if config.setup is not None else {}
    for event in program.events.of(f"({MODELS}|deepspeed\\.initialize|{TRAINERS}\\.model)\\.state_dict"):
        is_trained = re.match(f"deepspeed\\.|{TRAINERS}", event.name) is not None or event.origin in managed
        start = event.at.range.start.offset if event.at.range is not None else 0
        call = _GATHERS.search(texts.get(event.at.path, "")[:start])
        is_copy = event.complete and event.argument("keep_vars", 2) is None
        if call is not None and is_trained and is_copy and not _is_gathered(event):
            yield Finding(
                "",
                f"{event.at.where} gives {event.at.raw} to {call.group().rstrip('( ')}: the tensors of a state dict are copies without ds_id, so at ZeRO stage 3 "
                "it gathers nothing, and the file may hold empty tensors.",
                help="Give named_parameters() of the model to the function.",
                elsewhere=event.at.related(""),
                certain=False,
            )
            return


_SAVES = {
    r"torch\.save": ("obj", 0),
    r"safetensors\.torch\.(save_file|save)": ("tensors", 0),
    rf"{TRAINERS}\._save": ("state_dict", 1),
    r"accelerate\.(\w+\.)?Accelerator\.save": ("obj", 0),
}
"""What saves a state dict, with the argument that is one."""


def _saved(event: Event, what: str, how: str, *, certain: bool, of: Event | None = None) -> Finding:
    taken = f", which {of.at.where} takes from the model" if of is not None else ""
    return Finding(
        "",
        f"{event.at.where} saves the weights with {what if how == 'save_pretrained' else f'{how}({what})'}{taken}: at ZeRO stage 3 each rank has only a part of "
        f"them, and the file {'holds' if certain else 'may hold'} empty tensors.",
        help="Save with engine.save_16bit_model, trainer.save_model, or save_pretrained(..., state_dict=accelerator.get_state_dict(model)).",
        elsewhere=event.at.related(""),
        certain=certain,
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
    program=f"{_ENGINE}average = torch.optim.swa_utils.AveragedModel(engine.module)\n",
    integration="deepspeed",
    message="train.py:4 copies a model with torch.optim.swa_utils.AveragedModel: at ZeRO stage 3 its weights are divided among the ranks by then, and those of the copy may have the shape [0] and stay so.",
)
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

    `load_state_dict` compares shapes, and raises RuntimeError for a weight of the shape [0].

    dslint reports no use in a branch that the default of a flag switches off.

    Put the code into `with deepspeed.zero.GatheredParameters(weight, modifier_rank=0):`. Read the size from the model's config.
    """
    program = config.setup.program if config.setup else None
    if program is None or not config.value(STAGE) >= 3:
        return
    found = [event for event in _uses_of_divided(config, program) if not event.unlikely and not _is_gathered(event)]
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
    copies = (one for one in _copies_of_divided(config, program) if not one.unlikely and not _is_gathered(one))
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
    uses = [event for event in found if not event.name.endswith(_LOADS)]
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


_USE = re.compile(
    f"({MODELS}|deepspeed\\.initialize)\\.weight(\\.(clone|cpu|detach|float|mean|norm|abs|sum|copy_|fill_|normal_|zero_|add_|mul_))?"
)


_LOADED = re.compile(rf"({MODELS}|deepspeed\.initialize)\.load_state_dict")
_CALLED = re.compile(f"({MODELS}|deepspeed\\.initialize)\\.(size|numel|clone|detach|mean|norm|abs|sum|copy_|fill_|normal_|zero_|add_|mul_)")
"""The methods of a tensor that a model does not have."""
_OF_WEIGHT = re.compile(r"\.(weight|bias)\.\w+\(")


_LOADS = ".load_state_dict"
_WHOLE = re.compile(r"(self\.)?\w+(\.module)?\.load_state_dict")
"""A call of the model itself: in a branch, a part may be one that the program makes anew, which is whole."""


def _is_use(event: Event) -> bool:
    """Whether a program reads or writes the elements of a weight of a model."""
    return (
        _LOADED.fullmatch(event.name) is not None
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


_AVERAGES = re.compile(
    r"diffusers\.(\w+\.)*EMAModel|torch\.optim\.swa_utils\.AveragedModel|timm\.utils\.(\w+\.)*ModelEma\w*|ema_pytorch\.(\w+\.)*EMA"
)
"""What keeps averages of the weights of a model, in a copy that it makes of them."""
_WHOLE_MODEL = re.compile(f"{MODELS}|deepspeed\\.initialize|{TRAINERS}\\.model")


def _divided(config: Config, program: Program) -> Callable[[int, str, int | None], bool]:
    """Whether stage 3 has divided a model at an event: by its number, what made the model, and the origin of the model."""
    if config.facts.integration is Integration.TRANSFORMERS:
        # otherwise the model is whole until the Trainer hands it to DeepSpeed
        return lambda _number, made, _origin: program.loaded_early is None and not made.startswith("diffusers.")
    tells = telling(config, program)
    order = {one.start: number for number, one in enumerate(program.events.all)}
    managed = managed_models(program.events, *ENGINES)

    def is_divided(number: int, made: str, origin: int | None) -> bool:
        if origin is None:
            return False
        # diffusers loads no model inside of zero.Init
        divided_at_load = tells is not None and not made.startswith("diffusers.") and order[tells] < order.get(origin, -1)
        return divided_at_load or made.startswith("deepspeed.") or managed.get(origin, number) < number

    return is_divided
