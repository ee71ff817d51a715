"""Whole folders: files of all kinds under all names, links and cycles, modules and plug-ins that leave a trace when they run."""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from io import BytesIO, TextIOWrapper
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import click

from dslint.cli import cli
from dslint.errors import UserError
from dslint.registry import rules as registry
from dslint.settings.table import FORMATS
from tests.fuzz import seeds
from tests.fuzz.mutate import mutated

SECRET = "hunter2"

SHORT = 300
"""The most characters of most files: what is tried here are names, places and links, and a long text costs as much as ten folders."""

NAMES: dict[str, Callable[[], list[str]]] = {
    ".json": seeds.configs,
    ".yaml": lambda: seeds.YAMLS,
    ".sh": lambda: seeds.SCRIPTS,
    ".py": lambda: seeds.PROGRAMS,
    ".toml": lambda: seeds.SETTINGS,
    ".txt": lambda: [*seeds.RELEASES, *seeds.HOSTFILES],
}
"""What a file contains at first, by the ending of its name."""

OWN_NAMES = (
    "ds_config.json", "ds_zero3.json", "zero2.yaml", "accelerate.yaml", "train.yaml", "train.py", "run.sh", "job.sh", "dslint.toml",
    "pyproject.toml", "requirements.txt", "config.json", "known.json", "policy.json",
)  # fmt: skip
ODD_STEMS = (
    "ds config", "-x", "--fix", "::error::x", "a\x1b[31m", "a\nb", "a\r", "\u202eds", "ds_\udcff", "DS_CONFIG", "ds_config.", "漢", "x" * 200, "*", "[a]",
    "$(touch x)", "a;b", "'", '"', "%0Ax", "..x", "~", "con", "a|b", "\ufeffds",
)  # fmt: skip
FOLDERS = ("", "", "", "conf", "conf/deep", "tests", "x" * 100, ".hidden", "node_modules", "ds_config.json", "-d", "a\x1bb")
TRAPS = ("json", "yaml", "click", "deepspeed", "torch", "dslint", "sitecustomize", "conftest", "setup", "evil")
LINKS = (
    "../outside/ds_config.json",
    "../outside/new.toml",
    "../outside",
    "..",
    ".",
    "/dev/zero",
    "/dev/full",
    "/proc/self/environ",
    "missing.json",
    "loop.json",
    "a/../a",
    "",
)
RUNS = ("os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile", "os.system", "pty.spawn", "socket.connect", "subprocess.Popen")
CHANGES = (
    "os.chflags", "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.removexattr", "os.rename", "os.rmdir", "os.setxattr", "os.symlink",
    "os.truncate", "os.utime", "shutil.move", "shutil.rmtree",
)  # fmt: skip
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def work(text: str, rng: Random) -> str:
    """A check of a folder, perhaps with fixes. It ends with an exit code, runs nothing, and writes only what it may. Returns what it prints."""
    with TemporaryDirectory() as place, mock.patch.object(sys, "dont_write_bytecode", True):
        base, project = Path(place).resolve(), Path(place).resolve() / "project"
        (project / ".git").mkdir(parents=True)
        (base / "outside").mkdir()
        for name, content in {
            "ds_config.json": f'{{"train_batch_size": "8", "{SECRET}": 1}}',
            "run.sh": f"deepspeed {SECRET}.py\n",
        }.items():
            (base / "outside" / name).write_text(content, encoding="utf-8")
        _fill(project, text, rng)
        arguments, written = _arguments(project, rng)
        before = _state(base)
        registry._plugged.clear()
        with _watched(project, written), _on_path(project), chdir(project):
            code, said = _run(arguments)
        after = _state(base)
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert code in (0, 1, 2), (arguments, code)
        assert "Traceback" not in said, said
        assert SECRET not in said or any("outside" in argument for argument in arguments), (arguments, said)
        assert {path for path in changed if not _may_change(path, arguments, written, before)} == set(), (arguments, changed)
        return said


