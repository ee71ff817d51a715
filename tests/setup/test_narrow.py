"""Functions that cannot lead to a call with a config are left out of the search for calls, and nothing that leads to one is."""

from __future__ import annotations

from typing import Any

import pytest

from dslint.evaluate.python import read
from dslint.evaluate.python.follow import follow
from dslint.evaluate.python.narrow import without_calls
from dslint.frameworks.programs import read_python
from dslint.setups.calls import calls_of
from dslint.source.store import a_run
from tests.setup.folder import Folder
from tests.setup.test_reach import CALL, CONFIG, REACHES

STARTS = f"import deepspeed\n\n\nclass Engine:\n    def start(self, config):\n        deepspeed.initialize(model=m, config=config)\n\n    def run(self):\n        self.start({CONFIG})\n"

ELSEWHERE = {"a class", "a class that is inherited from", "an annotation"}
"""Here the config and the call both stand in another file."""

LEADS = {how: files for how, files in REACHES.items() if how not in ELSEWHERE} | {
    "a method by another name": {
        "train.py": STARTS + f"\n    def keep(self):\n        self.begin = self.start\n\n    def go(self):\n        self.begin({CONFIG})\n"
    },
    "a method of a class above": {"train.py": STARTS + f"\n\nclass More(Engine):\n    def go(self):\n        self.start({CONFIG})\n"},
    "a constructor": {
        "train.py": STARTS.replace("start(self", "__init__(self").replace("self.start", "Engine")
        + f"\n\ndef main():\n    return Engine({CONFIG})\n"
    },
    "an object that is called": {
        "train.py": STARTS.replace("start(self", "__call__(self").replace("self.start", "self")
        + f"\n\ndef main(engine: Engine):\n    engine({CONFIG})\n"
    },
    "a table of functions": {"train.py": STARTS.replace("class Engine", f"{CALL[18:]}\n\nRUN = {{'a': start}}\n\n\nclass Engine")},
    "an argument of a function": {"train.py": CALL + f"\n\ndef call(what):\n    what(m, {CONFIG})\n\n\ndef main():\n    call(start)\n"},
    "a dict at the top for a function elsewhere": {
        "engine.py": CALL,
        "train.py": f"from engine import start\n\nDS_CONFIG = {CONFIG}\n\n\nclass Run:\n    def go(self):\n        start(m, DS_CONFIG)\n",
    },
}


@pytest.mark.parametrize("how", LEADS)
def test_the_search_finds_every_call_of_the_whole_program(how: str, folder: Folder) -> None:
    folder.write(LEADS[how])
    text = LEADS[how]["train.py"]
    with a_run():
        whole = read_python(text, "train.py", "train.py")
    with a_run():
        found = calls_of(text, "train.py", "train.py")
    assert whole is not None
    assert found is not None
    assert whole.calls or whole.unread or whole.commands, "the example says nothing"
    assert [(one.given, one.integration) for one in found.calls] == [(one.given, one.integration) for one in whole.calls]
    assert [one.given for one in found.unread] == [one.given for one in whole.unread]
    assert found.commands == whole.commands


@pytest.mark.parametrize("how", sorted(ELSEWHERE))
def test_a_config_of_another_file_is_found_there(how: str, folder: Folder) -> None:
    folder.write(REACHES[how])
    with a_run():
        calls = [found.calls for name, text in REACHES[how].items() if (found := calls_of(text, name, name)) is not None]
        assert [one.config is not None for found in calls for one in found] == [True]


def test_what_leads_to_no_call_is_left_out(folder: Folder) -> None:
    text = (
        STARTS.replace(CONFIG, "self.config")
        + "\n    def step(self, batch):\n        return self.loss(batch)\n\n\ndef save(model):\n    model.save()\n"
    )
    folder.write({"train.py": text})
    with a_run():
        left = without_calls(text, "train.py")
        assert {("Engine", "step"), ("", "save")} <= left
        assert left.isdisjoint({("Engine", "start"), ("Engine", "run")})


def test_a_call_elsewhere_is_told_in_its_own_file_alone(folder: Folder) -> None:
    program = (
        "from engine import start  # deepspeed\n\n\nclass Trainer:\n    def fit(self, settings):\n        start(self.model, settings)\n"
    )
    folder.write({"engine.py": CALL, "trainer.py": program})
    results = folder.results("engine.py", "trainer.py", named=False)
    assert list(results) == ["engine.py"]
    assert "config is an argument of start" in results["engine.py"].not_judged[0].reason


def test_a_program_with_a_call_is_followed_once_and_whole(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    text = STARTS + "\n\ndef save(engine):\n    torch.save(engine.module.state_dict(), 'model.pt')\n"
    folder.write({"train.py": text})
    followed: list[object] = []

    def counted(*arguments: Any, **named: Any) -> Any:
        followed.append(arguments)
        return follow(*arguments, **named)

    monkeypatch.setattr(read, "follow", counted)
    with a_run():
        assert ("", "save") in without_calls(text, "train.py")
        found = calls_of(text, "train.py", "train.py")
        assert found is not None
        assert found.is_whole
        assert read_python(text, "train.py", "train.py") is found
        assert len(followed) == 1
