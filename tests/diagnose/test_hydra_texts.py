"""What Hydra and OmegaConf raise is known by its text: each error is raised by the installed library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dslint.diagnose.texts import match_line

hydra = pytest.importorskip("hydra")
omegaconf = pytest.importorskip("omegaconf")


@dataclass
class Fields:
    """A structured config."""

    lr: float = 0.1
    steps: int = 1


def _create(content: object) -> Any:
    made = omegaconf.OmegaConf.create(content)
    omegaconf.OmegaConf.set_struct(made, True)
    return made


def _composed(folder: Path, *overrides: str, name: str = "config") -> object:
    for group, file in (("trainer", "ddp"), ("optim", "sgd")):
        (folder / group).mkdir()
        (folder / group / f"{file}.yaml").write_text("devices: 1\n", encoding="utf-8")
    (folder / "config.yaml").write_text("defaults:\n  - trainer: ddp\n  - _self_\nseed: 1\n", encoding="utf-8")
    (folder / "open.yaml").write_text("defaults:\n  - trainer: ???\n", encoding="utf-8")
    with hydra.initialize_config_dir(str(folder), version_base=None):
        return hydra.compose(name, list(overrides))


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a key that the config does not have": (lambda _: _create({"a": 1}).lr, "key-not-in-struct"),
    "an item that it does not have": (lambda _: omegaconf.OmegaConf.create({"a": 1})["lr"], "omegaconf-missing-key"),
    "a value that is left open": (lambda _: _create({"a": "???"}).a, "omegaconf-missing-value"),
    "a reference to nothing": (lambda _: _create({"a": "${b.c}"}).a, "omegaconf-interpolation-key"),
    "a variable that is not set": (lambda _: _create({"a": "${oc.env:DSLINT_NOT_SET}"}).a, "omegaconf-environment"),
    "a value of another type": (lambda _: omegaconf.OmegaConf.structured(Fields(steps="x")), "omegaconf-type"),  # type: ignore[arg-type]
    "a + for what is there": (lambda folder: _composed(folder, "+seed=2"), "hydra-item-exists"),
    "no + for what is not": (lambda folder: _composed(folder, "rate=2"), "key-not-in-struct"),
    "a group that is left open": (lambda folder: _composed(folder, name="open"), "hydra-no-default"),
    "another main file": (lambda folder: _composed(folder, name="other"), "hydra-no-primary"),
    "another file of a group": (lambda folder: _composed(folder, "trainer=deepspeed"), "hydra-no-config"),
    "another group": (lambda folder: _composed(folder, "optim=sgd"), "hydra-no-override"),
    "a class that is not there": (lambda _: hydra.utils.instantiate({"_target_": "no.such.Model"}), "hydra-target"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_error_of_the_library_is_known(tmp_path: Path, name: str) -> None:
    fails, known = CASES[name]
    with pytest.raises(Exception) as raised:  # noqa: PT011  (each library has classes of its own)
        fails(tmp_path)
    first = f"{type(raised.value).__module__}.{type(raised.value).__name__}: {raised.value}".splitlines()[0]
    found = match_line(first)
    assert found is not None, first
    assert found[0].id == known
