"""Detects the DeepSpeed release that will run a config: from lock files, requirements and the environment.

dslint searches from the config's folder upwards to the root of the repository. The first folder with a file that names DeepSpeed decides,
and in it the first such file in the order of `FILES`. If that allows several releases and a file above names one of them, it is this one;
else the one that instructions such as README.md install, if it is allowed; else it is that of the environment that dslint runs in, if it
is allowed. An environment with another release is not the project's: its pins were not installed there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from dslint.facts import NEWEST, OLDEST, RELEASES, Release
from dslint.facts.installs import installs_of, instructed_installs
from dslint.facts.release import ANY_PATCH
from dslint.record import Record
from dslint.source import toml
from dslint.source.integers import integer
from dslint.source.read import ReadError, read_bytes
from dslint.source.store import store

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

LARGEST = 64 * 1024 * 1024
"""Lock files of large projects have some megabytes."""


class ReleaseSource(Enum):
    """What says which DeepSpeed release runs."""

    STATED = "stated"
    """The user, or a file of the project."""
    ENVIRONMENT = "environment"
    """The environment of dslint, which need not be the one that trains."""
    ASSUMED = "assumed"
    """Nothing: it is the newest that dslint knows."""


class FoundRelease(Record):
    """A release, and the evidence for it as shown to users: "uv.lock locks deepspeed 0.16.9".

    `specifier` is what a requirement says that allows several releases; None of an exact one. `oldest` is the oldest supported release
    that the evidence leaves open; None if it leaves one. `own_copy` says that the project has a copy of DeepSpeed's sources, which
    Python imports in the place of an installed release, or that it requires a fork.
    """

    release: Release
    evidence: str
    specifier: str | None = None
    own_copy: bool = False
    oldest: Release | None = None
    source: ReleaseSource = ReleaseSource.STATED


NOTHING = FoundRelease(NEWEST, "no version found in this environment or project", oldest=OLDEST, source=ReleaseSource.ASSUMED)

NOT_ASKED = NOTHING._replace(evidence="neither this environment nor a project was asked")


def find(folder: str) -> FoundRelease | None:
    """The release for the configs in a folder (an absolute path), or None if nothing names one."""
    own, near = installed(), _with_instructions(folder, _near(folder))
    copy = _own_copy(folder)
    if copy is not None:
        release = (near or own or NOTHING).release
        return FoundRelease(release, f"{copy} is a copy of DeepSpeed, which may be changed, so no finding is certain", own_copy=True)
    if own is None or near is None:
        return near or (own and own._replace(oldest=OLDEST))
    return own._replace(oldest=near.oldest) if near.specifier is not None and _narrows(own, near) else near


def _with_instructions(folder: str, near: FoundRelease | None) -> FoundRelease | None:
    """What the files of a project say, or else the one release that the instructions above a config install, as in README.md."""
    if near is not None and near.specifier is None:
        return near
    here: str | None = folder
    while here is not None:
        said = [one for name, arguments in instructed_installs(here) if (one := _image(arguments, name)) is not None]
        if said:
            is_one = len({(one.release, one.specifier) for one in said}) == 1 and said[0].specifier is None
            return said[0] if is_one and (near is None or _narrows(said[0], near)) else near
        here = folder_above(here)
    return near


def _own_copy(folder: str) -> str | None:
    """The folder `deepspeed` with DeepSpeed's sources in a folder (an absolute path), or above it in the repository."""
    here: str | None = folder
    while here is not None:
        if all(os.path.isfile(os.path.join(here, "deepspeed", name)) for name in ("__init__.py", "runtime/engine.py")):
            return os.path.relpath(os.path.join(here, "deepspeed")).replace(os.sep, "/")
        here = folder_above(here)
    return None


def names_release(path: str) -> bool:
    """Whether a file, by its name, is one that may name a release."""
    name = os.path.basename(path)
    return any(name.startswith(starts) and name.endswith(ends) for starts, ends, _ in FILES)


def forget_installed() -> None:
    """Look at the environment anew, because it may have changed."""
    installed.cache_clear()


@cache
def installed() -> FoundRelease | None:
    """The release installed in the same environment as dslint. Only folder names are read; nothing is imported."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith("deepspeed-") and name.endswith((".dist-info", ".egg-info")):
                version = name.removeprefix("deepspeed-").rpartition(".")[0]
                if found := _exact(version, "this environment has deepspeed"):
                    return found._replace(source=ReleaseSource.ENVIRONMENT)
    return None


def wsl_kernel() -> str | None:
    """The release of this machine's kernel, if it is that of WSL, and the environment of dslint has DeepSpeed."""
    kernel = os.uname().release if sys.platform == "linux" else ""
    return kernel if "microsoft" in kernel.lower() and installed() is not None else None


