"""Where resuming raises, dslint says so beforehand, and nowhere else: real checkpoints, real resumes, on a few CPU ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dslint.config.context import Context
from dslint.diagnostics import Diagnostic, Phase
from dslint.facts import Facts
from dslint.facts.checkpoint import describe
from dslint.lint.document import lint_document
from dslint.registry.rules import all_rules
from dslint.source.parse import parse

pytestmark = pytest.mark.deepspeed

Runner = Callable[..., str]

BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True}}
UNIVERSAL = {"checkpoint": {"load_universal": True}}


def config(stage: int, **more: Any) -> dict[str, Any]:
    optimizer = {"type": "AdamW", "params": {"lr": 1e-3}}
    return {"train_micro_batch_size_per_gpu": 1, "optimizer": optimizer, "zero_optimization": {"stage": stage}, **more}


SAVED = {
    "stage0": config(0),
    "stage1": config(1),
    "stage2": config(2),
    "stage3": config(3),
    "stage0-bf16": config(0, **BF16),
    "stage1-bf16": config(1, **BF16),
    "stage3-bf16": config(3, **BF16),
}

RANKS = 2


@pytest.fixture(scope="session")
def ask() -> Iterator[Runner]:
    """Asks DeepSpeed to save or load."""
    if importlib.util.find_spec("deepspeed") is None:
        if os.environ.get("REQUIRE_DEEPSPEED"):
            pytest.fail("REQUIRE_DEEPSPEED is set, and deepspeed is not installed")
        pytest.skip("deepspeed is not installed")
    root = Path(__file__).resolve().parents[2]
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.checkpoint.ranks"],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def asked(do: str, folder: Path, ranks: int = RANKS, config: dict[str, Any] | None = None) -> str:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps({"do": do, "folder": str(folder), "ranks": ranks, "config": config}) + "\n")
        worker.stdin.flush()
        return str(json.loads(worker.stdout.readline()))

    yield asked
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.close()
    worker.stdout.close()
    worker.wait()


@pytest.fixture(scope="session")
def saved(ask: Runner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint of each kind, and some that something has happened to."""
    root = tmp_path_factory.mktemp("checkpoints")
    for name, written in SAVED.items():
        assert ask("save", root / name, config=written) == "saved"
    for name in ("stage2", "stage3"):
        shutil.copytree(root / name, root / f"{name}-universal")
        assert ask("convert", root / f"{name}-universal") == "converted"
    for name in ("no-latest", "dangling", "no-optimizer", "one-lost"):
        shutil.copytree(root / "stage2", root / name)
    (root / "no-latest" / "latest").unlink()
    (root / "dangling" / "latest").write_text("global_step99", encoding="utf-8")
    for rank in range(RANKS):
        (root / "no-optimizer" / "global_step2" / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").unlink()
    (root / "one-lost" / "global_step2" / "zero_pp_rank_0_mp_rank_00_optim_states.pt").unlink()
    return root


def said(folder: Path, ranks: int, resumed: dict[str, Any]) -> list[Diagnostic]:
    """What dslint says of the resume itself."""
    facts = Context(Facts(world_size=ranks), checkpoint=describe(str(folder)))
    found = lint_document(parse(json.dumps(resumed)), "c.json", facts, all_rules()).diagnostics
    about = {rule.code for rule in all_rules() if "checkpoint" in rule.needs}
    return [d for d in found if d.phase is Phase.RESUME or d.code in about]


RAISES = [
    pytest.param(name, ranks, resumed, error, id=f"{name}-{n}")
    for n, (name, ranks, resumed, error) in enumerate(
        [
            ("stage2", 2, config(3), "AssertionError"),
            ("stage2", 2, config(0), "AttributeError"),
            ("stage3", 2, config(2), "AssertionError"),
            ("stage3", 2, config(0), "AssertionError"),
            ("stage0", 2, config(1), "FileNotFoundError"),
            ("stage0", 2, config(3), "AssertionError"),
            ("stage2", 1, config(2), "ZeRORuntimeException"),
            ("stage1", 3, config(1), "ZeRORuntimeException"),
            ("stage3", 1, config(3), "ZeRORuntimeException"),
            ("stage1", 2, config(1, **BF16), "FileNotFoundError"),
            ("stage1-bf16", 2, config(1), "FileNotFoundError"),
            ("stage1-bf16", 2, config(1, **FP16), "FileNotFoundError"),
            ("stage3-bf16", 2, config(3), "FileNotFoundError"),
            ("stage2", 2, config(2, **UNIVERSAL), "ValueError"),
            ("stage2-universal", 2, config(3, **UNIVERSAL), "AssertionError"),
            ("stage3-universal", 2, config(2, **UNIVERSAL), "AssertionError"),
            ("stage2-universal", 2, config(0, **UNIVERSAL), "AttributeError"),
            ("stage0", 2, config(0, **UNIVERSAL), "ValueError"),
            ("dangling", 2, config(2), "AssertionError"),
            ("no-optimizer", 2, config(2), "FileNotFoundError"),
            ("one-lost", 2, config(2), "FileNotFoundError"),
            ("stage2", 2, {**config(2), "zero_optimization": {"stage": 2, "pipeline_loading_checkpoint": True}}, "AssertionError"),
        ]
    )
]

LOADS = [
    pytest.param(name, ranks, resumed, id=f"{name}-{n}")
    for n, (name, ranks, resumed) in enumerate(
        [
            ("stage0", 2, config(0)),
            ("stage0", 1, config(0)),
            ("stage1", 2, config(1)),
            ("stage1", 2, config(2)),
            ("stage2", 2, config(1)),
            ("stage2", 2, config(2)),
            ("stage3", 2, config(3)),
            ("stage0-bf16", 2, config(0, **BF16)),
            ("stage1-bf16", 2, config(1, **BF16)),
            ("stage1", 2, config(1, **FP16)),
            ("stage1-bf16", 2, config(1, data_types={"grad_accum_dtype": "fp32"}, **BF16)),
            ("stage3-bf16", 2, config(3, **BF16)),
            ("stage2", 2, {**config(2), "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}),
            ("stage2-universal", 2, config(2)),
            ("stage2-universal", 2, config(2, **UNIVERSAL)),
            ("stage2-universal", 1, config(1, **UNIVERSAL)),
            ("stage2-universal", 2, config(2, **BF16, **UNIVERSAL)),
            ("stage3-universal", 1, config(3, **UNIVERSAL)),
        ]
    )
]


@pytest.mark.parametrize(("name", "ranks", "resumed", "error"), RAISES)
def test_where_it_raises_dslint_says_so(name: str, ranks: int, resumed: dict[str, Any], error: str, saved: Path, ask: Runner) -> None:
    outcome = ask("load", saved / name, ranks, resumed)
    assert outcome.startswith(error), outcome
    crashes = [d for d in said(saved / name, ranks, resumed) if d.phase is Phase.RESUME]
    assert len(crashes) == 1, crashes
    assert error in crashes[0].message
    quoted = crashes[0].message.split(f'{error} "')
    if len(quoted) > 1:
        assert quoted[1].split('"')[0].replace(str(saved).replace(os.sep, "/"), "") in outcome.replace(str(saved), "")


@pytest.mark.parametrize(("name", "ranks", "resumed"), LOADS)
def test_where_it_loads_dslint_is_silent(name: str, ranks: int, resumed: dict[str, Any], saved: Path, ask: Runner) -> None:
    assert ask("load", saved / name, ranks, resumed) == "loaded"
    assert said(saved / name, ranks, resumed) == []


def test_without_latest_nothing_is_loaded(saved: Path, ask: Runner) -> None:
    assert ask("load", saved / "no-latest", RANKS, config(2)) == "nothing loaded"
    assert [d.code for d in said(saved / "no-latest", RANKS, config(2))] == ["DS831"]


@pytest.mark.parametrize("name", SAVED)
def test_the_names_say_what_wrote_it(name: str, saved: Path) -> None:
    stage = int(name[5])
    found = describe(str(saved / name))
    assert stage in found.zero
    assert found.data_parallel == (RANKS if stage else None)
    assert found.bf16 == (("bf16" in name) if stage else None)
    assert (found.model_parallel, found.missing, found.universal, found.pipeline) == (1, (), None, False)
    assert describe(str(saved / name / "global_step2")).zero == (found.zero if stage else (0,))
