"""Only findings stop a training: `dslint.guard` goes on with a warning whatever else fails, on every rank.

Each function of dslint that runs during a call is made to raise in turn. A profiler raises where a function begins, so that no list of
functions has to be kept.
"""

from __future__ import annotations

import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import dslint
from dslint import ConfigError, guard
from dslint.api import guarding
from tests.api.test_guard import GOOD, ODD, WRONG, Model

HERE = str(Path(dslint.__file__).parent)
OUTER = {guarding.guard.__code__}
"""What is not made to raise: an error there is one of calling `guard`."""

Code = types.CodeType


def called(work: Callable[[], Any]) -> list[Code]:
    """The functions of dslint that run during some work, in the order of their first call."""
    seen: dict[Code, None] = {}

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HERE):
            seen.setdefault(frame.f_code)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return [code for code in seen if code not in OUTER and code.co_name != "<module>"]


def failing(code: Code, error: Exception, work: Callable[[], Any]) -> Any:
    """The work, in this thread, with a function that raises whenever it is called."""

    def fail(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is code:
            raise type(error)(*error.args)  # a new one: an exception keeps the tracebacks of all that raised it

    sys.setprofile(fail)
    try:
        return work()
    finally:
        sys.setprofile(None)


def outcome(*arguments: Any, **options: Any) -> str:
    """What a training sees of a call: "none", or the name of what is raised."""
    try:
        guard(*arguments, **options)
    except Exception as error:  # noqa: BLE001 - what a training sees
        return f"{type(error).__name__} {sorted({d.code for d in error.diagnostics})}" if isinstance(error, ConfigError) else repr(error)
    return "none"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dslint.toml").write_text('gpu = "h100"\nignore = ["DS850"]\n', encoding="utf-8")
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 9}}', encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Arguments:
    """Training arguments, as far as dslint reads them."""

    deepspeed = WRONG
    world_size = 2
    per_device_train_batch_size = 4


SUBJECTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a good dict": (GOOD, {}),
    "a dict with a warning": (ODD, {"model": Model()}),
    "a dict with an error": (WRONG, {"optimizer": object()}),
    "a path": ("ds.json", {}),
    "training arguments": (Arguments(), {}),
}


ERRORS = (
    RuntimeError("made to fail"),
    KeyError("x"),
    RecursionError("x"),
    SyntaxError("x"),
    OSError(5, "x"),
    UnicodeDecodeError("utf-8", b"", 0, 1, "x"),
)


@pytest.mark.parametrize("step", [60, pytest.param(3, marks=pytest.mark.slow)], ids=["every 60th", "every third"])
def test_functions_raise_one_of_these_errors(step: int) -> None:
    tried: set[Code] = set()
    for config, options in SUBJECTS.values():

        def work(config: Any = config, options: dict[str, Any] = options) -> str:
            return outcome(config, **options)

        expected = work()
        functions = [code for code in called(work)[::step] if code not in tried]
        tried.update(functions)
        turns = zip(functions, cycle(ERRORS), strict=False)
        assert {failing(code, error, work) for code, error in turns} <= {"none", expected}
    assert len(tried) > 300 / step


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_each_function_raises_in_turn(name: str) -> None:
    config, options = SUBJECTS[name]

    def work() -> str:
        return outcome(config, **options)

    expected = work()
    functions = called(work)
    assert len(functions) > 100
    first, *others = ERRORS
    assert {failing(code, first, work) for code in functions} <= {"none", expected}
    for error in others:
        assert {failing(code, error, work) for code in functions[::7]} <= {"none", expected}


