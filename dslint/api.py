"""The Python API: `dslint check` and `dslint show` for programs.

Reached as `dslint.check`, `dslint.check_training_arguments` and `dslint.load`; `import dslint` does not import this module.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dslint.config import resolve
from dslint.config.context import Context
from dslint.config.effective import as_deepspeed_sees_it
from dslint.config.load import Loaded, load_data
from dslint.config.load import load as load_config
from dslint.diagnostics import Diagnostic, Effect, Phase
from dslint.facts import NEWEST, Facts, Integration, Release
from dslint.lint.document import lint_loaded
from dslint.lint.files import rules_for
from dslint.registry.rules import all_rules
from dslint.registry.selection import Selection, check_words, choose, is_name_of
from dslint.settings import Finder
from dslint.suppress.run import suppress

if TYPE_CHECKING:
    from dslint.schemas.root import DeepSpeedConfig

Source = Mapping[str, Any] | str | os.PathLike[str]
"""A config as a dict, or its path."""


class ConfigError(ValueError):
    """DeepSpeed would reject the config. `diagnostics` has the reasons; the text lists them, a line each."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(f"{d.code} {d.message}" for d in self.diagnostics))


def check(
    config: Source,
    *,
    world_size: int | None = None,
    integration: str | None = None,
    deepspeed: str | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> list[Diagnostic]:
    """Find mistakes in a config.

    Args:
        config: a dict, as passed to `deepspeed.initialize`, or the path of a file.
        world_size: the number of ranks of the whole job.
        integration: who loads the config: "transformers", "accelerate", "lightning" or "deepspeed".
        deepspeed: the release that runs it, such as "0.16.9"; by default the latest supported one.
        select: codes, names or chapters of the rules to run; by default all.
        ignore: codes, names or chapters of rules to skip.

    Returns:
        The diagnostics, by place, without those that comments in the file, or `ignores` and `per-file-ignores` of its settings file,
        suppress. Of a dict, places are those in its text as `json.dumps(config, indent=2)` writes it.

    Raises:
        TypeError: the dict contains a value that JSON cannot represent; the text names its path.
        ValueError: an unknown integration, release or rule.
        dslint.errors.UserError: the settings file cannot be used.
        dslint.source.read.ReadError: the file cannot be read.
    """
    chosen, left_out = tuple(select), tuple(ignore)
    check_words((*chosen, *left_out), all_rules())
    offered = (r for r in all_rules() if not r.pedantic or any(is_name_of(word, r) for word in chosen))
    asked = choose(offered, [Selection(chosen or None, left_out)])
    loaded = _loaded(config, _facts(world_size, integration, deepspeed))
    if isinstance(config, Mapping):
        return list(lint_loaded(loaded, _shown(config), asked).diagnostics)
    finder, path = Finder(), os.fspath(config)
    result = lint_loaded(loaded, _shown(config), rules_for(path, finder.for_file(path), asked))
    return list(suppress([result], finder)[0].diagnostics)


def check_training_arguments(
    args: object,
    *,
    config: Source | None = None,
    world_size: int | None = None,
    model: Mapping[str, Any] | None = None,
    deepspeed: str | None = None,
) -> list[Diagnostic]:
    """Find mistakes in a config and its `transformers.TrainingArguments`, including those that the Trainer reports only later.

    Call it after parsing the arguments and before loading the model. It neither changes `args` nor keeps state.

    Args:
        args: the arguments, or any object with their attributes.
        config: the config as written; `args.deepspeed` by default.
        world_size: the number of ranks; `args.world_size` by default.
        model: the model's `config.to_dict()`, from which "auto" bucket sizes are computed.
        deepspeed: the release that will run it; the newest known if absent.

    Returns:
        The diagnostics, sorted by place. Places of arguments have the path "<TrainingArguments>" and no line. Empty without a config.

    Raises:
        TypeError, ValueError, dslint.source.read.ReadError: as in `check`.
    """
    from dslint.facts.model_config import describe
    from dslint.setup.live import arguments_of, setup_of

    written = config if config is not None else getattr(args, "deepspeed", None)
    if written is None:
        return []
    if not isinstance(written, Mapping | str | os.PathLike):
        raise TypeError(f"args.deepspeed is {type(written).__name__}, not a dict or a path; pass config=")
    size = world_size if world_size is not None else getattr(args, "world_size", None)
    context = Context(_facts(size, "transformers", deepspeed), setup=setup_of(arguments_of(args), _shown(written)))
    if model is not None:
        context = context.but(model=describe(dict(model)))
    asked = choose((r for r in all_rules() if not r.pedantic), [])
    return list(lint_loaded(_loaded(written, context), _shown(written), asked).diagnostics)


def load(config: Source, *, world_size: int | None = None, integration: str | None = None, deepspeed: str | None = None) -> DeepSpeedConfig:
    """The config as a typed model, with the values that DeepSpeed uses: defaults filled in, deprecated keys replaced, the batch completed.

    Unknown values (an "auto" that an integration fills) have their defaults. The arguments are those of `check`.

    Raises:
        ConfigError: DeepSpeed would raise while parsing the config.
        TypeError, ValueError, dslint.source.read.ReadError: as in `check`.
    """
    from dslint.schemas.root import DeepSpeedConfig

    loaded = _loaded(config, _facts(world_size, integration, deepspeed))
    found = lint_loaded(loaded, _shown(config), all_rules()).diagnostics
    refused = [d for d in found if d.effect is Effect.CRASH and d.phase in (Phase.LOAD, Phase.PARSE)]
    if refused:
        raise ConfigError(refused)
    return DeepSpeedConfig.model_validate(as_deepspeed_sees_it(resolve(loaded.document, loaded.context))[0])


def _facts(world_size: int | None, integration: str | None, deepspeed: str | None) -> Facts:
    if world_size is not None and world_size < 1:
        raise ValueError(f"world_size must be at least 1, not {world_size}")
    return Facts(world_size, Integration(integration) if integration else None, Release.parse(deepspeed) if deepspeed else NEWEST)


def _loaded(config: Source, given: Facts | Context) -> Loaded:
    return load_data(config, given) if isinstance(config, Mapping) else load_config(os.fspath(config), given)


def _shown(config: Source) -> str:
    return "<dict>" if isinstance(config, Mapping) else os.fspath(config).replace(os.sep, "/")


__all__ = ["ConfigError", "check", "check_training_arguments", "load"]
