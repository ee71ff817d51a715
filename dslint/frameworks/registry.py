"""The frameworks that dslint knows: each module of this package that has a `FRAMEWORK` is one.

They are imported when something asks for one; a plain check of a config asks for none.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Collection
from collections.abc import Mapping as Table
from functools import cache
from importlib import import_module
from types import ModuleType

import dslint.frameworks
from dslint.evaluate.python.integration import InPrograms
from dslint.frameworks.base import ConfigFlags, Framework, OwnFiles, Uses
from dslint.job.arguments import Arguments, SourcedValue
from dslint.source.tree import Document, Mapping


@cache
def _modules() -> tuple[ModuleType, ...]:
    names = (module.name for module in pkgutil.iter_modules(dslint.frameworks.__path__))
    return tuple(import_module(f"dslint.frameworks.{name}") for name in names if not name.startswith("_") and name != "registry")


@cache
def in_programs() -> tuple[InPrograms, ...]:
    """What the frameworks add to how programs are read."""
    return tuple(one for module in _modules() if isinstance(one := getattr(module, "PROGRAMS", None), InPrograms))


@cache
def frameworks() -> tuple[Framework, ...]:
    """All frameworks, those with keys of their own first."""
    found = [one for module in _modules() if isinstance(one := getattr(module, "FRAMEWORK", None), Framework)]
    return tuple(sorted(found, key=lambda one: (one.rank, one.name)))


def named(name: str) -> Framework | None:
    """The framework with a name."""
    return next((one for one in frameworks() if one.name == name), None)


@cache
def with_own_files() -> tuple[tuple[Framework, OwnFiles], ...]:
    """The frameworks that build a config from files of their own."""
    return tuple((one, one.own_files) for one in frameworks() if one.own_files is not None)


@cache
def parallel_flags() -> dict[str, str]:
    """By fact: the flag for the size of a parallel group, of all frameworks."""
    return {fact: flag for one in frameworks() for fact, flag in one.parallel_flags.items()}


def has_parallel_flag_of_another(flags: Collection[str], facts: Collection[str]) -> bool:
    """Whether one of the facts comes from a flag for the size of a parallel group, and the launch does not look like one of a framework
    that has this flag.

    Such a program may mean the ranks of something else, as of a server that it starts.
    """
    owners = [one for one in frameworks() if any(fact in facts and flag in flags for fact, flag in one.parallel_flags.items())]
    return bool(owners) and not any(len(one.usual_flags.intersection(flags)) >= 3 for one in owners)


def started_by(command: str) -> Framework | None:
    """The framework that a command starts."""
    return next((one for one in frameworks() if command in one.commands), None)


def run_as(module: str) -> Framework | None:
    """The framework of a module that `python -m` starts."""
    return next((one for one in frameworks() if module.partition(".")[0] in one.modules), None)


def built_from(flags: Collection[str]) -> tuple[Framework, ConfigFlags] | None:
    """The framework with programs that build a config from these flags. One with flags of its own among them comes first; one that has
    such flags, and none of them is given, is not meant.
    """
    able = [(one, one.flags) for one in frameworks() if one.flags is not None and not one.flags.own.isdisjoint(flags)]
    able += [(one, one.flags) for one in frameworks() if one.flags is not None and not one.flags.own]
    return next(((one, how) for one, how in able if any(stage in flags for stage in how.stages)), None)


def of_arguments(arguments: Arguments | None) -> Framework | None:
    """The framework that training arguments are for."""
    return named(arguments.framework) if arguments is not None else None


def task_of_script(program: object) -> str:
    """What a script of a framework does, by the name of a program; "" for any other program."""
    found = (one.task_of_script.fullmatch(program) for one in frameworks() if one.task_of_script is not None and isinstance(program, str))
    return next((match[1] for match in found if match is not None), "")


def in_flags(flags: Table[str, SourcedValue], shown: str, program: str) -> Arguments | None:
    """The arguments of a framework that has its own among the flags of a program."""
    found = (one.in_flags(flags, shown, program) for one in frameworks() if one.in_flags is not None)
    return next((arguments for arguments in found if arguments is not None), None)


def model_in_flags(flags: Table[str, SourcedValue]) -> str | None:
    """The name of the model that a framework's own argument gives among the flags of a program."""
    found = (one.model_in_flags(flags) for one in frameworks() if one.model_in_flags is not None)
    return next((name for name in found if name is not None), None)


def objects_of(arguments: Arguments | None) -> Table[str, SourcedValue]:
    """By section of the config: what the program with these arguments passes to `deepspeed.initialize` in its place."""
    framework = of_arguments(arguments)
    return framework.objects(arguments) if arguments is not None and framework is not None and framework.objects is not None else {}


def of_package(program: str) -> Framework | None:
    """The framework in whose package a program with this path, or this name of a module, starts a training."""
    below = f"/{program.replace('.', '/')}"
    paths = [f"/{program}"] if program.endswith(".py") else [f"{below}.py", f"{below}/__main__.py"]
    return next((one for one in frameworks() for path in paths if path.endswith(tuple(f"/{file}" for file in one.files))), None)


def of_script(program: str, flags: Collection[str]) -> Framework | None:
    """The framework whose program in its checkout has this path, and takes these flags."""
    for one in frameworks():
        is_named = f"/{program}".endswith(tuple(f"/{script}" for script in one.scripts))
        if is_named and one.recognises is not None and one.recognises(frozenset(flags), lambda _: False):
            return one
    return None


def of_inference_script(program: str, flags: Collection[str]) -> Framework | None:
    """The framework whose program for inference in a former checkout has this name, and takes these flags."""
    is_like = "model_name_or_path" in flags and not {"template", "adapter_name_or_path", "checkpoint_dir"}.isdisjoint(flags)
    found = (one for one in frameworks() if f"/{program}".endswith(tuple(f"/{script}" for script in one.inference_scripts)))
    return next(found, None) if is_like else None


def of_imports(text: str) -> Framework | None:
    """The framework with arguments of its own whose package a program imports."""
    owners = ((one, package) for one in frameworks() if one.own is not None for package in one.packages)
    return next(
        (one for one, package in owners if re.search(rf"^[ \t]*(?:from|import)[ \t]+{re.escape(package)}\b", text, re.MULTILINE)), None
    )


def framework_of(document: Document, uses: Uses) -> Framework | None:
    """The framework that a tree holds training arguments for; None if no framework uses its keys."""
    if not isinstance(document.root, Mapping):
        return None
    names = frozenset(member.key.value for member in document.root.members)
    return next((one for one in frameworks() if one.recognises is not None and one.recognises(names, uses)), None)
