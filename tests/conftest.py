"""What all tests share."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.browsing import browser
from tests.engine.fixtures import engine
from tests.setup.folder import folder

__all__ = ["browser", "engine", "folder"]

settings.register_profile("dslint", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dslint")  # the machines are shared: how long an example takes says nothing

# Every worker would rewrite all tests again, and every command that a test starts would compile dslint again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

SLOW = ("deepspeed", "integrations", "build", "site", "release_sources")
"""Markers of tests that are slow, because of what they run or build."""

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def root() -> Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in an empty folder: from this repository, dslint would read its thousand programs for what launches a file."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stand in one empty repository for all tests of a module that write nothing: they need no folder each."""
    folder = tmp_path_factory.mktemp("empty")
    (folder / ".git").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def _plain_environment() -> Iterator[None]:
    """No colour and no annotations because of the machine the tests happen to run on."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [*os.environ]:
            if name in ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "GITHUB_WORKSPACE", "COLUMNS") or name.startswith("DSLINT_"):
                patch.delenv(name)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect no garbage among imported tests: none of it goes, and to look took a third of the time of their import, and more later."""
    gc.disable()
    try:
        _import_own_part(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        gc.enable()


def _import_own_part(config: pytest.Config) -> None:
    """Import tests from another place on than the other workers do: in a fresh clone each then rewrites a part of them, and not all."""
    worker = getattr(config, "workerinput", None)
    if worker is None or not worker["plain"]:
        return
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    number = int(worker["workerid"].removeprefix("gw"))
    for path in files[number * len(files) // worker["workercount"] :] if number else ():
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection imports it again, and says what is wrong
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Plain `pytest` is for newcomers and leaves the slow tests out; they run where a path or `-m slow` names them."""
    for item in items:
        if any(item.get_closest_marker(name) for name in SLOW):
            item.add_marker(pytest.mark.slow)
    if _is_plain(config):
        slow = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)


MEMORY = Path("/dev/shm")
ENOUGH = 8 << 30
"""Bytes that must be free there: on a smaller machine, or in a container, the memory is needed for something else."""


def pytest_configure(config: pytest.Config) -> None:
    """Put the folders of the fast tests into memory: to remove one from a virtual disk takes 4 ms, and they remove thousands."""
    if not (_is_plain(config) or config.option.markexpr == "not slow") or "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    disk = os.statvfs(MEMORY)
    if disk.f_bavail * disk.f_frsize >= ENOUGH and not disk.f_flag & os.ST_NOEXEC and os.access(MEMORY, os.W_OK):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_configure_node(node: object) -> None:
    """Tell a worker of pytest-xdist how the run was started."""
    node.workerinput["plain"] = _is_plain(node.config)  # type: ignore[attr-defined]


def _is_plain(config: pytest.Config) -> bool:
    """Whether neither paths nor markers were given."""
    given = getattr(config, "workerinput", None)
    if given is not None:
        return bool(given["plain"])
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.markexpr and not config.option.keyword
