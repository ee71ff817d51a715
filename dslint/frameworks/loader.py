"""The loaders of configs, for the resolver. Only a config with "auto" or with the files of a setup pays for their import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dslint.config.context import Context

if TYPE_CHECKING:
    from dslint.config import Config
    from dslint.config.values import Value
    from dslint.facts import Facts
    from dslint.source.tree import Path


class _Loaders:
    """The loaders that dslint knows: a `dslint.config.context.Filler`."""

    __slots__ = ()

    def fill(self, context: Context, key: str, source: str | None) -> Value | None:
        from dslint.frameworks.filling import fill

        return fill(context, key, source)

    def added(self, config: Config) -> Mapping[Path, Value]:
        from dslint.frameworks.loading import added

        return added(config)


LOADERS = _Loaders()


def with_loaders(given: Facts | Context) -> Context:
    """A context that knows the loaders."""
    context = Context.of(given)
    return context if context.filler is not None else context._replace(filler=LOADERS)
