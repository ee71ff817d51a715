"""Detects the release of transformers or Accelerate that a project pins in its lock files, requirements, images and scripts.

The files and their order are those of `find_release`. The first file that names the library decides, and only an exact pin counts:
`transformers==4.46.3`, or what a lock file has. A range leaves the release unknown, unless a lock file further up pins it. The environment
of dslint does not count, because these libraries are installed for many reasons other than a training.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from dslint.facts import Integration
from dslint.facts.find_release import (
    LARGEST,
    PIPFILE_LOCKED,
    FoundRelease,
    files_of,
    folder_above,
    lines_of_setup_cfg,
    of_poetry,
    requirements_of,
)
from dslint.facts.installs import installs_of, instructed_installs
from dslint.facts.release import final_release
from dslint.source import toml
from dslint.source.read import ReadError, read_bytes
from dslint.source.store import store

PACKAGES = {Integration.TRANSFORMERS: "transformers", Integration.ACCELERATE: "accelerate"}
"""The packages of the loaders that have releases to which rules refer."""

_EXACT = re.compile(r"""\s*={2,3}\s*v?(\d[\w.!+-]*)\s*(?:$|[\s;#"'\\)&|])""").match
_CONDA = re.compile(r"""\s*=\s*v?(\d+\.\d+\.\d+)(?:=\S*)?\s*(?:$|[#"'])""").match
_TAG = re.compile(r"""\s*@\s*git\+\S*@v?(\d+\.\d+\.\d+)(?:$|[\s;#"'])""").match


def find_loader(folder: str, integration: Integration) -> FoundRelease | None:
    """The release of an integration for the configs in a folder (an absolute path), or None if nothing pins one."""
    package = PACKAGES.get(integration)
    return find_pin(folder, package) if package else None


def find_pin(folder: str, package: str) -> FoundRelease | None:
    """The release of a library for the configs in a folder (an absolute path), or None if nothing pins one."""
    return _near(folder, package, locks_only=False) or store().found(
        ("instructed pin", package, folder), lambda: _of_instructions(folder, package)
    )


def _of_instructions(folder: str, package: str) -> FoundRelease | None:
    """The one release that instructions above a config install, if no file of the project says something of it."""
    found = next(filter(None, (_of_commands(instructed_installs(here), package) for here in _upwards(folder))), None)
    if found is None or _is_required(folder, package):
        return None
    return _found((version for _, version in found), f"{found[0][0]} requires {package}")


def _is_required(folder: str, package: str) -> bool:
    """Whether a file for the configs in a folder says something of the release of a library."""
    return any(
        any(re.match(r"[^#\"']*\d", rest) for _, said in _said_in(here, package) for rest in said)
        or _of_commands(installs_of(here), package)
        for here in _upwards(folder)
    )


def _upwards(folder: str) -> Iterator[str]:
    """A folder and those above it that belong to its project, the nearest first."""
    here: str | None = folder
    while here is not None:
        yield here
        here = folder_above(here)


def _said_in(folder: str, package: str) -> Iterator[tuple[str, list[str]]]:
    """The files of a folder that name a library, with what they say of its release."""
    for name in files_of(folder):
        try:
            data = read_bytes(os.path.join(folder, name), LARGEST)
        except ReadError:
            continue
        if package.encode() in data.lower():
            yield name, list(_specifiers(data.decode("utf-8", "replace"), name, package))


def find_requirement(folder: str, package: str) -> tuple[str, str] | None:
    """The file that requires a library for the configs in a folder (an absolute path), with what it says of the release.

    None if no file requires it, or if the file that does says several things.
    """
    return store().found(("requirement", package, folder), lambda: _requirement(folder, package))


def _requirement(folder: str, package: str) -> tuple[str, str] | None:
    for here in _upwards(folder):
        for name, specifiers in _said_in(here, package):
            said = set(specifiers)
            if said:
                return (name, said.pop().partition("#")[0].strip()) if len(said) == 1 else None
    return None


def is_left_out(folder: str, package: str) -> bool:
    """Whether the requirements for the configs in a folder (an absolute path) name DeepSpeed, and no file beside or above them a package.

    An image has more than requirements say: its base is not known.
    """
    return store().found(("left out", package, folder), lambda: _is_left_out(folder, package.encode()))


def _is_left_out(folder: str, package: bytes) -> bool:
    is_complete = False
    for here in _upwards(folder):
        for name in files_of(here):
            try:
                data = read_bytes(os.path.join(here, name), LARGEST).lower()
            except ReadError:
                return False
            if package in data or "dockerfile" in name.lower():
                return False
            is_complete = is_complete or b"deepspeed" in data
        if any(package in arguments.lower().encode() for _, arguments in installs_of(here)):
            return False
    return is_complete


def _near(folder: str, package: str, *, locks_only: bool) -> FoundRelease | None:
    return store().found(("pin", package, folder, locks_only), lambda: _nearest(folder, package, locks_only=locks_only))


def _nearest(folder: str, package: str, *, locks_only: bool) -> FoundRelease | None:
    for name in files_of(folder):
        is_lock = name.endswith((".lock", ".toml")) and not name.endswith("pyproject.toml")
        if locks_only and not is_lock:
            continue
        versions = list(_versions(os.path.join(folder, name), package, is_lock=is_lock))
        if versions and (is_lock or None not in versions):
            return _found(versions, f"{name} {'locks' if is_lock else 'requires'} {package}")
        if versions:
            locks_only = True
            break
    if not locks_only and (installed := _of_installs(folder, package)) is not None:
        return installed
    above = folder_above(folder)
    return None if above is None else _near(above, package, locks_only=locks_only)


def _of_installs(folder: str, package: str) -> FoundRelease | None:
    """The release that scripts, notebooks and job files of a folder install, if all of them that name one name the same."""
    by_file = dict(_of_commands(installs_of(folder), package))
    return _found(by_file.values(), f"{next(iter(by_file))} requires {package}") if by_file else None


def _of_commands(commands: Iterable[tuple[str, str]], package: str) -> list[tuple[str, str | None]]:
    """The files with the versions that their commands install; None for one that is not an exact pin. The last one of a file counts."""
    matches = ((name, _EXACT(rest)) for name, arguments in commands for rest in _specifiers(arguments, "", package))
    return [(name, match[1] if match else None) for name, match in matches]


def _found(versions: Iterable[str | None], evidence: str) -> FoundRelease | None:
    """The release, if all versions are one final release; a file can pin several, for example for several versions of Python."""
    only = set(versions)
    version = only.pop()
    release = final_release(version or "") if not only else None
    return None if release is None else FoundRelease(release, f"{evidence} {version}")


def _versions(path: str, package: str, *, is_lock: bool) -> Iterator[str | None]:
    """The version of each requirement of a package in a file; None for one that is not an exact pin."""
    try:
        data = read_bytes(path, LARGEST)
    except ReadError:
        return
    if package.encode() not in data.lower():
        return
    text = data.decode("utf-8", "replace")
    if path.endswith("Pipfile.lock"):
        yield from re.findall(PIPFILE_LOCKED % package, text)
        return
    if is_lock:
        yield from re.findall(rf"""^name\s*=\s*["']{package}["']\s*\n(?:\#.*\n)*version\s*=\s*["']([^"']+)["']""", text, re.MULTILINE)
        return
    name = os.path.basename(path)
    for rest in _specifiers(text, name, package):
        match = _EXACT(rest) or _TAG(rest) or (_CONDA(rest) if name.endswith((".txt", ".yml", ".yaml")) else None)
        yield match[1] if match else None


def _specifiers(text: str, name: str, package: str) -> Iterator[str]:
    """What follows the name of a package wherever a file requires it."""
    if name in ("pyproject.toml", "Pipfile"):
        try:
            project = toml.loads(text)
        except ValueError:
            return
        lines: Iterable[str] = requirements_of(project)
        yield from of_poetry(project, package)
    else:
        lines = lines_of_setup_cfg(text) if name.endswith(".cfg") else text.splitlines()
    if name.endswith((".yml", ".yaml")):
        before, after = r"""\s*-\s*["']?(?:[\w.-]+::)?""", r"""(?=$|[\s"'=<>!~;@^#])"""
    elif name == "setup.py":
        lines = [line for line in lines if not line.lstrip().startswith("#")]
        before, after = r""".*?["']""", r"(?=\s*[=<>!~@])"
    elif name.endswith((".txt", ".toml", ".cfg", "Pipfile")):
        before, after = r"\s*", r"(?=$|[\s=<>!~;@^#(\\])"
    else:  # an image: the arguments of a command
        before, after = r"""(?:.*?[\s"'])?""", r"(?=[=<>!~@^]|\s@\s)"
    required = re.compile(rf"{before}{package}(?:\[[^\]\[]*\])?{after}(.*)", re.IGNORECASE)
    tagged = re.compile(rf".*?git\+\S*/{package}(?:\.git)?(?=$|[@\s#;])(.*)", re.IGNORECASE)
    for line in lines:
        if match := required.match(line):
            yield match[1]
        elif match := tagged.match(line):
            yield f"@ git+{match[1]}"
