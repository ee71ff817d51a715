"""DS3: the data type in which weights of 4 bits are stored."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.arguments import SourcedValue
from dslint.job.events import LOADS
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.model import trains_adapter
from dslint.rules.helpers.precision import bf16_section, model_dtype
from dslint.rules.helpers.quantized import quantizations
from dslint.source.unknown import UNKNOWN

_BF16 = trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}')
_AUTO = '{"train_batch_size": "auto", "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
_FP16 = trained('"fp16": {"enabled": true}, "zero_optimization": {"stage": 3}')
_FP32 = trained('"zero_optimization": {"stage": 2}')
_HEAD = (
    "import torch\nfrom peft import LoraConfig, get_peft_model\n"
    "from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments\n"
    "arguments = TrainingArguments('out', deepspeed='ds_config.json')\n"
)
_LOADED = "bits = BitsAndBytesConfig(load_in_4bit=True%s)\nmodel = AutoModelForCausalLM.from_pretrained('m', quantization_config=bits)\n"
_ADAPTED = "model = get_peft_model(model, LoraConfig(r=8))\nTrainer(model, arguments).train()\n"
_STORED = ", bnb_4bit_quant_storage="
_SWIFT = "model: m\ntuner_type: lora\noutput_dir: o\nlearning_rate: 1e-4\nbf16: true\ndeepspeed: ds_config.json\nquant_method: bnb\nquant_bits: 4\n"


def _program(storage: str) -> str:
    return _HEAD + _LOADED % storage + _ADAPTED


@rule(
    "DS337",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine._configure_distributed_model",
        "bitsandbytes/nn/modules.py, Params4bit",
        "https://huggingface.co/docs/peft/accelerate/deepspeed",
    ),
)
@bad(
    _BF16,
    at="bf16.enabled",
    program=_program(f"{_STORED}torch.float16"),
    integration="transformers",
    message="bnb_4bit_quant_storage=torch.float16 packs the 4-bit weights into numbers of fp16, and DeepSpeed converts them to bf16: the frozen weights become others.",
)
@bad(
    _FP16,
    at="fp16.enabled",
    program=_program(f"{_STORED}'bfloat16'"),
    integration="transformers",
    message="bnb_4bit_quant_storage='bfloat16' packs the 4-bit weights into numbers of bf16, and DeepSpeed converts them to fp16: the frozen weights become others.",
)
@bad(
    _BF16,
    at="bf16.enabled",
    program=_program(f"{_STORED}torch.float32"),
    integration="transformers",
    message="bnb_4bit_quant_storage=torch.float32 packs the 4-bit weights into numbers of fp32, and DeepSpeed converts them to bf16: half of their bytes or more are lost, and the first step raises an error about a shape.",
)
@bad(
    _AUTO,
    at="bf16.enabled",
    training=f"{_SWIFT}bnb_4bit_quant_storage: float16\n",
    message="bnb_4bit_quant_storage: float16 packs the 4-bit weights into numbers of fp16, and DeepSpeed may convert them to bf16: the frozen weights become others.",
)
@good(_AUTO, training=f"{_SWIFT}bnb_4bit_quant_storage: bfloat16\n")
@good(_AUTO, training=f"{_SWIFT}bnb_4bit_quant_storage: uint8\n")
@good(_AUTO, training=_SWIFT.replace("quant_bits: 4", "quant_bits: 8") + "bnb_4bit_quant_storage: float16\n")
@good(_BF16, program=_program(f"{_STORED}torch.bfloat16"), integration="transformers")
@good(_BF16, program=_program(f"{_STORED}getattr(torch, 'bfloat16')"), integration="transformers")
@good(_BF16, program=_program(f"{_STORED}torch.uint8"), integration="transformers")
@good(_BF16, program=_program(f"{_STORED}None"), integration="transformers")
@good(_BF16, program=_program(", bnb_4bit_compute_dtype=torch.float16"), integration="transformers")
@good(_BF16, program=_program(f"{_STORED}storage"), integration="transformers")
@good(_BF16, program=_program(f"{_STORED}torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16"), integration="transformers")
@good(_BF16, program=_program(f"{_STORED}torch.float16").replace("load_in_4bit", "load_in_8bit"), integration="transformers")
@good(
    _BF16,
    program=_program(f"{_STORED}torch.float16").replace("get_peft_model(model, LoraConfig(r=8))", "model"),
    integration="transformers",
)
@good(_FP16, program=_program(f"{_STORED}torch.half"), integration="transformers")
@good(_FP32, program=_program(f"{_STORED}torch.float16"), integration="transformers")
def quantized_storage_of_other_type(config: Config) -> Iterator[Finding]:
    """Weights of 4 bits are stored as numbers of another type than the training's, and DeepSpeed converts them.

    bitsandbytes packs the bits into a tensor of the type `bnb_4bit_quant_storage`, uint8 by default. `deepspeed.initialize` converts every
    floating-point weight of the model to the type of the training, at each ZeRO stage. Between fp16 and bf16 that changes the packed bits,
    and no error says so: the frozen model computes something else. From float32 or float64 it also makes fewer bytes of them, and the first
    step raises an error about a shape. Bytes (uint8) and the type of the training stay as they are.

    Store the weights in the type of the training, or leave out `bnb_4bit_quant_storage`.
    """
    half, setup = model_dtype(config), config.setup
    if half not in ("fp16", "bf16") or setup is None:
        return
    four = next((one for one in quantizations(config) if one.value == 4 or "load_in_4bit" in one.name), None)
    stored = _stored(config)
    if four is None or stored is None or not trains_adapter(config):
        return
    name = _SHORT.get(str(stored.value).removeprefix("torch."), "")
    if not name or name == half:
        return
    section = "fp16" if half == "fp16" else bf16_section(config)
    same_size = name in ("fp16", "bf16")
    certain = _is_of_only_model(config, stored)
    outcome = (
        "the frozen weights become others"
        if same_size
        else "half of their bytes or more are lost, and the first step raises an error about a shape"
    )
    yield Finding(
        f"{section}.enabled",
        f"{stored.shown} packs the 4-bit weights into numbers of {name}, and DeepSpeed {'converts' if certain else 'may convert'} them to {half}: {outcome}.",
        help=f'Set bnb_4bit_quant_storage to "{_LONG[half]}", or remove it.',
        related=(stored.related("the type is set here"),),
        effect=Effect.SILENT if same_size else Effect.CRASH,
        phase=None if same_size else Phase.STEP,
        certain=certain,
    )


_SHORT = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32", "float": "fp32", "float64": "fp64", "double": "fp64"}
_LONG = {"fp16": "float16", "bf16": "bfloat16"}


def _stored(config: Config) -> SourcedValue | None:
    """What sets the type in which the weights are stored: an argument of the training, otherwise one in the program."""
    program = config.setup.program if config.setup is not None else None
    given = config.arguments.get("bnb_4bit_quant_storage") if config.arguments is not None else None
    if given is None and program is not None:
        given = program.quantized_storage
    return given if given is not None and given.value is not UNKNOWN else None


def _is_of_only_model(config: Config, stored: SourcedValue) -> bool:
    """Whether the program sets the type, and loads one model only."""
    program = config.setup.program if config.setup is not None else None
    return program is not None and stored is program.quantized_storage and len(list(program.events.of(LOADS))) == 1
