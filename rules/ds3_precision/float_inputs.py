"""DS3: inputs of a model that stay in fp32 under fp16 or bf16."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Place, Range, Related
from dslint.facts import Integration
from dslint.job.events import ENGINE, MODELS, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.precision import bf16_section, model_dtype
from dslint.rules.helpers.prepare import PREPARE
from dslint.source.tree import Document

_FP16 = '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": true}}'
_BF16 = _FP16.replace("fp16", "bf16")
_AUTO_CAST = _FP16.replace('"enabled": true', '"enabled": true, "auto_cast": true')
_AUTOCAST = _FP16.replace('"fp16": {"enabled": true}', '"torch_autocast": {"enabled": true, "dtype": "bfloat16"}')
_IMAGES = (
    "import deepspeed\nfrom torchvision import datasets, transforms\n"
    "data = datasets.CIFAR10('cifar', transform=transforms.ToTensor())\n"
    "engine, _, loader, _ = deepspeed.initialize(model=Net(), training_data=data, config='ds_config.json')\n"
    "for images, labels in loader:\n"
    "    images, labels = images.to(engine.device), labels.to(engine.device)\n"
    "    engine.backward(criterion(engine(images%s), labels))\n"
)
_NUMBERS = (
    "import deepspeed\nimport torch\nfrom torch.utils.data import TensorDataset\n"
    "data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))\n"
    "engine, _, loader, _ = deepspeed.initialize(model=net, training_data=data, config='ds_config.json')\n"
    "for batch in loader:\n"
    "    loss = engine(%s.cuda())\n"
)
_PREPARED = (
    "from accelerate import Accelerator\nfrom torchvision.transforms import Compose, ToTensor\n"
    "data = Pets(Compose([ToTensor()]))\naccelerator = Accelerator()\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
    "for batch in loader:\n"
    "    batch = {name: one.to(accelerator.device) for name, one in batch.items()}\n"
    "    accelerator.backward(model((batch['image'] - mean) / std).mean())\n"
)


@rule(
    "DS336",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine._forward_prologue: it casts inputs with fp16.auto_cast only",
        "https://github.com/deepspeedai/DeepSpeed/issues/1144",
        "https://github.com/deepspeedai/DeepSpeed/issues/2019",
    ),
    untried="the toy model of the test has inputs of its own",
    setup=True,
)
@bad(
    _FP16,
    at="fp16.enabled",
    program=_IMAGES % "",
    integration="deepspeed",
    message='train.py:7 gives the model images in fp32 (they come from transforms.ToTensor()), but fp16 makes the weights half precision: torch may raise RuntimeError "mat1 and mat2 must have the same dtype" in its first layer.',
)
@bad(
    _BF16,
    at="bf16.enabled",
    program=_NUMBERS % "batch[0]",
    integration="deepspeed",
    message='train.py:7 gives the model batch[0].cuda() in fp32 (they come from torch.randn(64, 8)), but bf16 makes the weights half precision: torch may raise RuntimeError "mat1 and mat2 must have the same dtype" in its first layer.',
)
@bad(
    _FP16.replace('"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}', '"gradient_accumulation_steps": 1'),
    at="fp16.enabled",
    program=_PREPARED,
    integration="accelerate",
    message="train.py:8 gives the model (batch['image'] - mean) / std in fp32 (they come from ToTensor()), but fp16 makes the weights half precision: torch may raise RuntimeError \"mat1 and mat2 must have the same dtype\" in its first layer.",
)
@good(_FP16, program=_IMAGES % ".half()", integration="deepspeed")
@good(_AUTO_CAST, program=_IMAGES % "", integration="deepspeed")
@good(_AUTOCAST, program=_IMAGES % "", integration="deepspeed")
@good(_FP16.replace("true", "false"), program=_IMAGES % "", integration="deepspeed")
@good(_BF16, program=_NUMBERS % "batch[1]", integration="deepspeed")
@good(_BF16, program=_NUMBERS.replace("torch.randn(64, 8)", "torch.randint(0, 9, (64, 8))") % "batch[0]", integration="deepspeed")
@good(_BF16, program=_NUMBERS.replace("torch.randn(64, 8)", "load('ids')") % "batch[0]", integration="deepspeed")
@good(_BF16, program=_NUMBERS.replace("torch.randn(64, 8)", "torch.zeros(64, 8).to(torch.long)") % "batch[0]", integration="deepspeed")
@good(_BF16, program=_NUMBERS.replace(".cuda()", "") % "batch[0].to(reference)", integration="deepspeed")
@good(
    _BF16,
    program="class Net(torch.nn.Module):\n    def forward(self, x):\n        return self.proj(x.to(self.proj.weight))\n"
    + _NUMBERS % "batch[0]",
    integration="deepspeed",
)
@good(_FP16, program=(_IMAGES % "").replace("for images,", "for text,").replace("images", "text"), integration="deepspeed")
@good(
    _FP16,
    program="from transformers import ViTForImageClassification\n"
    + _IMAGES.replace("Net()", "ViTForImageClassification.from_pretrained('m')") % "",
    integration="deepspeed",
)
def float_inputs(config: Config) -> Iterator[Finding]:
    """fp16 and bf16 make the weights half precision, and the program gives the model inputs in fp32.

    DeepSpeed casts the model, and leaves its inputs as they are: only `fp16.auto_cast` makes it cast them. Token ids are integers, and so
    models of language do not notice. Images, sound and other numbers are fp32, and the first layer raises RuntimeError: `mat1 and mat2 must
    have the same dtype`, `Input type (float) and bias type (c10::Half) should be the same` or `expected scalar type Half but found Float`.

    Accelerate casts nothing, either, under DeepSpeed. Without a section `fp16` in the config it sets `auto_cast`. The Trainer and Lightning
    cast inputs themselves, and so do the models of transformers.

    Cast the inputs to the type of the weights, or write `"auto_cast": true` into `fp16`.
    """
    setup, half = config.setup, model_dtype(config)
    program = setup.program if setup is not None else None
    if setup is None or program is None or half not in ("fp16", "bf16"):
        return
    if config.facts.integration not in (Integration.DEEPSPEED, Integration.ACCELERATE):
        return
    if config.value("fp16.auto_cast") is not False or config.value("torch_autocast.enabled") is True:
        return
    documents = {path: one for path, one in setup.documents.items() if one.language == "python"}
    if any(_CASTS.search(one.text) for one in documents.values()):
        return
    for event in program.events.of(re.escape(ENGINE), PREPARE):
        document = documents.get(event.at.path)
        found = _call_with_floats(event, document) if document is not None and not event.tells_setups_apart else None
        if found is None:
            continue
        at, tensor, why = found
        section = "fp16" if half == "fp16" else bf16_section(config)
        key = f"{section}.enabled"
        shown = Related(event.at.path, "in fp32", None, at)
        yield Finding(
            key if config.has(key) else "",
            f"{event.at.path}:{at.start.line} gives the model {tensor} in fp32 (they come from {why}), but {half} makes the weights half precision: torch may "
            'raise RuntimeError "mat1 and mat2 must have the same dtype" in its first layer.',
            help="Cast them: inputs.to(next(model.parameters()).dtype)."
            + (' Or write "auto_cast": true into fp16.' if half == "fp16" else ""),
            elsewhere=None if config.has(key) else shown,
            related=(shown,) if config.has(key) else (),
            certain=False,
        )
        return


_CASTS = re.compile(
    r"\.(half|bfloat16|double)\(|torch\.(b?float16|half)\b|HalfTensor|autocast|auto_cast|type_as|get_data_types|\.type\(|"
    r"\.to\([^)\n]*(weight|bias|param)|dtype(?!\s*=\s*torch\.(float32|float|long|int\w*|uint8|bool)\b)"
)
"""What a program writes that casts tensors, in its loop or in the forward of its model: `x.to(self.proj.weight)`."""

_CASTING_MODELS = re.compile(rf"{MODELS}|(transformers|diffusers)\..*")
"""Models that cast their inputs, as the embedding of the images in CLIP does."""


def _call_with_floats(event: Event, document: Document) -> tuple[Range, str, str] | None:
    """The first call of an engine with inputs that are certainly fp32: its place, the inputs, and what makes them fp32."""
    model = event.argument("model", 1 if event.name == ENGINE else 0)
    if model is None or _CASTING_MODELS.fullmatch(model.made):
        return None
    from dslint.rules.helpers.data_flow import names_set  # few programs get here
    from dslint.rules.helpers.float_data import float_calls
    from dslint.source.posted import tree_of_text

    tree = tree_of_text(document.text)
    if tree is None:
        return None  # a cell of a notebook
    try:
        names = names_set(tree, event.at.range.start.line if event.at.range is not None else 0)
        found = min((one for name in names[:1] for one in float_calls(tree, name)), key=lambda one: one.line, default=None)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # an expression that is cut short
    if found is None:
        return None
    line = document.text.splitlines()[found.line - 1]
    begin = len("".join(document.text.splitlines(keepends=True)[: found.line - 1]))
    start, end = (Place(found.line, column + 1, begin + column) for column in (len(line) - len(line.lstrip()), len(line)))
    return Range(start, end), found.tensor, found.why
