"""The arguments and calls that load a quantized model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dslint.config import Config
from dslint.frameworks import huggingface
from dslint.frameworks.registry import of_arguments
from dslint.frameworks.training import bare
from dslint.job.arguments import Arguments, SourcedValue


def quantizations(config: Config) -> Iterator[SourcedValue]:
    """The arguments that load a quantized model: those of the training, otherwise the one in the program."""
    program, arguments = config.setup.program if config.setup else None, config.arguments
    framework = of_arguments(arguments) or huggingface.FRAMEWORK
    found = [arguments.get(name) for name in framework.loads_quantized] if arguments is not None else []
    loading = [one for one in found if one is not None and one.value in framework.loads_quantized[bare(one)]]
    if arguments is not None and not _has_all(arguments, framework.loads_quantized_with):
        loading = []
    if not loading and program is not None and program.quantized is not None:
        loading = [program.quantized]
    yield from loading


def _has_all(arguments: Arguments, wanted: Mapping[str, Any]) -> bool:
    """Whether arguments have certain values."""
    return all((given := arguments.get(name)) is not None and given.value == value for name, value in wanted.items())
