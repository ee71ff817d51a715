"""Fixes: they are written whole, they converge, only findings go, and safe ones leave what DeepSpeed does as it is."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import pytest

from dslint.config.context import Context
from dslint.diagnostics import Applicability, Diagnostic, Effect, Phase
from dslint.facts import NEWEST, Facts, Integration
from dslint.fixes.apply import fix
from dslint.lint.document import lint_text
from dslint.lint.results import FileResult
from dslint.registry.rules import all_rules
from dslint.source.parse import parse
from tests.command import dslint
from tests.differential.mistakes import mistakes
from tests.engine.harness import Case, Engine, Outcome

SAFE = {Applicability.SAFE}
BOTH = {Applicability.SAFE, Applicability.UNSAFE}
RULES = tuple(rule.load() for rule in all_rules())

BROKEN = """\
{
  "train_micro_batch_size_per_gpu": "4",   // four
  "zero_optimisation": {"stage": 2},
  "fp16": {"enabled": true, "enabled": true, "loss_scal": 0},
  "elasticity": {"enabled": false}, # gone

  "communication_data_type": "fp61"
}
"""


def lint(text: str, integration: Integration | None = Integration.DEEPSPEED, world_size: int | None = 1) -> FileResult:
    result = lint_text(text, "ds.json", Facts(world_size, integration), RULES)
    assert result is not None
    return result


lint_once = cache(lint)
"""The same for a text that several fixes begin or end with."""


def lint_as(text: str, given: Facts | Context) -> FileResult:
    result = lint_text(text, "ds.json", given, RULES)
    assert result is not None
    return result


def test_safe_and_unsafe_fixes() -> None:
    fixed = fix(BROKEN, lint, SAFE)
    assert fixed.text == (
        BROKEN.replace('"4"', "4")
        .replace('"enabled": true, "enabled": true', '"enabled": true')
        .replace("loss_scal", "loss_scale")
        .replace('  "elasticity": {"enabled": false}, # gone\n', "  # gone\n")
        .replace("fp61", "fp16")
    )
    assert fix(fixed.text, lint, BOTH).text == fixed.text.replace("optimisation", "optimization")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_fix_of_a_bad_example_mends_it(rule: object) -> None:
    for example in rule.bad:  # type: ignore[attr-defined]
        if example.files:
            continue

        def lint_example(text: str, given: Context = example.context) -> FileResult:
            result = lint_text(text, "ds.json", given, RULES)
            assert result is not None
            return result

        before = lint_example(example.text)
        for diagnostic in before.diagnostics:
            if diagnostic.code == rule.code and diagnostic.fix and diagnostic.fix.applicability is not Applicability.DISPLAY:  # type: ignore[attr-defined]
                fixed = fix(example.text, lint_example, {diagnostic.fix.applicability})
                assert fixed.fixed, f"the fix of {diagnostic.message} is not made"
                assert (diagnostic.code, diagnostic.pointer) not in {(d.code, d.pointer) for d in fixed.result.diagnostics}


def sample(number: int, seed: int) -> list[str]:
    texts = sorted({m.text for m in mistakes(seed)})
    random.Random(seed).shuffle(texts)
    return texts[:number]


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [SAFE, BOTH], ids=["safe", "both"])
def test_only_findings_go_and_a_second_run_changes_nothing(allowed: set[Applicability]) -> None:
    number = 0
    for text in sample(700, 3):
        before = lint_once(text)
        fixed = fix(text, lint_once, allowed)
        number += len(fixed.fixed)
        problems = parse(text).problems
        assert not parse(fixed.text).problems or problems
        had = {(d.code, d.pointer) for d in before.diagnostics}
        mended = {d.code for d in fixed.fixed}
        new = [d for d in fixed.result.diagnostics if (d.code, d.pointer) not in had]
        # A key that begins to count, or to be seen, may be wrong in another way; what was right stays right.
        assert not [d for d in new if d.code in mended and allowed == SAFE], (text, fixed.text, new)
        again = fix(fixed.text, lint_once, allowed)
        assert again.text == fixed.text
        if not mended & {"DS002", "DS007"}:
            kept = {comment.text for comment in parse(fixed.text).comments}
            assert {comment.text for comment in parse(text).comments} <= kept, (text, fixed.text)
    assert number > 50


DEPRECATED = ("cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory")
"""Keys that DeepSpeed reads for others: it keeps them, and looks at them no more."""


def held(outcome: Outcome) -> dict[str, object]:
    """What DeepSpeed holds of a config, but for the text itself and what it looks at no more."""
    config = {**outcome.effective, "_param_dict": None}
    config["zero_config"] = {key: value for key, value in config["zero_config"].items() if key not in DEPRECATED}
    return config


SAID_OTHERWISE = {"DS607", "DS608", "DS637", "DS638", "DS646"}
"""Rules whose safe fix writes in plain words what DeepSpeed does anyway."""

LEFTOVERS = {
    "DS313",
    "DS403",
    "DS405",
    "DS406",
    "DS411",
    "DS425",
    "DS433",
    "DS440",
    "DS511",
    "DS512",
    "DS521",
    "DS526",
    "DS624",
    "DS625",
    "DS704",
}
LEFTOVERS |= {"DS103", "DS110", "DS112", "DS115", "DS811", "DS855", "DS901", "DS918"}
"""Rules whose effect is advice where the setting that DeepSpeed ignores changes nothing; the safe fix removes it."""


def spoken_of(fixed: tuple[Diagnostic, ...]) -> set[str]:
    """The keys that DeepSpeed may hold otherwise after these fixes: what it ignored is gone, what it refuses later is mended."""
    return {
        (place.pointer or "").rpartition("/")[2].removesuffix("_ckpt")
        for d in fixed
        for place in (d, *d.related)
        if d.effect is Effect.IGNORED or d.code in SAID_OTHERWISE | LEFTOVERS or (d.phase is not None and d.phase is not Phase.PARSE)
    }


ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Where an object without a name of its own lies in memory: another place in each process."""