def _near(folder: str) -> FoundRelease | None:
    return store().found(("release", folder), lambda: _nearest(folder))


def _nearest(folder: str) -> FoundRelease | None:
    read = (_read(os.path.join(folder, name), name, reader) for name, reader in _readers_of(folder))
    found = next((one for one in read if one is not None), None) or _of_installs(folder)
    above = folder_above(folder)
    further = _near(above) if above is not None and (found is None or found.specifier is not None) else None
    return further if found is None or (further is not None and _narrows(further, found)) else found


def _narrows(further: FoundRelease, near: FoundRelease) -> bool:
    """Whether a file above, or the environment, has one of the releases that the nearest file allows."""
    from packaging.specifiers import SpecifierSet

    return further.specifier is None and SpecifierSet(near.specifier or "").contains(str(further.release))


def files_of(folder: str) -> Iterator[str]:
    """The files of a folder that may name a release, relative to it, in the order in which they decide."""
    return (name for name, _ in _readers_of(folder))


def folder_above(folder: str) -> str | None:
    """The folder in which the search goes on; None at the root of a repository or of a home directory."""
    parent = os.path.dirname(folder)
    ends = parent in (folder, os.path.dirname(os.path.expanduser("~"))) or os.path.lexists(os.path.join(folder, ".git"))
    return None if ends else parent


def _readers_of(folder: str) -> Sequence[tuple[str, Reader]]:
    """Asked once for each library and each folder above: those of a project are few, but a home directory may have thousands of files."""
    return store().listed(("names a release", folder), lambda: list(_find_readers(folder)))


def _find_readers(folder: str) -> Iterator[tuple[str, Reader]]:
    try:
        names = set(os.listdir(folder))
    except OSError:
        return
    left = {name for name in names if name.endswith(_ENDS) or name.startswith("Dockerfile")}
    for starts, ends, reader in FILES:
        of_kind = {name for name in left if name.startswith(starts) and name.endswith(ends)}
        left -= of_kind
        yield from ((name, reader) for name in sorted(of_kind, key=lambda name: (len(name), name)))
    yield from ((name, _reader_of(name)) for name in _below(folder, names))


def _reader_of(name: str) -> Reader:
    return _requirements if name.endswith(".txt") else _conda if name.endswith((".yml", ".yaml")) else _image


_ENVIRONMENTS = ("envs", "env", "environments", "environment", "conda", "install")
"""Folders for files that say what to install. Of several of a kind it is open which one a job has, so a file counts only alone."""

_OF_ENVIRONMENT = re.compile(r"(?:.*[-_.])?(?:requirements?|environment|env|conda)(?:[-_.].*)?\.(txt|ya?ml)", re.IGNORECASE).fullmatch


def _only_environment(folder: str, names: set[str]) -> Iterator[str]:
    for subfolder in _ENVIRONMENTS:
        if subfolder not in names:
            continue
        try:
            inner = sorted(name for name in os.listdir(os.path.join(folder, subfolder)) if _OF_ENVIRONMENT(name))
        except OSError:
            continue
        for ends in (".txt", (".yml", ".yaml")):
            of_kind = [name for name in inner if name.endswith(ends)]
            if len(of_kind) == 1:
                yield f"{subfolder}/{of_kind[0]}"


def _below(folder: str, names: set[str]) -> Iterator[str]:
    """The files in subfolders that may name a release: `requirements/*.txt`, the only file of `envs`, then `docker/Dockerfile`."""
    yield from _only_environment(folder, names)
    for subfolder, ends in (("requirements", ".txt"), ("docker", "Dockerfile")):
        if subfolder in names:
            try:
                inner = os.listdir(os.path.join(folder, subfolder))
            except OSError:
                continue
            chosen = sorted((name for name in inner if name.endswith(ends)), key=lambda name: (len(name), name))
            yield from (f"{subfolder}/{name}" for name in chosen)


Reader = Callable[[str, str], "FoundRelease | None"]


