"""The launches of a training file: they know ranks and flags that the file itself does not."""

from __future__ import annotations

import os

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.setups.gather import LoadedSetup, Read
from dslint.setups.launching import first_launches, read_launching
from dslint.setups.project import project_of
from dslint.source.read import names_file


def with_launches_of_file(found: Read, path: str, shown: str, given: Context) -> Read:
    """A training file with the setups of the launches in its project that name it, in the place of its own."""
    if not (found.setups or found.without_deepspeed) or not names_file(shown):
        return found
    project, here = project_of(path), os.path.abspath(path)
    launched: list[LoadedSetup] = []
    launching: list[str] = []
    first = ""
    for launch in project.launching({os.path.basename(path)}):
        if launch != here:
            own = launch if os.path.isabs(path) else os.path.relpath(launch)
            launching.append(own)
            read = read_launching(project.text(launch), own, own.replace(os.sep, "/"), given, named=False)
            launched += [one for one in read.setups if _uses(one, here)] if read is not None else []
            first = first or (own.replace(os.sep, "/") if launched else "")
    if not launched:
        return found
    kind = next((kind for name, kind in launched[0].kinds.items() if os.path.abspath(name) == here), found.kind)
    launched, left_out = first_launches((one.seen_from(shown, found.document, kind) for one in launched), launching)
    configs = {one.setup.config for one in launched}
    kept = [one for one in found.setups if one.setup.config not in configs and not found.without_deepspeed]
    # A flag of the launch, or its Accelerate file, may select DeepSpeed.
    what = "an Accelerate config" if kind is FileKind.ACCELERATE else "training arguments"
    note = f"{what}, which {first} launches with DeepSpeed." if found.without_deepspeed else _with_replaced(found.note, kept, launched)
    not_judged = [*found.not_judged, *([left_out] if left_out is not None else [])]
    return found._replace(kind=kind, setups=[*kept, *launched], note=note, not_judged=not_judged, without_deepspeed=False)


def _with_replaced(note: str | None, kept: list[LoadedSetup], launched: list[LoadedSetup]) -> str | None:
    """The sentence about a file that names a config, where a launch names another one in its place."""
    links = ((one.setup.link, one.setup.config) for one in launched)
    replaced = next((f"{link.where} replaces it by {config}." for link, config in links if link is not None and config), None)
    return f"{note} {replaced}" if note and kept and replaced else note


def _uses(launched: LoadedSetup, here: str) -> bool:
    """Whether a launch with a config read the file for it."""
    return launched.config is not None and here in {os.path.abspath(name) for name in launched.documents if names_file(name)}