def differing(was: object, is_: object, path: str = "") -> Iterator[str]:
    """Where two configs differ that DeepSpeed holds."""
    if isinstance(was, dict) and isinstance(is_, dict):
        for key in {*was, *is_}:
            yield from differing(was.get(key), is_.get(key), f"{path}/{key}")
    elif ADDRESS.sub("", str(was)) != ADDRESS.sub("", str(is_)) or type(was) is not type(is_):
        yield path


@pytest.mark.deepspeed
def test_safe_fixes_leave_deepspeeds_own_config_as_it_is(engine: Engine) -> None:
    texts = sample(1500, 4)
    pairs = [(before, after) for before, after in ((text, fix(text, lint, SAFE)) for text in texts) if before != after.text]
    asked = [text for before, after in pairs for text in (before, after.text)]
    outcomes = engine.ask(Case(str(number), text=text, world_size=1) for number, text in enumerate(asked))
    kept, mended, wrong = 0, 0, []
    for index, (before, after) in enumerate(pairs):
        was, is_ = outcomes[2 * index], outcomes[2 * index + 1]
        if was.raised:
            mended += not is_.raised
        elif is_.raised or any(not any(key in place for key in spoken_of(after.fixed)) for place in differing(held(was), held(is_))):
            wrong.append(
                f"{sorted(differing(held(was), held(is_)))} {is_.error} {[d.code for d in after.fixed]} {before!r}\n  {after.text!r}"
            )
        else:
            kept += 1
    print(f"\n{len(pairs)} configs fixed: {mended} that DeepSpeed refused it takes now, {kept} it reads as before, {len(wrong)} otherwise")
    assert not wrong, "\n".join(wrong[:10])
    assert mended > 50


def mended_after_parsing() -> Sequence[object]:
    """The bad examples that DeepSpeed refuses after parsing, and in which safe fixes leave no crash. The model that is built here has no policy for AutoTP."""
    found = []
    for rule in RULES:
        if rule.phase not in (Phase.INITIALIZE, Phase.STEP) or rule.untried:
            continue
        for number, example in enumerate(rule.bad):
            if example.facts.deepspeed != NEWEST or example.files or "autotp" in example.text:
                continue
            fixed = fix(example.text, partial(lint_as, given=example.context), SAFE)
            if rule.code in {d.code for d in fixed.fixed} and not any(d.effect is Effect.CRASH for d in fixed.result.diagnostics):
                found.append(pytest.param(fixed.text, example.facts.world_size or 1, id=f"{rule.code}-{number}"))
    return found


@pytest.mark.deepspeed
@pytest.mark.parametrize(("text", "world_size"), mended_after_parsing())
def test_deepspeed_runs_what_a_safe_fix_has_mended(text: str, world_size: int, engine: Engine) -> None:
    (outcome,) = engine.ask([Case("mended", text=text, world_size=world_size, upto="step", optimizer=True)])
    assert not outcome.raised, (text, outcome.phase, outcome.error)


