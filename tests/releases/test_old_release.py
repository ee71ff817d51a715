"""A real release of pydantic 1's time, made by the project's own script, beside dslint: configs with one mistake each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from dslint.diagnostics import Diagnostic, Effect, Phase
from dslint.facts import Facts, Integration, Release
from dslint.lint.document import lint_document
from dslint.registry.rules import default_rules
from dslint.source.parse import parse
from tests.command import ROOT
from tests.differential.mistakes import mistakes

pytestmark = [pytest.mark.release_sources, pytest.mark.deepspeed]


def environment(release: str, folder: Path) -> tuple[str, str]:
    """The interpreter and the source folder; skips, or fails where they are required."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "release_env.py"), release, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        message = f"DeepSpeed {release} could not be set up: {done.stderr.strip().splitlines()[-1:]}"
        if os.environ.get("REQUIRE_RELEASE_SOURCES") == "1":
            pytest.fail(message)
        pytest.skip(message)
    python, source = done.stdout.split()[-2:]
    return python, source


@pytest.mark.parametrize("release", ["0.14.5"])
def test_dslint_agrees_with_the_release_itself(release: str, tmp_path: Path) -> None:
    python, source = environment(release, tmp_path / "env")
    texts = sorted({mistake.text for mistake in mistakes(0) if mistake.world_size == 1})
    asked = subprocess.run(
        [python, str(Path(__file__).parent / "asker.py")],
        input="".join(json.dumps(text) + "\n" for text in texts),
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": source},
        cwd=tmp_path,
    )
    hello, *answers = asked.stdout.splitlines()
    assert hello == "ready"
    facts = Facts(1, Integration.DEEPSPEED, Release.parse(release))
    counts: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {"missed": [], "claimed": []}
    for text, answer in zip(texts, map(json.loads, answers), strict=True):
        crashes = [d for d in lint_document(parse(text), "c.json", facts, default_rules()).diagnostics if _is_crash(d)]
        counts["taken" if answer is None else "refused"] += 1
        if answer is not None and not crashes:
            wrong["missed"].append(f"{answer[:200]}\n  {text!r}")
        elif answer is None and crashes:
            wrong["claimed"].append(f"{crashes[0].code} {crashes[0].message}\n  {text!r}")
    print(
        f"\nDeepSpeed {release}: {counts['refused']} refused, {len(wrong['missed'])} of them missed; {counts['taken']} taken, {len(wrong['claimed'])} of them claimed"
    )
    assert min(counts.values()) > 500
    assert len(wrong["missed"]) <= 0.01 * counts["refused"], "\n".join(wrong["missed"][:10])
    assert len(wrong["claimed"]) <= 0.01 * counts["taken"], "\n".join(wrong["claimed"][:10])


def _is_crash(diagnostic: Diagnostic) -> bool:
    return diagnostic.effect is Effect.CRASH and diagnostic.phase in (Phase.LOAD, Phase.PARSE)