def _read(path: str, name: str, reader: Reader) -> FoundRelease | None:
    try:
        data = read_bytes(path, LARGEST)
    except ReadError:
        return None
    spoken_of = any(word in data for word in (b"deepspeed", b"DeepSpeed", b"Deepspeed", b"DEEPSPEED", b"DeeperSpeed", b"deeperspeed"))
    return reader(data.decode("utf-8", "replace"), name) if spoken_of else None


def _lock_file(text: str, name: str) -> FoundRelease | None:
    """`uv.lock`, `poetry.lock`, `pylock.toml`: a table per package, which begins with its name and its version."""
    locked: list[FoundRelease] = []
    at = text.find("deepspeed")
    while at >= 0:  # a lock file has megabytes, and names deepspeed only a few times
        entry = re.compile(_LOCKED).match(text, text.rfind("\n", 0, at) + 1)
        if entry and (found := _exact(entry[1], f"{name} locks deepspeed")):
            locked.append(found)
        at = text.find("deepspeed", at + 1)
    return max(locked, key=lambda found: found.release, default=None)


_LOCKED = r"""name\s*=\s*["']deepspeed["']\s*\n(?:\#.*\n)*version\s*=\s*["']([^"']+)["']"""


def _pipfile_lock(text: str, name: str) -> FoundRelease | None:
    """`Pipfile.lock`: JSON, where a package is a key."""
    found = re.search(PIPFILE_LOCKED % "deepspeed", text)
    return _exact(found[1], f"{name} locks deepspeed") if found else None


PIPFILE_LOCKED = r'"%s"\s*:\s*\{[^{}]*?"version"\s*:\s*"==([^"]+)"'


def _requirements(text: str, name: str) -> FoundRelease | None:
    """`requirements*.txt`, `setup.cfg`: a line per requirement."""
    rows = lines_of_setup_cfg(text) if name.endswith(".cfg") else text.splitlines()
    lines = (line.partition("#")[0].strip() for line in rows)
    if name.endswith(".cfg"):
        lines = (re.sub(r"^[\w.-]+\s*=(?!=)\s*", "", line) for line in lines)
    else:
        lines = (_OF_CONDA_LIST.sub(r"\1==\2", line) for line in lines)
    return next((found for line in lines if (found := _requirement(line, name))), None)


_OF_CONDA_LIST = re.compile(r"(deepspeed)=v?(\d[\w.+]*)(?:=\S*)?", re.IGNORECASE)
"""What `conda list --export` writes, and people who mean `==`: pip refuses the line, and it still says which release the project has."""


def lines_of_setup_cfg(text: str) -> list[str]:
    """The lines of a `setup.cfg` that may require something. Other tools list packages in it, too: `known_third_party` of isort."""
    found, is_own = [], False
    for line in text.splitlines():
        if header := re.match(r"\[([\w.:-]+)\]", line):
            is_own = header[1] in ("options", "options.extras_require", "metadata")
        elif is_own:
            found.append(line)
    return found


def _quoted(text: str, name: str) -> FoundRelease | None:
    """`setup.py`: strings with a requirement each."""
    code = re.sub(r"^\s*#.*", "", text, flags=re.MULTILINE)
    strings = re.findall(r"""["'](deepspeed\b[^"'\n]*)["'](?!\s*(?::|\]\s*=))""", code)  # not the name of an extra
    strings.sort(key=lambda words: words == "deepspeed")
    strings[:0] = re.findall(r"""(?i)["'](deeperspeed\b[^"'\n]*|(?:[\w.-]+\s*@\s*)?git\+[^"'\n]*/deeperspeed\b[^"'\n]*)["']""", code)
    return next((found for words in strings if (found := _requirement(words, name))), None)


def _project(text: str, name: str) -> FoundRelease | None:
    """`pyproject.toml`: dependencies, extras and groups, and Poetry's own tables; `Pipfile`."""
    try:
        data = toml.loads(text)
    except ValueError:
        return None
    required = (_requirement(words, name) for words in requirements_of(data))
    by_poetry = (_allowed(specifier, name) for specifier in of_poetry(data, "deepspeed"))
    return next(filter(None, chain(required, by_poetry)), None)


def requirements_of(project: dict[str, Any]) -> Iterator[str]:
    """The requirements in a `pyproject.toml`: dependencies, extras and groups."""
    table = project.get("project")
    tables = [table.get("dependencies"), table.get("optional-dependencies")] if isinstance(table, dict) else []
    return _strings(*tables, project.get("dependency-groups"))