def rates(text: str) -> list[float]:
    """The learning rates of DeepSpeed's schedule, step by step."""
    import torch
    from deepspeed.runtime import lr_schedules

    config = json.loads(text)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=config["optimizer"]["params"]["lr"])
    schedule = getattr(lr_schedules, config["scheduler"]["type"])(optimizer, **config["scheduler"].get("params", {}))
    found = []
    for _ in range(3000):
        found.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    return found


@pytest.mark.deepspeed
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("WarmupLR", {"warmup_num_steps": 100, "warmup_type": "cosine"}),
        ("WarmupLR", {"warmup_num_steps": 100, "warmup_type": "LOG"}),
        ("WarmupLR", {"warmup_num_steps": 1}),
        ("WarmupDecayLR", {"warmup_num_steps": 1, "warmup_max_lr": 1e-3, "total_num_steps": 500}),
        ("WarmupCosineLR", {"warmup_num_steps": 1, "total_num_steps": 500}),
        ("WarmupCosineLR", {"warmup_num_steps": 100, "total_num_steps": 500, "warmup_type": "exponential"}),
    ],
)
def test_a_schedule_in_plain_words_is_the_same_schedule(kind: str, params: dict[str, object], engine: Engine) -> None:
    text = json.dumps(
        {
            "train_micro_batch_size_per_gpu": 1,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
            "scheduler": {"type": kind, "params": params},
        }
    )
    fixed = fix(text, partial(lint_as, given=Facts(1, Integration.DEEPSPEED)), SAFE)
    assert [d.code for d in fixed.fixed]
    assert rates(fixed.text) == rates(text)


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_bytes(BROKEN.replace("\n", "\r\n").encode())
    file.chmod(0o640)
    before = file.read_bytes()
    shown = dslint("check", "ds.json", "--integration", "deepspeed", "--diff", cwd=tmp_path)
    assert (shown.returncode, file.read_bytes()) == (1, before)
    assert '-  "train_micro_batch_size_per_gpu": "4",' in shown.stdout
    assert "would fix" in shown.stderr
    done = dslint("check", "ds.json", "--integration", "deepspeed", "--fix", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 1
    assert [d["code"] for d in json.loads(done.stdout)["diagnostics"] if d["severity"] == "error"] == ["DS102"]
    assert file.read_bytes() == fix(BROKEN, lint, SAFE).text.replace("\n", "\r\n").encode()
    assert file.stat().st_mode & 0o777 == 0o640
    done = dslint("check", "ds.json", "--integration", "deepspeed", "--unsafe-fixes", "--fix-only", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "zero_optimization" in file.read_text(encoding="utf-8")
    assert dslint("check", "ds.json", "--diff", cwd=tmp_path).stdout == ""


def test_standard_input_comes_out_mended(tmp_path: Path) -> None:
    done = dslint("check", "-", "--fix", "--integration", "deepspeed", input='{"train_batch_size": "8"}', cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, '{"train_batch_size": 8}')
    assert "No problems found" in done.stderr


def test_what_is_ignored_is_not_mended(tmp_path: Path) -> None:
    text = '{"train_batch_size": "8"}'
    file = tmp_path / "ds.json"
    file.write_text(text, encoding="utf-8")
    (tmp_path / "dslint.toml").write_text(
        '[[ignores]]\nfile = "ds.json"\nrules = ["wrong-type"]\nreason = "read by our own loader"\n', encoding="utf-8"
    )
    done = dslint("check", "ds.json", "--fix", cwd=tmp_path)
    assert file.read_text(encoding="utf-8") == text
    assert "1 finding suppressed" in done.stdout


def test_a_file_that_cannot_be_written_stays_and_is_said(tmp_path: Path) -> None:
    import subprocess
    import sys

    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": "8"}', encoding="utf-8")
    program = (
        "import os, sys\n"
        "def full(fd):\n    raise OSError(28, 'No space left on device')\n"
        "os.fsync = full\nfrom dslint.cli import main\nsys.argv = ['dslint', 'check', 'ds.json', '--fix']\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "dslint: cannot write ds.json: No space left on device" in done.stderr
    assert file.read_text(encoding="utf-8") == '{"train_batch_size": "8"}'
    assert [path.name for path in tmp_path.iterdir()] == ["ds.json"]
