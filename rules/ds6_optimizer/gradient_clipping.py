"""DS6: gradient clipping."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Integration, Release
from dslint.rule import Finding, FixPlan, bad, good, rule, unsafe
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.loaders import HUGGING_FACE
from dslint.rules.helpers.optimizer import OPTIMIZERS_DOCS
from dslint.rules.helpers.project import programs_of
from dslint.setups.project import project_of
from dslint.source.change import Insert, Move, Remove


@rule(
    "DS601",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.params.max_grad_norm",),
    references=(OPTIMIZERS_DOCS,),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "max_grad_norm": 1.0}}}}}}',
    at="optimizer.params.max_grad_norm",
    message='max_grad_norm 1.0 is not an optimizer parameter: DeepSpeed raises ValueError "max_grad_norm is not supported as an optimizer parameter" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "gradient_clipping": 1.0}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "max_grad_norm": "1"}}}}}}',
    at="optimizer.params.max_grad_norm",
    message='max_grad_norm "1" is not an optimizer parameter: DeepSpeed raises TypeError "\'>\' not supported between instances" while parsing.',
)
@bad(
    '{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto", "max_grad_norm": 1.0}}, "zero_optimization": {"stage": 2}}',
    at="optimizer.params.max_grad_norm",
    training="deepspeed: ds_config.json\nper_device_train_batch_size: 4\noutput_dir: out\nmax_grad_norm: 0.5\n",
    message='max_grad_norm 1.0 is not an optimizer parameter: DeepSpeed raises ValueError "max_grad_norm is not supported as an optimizer parameter" in deepspeed.initialize.',
    fixed='{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "zero_optimization": {"stage": 2}, "gradient_clipping": "auto"}',
)
@good(f'{{{MINIMAL}, "gradient_clipping": 1.0, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}}}')
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "max_grad_norm": 1.0}}}}}}',
    launch="deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --deepspeed "
    "--deepspeed_config ds_config.json\n",
    integration="deepspeed",
)
def max_grad_norm_in_optimizer(config: Config) -> Iterator[Finding]:
    """`max_grad_norm` is not an optimizer parameter.

    DeepSpeed clips gradients by the top-level `gradient_clipping`, for every optimizer. If `optimizer.params` has `max_grad_norm`,
    DeepSpeed warns while parsing and raises a `ValueError` when it builds the optimizer. If the value is not a number, DeepSpeed raises
    a `TypeError` while parsing.

    Write `"gradient_clipping"` at the top level instead.
    """
    key = "optimizer.params.max_grad_norm"
    if not config.has(key):
        return
    norm = config.quote(key)
    parses = isinstance(config.literal(key), int | float)
    error = (
        'ValueError "max_grad_norm is not supported as an optimizer parameter" in deepspeed.initialize'
        if parses
        else "TypeError \"'>' not supported between instances\" while parsing"
    )
    yield Finding(
        key,
        f"max_grad_norm {norm} is not an optimizer parameter: DeepSpeed raises {error}.",
        help=_clip_by(config, norm if parses else None),
        fix=_as_gradient_clipping(config, key) if parses else None,
        phase=None if parses else Phase.PARSE,
    )


def _clip_by(config: Config, norm: str | None) -> str:
    """The help: where the norm belongs. `norm` is None if what is written is not a number."""
    if config.has("gradient_clipping"):
        return f"Remove it: gradient_clipping {config.quote('gradient_clipping')} at the top level clips the gradients."
    if _has_norm_argument(config):
        return 'Write "gradient_clipping": "auto" at the top level instead.'
    return f'Write "gradient_clipping"{" with a number" if norm is None else f": {norm}"} at the top level instead.'


def _has_norm_argument(config: Config) -> bool:
    """Whether the training has an argument for the norm, which the Trainer compares with the config."""
    return config.arguments is not None and "max_grad_norm" in config.arguments


def _as_gradient_clipping(config: Config, key: str) -> FixPlan | None:
    """Move the norm to `gradient_clipping`; if that key is already written, only remove this one."""
    path = tuple(key.split("."))
    if not config.has("gradient_clipping") and _has_norm_argument(config):
        return unsafe('write "gradient_clipping": "auto" instead', Remove(path), Insert((), "gradient_clipping", '"auto"'))
    if not config.has("gradient_clipping"):
        return unsafe("move to gradient_clipping", Move(path, ("gradient_clipping",)))
    same = config.literal("gradient_clipping") == config.literal(key)
    return without(config, path) if same else without(config, path, Applicability.UNSAFE)


@rule(
    "DS608",
    effect=Effect.SILENT,
    watches=("gradient_clipping",),
    references=("https://www.deepspeed.ai/docs/config-json/#gradient-clipping",),
)
@bad(
    f'{{{MINIMAL}, "gradient_clipping": -1.0}}',
    at="gradient_clipping",
    message="gradient_clipping -1.0 is below 0: DeepSpeed does not clip gradients.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0}',
)
@good(f'{{{MINIMAL}, "gradient_clipping": 0}}')
@good(f'{{{MINIMAL}, "gradient_clipping": 1.0}}')
def negative_gradient_clipping(config: Config) -> Iterator[Finding]:
    """A negative `gradient_clipping` disables clipping.

    DeepSpeed clips only if the value is above 0; otherwise it leaves the gradients as they are.

    Write the largest allowed norm, or 0 to disable clipping explicitly.
    """
    if config.value("gradient_clipping") < 0:
        yield Finding(
            "gradient_clipping",
            f"gradient_clipping {config.quote('gradient_clipping')} is below 0: DeepSpeed does not clip gradients.",
            help="Write the largest allowed norm, or 0 to disable clipping explicitly.",
            fix=write(config, "gradient_clipping", "0", Applicability.SAFE),
        )


_CLIPS = ("clip_grad_norm", "max_grad_norm", "gradient_clip", "max_norm")
"""What a program that means to clip gradients holds."""


def _may_clip(config: Config) -> bool:
    """Whether a program of the setup, or else of the project, may mean to clip gradients; also if none is known."""
    texts = programs_of(config)
    if not texts and config.context.project is not None:
        project = project_of(f"{config.context.project}/ds_config.json")
        texts = [project.text(path) for path in project.programs]
    return not texts or any(word in text for text in texts for word in _CLIPS)


_WITH_AUTO = Release(4, 6, 0)
"""The first transformers with "auto". Before, the Trainer wrote max_grad_norm into a config without the key.

