"""Plug-ins: packages with rules, named in the entry point group `dslint.rules`.

    [project.entry-points."dslint.rules"]
    acme = "acme_rules"          # a module (all its rules), or "acme_rules:RULES", a list of rules or one rule

The settings name the plug-ins to load: `plugins = ["acme"]`. A plug-in that fails to load becomes a rule that fails, and so a diagnostic.

A plug-in is code, and settings may come with what is checked, so only what is installed is loaded: not what lies in the working
directory or on PYTHONPATH, which in a training job is often the checkout.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from dslint.diagnostics import Effect
from dslint.errors import NotInstalled
from dslint.rule import Finding, Rule

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "dslint.rules"


def load(name: str) -> tuple[Rule, ...]:
    """The rules of a plug-in. If loading fails, a single rule that raises the error."""
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    try:
        found = [point for point in entry_points(group=GROUP) if point.name == name]
        if not found:
            raise LookupError(f"no installed package has an entry point {name!r} in the group {GROUP!r}")
        installed = [point for point in found if _is_installed(point)]
        if not installed:
            raise NotInstalled(f'The plug-in "{name}" was not loaded: it is not installed, but lies in {_home(found[0])}.')
        with _installed_only():
            loaded = installed[0].load()
        return _rules(loaded, name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may fail in any way
        return (_broken(name, error),)


def _home(point: EntryPoint) -> str:
    """The folder that contains the metadata of a plug-in's distribution."""
    return os.path.realpath(str(point.dist.locate_file(""))) if point.dist is not None else ""


def _is_installed(point: EntryPoint) -> bool:
    """Whether pip put the metadata of a plug-in into this environment. It may be an editable installation of code in a checkout.

    An `egg-info` outside of the environment is left in a checkout by a build.
    """
    home = _home(point)
    if any(_is_in(home, site) for site in _sites()):
        return True
    metadata = getattr(point.dist, "_path", None)  # there is no public name for it
    return bool(home) and str(metadata).endswith(".dist-info") and not any(_is_in(home, folder) for folder in _open_folders())


def _sites() -> set[str]:
    """The folders of this environment in which pip installs."""
    import site
    import sysconfig

    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return {os.path.realpath(path) for path in (*site.getsitepackages(), *user, *map(sysconfig.get_path, ("purelib", "platlib")))}


def _open_folders() -> set[str]:
    """The folders that Python imports from although nothing is installed there: the working directory, and those of PYTHONPATH."""
    named = (path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)
    return {os.path.realpath(path) for path in (os.curdir, *named)}


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


@contextmanager
def _installed_only() -> Iterator[None]:
    """Import nothing from the open folders: a module there could take the name of the plug-in's, or of one that it imports."""
    before, unsafe = sys.path[:], _open_folders()
    sys.path[:] = [path for path in before if os.path.realpath(path or os.curdir) not in unsafe]
    try:
        yield
    finally:
        sys.path[:] = before


def _rules(loaded: object, name: str) -> tuple[Rule, ...]:
    if isinstance(loaded, ModuleType):
        loaded = vars(loaded).values()
    values = loaded if isinstance(loaded, Iterable) else [loaded]
    rules = tuple(value for value in values if isinstance(value, Rule))
    if not rules:
        raise LookupError(f"the entry point {name!r} contains no rule")
    for rule in rules:
        if rule.code.upper().startswith("DS"):
            raise ValueError(f"the code {rule.code} begins with DS, which is reserved for built-in rules")
    return rules


def _broken(name: str, error: BaseException) -> Rule:
    loading = error.__traceback__

    def check(_: object) -> list[Finding]:
        raise error.with_traceback(loading)  # without this it keeps the frames of each time that it was raised, and all that they hold

    return Rule("plug-in", name, Effect.ADVICE, None, check, "A plug-in that cannot be loaded.", module=f"plug-in {name}")
