"""The Python API: `dslint check` and `dslint show` for programs.

Reached as `dslint.check`, `dslint.fix`, `dslint.check_training_arguments` and `dslint.load`; `import dslint` does not import
this module.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslint.config import resolve
from dslint.config.context import Context
from dslint.config.effective import as_deepspeed_sees_it
from dslint.config.load import Loaded, load_data, load_text
from dslint.config.load import load as load_config
from dslint.diagnostics import Diagnostic, Effect, Phase
from dslint.facts import NEWEST, Facts, Integration, Release
from dslint.fixes.apply import fix as apply_fixes
from dslint.fixes.atomic_write import write_whole
from dslint.fixes.run import ALL, SAFE
from dslint.lint.document import lint_loaded
from dslint.lint.files import rules_for
from dslint.lint.results import FileResult
from dslint.registry.rules import all_rules
from dslint.registry.selection import Selection, check_words, choose, is_name_of
from dslint.rule import RuleInfo
from dslint.settings import Finder
from dslint.source.parse import parse
from dslint.source.read import read
from dslint.source.tree import plain
from dslint.suppress.comments import apply_comments
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
    asked = _chosen(select, ignore)
    loaded = _loaded(config, _facts(world_size, integration, deepspeed))
    if isinstance(config, Mapping):
        return list(lint_loaded(loaded, _shown(config), asked).diagnostics)
    finder, path = Finder(), os.fspath(config)
    result = lint_loaded(loaded, _shown(config), rules_for(path, finder.for_file(path), asked))
    return list(suppress([result], finder)[0].diagnostics)


@dataclass(frozen=True, slots=True)
class FixedConfig:
    """What came of fixing a config: its text, what was fixed, and the findings that are left, by place in the fixed text."""

    text: str
    fixed: tuple[Diagnostic, ...]
    left: tuple[Diagnostic, ...]

    @property
    def config(self) -> Any:
        """The fixed config as plain data, as DeepSpeed reads the text.

        Raises:
            ValueError: the text has syntax errors.
        """
        document = parse(self.text)
        if document.problems or document.root is None:
            raise ValueError("the config has syntax errors; `left` names them")
        return plain(document.root)


def fix(
    config: Source,
    *,
    unsafe: bool = False,
    write: bool = False,
    world_size: int | None = None,
    integration: str | None = None,
    deepspeed: str | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> FixedConfig:
    """Fix the mistakes in a config that have a fix. Nothing that is given is changed, and no file is written without `write`.

    Args:
        config: a dict, the path of a file, or the text of a config: a string that holds a brace or a line end.
        unsafe: whether to make fixes that change training, or delete comments, too.
        write: whether to write the fixed text to the file, whole or not at all.
        world_size: as in `check`; so are the arguments that follow.
        integration: who loads the config.
        deepspeed: the release that will run it.
        select: the only rules to run.
        ignore: rules to leave out.

    Returns:
        The fixed text, the findings that were fixed, and those that are left. Findings that are suppressed are not fixed.

    Raises:
        ValueError: `write` without the path of a file; an unknown integration, release or rule.
        OSError: the file cannot be written; it is as it was.
        TypeError, dslint.errors.UserError, dslint.source.read.ReadError: as in `check`.
    """
    rules = _chosen(select, ignore)
    facts = _facts(world_size, integration, deepspeed)
    path = None if isinstance(config, Mapping) or _is_text(config) else os.fspath(config)
    if write and path is None:
        raise ValueError("write=True takes the path of a file")
    text = read(path) if path is not None else load_data(config, facts).document.text if isinstance(config, Mapping) else str(config)
    finder = Finder()
    chosen = rules_for(path, finder.for_file(path), rules) if path is not None else rules

    def lint(fresh: str) -> FileResult:
        result = lint_loaded(load_text(fresh, facts), _shown(path) if path is not None else "<config>", chosen)
        return suppress([result], finder)[0] if path is not None else apply_comments(result)

    done = apply_fixes(text, lint, ALL if unsafe else SAFE)
    if write and path is not None and done.fixed:
        write_whole(path, done.text)
    return FixedConfig(done.text, done.fixed, done.result.diagnostics)


def _is_text(config: str | os.PathLike[str]) -> bool:
    return isinstance(config, str) and any(mark in config for mark in "{\n\r")


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


def _chosen(select: Iterable[str], ignore: Iterable[str]) -> tuple[RuleInfo, ...]:
    chosen, left_out = tuple(select), tuple(ignore)
    check_words((*chosen, *left_out), all_rules())
    offered = (r for r in all_rules() if not r.pedantic or any(is_name_of(word, r) for word in chosen))
    return choose(offered, [Selection(chosen or None, left_out)])


def _facts(world_size: int | None, integration: str | None, deepspeed: str | None) -> Facts:
    if world_size is not None and world_size < 1:
        raise ValueError(f"world_size must be at least 1, not {world_size}")
    return Facts(world_size, Integration(integration) if integration else None, Release.parse(deepspeed) if deepspeed else NEWEST)


def _loaded(config: Source, given: Facts | Context) -> Loaded:
    return load_data(config, given) if isinstance(config, Mapping) else load_config(os.fspath(config), given)


def _shown(config: Source) -> str:
    return "<dict>" if isinstance(config, Mapping) else os.fspath(config).replace(os.sep, "/")


__all__ = ["ConfigError", "FixedConfig", "check", "check_training_arguments", "fix", "load"]
