"""Options about model and program, and config loading, shared by `dslint estimate` and `dslint fit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dslint.cli.number import Number
from dslint.cli.open_config import open_training
from dslint.cli.options import SettingType, model_option, settings_options, warn
from dslint.config import Config, resolve
from dslint.config.context import Context
from dslint.config.load import Loaded
from dslint.facts.gpus import Gpu
from dslint.job.attention import FLASH_2, FLASH_3, KERNELS
from dslint.lint.error_codes import errors_of
from dslint.memory.completed import changed, completed
from dslint.memory.fit import Planner
from dslint.memory.given import FoundModel
from dslint.memory.plan import STATES, Plan
from dslint.memory.requests import DEFAULTS, described_model, planned
from dslint.memory.shapes import Model
from dslint.memory.towers import has_towers
from dslint.record import Record
from dslint.report.words import option, shown_fact
from dslint.settings import Finder
from dslint.settings.table import FACTS, SETTINGS
from dslint.source.config_text import text_name
from dslint.source.parse import parse
from dslint.source.tree import Document

Command = TypeVar("Command", bound=Callable[..., Any])


class CountType(click.ParamType):  # type: ignore[type-arg] # the same
    """A whole number from 1 to a limit, which help texts leave out."""

    name = "N"
    least = 1

    def __init__(self, most: int) -> None:
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip()
        if not (text.isdecimal() and len(text) <= len(str(self.most)) and self.least <= int(text) <= self.most):
            self.fail(f'"{value}" is not a whole number from {self.least} to {self.most:,}', param, ctx)
        return int(text)


class Zero(CountType):
    """The same from 0."""

    least = 0


_POSITIVE = CountType(10**9)
_LAYERS = CountType(10_000)

_OPTIONS = (
    model_option,
    click.option("--params", type=Number(), help="The number of parameters, such as 7e9 or 7B, instead of --model."),
    click.option("--hidden-size", "hidden", type=_POSITIVE, metavar="N", help="The hidden size of the model."),
    click.option("--layers", type=_LAYERS, metavar="N", help="The number of layers."),
    click.option("--heads", type=_POSITIVE, metavar="N", help="The number of attention heads."),
    click.option("--kv-heads", type=_POSITIVE, metavar="N", help="The number of key-value heads."),
    click.option("--ffn-size", "inner", type=_POSITIVE, metavar="N", help="The intermediate size of the feed-forward layers."),
    click.option("--vocab-size", "vocabulary", type=_POSITIVE, metavar="N", help="The vocabulary size."),
    click.option("--lora-rank", type=_POSITIVE, metavar="N", help="Train only LoRA adapters, of this rank."),
    click.option("--lora-targets", metavar="NAMES", help="The layers with adapters: q_proj,v_proj.  [default: all linear layers]"),
    click.option(
        "--lora-dropout",
        type=click.FloatRange(0, 1),
        metavar="X",
        help="The dropout of the adapters: each keeps its own copy of its input.  [default: 0; the high figure includes it]",
    ),
    click.option("--lora-saves", metavar="NAMES", help="Modules that are also trained, whole (modules_to_save): embed_tokens,lm_head."),
    click.option(
        "--base-bits",
        type=click.Choice(["4", "8", "16"]),
        help="The bits of the frozen base model under adapters (QLoRA).  [default: as the model's quantization_config says]",
    ),
    click.option("--frozen-copies", type=CountType(100), metavar="N", help="Frozen models of the same size on the GPU: reference, reward."),
    click.option("--teacher", metavar="FILE|NAME", help="A frozen model of another size on the GPU, such as the teacher of GKD."),
    click.option("--value-model", is_flag=True, help="A value model of the same size is trained with the model, as for PPO."),
    click.option(
        "--generates", is_flag=True, help="The model itself generates between steps (PPO, GRPO without vLLM): stage 3 gathers it."
    ),
    click.option("--no-logits", is_flag=True, help="The model returns an embedding or a score, and no logits of words."),
    click.option("--frozen-towers", is_flag=True, help="The encoders of images and sound are not trained."),
    click.option("--pairs", is_flag=True, help="A sample is a pair of answers, as for DPO."),
    click.option(
        "--vllm-share", type=click.FloatRange(0, 1), metavar="X", help="The share of the GPU that a colocated vLLM reserves, such as 0.3."
    ),
    click.option("--vllm-sleeps", is_flag=True, help="The colocated vLLM frees its memory while the model is trained (sleep mode)."),
    click.option("--sequence-length", "length", type=_POSITIVE, metavar="N", help="Tokens per sample.  [default: the model's, up to 2048]"),
    click.option(
        "--varying-lengths",
        "varying",
        is_flag=True,
        help="Samples differ in length, up to --sequence-length: the low figure has short ones, and PyTorch reserves more.",
    ),
    click.option("--micro-batch", type=_POSITIVE, metavar="N", help="The micro batch size, instead of that of the config."),
    click.option("--accumulation", type=_POSITIVE, metavar="N", help="The gradient accumulation steps, instead of those of the config."),
    click.option(
        "--activation-checkpointing",
        "checkpoint_every",
        is_flag=False,
        flag_value=1,
        type=_POSITIVE,
        metavar="[K]",
        help="The model uses activation checkpointing for every layer, or every K-th.",
    ),
    click.option(
        "--eager-attention",
        "eager",
        is_flag=True,
        help="The model uses eager attention, which keeps attention scores (not flash attention or SDPA).",
    ),
    click.option("--attention", type=click.Choice(KERNELS), help="The kernel that computes attention.  [default: as the program says]"),
    click.option("--padded", is_flag=True, help="Samples are padded: attention uses a mask and repeats grouped keys and values."),
    click.option("--fused-kernels", is_flag=True, help="Norms and gates are Liger's kernels, which keep less (not its fused loss)."),
    click.option("--half-loss", is_flag=True, help="The loss is computed on logits of the model's precision, without a copy in fp32."),
    click.option("--loss-chunk", type=_POSITIVE, metavar="N", help="The loss is computed on N tokens at a time."),
    click.option(
        "--eval-batch",
        type=Zero(10**9),
        metavar="N",
        help="The micro batch size of evaluations, which compute all logits; 0: the program does not evaluate.",
    ),
    click.option("--optimizer", type=click.Choice(sorted(STATES)), help="The program's optimizer, instead of that of the config."),
    click.option(
        "--keeps-logits/--frees-logits",
        default=None,
        help="Whether the program holds the model's output until the next step.  [default: yes, except for the Hugging Face Trainer]",
    ),
    click.option("--expandable-segments", "expandable", is_flag=True, help="PYTORCH_ALLOC_CONF contains expandable_segments:True."),
    click.option(
        "--host-used",
        type=SettingType(SETTINGS["host-memory"]),
        metavar="SIZE",
        help="Host memory that a machine uses before the job.  [default: 1 to 8 GiB, on large machines up to 4 %]",
    ),
    click.option("--zero-init/--no-zero-init", default=None, help="Whether a stage-3 model is partitioned while it is built."),
)


def workload_options(command: Command) -> Command:
    """Add the facts and the options about model and program to a command, which receives them as `finder` and `said`."""

    def with_workload(finder: Finder, **rest: Any) -> Any:
        said = {option: rest.pop(option) for option in DEFAULTS}
        return command(finder=finder, said=said, **rest)

    with_workload.__doc__ = command.__doc__
    with_workload.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    for add in reversed(_OPTIONS):
        add(with_workload)
    return settings_options(*(name for name in FACTS if name != "model"), "calibration")(with_workload)  # type: ignore[return-value]


class OpenedConfig(Record):
    """A config with its model, the options given or implied by the training that was named, and what the estimate leaves out of it."""

    loaded: Loaded
    found: FoundModel
    said: dict[str, Any]
    unmodelled: tuple[tuple[str, float], ...] = ()

    @property
    def context(self) -> Context:
        """The context, with the model."""
        return self.loaded.context.but(model=self.found.config or self.loaded.context.facts.model)

    def text_name(self, path: str) -> str:
        """How a diff names the text of the config, if `path` was named."""
        setup = self.loaded.context.setup
        return text_name(self.loaded.document, setup.config if setup is not None and setup.config else path)

    def planner(self) -> Planner:
        """Reads the text of a config with options that change with it, and plans it."""
        return lambda text, otherwise: self.planned(parse(text), otherwise)

    def planned(self, document: Document, otherwise: dict[str, Any]) -> tuple[Config, Plan]:
        """A config with options that change with it, and its plan.

        Raises:
            PlanError: there is none.
        """
        config = resolve(document, changed(self.context, otherwise))
        return config, planned(config, self.found.model, {**self.said, **otherwise}, self.found.assumed, self.unmodelled)


def open_workload(path: str, finder: Finder, said: dict[str, Any]) -> OpenedConfig:
    """Open the config of a command; options that are not given come from the training file or command that was named, if any. Raises
    `UserError`.
    """
    loaded, arguments = open_training(path, finder)
    notes = [
        f"{option(fact)} is {shown_fact(loaded.context, fact)}, from {why}" for fact, why in loaded.context.evidence if fact in _INFERRED
    ]
    whole = completed(said, arguments, loaded.context)
    loaded = loaded._replace(context=whole.context)
    found = described_model(whole.said, loaded.context.facts)
    notes += whole.notes(towers=has_towers(found.model))
    notes += _too_old(loaded.context.facts.gpu, whole.said["attention"])
    return OpenedConfig(loaded, found._replace(assumed=(*notes, *found.assumed)), whole.said, whole.unmodelled)


def _too_old(gpu: Gpu | None, kernel: str | None) -> list[str]:
    """What to say of a kernel that does not run on the GPU."""
    old = gpu is not None and gpu.capability is not None and gpu.capability < (8, 0)
    raised = '"FlashAttention only supports Ampere GPUs or newer"'
    return [f"--attention {kernel} does not run on {gpu}: it raises {raised}"] if old and kernel in (FLASH_2, FLASH_3) else []


_INFERRED = ("world_size", "host_memory")
"""Facts for which an estimate says what they were inferred from."""


def question(path: str, finder: Finder, said: dict[str, Any]) -> tuple[Config, Model, Plan]:
    """The config, the model and the plan for a command; raises `UserError`."""
    opened = open_workload(path, finder, said)
    config = resolve(opened.loaded.document, opened.context)
    say_errors(path, config)
    return config, opened.found.model, planned(config, opened.found.model, opened.said, opened.found.assumed, opened.unmodelled)


def say_errors(path: str, config: Config) -> None:
    """Say which rules find errors in a config of which figures are printed."""
    codes = errors_of(config)
    if codes:
        warn(f"{path}: `dslint check` finds errors ({', '.join(codes)}); the figures are as if DeepSpeed ran the config without them.")
