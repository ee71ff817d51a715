"""DS7: adapters whose gradients reentrant checkpointing cuts off."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.job.events import CHECKPOINTS, LOADS
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.project import programs_of
from dslint.rules.helpers.reentrant import is_reentrant, reentrant_by_trainer
from dslint.rules.helpers.releases import before_transformers_5

_STAGE_2 = trained('"zero_optimization": {"stage": 2}')
_HEAD = (
    "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "arguments = TrainingArguments('out', deepspeed='ds_config.json', gradient_checkpointing=True%s)\n"
    "model = AutoModelForCausalLM.from_pretrained('m')\n"
)
_ADAPTED = "model = get_peft_model(model, LoraConfig(r=8, target_modules=['q_proj', 'v_proj']%s))\n"
_TRAINED = "Trainer(model=model, args=arguments, train_dataset=data).train()\n"
_PROGRAM = _HEAD % "" + _ADAPTED % "" + _TRAINED
_LOOP = (
    "from accelerate import Accelerator\nfrom peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\n"
    "accelerator = Accelerator()\nmodel = get_peft_model(AutoModelForCausalLM.from_pretrained('m'), LoraConfig(r=8))\n"
    "model.gradient_checkpointing_enable(%s)\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
)
_OLD = {"transformers": Release(4, 45, 2)}

_CUTS = (
    "get_peft_model (train.py:5) runs before gradient checkpointing is on (train.py:3), so PEFT leaves the inputs of the layers without "
    "gradients, and the checkpointing of transformers 4.45.2 is reentrant"
)


@rule(
    "DS711",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "peft/peft_model.py, PeftModel.__init__ and _prepare_model_for_gradient_checkpointing",
        "transformers/modeling_utils.py, PreTrainedModel.gradient_checkpointing_enable of 4.30.2 to 5.0.0",
        "https://github.com/huggingface/transformers/issues/42489",
        "https://github.com/huggingface/transformers/issues/26334",
        "https://github.com/huggingface/peft/issues/137",
    ),
    untried="requires PEFT and a transformers before 5; it was tried with a small model on 4.45.2 and 4.57.1",
    anywhere=True,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_PROGRAM,
    integration="transformers",
    pins=_OLD,
    message=f'{_CUTS}: the backward pass raises RuntimeError "element 0 of tensors does not require grad and does not have a grad_fn".',
)
@bad(
    _STAGE_2,
    at="",
    program=_HEAD % "" + _ADAPTED % ", modules_to_save=['lm_head']" + _TRAINED,
    integration="transformers",
    pins=_OLD,
    message=f"{_CUTS}: only the head may be trained, and the weights of LoRA in the layers stay as they are.",
)
@bad(
    _STAGE_2,
    at="",
    program=_LOOP % "",
    integration="accelerate",
    pins=_OLD,
    message="get_peft_model (train.py:5) runs before gradient checkpointing is on (train.py:6), so PEFT leaves the inputs of the layers without "
    "gradients, and the checkpointing of transformers 4.45.2 is reentrant: the backward pass raises RuntimeError "
    '"element 0 of tensors does not require grad and does not have a grad_fn".',
)
@bad(
    _STAGE_2,
    at="",
    program=_PROGRAM,
    integration="transformers",
    pins={"peft": Release(0, 11, 1)},
    message='get_peft_model (train.py:5) runs before gradient checkpointing is on (train.py:3), so PEFT leaves the inputs of the layers without gradients, and the checkpointing of transformers before 5 is reentrant: the backward pass may raise RuntimeError "element 0 of tensors does not require grad and does not have a grad_fn".',
)
@good(_STAGE_2, program=_PROGRAM, integration="transformers", pins={"transformers": Release(5, 0, 0)})
@good(_STAGE_2, program=_PROGRAM, integration="transformers", pins={"transformers": Release(5, 0, 0), "peft": Release(0, 11, 1)})
@good(_STAGE_2, program=_PROGRAM, integration="transformers", pins={"peft": Release(0, 18, 0)})
@good(_STAGE_2, program=_PROGRAM, integration="transformers")
@good(
    _STAGE_2, program=_PROGRAM.replace("Trainer(m", "model.enable_input_require_grads()\nTrainer(m"), integration="transformers", pins=_OLD
)
@good(
    _STAGE_2,
    program=_HEAD % ", gradient_checkpointing_kwargs={'use_reentrant': False}" + _ADAPTED % "" + _TRAINED,
    integration="transformers",
    pins=_OLD,
)
@good(
    _STAGE_2,
    program=_HEAD % "" + "model.gradient_checkpointing_enable()\n" + _ADAPTED % "" + _TRAINED,
    integration="transformers",
    pins=_OLD,
)
@good(_STAGE_2, program=_HEAD % "" + _ADAPTED % ", modules_to_save=['embed_tokens']" + _TRAINED, integration="transformers", pins=_OLD)
@good(
    _STAGE_2,
    program=_HEAD % "" + "saved = 'embed_tokens,lm_head'.split(',')\n" + _ADAPTED % ", modules_to_save=saved" + _TRAINED,
    integration="transformers",
    pins=_OLD,
)
@good(
    _STAGE_2,
    program=_HEAD % "" + _ADAPTED % ", modules_to_save=modules_of(settings)" + _TRAINED,
    integration="transformers",
    pins=_OLD,
)
@good(
    _STAGE_2,
    program=_HEAD.replace("get_peft_model", "get_peft_model, prepare_model_for_kbit_training") % ""
    + "model = prepare_model_for_kbit_training(model)\n"
    + _ADAPTED % ""
    + _TRAINED,
    integration="transformers",
    pins=_OLD,
)
@good(_STAGE_2, program=_PROGRAM.replace("checkpointing=True", "checkpointing=False"), integration="transformers", pins=_OLD)
@good(_STAGE_2, program=(_HEAD % "" + _TRAINED), integration="transformers", pins=_OLD)
@good(
    _STAGE_2,
    program=(_HEAD % "" + _ADAPTED % "").replace("LoraConfig", "PromptTuningConfig") + _TRAINED,
    integration="transformers",
    pins=_OLD,
)
@good(
    _STAGE_2,
    program="from peft import LoraConfig\nfrom trl import SFTConfig, SFTTrainer\n"
    "arguments = SFTConfig('out', deepspeed='ds_config.json', gradient_checkpointing=True)\n"
    "SFTTrainer('m', arguments, peft_config=LoraConfig(r=8)).train()\n",
    integration="transformers",
    pins=_OLD,
)
@good(_STAGE_2, program=_LOOP % "gradient_checkpointing_kwargs={'use_reentrant': False}", integration="accelerate", pins=_OLD)
@good(
    _STAGE_2,
    program=_LOOP.replace("import Accelerator\n", "import Accelerator\nimport torch\n").replace(
        "model, optimizer, loader =", "model.base_model.get_input_embeddings().register_forward_hook(grads)\nmodel, optimizer, loader ="
    )
    % "",
    integration="accelerate",
    pins=_OLD,
)
def adapter_without_input_gradients(config: Config) -> Iterator[Finding]:
    """An adapter is trained with reentrant gradient checkpointing, and the inputs of the layers have no gradients.

    Reentrant checkpointing passes gradients on only where an input of the layer has them. The embeddings under an adapter are frozen, so
    their output has none, unless a hook turns them on. `get_peft_model` adds that hook only to a model that checkpoints already; here
    checkpointing comes later, from the Trainer or from the program. The backward pass raises RuntimeError "element 0 of tensors does not
    require grad"; if the head is trained, too, only the head learns. Transformers 5 adds the hook itself.

    Call `model.enable_input_require_grads()`, or set `gradient_checkpointing_kwargs={"use_reentrant": False}` where ZeRO stage 3 is not used.
    """
    program = config.setup.program if config.setup else None
    transformers = config.context.pinned("transformers")
    if program is None or not before_transformers_5(config):
        return
    events = program.events
    adapters = list(events.of(r"peft\.get_peft_model"))
    if len(adapters) != 1 or adapters[0].tells_setups_apart or adapters[0].unlikely or any(map(_OTHERWISE.search, programs_of(config))):
        return
    adapter = adapters[0]
    base, lora = adapter.argument("model", 0), events.maker_of(adapter.argument("peft_config", 1))
    if (
        base is None
        or re.fullmatch(LOADS, base.made) is None
        or lora is None
        or re.fullmatch(r"peft\.(\w+\.)*LoraConfig", lora.name) is None
    ):
        return
    begins = events.all.index(adapter)
    on = list(events.of(CHECKPOINTS, r"peft\.get_peft_model\.gradient_checkpointing_enable"))
    if any(events.all.index(one) < begins for one in on):
        return
    later = next(
        (one for one in on if one.origin == adapter.start and is_reentrant(one.argument("gradient_checkpointing_kwargs", 0))), None
    )
    if later is not None and not later.tells_setups_apart and not later.unlikely:
        where, certain = later.at, later.certain
    elif on:
        return
    else:
        argument = reentrant_by_trainer(config, events)
        if argument is None:
            return
        where, certain = argument, True
    targets, saved = lora.argument("target_modules"), lora.argument("modules_to_save")
    if any(given is not None and _EMBEDDINGS.search(f"{given.raw} {given.value}") for given in (targets, saved)):
        return
    if lora.argument("trainable_token_indices") is not None:
        return
    if saved is not None and saved.value is UNKNOWN and _LITERAL.fullmatch(saved.raw) is None:
        return  # most names that are saved beside LoRA include the embeddings
    heads = (saved is not None and saved.value is not None) or (targets is not None and _HEADS.search(targets.raw) is not None)
    known = lora.complete and (targets is None or _LITERAL.fullmatch(targets.raw) is not None)
    outcome = (
        "only the head may be trained, and the weights of LoRA in the layers stay as they are"
        if heads
        else 'the backward pass raises RuntimeError "element 0 of tensors does not require grad and does not have a grad_fn"'
    )
    load = events.maker_of(base)
    remote = load is not None and "trust_remote_code" in load.arguments
    yield Finding(
        "",
        f"get_peft_model ({adapter.at.where}) runs before gradient checkpointing is on ({where.where}), so PEFT leaves the inputs of the layers "
        f"without gradients, and the checkpointing of transformers {transformers or 'before 5'} is reentrant: {outcome}.",
        help="Call model.enable_input_require_grads() before the training.",
        elsewhere=adapter.at.related(""),
        related=(where.related("checkpointing is turned on here"),),
        certain=certain and transformers is not None and known and not heads and not remote and (adapter.certain or not adapter.conditions),
    )


_EMBEDDINGS = re.compile(r"embed|wte|shared|word", re.IGNORECASE)
_HEADS = re.compile(r"head|score|classifier", re.IGNORECASE)
_LITERAL = re.compile(r"\[[^\[\]()]*\]|([\"'])[^\"']*\1")
_OTHERWISE = re.compile(
    r"input_require_grads|make_inputs_require|requires_grad_\(|\.requires_grad\s*=\s*True|prepare_model_for|register_forward\w*_hook|unsloth"
)
"""What gives the inputs of the layers gradients, or may; also weights that the program unfreezes itself."""
