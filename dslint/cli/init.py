"""`dslint init`: write a starter config."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from dslint.cli.estimate import DOES_NOT_FIT
from dslint.cli.number import Number
from dslint.cli.options import model_option, settings_options, show_page, terminal_width, warn
from dslint.diagnostics import Effect
from dslint.errors import UserError
from dslint.facts import Facts, Integration
from dslint.facts.gpus import in_words
from dslint.fixes.atomic_write import write_whole
from dslint.lint.discovery import shown
from dslint.lint.document import lint_text
from dslint.memory.given import FoundModel, ModelRequest, model_of
from dslint.memory.planning import lists_experts
from dslint.registry.rules import all_rules
from dslint.report.style import wrap
from dslint.settings import Finder
from dslint.settings.kinds import Count, GpuName, Size, Wrong
from dslint.settings.table import FACTS
from dslint.starter.choice import Wanted
from dslint.starter.contents import Starter, start
from dslint.starter.text import as_hjson, as_json


@click.command(name="init", short_help="Write a starter config and explain its values.")
@click.argument("path", required=False, metavar="[FILE]")
@settings_options(*(name for name in FACTS if name != "model"))
@model_option
@click.option("--params", type=Number(), help="The number of parameters, such as 7B, instead of --model.")
@click.option("--stage", type=click.IntRange(0, 3), metavar="N", help="The ZeRO stage.  [default: the fastest one at which the model fits]")
@click.option(
    "--sequence-length", "length", type=click.IntRange(min=1), metavar="N", help="Tokens per sample.  [default: the model's, up to 2048]"
)
@click.option("--micro-batch", type=click.IntRange(min=1), metavar="N", help="The micro batch size.  [default: the largest that fits]")
@click.option("--lora-rank", type=click.IntRange(min=1), metavar="N", help="Train only LoRA adapters, of this rank.")
@click.option(
    "--base-bits",
    type=click.Choice(["4", "8", "16"]),
    help="The bits of the frozen base model under adapters (QLoRA).  [default: as the model's quantization_config says]",
)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option(
    "--output-format",
    type=click.Choice(["json", "hjson"]),
    help="Strict JSON, or HJSON with reasons as comments (read only by DeepSpeed's own loader).",
)
def command(
    path: str | None,
    finder: Finder,
    model: str | None,
    params: float | None,
    stage: int | None,
    length: int | None,
    micro_batch: int | None,
    lora_rank: int | None,
    base_bits: str | None,
    force: bool,  # noqa: FBT001 - click passes it by name
    output_format: str | None,
) -> None:
    """Write a starter config and explain each value.

    In a terminal, init prompts for missing facts. It chooses ZeRO stage and offload so that the model fits, if the model, the GPU and the
    number of GPUs are known. The default FILE is ds_config.json, or ds_config.hjson with --integration deepspeed; "-" is standard output.

    \b
    Exit codes:
      0  the config was written
      2  usage error, or an unreadable model
      4  the config was written, but does not fit in the GPU or in --host-memory
    """  # noqa: D301 - click needs the character itself
    if model is not None and params is not None:
        raise click.UsageError("--model and --params cannot be combined.")
    if path not in (None, "-"):
        _refuse(path, force=force)
    facts = finder.for_file(path or "ds_config.json").facts
    if base_bits and lora_rank is None:
        raise click.UsageError("--base-bits requires --lora-rank: without adapters all weights are trained, unquantized.")
    bits = int(base_bits) if base_bits else None
    given = ModelRequest(model, params, lora_rank=lora_rank, base_bits=bits, listed_experts=lists_experts(facts))
    if sys.stdin.isatty():
        facts, given = _prompt_for_missing(facts, given)
    if facts.integration is None:
        raise click.UsageError("Missing --integration: transformers, accelerate, lightning or deepspeed.")
    commented = _commented(facts.integration, path, output_format)
    path = path or f"ds_config.{'hjson' if commented else 'json'}"
    _refuse(path, force=force)
    found = model_of(given, facts.model) if given.name or given.params or facts.model else None
    facts = facts._replace(model=found.config if found else None, upgrade_from=None)
    starter = start(facts, found.model if found else None, Wanted(stage, length, micro_batch))
    if base_bits in ("4", "8"):
        loading = f"BitsAndBytesConfig(load_in_{base_bits}bit=True) as quantization_config of from_pretrained"
        starter = starter._replace(notes=(*starter.notes, f"Load the base model in {base_bits} bits: {loading}."))
    text = as_hjson(starter) if commented else as_json(starter)
    _write(path, text)
    _report(path, starter, facts, found)
    _check(path, text, facts)
    sys.exit(DOES_NOT_FIT if starter.fits is False else 0)


def _commented(integration: Integration, path: str | None, output_format: str | None) -> bool:
    """Whether to write reasons as comments: as requested, else if loader and file name allow comments."""
    if output_format == "hjson" and integration is not Integration.DEEPSPEED:
        raise click.UsageError(f"{integration.label} reads strict JSON; hjson requires --integration deepspeed.")
    if output_format is not None:
        return output_format == "hjson"
    return integration is Integration.DEEPSPEED and not (path or "").endswith(".json")


def _refuse(path: str | None, *, force: bool) -> None:
    """Refuse a word that is not a file name, and refuse to overwrite a file without --force."""
    if path is None or path == "-":
        return
    if os.path.isdir(path):
        raise UserError(f"{shown(path)} is a directory; pass a file name.")
    if not os.path.dirname(path) and not os.path.splitext(path)[1][1:].isalpha():  # names of models have ".1-8b"
        raise click.UsageError(
            f'FILE is the config to write, and "{shown(path)}" has no suffix such as .json. Pass a model with --model, a number of GPUs'
            " with --world-size."
        )
    if os.path.lexists(path) and not force:
        raise UserError(f"{shown(path)} already exists; --force overwrites it.")


def _write(path: str, text: str) -> None:
    if path == "-":
        click.echo(text, nl=False)
        return
    try:
        write_whole(path, text)
    except OSError as error:
        raise UserError(f"cannot write {shown(path)}: {error.strerror or error}") from None


def _report(path: str, starter: Starter, facts: Facts, found: FoundModel | None) -> None:
    """Print to standard error what was written, and why."""
    width = terminal_width(most=100)
    assert facts.integration is not None
    ranks = f", {facts.world_size} GPU{'s' if facts.world_size != 1 else ''}" if facts.world_size else ""
    memory = f" of {in_words(facts.gpu_memory)}" if facts.gpu_memory and ranks else ""
    name = "" if path == "-" else f"{shown(path)}: "
    lines = ["This config does not fit in memory: see the reason of the stage.", ""] if starter.fits is False else []
    lines += wrap(f"{name}a config for {facts.integration.label}, DeepSpeed {facts.deepspeed}{ranks}{memory}", width)
    for key, why in starter.reasons.items():
        lines += ["", f"  {key}: {_literal(starter.config, key)}", *("    " + line for line in wrap(why, width - 4))]
    notes = [*starter.notes, *(f"Assumption: {assumed}." for assumed in (found.assumed if found else ()))]
    if notes:
        lines += ["", *(line for note in notes for line in wrap(note, width))]
    show_page("\n".join(lines), color=False, err=True)


def _literal(config: dict[str, Any], key: str) -> str:
    import json

    value: Any = config
    for name in key.split("."):
        value = value[name]
    return json.dumps(value)


def _check(path: str, text: str, facts: Facts) -> None:
    """Check the written config, and print what is wrong with a stage that the user chose. Whether it fits was said before."""
    about_fit = [rule for rule in all_rules() if rule.effect is Effect.MEMORY and "model" in rule.needs]
    result = lint_text(text, path, facts, [rule for rule in all_rules() if not rule.pedantic and rule not in about_fit])
    for diagnostic in result.diagnostics if result else ():
        warn(f"{diagnostic.code}: {diagnostic.message}")


def _prompt_for_missing(facts: Facts, given: ModelRequest) -> tuple[Facts, ModelRequest]:
    """Prompt for missing facts; an empty answer means unknown."""
    if facts.integration is None:
        kinds = click.Choice([integration.value for integration in Integration])
        answer = click.prompt("Library that loads the config", type=kinds, default=Integration.TRANSFORMERS.value, err=True)
        facts = facts._replace(integration=Integration(answer))
    if given.name is None and given.params is None and facts.model is None:
        given = click.prompt("Model (config.json, a name, or parameters such as 7B)", default="", value_proc=_model, **_SILENT)
    if facts.world_size is None:
        facts = facts._replace(world_size=click.prompt("Number of GPUs", default="", value_proc=_answer(Count()), **_SILENT))
    if facts.gpu_memory is None:
        gpu = click.prompt("GPU (a100, h100, ..., or its memory such as 80GiB)", default="", value_proc=_gpu, **_SILENT)
        memory = gpu if gpu is None or isinstance(gpu, int) else gpu.memory
        facts = facts._replace(gpu=None if isinstance(gpu, int) else gpu, gpu_memory=memory)
    return facts, given


_SILENT: dict[str, Any] = {"show_default": False, "err": True}


def _answer(kind: Any) -> Any:
    def read(word: str) -> Any:
        try:
            return kind.from_word(word.strip()) if word.strip() else None
        except Wrong as wrong:
            raise click.BadParameter(f'"{word}" {wrong}') from None

    return read


def _gpu(word: str) -> Any:
    """A GPU, or its memory."""
    try:
        return _answer(Size())(word)
    except click.BadParameter:
        return _answer(GpuName())(word)


def _model(word: str) -> ModelRequest:
    """A model by name or file, or a number of parameters."""
    word = word.strip()
    if not word:
        return ModelRequest()
    given = ModelRequest(word)
    if not os.path.exists(word) and word[0].isdigit():
        given = ModelRequest(params=Number().convert(word, None, None))
    try:
        model_of(given)
    except UserError as error:
        raise click.BadParameter(str(error)) from None
    return given