def _strings(*values: object) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from _strings(*value)
        elif isinstance(value, dict):
            yield from _strings(*value.values())


def of_poetry(project: dict[str, Any], package: str) -> Iterator[str]:
    """The specifiers of a package in Poetry's tables of a `pyproject.toml`, and in a `Pipfile`."""
    tool = project.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    groups = poetry.get("group") if isinstance(poetry, dict) else None
    tables = [poetry, *(groups.values() if isinstance(groups, dict) else ())]
    of_tables = [table.get("dependencies") if isinstance(table, dict) else None for table in tables]
    for dependencies in (*of_tables, project.get("packages"), project.get("dev-packages")):
        wanted = dependencies.get(package) if isinstance(dependencies, dict) else None
        wanted = wanted.get("version") if isinstance(wanted, dict) else wanted
        if isinstance(wanted, str):
            yield _as_specifier(wanted)


def _as_specifier(text: str) -> str:
    """Poetry's `^0.14.2`, `~0.14` and `0.14.2` as standard version specifiers."""
    match = re.fullmatch(r"\s*([\^~]?)\s*v?(\d+(?:\.\d+)*)\s*", text)
    if not match:
        return "" if text.strip() == "*" else text
    sign, version = match.groups()
    if not sign:
        return f"=={version}"
    numbers = [number for word in version.split(".") if (number := integer(word)) is not None]
    if len(numbers) <= version.count("."):
        return text
    fixed = next((index for index, number in enumerate(numbers) if number), len(numbers) - 1) if sign == "^" else min(1, len(numbers) - 1)
    upper = [*numbers[:fixed], numbers[fixed] + 1]
    return f">={version},<{'.'.join(map(str, upper))}"


_CONDA = re.compile(r"(?:[\w.-]++::)?(deepspeed\b.*)", re.IGNORECASE).fullmatch


def _conda(text: str, name: str) -> FoundRelease | None:
    """A conda environment: a line per requirement, with `=` as a prefix match, and pip requirements among them."""
    for line in text.splitlines():
        item = line.partition("#")[0].strip()
        if item.startswith("-") and _FORK.search(item):
            return _requirement(item, name)
        match = _CONDA(item.removeprefix("-").strip(" \t\"'")) if item.startswith("-") else None
        if match:
            words = re.sub(r"(?<![=<>!~])=(?!=)\s*+v?([\d.]++)(=.*)?$", r"==\1.*", match[1])
            if found := _requirement(words.replace(" =", "="), name):
                return found
    return None