def _may_change(path: str, arguments: list[str], written: set[str], before: dict[str, Any]) -> bool:
    """Whether a run with these arguments may change a file: reports it writes itself, and with fixes or comments files of the project."""
    inside = path.startswith("project/")
    if inside and path.removeprefix("project/") in written:
        return True
    changing = {"--fix", "--unsafe-fixes", "--fix-only", "--add-ignores"} & {*arguments} and "--diff" not in arguments
    settings = "--add-ignores" in arguments and not isinstance(before.get(path), str)  # dslint.toml, perhaps by a link
    return bool(changing) and inside and (settings or (path in before and isinstance(before[path], bytes)))


def _fill(project: Path, text: str, rng: Random) -> None:
    """Two to six files, and in most folders a link, a trap, a pipe or a socket."""
    for number in range(rng.choice((1, 2, 2, 3, 5))):
        ending = rng.choice((".json", ".json", *NAMES))
        name = rng.choice(OWN_NAMES) if rng.random() < 0.6 else rng.choice(ODD_STEMS) + ending
        others = NAMES.get(Path(name).suffix, seeds.configs)()
        content = text if number == 0 else mutated(rng.choice(others), rng, others)
        if rng.random() < 0.9 and len(content) > SHORT:  # how long texts are read is what the other targets try
            short = [one for one in others if len(one) <= SHORT]
            content = rng.choice(short) if short and rng.random() < 0.8 else content[: SHORT * 4]
        _write(project / rng.choice(FOLDERS) / name, _encoded(content, rng))
    if rng.random() < 0.5:
        for name in rng.sample(TRAPS, 3):
            _write(project / f"{name}.py", _trap(project, name).encode())
        _write(project / "evil.egg-info" / "entry_points.txt", b"[dslint.rules]\nevil = evil\n")
        if rng.random() < 0.1:  # a search for plug-ins reads what all packages of the environment say
            _write(project / "dslint.toml", b'plugins = ["evil"]\n')
    for _ in range(rng.choice((0, 1, 1, 3))):
        _special(project, rng)


def _encoded(text: str, rng: Random) -> bytes:
    if rng.random() < 0.9:
        return text.encode("utf-8", "surrogatepass")
    return rng.choice(
        (
            text.encode("utf-16", "surrogatepass"),
            b"\xef\xbb\xbf" + text.encode("utf-8", "surrogatepass"),
            text.encode("latin-1", "replace"),
            text.replace("\n", "\r\n").encode("utf-8", "surrogatepass"),
            b"\x7fELF" + rng.randbytes(200),
            b"",
        )
    )


def _trap(project: Path, name: str) -> str:
    return f"import io\nio.open({str(project.parent / 'sprung')!r}, 'a').write({name!r})\nRULES = []\n"


def _write(path: Path, content: bytes) -> None:
    with suppress(OSError, ValueError):  # a name that the file system refuses, or a file where a folder should be
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _special(project: Path, rng: Random) -> None:
    """A link, a cycle of links, a hard link, a folder with the name of a config, a pipe or a socket."""
    path = project / rng.choice(("", "conf")) / (rng.choice((*OWN_NAMES, "loop.json", "a", "b.json", "*.json")))
    files = sorted(one for one in project.rglob("*") if one.is_file() and not one.is_symlink())
    with suppress(OSError, ValueError):
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = rng.choice(("link", "link", "link", "cycle", "inner", "hard", "folder", "pipe", "socket"))
        if kind == "link":
            path.symlink_to(rng.choice(LINKS) or str(project.parent / "outside" / "run.sh"))
        elif kind == "cycle":
            (path.parent / "b.json").symlink_to(path.name)
            path.symlink_to("b.json")
        elif kind == "inner" and files:
            path.symlink_to(rng.choice(files))
        elif kind == "hard" and files:
            path.hardlink_to(rng.choice(files))
        elif kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as server, chdir(path.parent):
                server.bind(path.name)


