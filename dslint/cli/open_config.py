"""How `show`, `estimate`, `fit` and `probe` open the config that they are about. One that cannot be used ends the program with 2."""

from __future__ import annotations

import sys

from dslint.cli.options import read_stdin, show_page, warn
from dslint.config.load import Loaded
from dslint.errors import UserError
from dslint.job.arguments import Arguments
from dslint.lint.discovery import shown
from dslint.not_judged import Why
from dslint.report.style import visible
from dslint.settings import Finder
from dslint.setups.gather import Read, reasons_of
from dslint.setups.open import Subject, UsedConfig, open_text
from dslint.source.read import ReadError, read

UNUSABLE = 2


class LeadsToNoConfig(SystemExit):
    """What was opened leads to no config. `launched_without` says that the launches in it train without DeepSpeed."""

    def __init__(self, *, launched_without: bool) -> None:
        super().__init__(UNUSABLE)
        self.launched_without = launched_without


def open_config(path: str, finder: Finder) -> Loaded:
    """Open the config in a file ("-": standard input), or the first one that a training, a script or a program leads to; one whose
    training is known comes before.

    Exits with 2 where there is none, or it has syntax errors; standard error says why.
    """
    return open_training(path, finder)[0]


def open_training(path: str, finder: Finder) -> tuple[Loaded, Arguments | None]:
    """Open a config as `open_config` does, with the arguments of the training that uses it, if they are known."""
    try:
        text = read_stdin() if path == "-" else read(path)
    except ReadError as error:
        raise UserError(f"{shown(path)}: {error}") from None
    subject = open_text(text, path, finder.for_file(path).context)
    assert subject is not None, "what is named is always opened"
    if subject.trainings is not None and (subject.note or not subject.configs):
        _say_what_was_read(subject.trainings, subject)
    if not subject.configs:
        raise LeadsToNoConfig(launched_without=subject.trainings is not None and subject.trainings.launched_without)
    configs = subject.configs
    first, number = min(configs, key=_facts_missing), len(configs)
    if number > 1:  # a program may have several configs for the models of one training
        chosen = _named(first)
        leads = f"it leads to {number} configs; this is {chosen}."
        used = f"{number} trainings use it, each with other facts; this is the config of {chosen}."
        warn(f"{shown(path)}: {leads if subject.trainings is not None else used}")
    loaded = first.loaded
    for problem in loaded.document.problems:
        place = loaded.document.position(problem.span.start)
        show_page(visible(f"{shown(path)}:{place.line}:{place.column}: {problem.message}"), color=False, err=True)
    if loaded.unusable:
        warn(f"{shown(path)}: {loaded.unusable}")
    if loaded.unusable or loaded.document.problems:
        sys.exit(UNUSABLE)
    return loaded, first.arguments


def _facts_missing(used: UsedConfig) -> tuple[bool, bool]:
    """Less for a training that is known: by its arguments and by its launch. A program that only names the file has neither."""
    setup = used.loaded.context.setup
    return used.arguments is None, setup is None or setup.launch is None


def _named(used: UsedConfig) -> str:
    """The training of several that a config is shown for."""
    link = used.loaded.context.setup.link if used.loaded.context.setup is not None else None
    return f"the one in {link.where}" if link is not None else "the first"


def _say_what_was_read(found: Read, subject: Subject) -> None:
    """Say what a file is that leads to configs, and, where it leads to none, why."""
    if subject.note:
        warn(f"{subject.shown}: {subject.note}")
    if subject.configs:
        return
    for reason in reasons_of(found):
        if reason.why is not Why.NOTE:  # the note is said above
            warn(f"{reason.path or subject.shown}{f':{reason.range.start.line}' if reason.range else ''}: {reason.reason}")
    for gathered in found.setups:
        for linked, error in gathered.errors.items():
            warn(f"{linked}: {error}")