def _image(text: str, name: str) -> FoundRelease | None:
    """A Dockerfile: the requirement in a `pip install`. Of several the last one decides, as in the image."""
    commands = re.sub(r"^\s*#.*\n?", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    fork = next((line for line in commands if _FORK.search(line) and re.search(r"\b(?:install|clone)\b", line)), None)
    if fork is not None:
        return _requirement(fork, name)
    found: FoundRelease | None = None
    for words in re.findall(r"""(?:^|[\s"'])(deepspeed(?:\[[^\]\s]*\])?[=<>~!][^\s"';&|\\]*)""", text, re.IGNORECASE):
        found = _requirement(words, name) or found
    return found


def _of_installs(folder: str) -> FoundRelease | None:
    """The release that scripts, notebooks and job files of a folder install; of several in a file the last one.

    Where files differ it is open which of them the job is started with.
    """
    by_file: dict[str, FoundRelease] = {}
    for name, arguments in installs_of(folder):
        one = _requirement(arguments, name) if _FORK.search(arguments) else _image(arguments, name)
        if one is not None and one.specifier is None:
            by_file[name] = one
    if not by_file:
        return None
    if fork := next((one for one in by_file.values() if one.own_copy), None):
        return fork
    oldest, newest = (choose(by_file.values(), key=lambda one: one.release) for choose in (min, max))
    if oldest.release == newest.release:
        return newest
    evidence = f"{oldest.evidence} and {newest.evidence}, and this is the newer one"
    return FoundRelease(newest.release, evidence, f">={oldest.release},<={newest.release}", oldest=oldest.release)


_FORK = re.compile(r"(?<!\w)deeperspeed(?!\w)", re.IGNORECASE)
"""The fork of GPT-NeoX, installed as `deepspeed`: its commits have no release of DeepSpeed's."""

_REQUIREMENT = re.compile(r"deepspeed\s*+(?:\[[^\]\[]*+\])?+\s*+\(?+([^;@()]*+)(\)?)\s*+(?:--hash.*|\\)?(?:;.*)?", re.IGNORECASE).fullmatch


def _requirement(text: str, name: str) -> FoundRelease | None:
    """The release that a requirement selects; None for another package's."""
    if _FORK.search(text):
        evidence = f"{name} requires DeeperSpeed, a fork of DeepSpeed, so no finding is certain"
        return FoundRelease(NEWEST, evidence, own_copy=True, oldest=OLDEST, source=ReleaseSource.ASSUMED)
    if re.search(r"/deepspeed(\.git)?@v?\d", text, re.IGNORECASE):
        return _exact(re.split(r"@v?(?=\d)", text)[-1].partition("#")[0], f"{name} requires the git tag of deepspeed")
    match = _REQUIREMENT(text.strip())
    if not match or match[2] not in ("", ")"):
        return None
    return _allowed(match[1].partition("--hash")[0].rstrip(" \t\\"), name)


def _allowed(specifier: str, name: str) -> FoundRelease | None:
    """The newest release that a specifier (`>=0.14,<0.16`) allows, as pip would install it."""
    exact = re.fullmatch(r"={2,3}\s*v?(\d+\.\d+(?:\.\d+)?)(?:\+\S+)?", specifier.strip())
    if exact:
        return _exact(exact[1], f"{name} requires deepspeed")
    from packaging.specifiers import SpecifierSet

    try:
        wanted = SpecifierSet(specifier.strip())
        allowed = [release for release in RELEASES if wanted.contains(str(release))]
    except ValueError:  # no specifier, or a number of thousands of digits
        return None
    if not allowed:
        outside = _outside(wanted)
        return FoundRelease(outside, f"{name} requires deepspeed {specifier.strip()}") if outside is not None else None
    return FoundRelease(
        allowed[-1],
        f"{name} requires deepspeed{specifier.strip() and ' ' + specifier.strip()}, and this is the latest supported match",
        specifier.strip(),
        oldest=allowed[0] if len(allowed) > 1 else None,
    )


def _exact(version: str, evidence: str) -> FoundRelease | None:
    try:
        release = Release.parse(re.sub(r"(\.dev|\.post|a|b|rc).*", "", version))
    except ValueError:
        return None
    return FoundRelease(release, f"{evidence} {version}")


def _outside(wanted: SpecifierSet) -> Release | None:
    """The release before or after all known ones that a specifier allows, the nearest one; None if it allows none."""
    before = ((0, minor) for minor in reversed(range(1, OLDEST.minor)))
    after = ((0, minor) for minor in range(NEWEST.minor, NEWEST.minor + _MINORS_AHEAD))
    for major, minor in (*before, *after):
        first = next((patch for patch in range(_PATCHES) if wanted.contains(f"{major}.{minor}.{patch}")), None)
        if first is not None:
            return Release(major, minor, first or ANY_PATCH)
    return None


_PATCHES = 20
"""How many patches of an unknown minor release are tried; no minor release has had more than ten."""

_MINORS_AHEAD = 20
"""How many minor releases after the newest are tried: the last ten came out in three years."""


FILES: tuple[tuple[str | tuple[str, ...], str | tuple[str, ...], Reader], ...] = (
    ("uv.lock", "uv.lock", _lock_file),
    ("poetry.lock", "poetry.lock", _lock_file),
    ("pdm.lock", "pdm.lock", _lock_file),
    ("pylock.", ".toml", _lock_file),
    ("Pipfile.lock", "Pipfile.lock", _pipfile_lock),
    ("requirement", ".txt", _requirements),
    ("", ("requirement.txt", "requirements.txt"), _requirements),
    ("pyproject.toml", "pyproject.toml", _project),
    ("Pipfile", "Pipfile", _project),
    ("setup.cfg", "setup.cfg", _requirements),
    ("setup.py", "setup.py", _quoted),
    (("conda", "environment", "env."), (".yml", ".yaml"), _conda),
    ("Dockerfile", "", _image),
    ("", (".Dockerfile", ".dockerfile"), _image),
)
"""The files that may name a release, the most reliable first: how their names begin and end, and how each is read.

Of several of a kind the shortest name comes first.
"""

_ENDS = tuple({end for _, ends, _ in FILES for end in ((ends,) if isinstance(ends, str) else ends) if end})
"""How the names end, but for those of `Dockerfile.cuda` and the like."""