Source: transformers/integrations.py of 4.5.1, deepspeed_init.
"""


@rule(
    "DS632",
    effect=Effect.IGNORED,
    needs=("integration",),
    watches=("!gradient_clipping",),
    references=("https://huggingface.co/docs/transformers/deepspeed", "deepspeed/runtime/constants.py, GRADIENT_CLIPPING_DEFAULT"),
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}',
    at="",
    integration="transformers",
    deepspeed="0.18.9",
    message="gradient_clipping is not set, and DeepSpeed 0.18.9 does not clip by default; max_grad_norm has no effect under the Hugging Face Trainer with DeepSpeed.",
    fixed='{"train_batch_size": "auto", "zero_optimization": {"stage": 2}, "gradient_clipping": "auto"}',
)
@good(
    '{"train_batch_size": "auto", "gradient_clipping": "auto", "zero_optimization": {"stage": 2}}',
    integration="transformers",
    deepspeed="0.18.9",
)
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers")
@good(
    '{"train_batch_size": 8, "zero_optimization": {"stage": 2}}',
    integration="transformers",
    deepspeed="0.9.5",
    loader_release=Release(4, 5, 1),
)
def no_gradient_clipping(config: Config) -> Iterator[Finding]:
    """With a Hugging Face loader, only `gradient_clipping` in the file makes DeepSpeed clip gradients.

    With DeepSpeed, the Trainer's `max_grad_norm` (default 1.0) and Accelerate's `clip_grad_norm_` do nothing by themselves: DeepSpeed
    clips by the `gradient_clipping` in the file. Up to release 0.19.2 the default is 0, which disables clipping; newer releases default to 1.0.

    Write `"gradient_clipping": "auto"`, or a number.
    """
    loader, loader_release = config.facts.integration, config.facts.loader_release
    if (
        config.has("gradient_clipping")
        or loader not in HUGGING_FACE
        or (loader is Integration.TRANSFORMERS and loader_release is not None and loader_release < _WITH_AUTO)
        or config.release >= Release(0, 19, 3)
        or _has_norm_argument(config)  # another rule compares the two
        or config.has("optimizer.params.max_grad_norm")  # DS601 tells where it belongs
        or (loader is Integration.ACCELERATE and not _may_clip(config))
    ):
        return
    if config.value("gradient_clipping") == 0:
        if config.context.may_be_for_accelerate:
            without = f"max_grad_norm of {loader.label} and Accelerate's clip_grad_norm_ have no effect with DeepSpeed"
        else:
            argument = "max_grad_norm" if loader is Integration.TRANSFORMERS else "clip_grad_norm_"
            without = f"{argument} has no effect under {loader.label} with DeepSpeed"
        yield Finding(
            "",
            f"gradient_clipping is not set, and DeepSpeed {config.release} does not clip by default; {without}.",
            help='Write "gradient_clipping": "auto", or a number.',
            fix=write(config, "gradient_clipping", '"auto"'),
        )