def _arguments(project: Path, rng: Random) -> tuple[list[str], set[str]]:
    """Arguments of `dslint check`, and the files of the project that they say to write."""
    named = [path.name for path in sorted(project.iterdir()) if path.name != ".git" and not path.is_symlink()]
    paths = rng.choice(([], [], ["."], ["*"], ["**/*.json"], [str(project)], ["--", *rng.sample(named, min(2, len(named)))]))
    options: list[str] = []
    written: set[str] = set()
    if rng.random() < 0.5:
        options += rng.choice(
            (["--fix"], ["--fix", "--unsafe-fixes"], ["--fix", "--diff"], ["--fix-only", "--fix"], ["--add-ignores", "because"])
        )
    elif rng.random() < 0.3:
        options += ["--baseline", "new.json", "--write-baseline"]
        written.add("new.json")
    if rng.random() < 0.3:
        options += ["--output", f"{rng.choice(FORMATS)}=report"]
        written.add("report")
    for option in (["-v"], ["--strict"], ["--pedantic"], ["--no-group"], ["--statistics"], ["--output-format", rng.choice(FORMATS)]):
        if rng.random() < 0.2:
            options += option
    return ["check", "--jobs", "1", *options, *paths], written  # a busy machine would start processes of dslint's own


@cache
def _output() -> TextIOWrapper:
    """What is printed into. One for all cases: click keeps each that it sees."""
    return TextIOWrapper(BytesIO(), encoding="utf-8", errors="backslashreplace", newline="")


def _run(arguments: list[str]) -> tuple[int, str]:
    """The exit code of a run in this process, and what it prints."""
    out = _output()
    printed: BytesIO = out.buffer  # type: ignore[assignment] # see above
    printed.seek(0)
    printed.truncate()
    with redirect_stdout(out), redirect_stderr(out):
        try:
            code = cli.main(arguments, prog_name="dslint", standalone_mode=False)
        except SystemExit as end:
            code = end.code
        except (UserError, click.ClickException):
            code = 2
        finally:
            gc.unfreeze()  # the command line freezes what exists, as its process ends soon
    out.flush()
    return (code if isinstance(code, int) else 0), printed.getvalue().decode("utf-8")


def _state(base: Path) -> dict[str, Any]:
    """What lies below a folder: the bytes of files, the targets of links, the kinds of all else."""
    state: dict[str, Any] = {}
    waiting = [str(base)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                shown = entry.path.removeprefix(f"{base}/")
                if entry.is_symlink():
                    state[shown] = os.readlink(entry.path)  # noqa: PTH115 - no Path: this runs for each file of each case
                elif entry.is_file():
                    state[shown] = _content(entry.path)
                else:
                    state[shown] = entry.stat(follow_symlinks=False).st_mode
                    waiting += [entry.path] if entry.is_dir() else []
    return state


def _content(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        return file.read()


@contextmanager
def _on_path(project: Path) -> Iterator[None]:
    """The folder on the path of Python, as PYTHONPATH=. puts it there. No mock: it copies the whole environment for each case."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(project)
    sys.path.append(str(project))
    try:
        yield
    finally:
        sys.path.remove(str(project))
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


_watching: list[Callable[[str, tuple[Any, ...]], None]] = []
"""Called with each audit event; at most one at a time."""


@cache
def _hooked() -> None:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if _watching:
            _watching[0](event, arguments)

    sys.addaudithook(hook)  # for good: there is no way to remove one


@contextmanager
def _watched(project: Path, written: set[str]) -> Iterator[None]:
    """Fail if a program is started, code of the folder is run, or something outside of it is changed, even where that fails."""
    _hooked()
    seen: list[str] = []

    def inside(path: Any) -> bool:
        if isinstance(path, int) or path is None:
            return True
        given = project / os.fsdecode(path)
        return (given.parent.resolve() / given.name).is_relative_to(project)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        wrong = (
            event in RUNS
            or (event == "exec" and getattr(arguments[0], "co_filename", "").startswith(str(project.parent)))
            or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES and not inside(arguments[0]))
            or (event in CHANGES and not inside(arguments[0]))
        )
        if wrong:
            seen.append(f"{event} {arguments!r:.300}")

    _watching.append(watch)
    try:
        yield
    finally:
        _watching.clear()
    assert not seen, seen
    assert not (project.parent / "sprung").exists()
