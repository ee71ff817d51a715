"""Releases of packages that a person gives: how they are written, and that they count more than what the project pins."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dslint import check
from dslint.facts import Release
from dslint.facts.release import KNOWN_PACKAGES
from dslint.frameworks.registry import frameworks
from dslint.rules.helpers.defects_of_libraries import LIBRARY_DEFECTS
from dslint.rules.helpers.library_pairs import PAIRS
from dslint.settings import Finder, SettingsError, from_environment, from_options
from dslint.settings.kinds import Packages, Wrong
from dslint.settings.sources import read_file
from tests.command import dslint

_NAMES_REMOVED = "private names that torch 2.4"
_PROGRAM = (
    "import deepspeed\nengine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), "
    'config={"train_batch_size": 8, "zero_optimization": {"stage": 2}})\n'
)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("torch==2.10.0", {"torch": Release(2, 10, 0)}),
        ("torch==2.10", {"torch": Release(2, 10, 0)}),
        ("peft==0.15", {"peft": Release(0, 15, 0)}),
        ("torch==2.9.1+cu128", {"torch": Release(2, 9, 1)}),
        ("Flash_Attn==v2.8.3.post1", {"flash-attn": Release(2, 8, 3)}),
        ("torch==2.10.0, peft==0.15.2", {"torch": Release(2, 10, 0), "peft": Release(0, 15, 2)}),
        ("torch==2.10.0\npeft==0.15.2\n", {"torch": Release(2, 10, 0), "peft": Release(0, 15, 2)}),
        ("deepspeed==0.16", {"deepspeed": Release(0, 16, 9)}),
        ("torchvision==0.21.0", {"torchvision": Release(0, 21, 0)}),
    ],
)
def test_pins(word: str, found: dict[str, Release]) -> None:
    assert Packages().from_word(word) == Packages().from_file(word) == found


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("torch", "must have the form NAME==RELEASE"),
        ("torch=2.10.0", "must have the form NAME==RELEASE"),
        ("", "must have the form NAME==RELEASE"),
        ("torch>=2.10", "must have the form NAME==RELEASE"),
        ("torch==", "must have the form NAME==RELEASE"),
        ("torch==new", "has no final release of torch"),
        ("torch==2.10.0rc1", "has no final release of torch"),
        ("torch==2.9.0a0+50eac811a6.nv25.9", "has no final release of torch"),
        ("to rch==2.9.0", "names a package that cannot exist: to rch"),
        ("transformer==4.40.0", 'Did you mean "transformers"?'),
        ("deep_speed==0.16.9", 'Did you mean "deepspeed"?'),
        ("deepspeed==0.16.77", "names a release that DeepSpeed does not have"),
        ("deepspeed==0.14.0..0.16.9", "names an upgrade"),
        ("torch==2.9.0,torch==2.10.0", "names two releases of torch: 2.9.0 and 2.10.0"),
    ],
)
def test_wrong_pins(word: str, says: str) -> None:
    with pytest.raises(Wrong, match=re.escape(says)):
        Packages().from_word(word)


def test_a_settings_file_has_a_table(tmp_path: Path) -> None:
    file = tmp_path / "dslint.toml"
    file.write_text('package = {torch = "2.10.0", Peft = "0.15.2"}\n', encoding="utf-8")
    found = read_file(str(file))
    assert found is not None
    assert found.values["package"] == {"torch": Release(2, 10, 0), "peft": Release(0, 15, 2)}
    file.write_text("package = {torch = 2.10}\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"in quotes, because 2\.10 would mean 2\.1"):
        read_file(str(file))


def test_later_sources_count_more(tmp_path: Path) -> None:
    (tmp_path / "dslint.toml").write_text(
        'package = {torch = "2.9.0", peft = "0.15.2"}\nintegration = "transformers==4.40.0"\ndeepspeed = "0.16.9"\n', encoding="utf-8"
    )
    config = str(tmp_path / "ds_config.json")
    variables = from_environment({"DSLINT_PACKAGE": "torch==2.10.0,deepspeed==0.18.0"})
    settings = Finder([variables, from_options({"package": {"transformers": Release(4, 46, 3)}})]).for_file(config)
    context = settings.context
    assert {name: context.pinned(name) for name in ("torch", "peft", "transformers")} == {
        "torch": Release(2, 10, 0),
        "peft": Release(0, 15, 2),
        "transformers": Release(4, 46, 3),
    }
    assert context.facts.loader_release == Release(4, 46, 3)
    assert context.facts.deepspeed == Release(0, 18, 0)
    assert settings.in_force("deepspeed").origins == ("DSLINT_PACKAGE",)
    assert "transformers" not in Finder([from_options({"integration": "accelerate"})]).for_file(config).context.pins


def test_two_words_of_one_source_agree_or_are_refused() -> None:
    def settings(**options: object) -> Finder:
        return Finder([from_options(options)], only="")

    both = settings(integration="transformers==4.40", package={"transformers": Release(4, 40, 2)}).for_file("x.json")
    assert both.facts.loader_release == Release(4, 40, 2)
    with pytest.raises(SettingsError, match=re.escape("transformers==4.40, and package names transformers==4.41.0")):
        _ = settings(integration="transformers==4.40", package={"transformers": Release(4, 41, 0)}).for_file("x.json").facts
    same = settings(deepspeed=Release(0, 16, 9), package={"deepspeed": Release(0, 16, 9)}).for_file("x.json")
    assert same.facts.deepspeed == Release(0, 16, 9)
    with pytest.raises(SettingsError, match=re.escape("deepspeed is 0.16.8, and package names deepspeed==0.16.9")):
        settings(deepspeed=Release(0, 16, 8), package={"deepspeed": Release(0, 16, 9)})


def test_a_given_release_counts_more_than_a_pinned_one(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.3.1\ndeepspeed==0.14.0\n", encoding="utf-8")
    program = tmp_path / "train.py"
    program.write_text(_PROGRAM, encoding="utf-8")
    assert _NAMES_REMOVED not in dslint("check", program).stdout
    found = dslint("check", program, "--package", "torch==2.4.0").stdout
    assert _NAMES_REMOVED in " ".join(found.split())
    assert _NAMES_REMOVED not in dslint("check", program, "--package", "torch==2.4.0", "--package", "deepspeed==0.14.4").stdout


def test_commands_take_it(tmp_path: Path) -> None:
    config = tmp_path / "ds_config.json"
    config.write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}', encoding="utf-8")
    for words in (
        ["check", config],
        ["show", config],
        ["estimate", config, "--model", "llama-3-8b", "--world-size", "8"],
        ["config"],
    ):
        ran = dslint(*words, "--package", "torch==2.10.0", "--package", "peft==0.15.2")
        assert ran.returncode in (0, 1), ran.stderr
    twice = dslint("check", config, "--package", "torch==2.10.0", "--package", "torch==2.9.0")
    assert (twice.returncode, "names two releases of torch" in twice.stderr) == (2, True)
    wrong = dslint("check", config, "--package", "torch")
    assert (wrong.returncode, "NAME==RELEASE" in wrong.stderr) == (2, True)
    shown = json.loads(dslint("config", "--package", "Torch==2.10", "--output-format", "json").stdout)
    assert shown["package"]["value"] == {"torch": "2.10.0"}


def test_the_packages_of_frameworks_and_tables_are_known() -> None:
    of_frameworks = {one for framework in frameworks() for one in framework.packages}
    of_tables = {one.package for one in LIBRARY_DEFECTS} | {name for one in PAIRS for name in (one.package, one.other)}
    assert of_frameworks | of_tables <= set(KNOWN_PACKAGES)


def test_a_function_takes_it() -> None:
    config = {"train_batch_size": 8, "zero_optimization": {"stage": 3}}
    assert check(config, package={"torch": "2.10.0"}, integration="transformers") is not None
    with pytest.raises(ValueError, match="must have the form NAME==RELEASE"):
        check(config, package="torch")
