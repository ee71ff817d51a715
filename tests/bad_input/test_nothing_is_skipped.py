"""A config that is broken or misspelt is found by a check of its folder: by its name, by what mentions it, or by its keys."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from dslint.lint.discovery import Target, discover, with_mentions
from dslint.lint.files import lint_all
from dslint.schemas.catalog import FILE_NAMES
from dslint.schemas.recognition import TELLING_KEYS
from dslint.server.checking import is_ours
from dslint.settings import Finder
from dslint.setups.names import Says, says
from tests.command import ROOT, dslint
from tests.hooks.test_hooks import CONFIGS, OTHERS

GOOD: dict[str, Any] = {
    "train_batch_size": 8,
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 2, "overlap_comm": True},
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "train_micro_batch_size_per_gpu": 4,
    "steps_per_print": 10,
}
OTHER_NAMES = ("mine.json", "conf/a.json", "llama.json", "settings.jsonc", "train_config.hjson")
"""Names that say nothing: their keys have to."""


def misspelt(word: str, rng: random.Random) -> str:
    """A word with one slip, or in another spelling."""
    at = rng.randrange(1, len(word) - 1)
    slips = (word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:], word[:at] + word[at + 1] + word[at] + word[at + 2 :])
    return rng.choice([*slips, word.replace("_", "-"), word.title(), word + "s", word.replace("ization", "isation")])


def broken(rng: random.Random, *, telling: bool) -> str:
    """A config with one thing wrong. `telling`: a key is left that only DeepSpeed has, perhaps misspelt, and another one."""
    keys = rng.sample(sorted(GOOD), rng.randrange(1, len(GOOD)))
    if telling:
        keys = list({*keys, rng.choice([key for key in GOOD if key in TELLING_KEYS]), "train_batch_size"})
    config = {key: GOOD[key] for key in keys}
    if rng.random() < 0.6:
        victim = rng.choice([key for key in config if key in TELLING_KEYS] or [*config])
        config = {misspelt(key, rng) if key == victim else key: value for key, value in config.items()}
    text = json.dumps(config, indent=rng.choice([None, 2]))
    way = rng.randrange(7)
    if way == 0:
        text = text[: rng.randrange(len(text) * 3 // 4, len(text))]
    elif way == 1:
        at = rng.choice([place for place, letter in enumerate(text) if letter in '",:{}'])
        text = text[:at] + text[at + 1 :]
    elif way == 2:
        text = repr(config)
    elif way == 3:
        text = text.replace("true", "True")
    elif way == 4:
        text = text + "}"
    elif way == 5:
        text = "// a note\n" + text.replace(", ", ",, ", 1)
    return text


def name_of(pattern: str, rng: random.Random) -> str:
    """A file name that a pattern of the catalog matches."""
    name = pattern.removeprefix("**/").replace("[0-3]", str(rng.randrange(4)))
    while "*" in name:
        name = name.replace("*", rng.choice(["", "x", "_new", "_7b", "-final"]), 1)
    folder, slash, last = name.rpartition("/")
    return folder + slash + (f"a{last}" if last.startswith(("_", ".")) else last)


def lost(folder: Path, monkeypatch: pytest.MonkeyPatch, texts: dict[str, str]) -> dict[str, str]:
    """The files of a folder of which a check of the folder says nothing, although one is wrong."""
    monkeypatch.chdir(folder)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    finder = Finder([], only="")
    results = {result.path: result for result in lint_all(discover(["."], finder).targets, finder)}
    return {name: text for name, text in texts.items() if name not in results or not (results[name].is_judged or results[name].not_judged)}


HOW_MANY = pytest.mark.parametrize("count", [100, pytest.param(800, marks=pytest.mark.slow)])


@pytest.mark.slow
@HOW_MANY
def test_no_broken_config_is_lost_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    rng = random.Random(30)
    texts = {f"{number}/{name_of(rng.choice(FILE_NAMES), rng)}": broken(rng, telling=False) for number in range(count)}
    assert lost(tmp_path, monkeypatch, texts) == {}


@pytest.mark.parametrize("key", ["fp1s", "bf61", "b1f6", "gf16", "FP-16"])
def test_no_slip_in_the_name_of_a_precision_loses_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    assert lost(tmp_path, monkeypatch, {"ds_new.json": json.dumps({key: {"enabled": True}})}) == {}


@pytest.mark.slow
@HOW_MANY
def test_no_broken_config_is_lost_by_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    rng = random.Random(31)
    texts = {f"{number}/{rng.choice(OTHER_NAMES)}": broken(rng, telling=True) for number in range(count)}
    left = lost(tmp_path, monkeypatch, texts)
    assert len(left) <= count // 100, left  # two slips in one key, or a quote that takes the key away


@HOW_MANY
def test_no_broken_config_is_lost_that_a_program_mentions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    rng = random.Random(32)
    texts = {f"run{number}.json": broken(rng, telling=False) for number in range(count)}
    lines = (rng.choice(['deepspeed_config = load("{}")', 'ds_config: "{}"', "# deepspeed with conf/{}"]).format(name) for name in texts)
    (tmp_path / "train.py").write_text("import deepspeed\n" + "\n".join(f"x = {line!r}" for line in lines), encoding="utf-8")
    left = lost(tmp_path, monkeypatch, texts)
    assert len(left) <= count // 100, left


def test_every_name_of_the_hook_is_one(tmp_path: Path) -> None:
    hook = next(hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")) if hook["id"] == "dslint")
    import re

    for name in (*CONFIGS, *OTHERS):
        assert bool(re.search(hook["files"], name)) == (says(name) in (Says.CONFIG, Says.MAYBE) or name == "ds.json"), name
    for pattern in FILE_NAMES:
        assert says(name_of(pattern, random.Random(1))) is Says.CONFIG


FOREIGN = {
    "stage1.json": '{"title": "of a rocket", "thrust": 7}',
    "zero.json": "[0, 1, 2]",
    "package.json": '{"name": "x", "scripts": {"train": "python train.py"}}',
    "results.json": '{"train_batch_size": 8, "loss": [1, 2], "lr": 0.1, "seed": 1, "epochs": 3, "model": "x"}',
    "trainer_state.json": '{"steps_per_epoch": 10, "global_step": 4, "zero_shot": true}',
    "eval_stage2.json": '{"checkpoints": ["a/step_1.pt"], "segments": [{"name": "web"}], "metrics": {"step_1": {"loss": 2.5}}}',
    "args.json": '{"activation_checkpoint": true, "lr": 1, "stages": [1]}',
    "broken.json": '{"name": "x", "version": }',
}


def test_other_files_are_skipped_silently(tmp_path: Path) -> None:
    for name, text in FOREIGN.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "ds_good.json").write_text(json.dumps(GOOD), encoding="utf-8")
    done = dslint("check", ".", "--strict", "--output-format", "json", "--world-size", "2", cwd=tmp_path)
    assert [file["path"] for file in json.loads(done.stdout)["files"]] == ["ds_good.json"]


def test_what_looks_like_a_config_and_was_not_checked_fails_with_strict(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text('{"name": "x", "version": "1"}', encoding="utf-8")
    (tmp_path / "ds_good.json").write_text(json.dumps(GOOD), encoding="utf-8")
    assert dslint("check", ".", cwd=tmp_path).returncode == 0
    done = dslint("check", ".", "--strict", cwd=tmp_path)
    assert done.returncode == 1
    assert "ds_config.json" in done.stdout + done.stderr


BROKEN_YAML = [
    "distributed_type: DEEPSPEED\na: [b: c\n",
    "deepspeed_config:\n  zero_stage: 3\n x: [\n",
    "deepspeed: ds.json\nbf16: true: x\n",
]


@pytest.mark.parametrize("text", BROKEN_YAML)
def test_a_yaml_that_cannot_be_read_is_named_where_it_is_about_deepspeed(tmp_path: Path, text: str) -> None:
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    (tmp_path / "accelerate.yaml").write_text(text, encoding="utf-8")
    done = dslint("check", ".", "--strict", cwd=tmp_path)
    assert done.returncode == 1
    assert "Not checked: accelerate.yaml: line " in done.stdout
    (tmp_path / "accelerate.yaml").write_text("# for deepspeed\nx: {{ .Values }}\n  y\n", encoding="utf-8")
    assert dslint("check", ".", "--strict", cwd=tmp_path).returncode == 0


def test_the_headline_of_the_readme_is_found_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text('{"train_batch_size": 8, "zero_optimisation": {"stage": 2}}', encoding="utf-8")
    (tmp_path / "ds_good.json").write_text(json.dumps(GOOD), encoding="utf-8")
    done = dslint("check", ".", cwd=tmp_path)
    assert done.returncode == 1
    assert "zero_optimisation" in done.stdout
    fixed = dslint("check", ".", "--unsafe-fixes", cwd=tmp_path)
    assert "fixed" in fixed.stderr
    assert "zero_optimization" in (tmp_path / "ds_config.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["ds_new.json", "ds_zero3.json", "ds_config.json", "stage2.json", "deepspeed.json"])
def test_the_editor_checks_new_files_by_their_names(name: str) -> None:
    assert is_ours(f"project/{name}", "{}")
    assert not is_ours("project/package.json", "{}")


def test_mentions_cost_nothing_without_programs() -> None:
    targets = [Target("a.json", named=False)]
    assert with_mentions(targets)[0].mentioned is False


def test_a_long_file_is_read_where_it_has_a_key_of_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long files of data are passed over by their text; a config among them, sound or broken, is found all the same."""
    notes = {"_notes": ["a note of a run"] * 10_000}
    results = {str(number): {"score": number, "text": "zero"} for number in range(5_000)}
    texts = {
        "results.json": json.dumps(results),
        "cut.json": json.dumps(results)[:-9],
        "log.json": json.dumps([{"optimizer": "AdamW"}] * 9_000),
        "long.json": json.dumps({**GOOD, **notes}),
        "wrapped.json": json.dumps({"deepspeed": GOOD, **notes}),
        "broken.json": json.dumps({**notes, **GOOD})[:-1],
    }
    assert min(len(text) for text in texts.values()) > 100_000
    assert set(lost(tmp_path, monkeypatch, texts)) == {"results.json", "cut.json", "log.json"}


def test_data_that_cannot_be_read_is_no_error_unless_it_may_be_a_config(tmp_path: Path) -> None:
    """A data set of 17 MiB, a vocabulary in UTF-16 and a packed file stop no check of a folder; a config in UTF-16 is reported."""
    (tmp_path / "alpaca_data.json").write_bytes(b'["' + b"x" * 17 * 2**20 + b'"]')
    (tmp_path / "vocab.json").write_text('{"a": 1}', encoding="utf-16")
    (tmp_path / "packed.json").write_bytes(b"\x1f\x8b\x08\0\xff" * 99)
    assert dslint("check", ".", cwd=tmp_path).stdout == ""
    (tmp_path / "mine.json").write_text(json.dumps(GOOD), encoding="utf-16")
    (tmp_path / "zero2.json").write_bytes(b'["' + b"x" * 17 * 2**20 + b'"]')
    said = dslint("check", ".", cwd=tmp_path).stdout
    assert [name for name in ("alpaca_data", "vocab", "packed", "mine", "zero2") if name in said] == ["mine", "zero2"]