class Store:
    """A store of a process group, as torch's: shared by the ranks, with waiting for a key."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.changed = threading.Condition()

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        with self.changed:
            if self.values.get(key, expected) == expected:
                self.values[key] = desired
            self.changed.notify_all()
            return self.values[key].encode()

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: keys[0] in self.values, timeout.total_seconds()):
                raise RuntimeError("wait timeout")


class Ranks:
    """Three ranks of a job, a thread each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.local = threading.local()
        self.store = Store()
        group = types.ModuleType("torch.distributed")
        group.is_available = group.is_initialized = lambda: True  # type: ignore[attr-defined]
        group.get_world_size = lambda: 3  # type: ignore[attr-defined]
        group.get_rank = lambda: self.local.rank  # type: ignore[attr-defined]
        group.distributed_c10d = types.SimpleNamespace(_get_default_store=lambda: self.store)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torch.distributed", group)
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        monkeypatch.setattr(guarding, "_calls", self)
        monkeypatch.setattr(guarding, "PATIENCE", timedelta(seconds=0.5))

    def __next__(self) -> int:
        return 0

    def run(self, work: Callable[[int], str]) -> list[str]:
        found = ["hangs"] * 3
        self.store.values.clear()

        def one(rank: int) -> None:
            self.local.rank = rank
            found[rank] = work(rank)

        threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return found


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("step", [45, pytest.param(9, marks=pytest.mark.slow)], ids=["every 45th", "every ninth"])
def test_on_several_ranks(monkeypatch: pytest.MonkeyPatch, rank: int, step: int) -> None:
    ranks = Ranks(monkeypatch)
    assert ranks.run(lambda _: outcome(WRONG)) == ["ConfigError ['DS107']", "ConfigError []", "ConfigError []"]
    assert ranks.run(lambda _: outcome(GOOD)) == ["none"] * 3
    functions: list[Code] = []
    ranks.run(lambda one: str(functions.extend(called(lambda: outcome(WRONG)))) if one == rank else outcome(WRONG))
    names = {code.co_name for code in functions}
    assert {"_decide", "_checked"} <= names if rank == 0 else {"_follow", "_first"} <= names
    own = [code for code in functions if code.co_filename == guarding.__file__]
    for code in dict.fromkeys([*own, *functions[::step]]):
        error = RuntimeError("made to fail")

        def work(one: int, code: Code = code, error: Exception = error) -> str:
            return failing(code, error, lambda: outcome(WRONG)) if one == rank else outcome(WRONG)

        first, *others = (text.split()[0] for text in ranks.run(work))
        assert {first, *others} <= {"none", "ConfigError"}, code
        if rank == 0:  # a rank that fails to read the decision cannot follow it
            assert {first} == {*others}, code


@pytest.mark.slow
@pytest.mark.parametrize("method", ["wait", "compare_set"])
@pytest.mark.parametrize("config", [GOOD, WRONG], ids=["good", "wrong"])
def test_a_store_that_fails(monkeypatch: pytest.MonkeyPatch, method: str, config: dict[str, Any]) -> None:
    ranks = Ranks(monkeypatch)
    monkeypatch.setattr(ranks.store, method, lambda *_: 1 // 0)
    expected = ["none"] * 3 if method == "compare_set" or config is GOOD else ["ConfigError"] * 3
    assert [text.split()[0] for text in ranks.run(lambda rank: outcome(config))] in (expected, ["none"] * 3)


def itself() -> dict[str, Any]:
    config = dict(GOOD)
    config["zero_optimization"] = {"stage": 2, "offload_param": config}
    return config


UNUSABLE: dict[str, tuple[Any, dict[str, Any]]] = {
    "a dict that contains itself": (itself(), {}),
    "a number": (5, {}),
    "no such file": ("none.json", {}),
    "an unknown argument": (GOOD, {"wrold_size": 4}),
    "a wrong argument": (GOOD, {"world_size": 0}),
    "a key that is no text": ({**GOOD, 5: 1}, {}),
    "a value that is no JSON": ({**GOOD, "x": object()}, {}),
    "a path with NUL": ("a\0b", {}),
    "a folder": (".", {}),
    "a model without sizes": (GOOD, {"model": object()}),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_cannot_be_checked_is_one_warning(name: str) -> None:
    config, options = UNUSABLE[name]
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        assert outcome(config, **options) in ("none", "ConfigError ['DS104']", "ConfigError ['DS111']")
    assert {str(one.filename) for one in issued} <= {__file__}
    assert len(issued) <= 1


def test_a_mistyped_settings_file_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "dslint.toml").write_text("wrold-size = [", encoding="utf-8")
    with pytest.warns(dslint.ConfigWarning, match=r"could not check the config.*dslint\.toml") as issued:
        assert dslint.guard(WRONG) == []
    assert len(issued) == 1


def test_a_rule_that_raises_is_a_warning_and_the_others_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslint.registry.rules.IndexedRule.load", lambda self: 1 // 0)
    with pytest.warns(dslint.ConfigWarning, match="DS000"):
        dslint.guard(ODD)


def test_warnings_that_are_errors_do_not_stop_it(capsys: pytest.CaptureFixture[str]) -> None:
    warnings.simplefilter("error")
    assert [d.code for d in dslint.guard(ODD)] == ["DS501"]
    assert "ConfigWarning: DS501" in capsys.readouterr().err
