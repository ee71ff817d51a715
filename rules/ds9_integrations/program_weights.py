"""DS9: weights that ZeRO stage 3 has divided among the ranks, used by a program as if they were whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.job.events import HOOK, MODELS, TRAINERS, Event, Events
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.model import makes_adapter
from dslint.rules.helpers.models import ENGINES, managed_models, model_of
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
_OWN_MODULE = (
    "import deepspeed\nimport torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\nnet = Net()\n"
    'engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
)
_GATHERING = (
    f"{_ENGINE}def save_gathered(engine):\n    weights = {{}}\n    for name, weight in engine.module.named_parameters():\n"
    "        with deepspeed.zero.GatheredParameters([weight]):\n            weights[name] = weight.data.cpu()\n    if rank == 0:\n        torch.save(weights, 'model.pt')\n"
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
_SAVES_GIVEN = (
    "import deepspeed\nfrom transformers import AutoModelForCausalLM\n"
    "def save_model(model, folder, state_dict=None):\n    if state_dict == None:\n        model.save_pretrained(folder)\n"
    "    else:\n        model.save_pretrained(folder, state_dict=state_dict)\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "weights = engine._zero3_consolidated_16bit_state_dict()\nif rank == 0:\n    save_model(engine, 'out', weights)\n"
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
    "        if self.args.should_save:\n            torch.save(weights, f'{output_dir}/adapter_model.bin')\n"
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


def is_gathered(event: Event) -> bool:
    """Whether a program gathers the weights around a call, or makes it only where they are whole."""
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
@good(_STAGE_3, program=_SAVES_GIVEN, integration="deepspeed")
@bad(
    _STAGE_3,
    at="",
    program=_SAVES_GIVEN.replace(", weights)", ")"),
    integration="deepspeed",
    message="train.py:5 saves the weights with model.save_pretrained: at ZeRO stage 3 each rank has only a part of them, and the file may hold empty tensors.",
)
@good(
    _STAGE_3,
    program=f"{_GATHERING}if rank == 0:\n    torch.save(engine.module.state_dict(), 'model.pt')\nsave_gathered(engine)\n",
    integration="deepspeed",
)
@good(_STAGE_2, program=f'{_ENGINE}if rank == 0:\n    torch.save(engine.module.state_dict(), "model.pt")\n', integration="deepspeed")
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
    program=f'{_ENGINE}with deepspeed.zero.GatheredParameters(engine.module.parameters()):\n    if rank == 0:\n        torch.save(engine.module.state_dict(), "model.pt")\n',
    integration="deepspeed",
)
@good(
    _STAGE_3,
    program=f'{_ENGINE}with deepspeed.zero.GatheredParameters(engine.module.parameters(), modifier_rank=0):\n    weights = engine.module.state_dict()\nif rank == 0:\n    torch.save(weights, "model.pt")\n',
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
    program=f"{_OWN_MODULE}torch.save(net.state_dict(), 'model.pt')\n",
    integration="deepspeed",
    message="train.py:8 saves the weights with torch.save(net.state_dict()): at ZeRO stage 3 each rank has only a part of them, and the file may hold empty tensors.",
)
@good(_STAGE_2, program=f"{_OWN_MODULE}if rank == 0:\n    torch.save(net.state_dict(), 'model.pt')\n", integration="deepspeed")
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
    program=_OWN_SAVE_MODEL.replace("        if self", "        super().save_model(output_dir)\n        if self"),
    integration="transformers",
)
@good(
    _STAGE_3,
    program=_OWN_SAVE_MODEL.replace("        if self", "        Trainer.save_model(self, output_dir)\n        if self"),
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
    yield from saved_without_gathering(config)


def saved_without_gathering(config: Config) -> Iterator[Finding]:
    """The findings for weights that a program saves although stage 3 has divided them."""
    program = config.setup.program if config.setup else None
    if program is None or not config.value(STAGE) >= 3 or saves_gathered(program.events):
        return
    events = program.events
    managed = managed_models(events, *ENGINES, TRAINERS)
    adapts = makes_adapter(program)  # its weights may be below stage3_param_persistence_threshold, and then they are whole on every rank
    for event in events.of(*_SAVES):
        given = event.argument(*_SAVES[next(name for name in _SAVES if re.fullmatch(name, event.name))])
        if given is None or is_gathered(event):
            continue
        if not given.made:
            taken = _copied(program, event, given.raw, managed)
            if taken is not None:
                yield _saved(event, given.raw, event.name, certain=False, of=taken)
            continue
        if not given.made.endswith(".state_dict") or _is_taken_gathered(events, given.made) or _is_own_of_trainer(event, given.origin):
            continue
        of_engine = re.fullmatch(f"(deepspeed\\.initialize|{TRAINERS}\\.model|{HOOK})\\.state_dict", given.made) is not None
        if of_engine or model_of(events, given.made, given.origin) in managed:
            by_rank = bool(event.conditions) and all(one.ranks for one in event.conditions)
            how = event.name if event.name == "torch.save" else event.called
            is_certain = by_rank or (event.certain and not event.conditions)
            is_large = not given.made.startswith((HOOK, "torch."))  # a small weight of the project's own model is whole on every rank
            yield _saved(event, given.raw, how, certain=is_certain and is_large and not adapts)
    for event in events.of(f"({MODELS}|deepspeed\\.initialize|{TRAINERS}\\.model)\\.save_pretrained"):
        number = events.all.index(event)
        trained = re.match(f"deepspeed\\.|{TRAINERS}", event.name) is not None or managed.get(event.origin or 0, number) < number
        given = event.argument("state_dict", 2)
        divided = (given is None or given.made.endswith(".state_dict")) and not _lacks_weights(event)
        if trained and event.complete and divided and not is_gathered(event) and not _is_own_of_trainer(event, event.origin):
            yield _saved(event, event.called, "save_pretrained", certain=False)
    for event in events.of(rf"{HOOK}\.save_pretrained", r"peft\.(\w+\.)*get_peft_model_state_dict"):
        model = event.argument("model", 0)
        of_hook = event.name.startswith(HOOK) or (model is not None and model.made == HOOK)
        if of_hook and event.complete and event.argument("state_dict", 1) is None and not is_gathered(event) and not event.unlikely:
            yield _saved(event, event.called, "save_pretrained", certain=False)
            break
    yield from _gathered_without_engine(program)
    yield from _gathered_copies(config, program, managed)
    own = program.own_save if config.facts.integration is Integration.TRANSFORMERS else None
    if own is not None:
        gets_whole = own.name == "_save"
        why = "which does not use the state_dict that it gets" if gets_whole else "which gathers nothing"
        place = "a callback" if own.name == "callback" else f"the {own.name}"
        yield Finding(
            "",
            f"{own.where} saves the weights with {own.raw} in {place} of a Trainer, {why}: at ZeRO stage 3 each rank has only a part of them, and "
            "the file may hold empty tensors.",
            help=_INSTEAD[own.name],
            elsewhere=own.related(""),
            certain=False,
        )


_LACKS_WEIGHTS = re.compile(r"\w*(state_dict|weights)\b\s*(is|==)\s*None|not \w*(state_dict|weights)\b(?![.([])")
"""A condition on weights that a caller gives, which is unknown only where one gives them: what a call without them saves has no condition."""


def _lacks_weights(event: Event) -> bool:
    return any(_LACKS_WEIGHTS.search(one.text) for one in event.conditions)


def _is_own_of_trainer(event: Event, origin: int | None) -> bool:
    """Whether a method of a Trainer that nothing calls saves `self.model`, beside what the Trainer saves: `Program.own_save` judges those."""
    return bool(event.flow) and origin is None


def saves_gathered(events: Events) -> bool:
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
    return bool(taken) and all(is_gathered(one) for one in taken)


def _copied(program: Program, save: Event, name: str, managed: dict[int, int]) -> Event | None:
    """The state dict of a model that DeepSpeed trains, if a program has it under a name, changes it, and saves it by this name."""
    number = program.events.all.index(save)
    found = None
    for place, one in enumerate(program.events.all[:number]):
        is_here = (one.bound, one.function, one.at.path, one.flow) == (name, save.function, save.at.path, save.flow)
        if is_here and one.name.endswith(_READS) and one.origin is not None:
            found = one if managed.get(one.origin, number) < place and not is_gathered(one) else None
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
        if call is not None and is_trained and is_copy and not is_gathered(event):
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
