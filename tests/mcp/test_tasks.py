"""Tasks that people give to an assistant, solved by a client that does only what the tools answer: it applies the fixes and follows the help.

The result has no errors and no warnings, and the real DeepSpeed runs it (`pytest -m deepspeed tests/mcp`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from tests.engine.harness import Case, Engine
from tests.mcp.client import Session, session

GPUS = {"world_size": 8, "integration": "deepspeed"}
TRAINER = {"world_size": 8, "integration": "transformers"}
ROUNDS = 12
"""How often the client asks; a task that is not solved by then is not solved."""

BF16 = '"bf16": {"enabled": true}'
ADAM = '"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}'
START = f'{{"train_micro_batch_size_per_gpu": 4, {BF16}, {ADAM}'

TASKS: dict[str, str] = {
    "a misspelt section": START + ', "zero_optimisation": {"stage": 3}}',
    "a misspelt key of a section": START + ', "zero_optimization": {"stage": 2, "overlap_com": true}}',
    "a key outside its section": START + ', "zero_optimization": {"stage": 2}, "overlap_comm": true}',
    "a number in quotes": f'{{"train_micro_batch_size_per_gpu": "4", {BF16}, {ADAM}}}',
    "a stage that there is not": START + ', "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "gpu"}}}',
    "two precisions": START + ', "fp16": {"enabled": true}}',
    "a batch that 8 GPUs do not divide": f'{{"train_batch_size": 12, {BF16}, {ADAM}}}',
    "three batch sizes that disagree": f'{{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4, {BF16}, {ADAM}}}',
    "no accumulation": START + ', "gradient_accumulation_steps": 0}',
    "a comma too few": '{"train_micro_batch_size_per_gpu": 4\n  ' + BF16 + ", " + ADAM + "}",
    "a comma too many": START + ", }",
    "values of Python": f'{{"train_micro_batch_size_per_gpu": 4, "bf16": {{"enabled": True}}, {ADAM}}}',
    "a key that is there twice": START + ', "gradient_clipping": 1.0, "gradient_clipping": 0.5}',
    "a switch in place of a section": f'{{"train_micro_batch_size_per_gpu": 4, "bf16": true, {ADAM}}}',
    "a stage in place of a section": START + ', "zero_optimization": 2}',
    "a count in quotes": START + ', "gradient_accumulation_steps": "2"}',
    "automatic values that nobody fills": f'{{"train_micro_batch_size_per_gpu": 4, {BF16}, "gradient_accumulation_steps": "auto", {ADAM}}}',
    "offload of parameters at stage 2": START + ', "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}',
    "offload to a disk without its path": START + ', "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}}',
    "offload without ZeRO": START + ', "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}',
    "an unknown optimizer": f'{{"train_micro_batch_size_per_gpu": 4, {BF16}, "optimizer": {{"type": "AdmaW", "params": {{"lr": 1e-4}}}}}}',
    "clipping in the optimizer": f'{{"train_micro_batch_size_per_gpu": 4, {BF16}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "max_grad_norm": 1.0}}}}}}',
    "an unknown schedule": START + ', "scheduler": {"type": "WarmupLr", "params": {"warmup_num_steps": 100}}}',
    "a schedule without its type": START + ', "scheduler": {"params": {"warmup_num_steps": 100}}}',
    "negative clipping": START + ', "gradient_clipping": -1}',
    "a key that was removed": START + ', "elasticity": {}}',
    "a loss scale beyond fp16": f'{{"train_micro_batch_size_per_gpu": 4, "fp16": {{"enabled": true, "initial_scale_power": 40}}, {ADAM}}}',
    "sub-groups of nothing": START + ', "zero_optimization": {"stage": 3, "sub_group_size": -1}}',
    "a bucket of nothing": START + ', "zero_optimization": {"stage": 3, "reduce_bucket_size": 0}}',
    "a negative learning rate": f'{{"train_micro_batch_size_per_gpu": 4, {BF16}, "optimizer": {{"type": "AdamW", "params": {{"lr": -1e-4}}}}}}',
    "everything at once": '{"train_batch_size": "12", "bf16": true, "fp16": {"enabled": True},\n  "zero_optimisation": {"stage": "2"},}',
}


STRICT = ("a comma too few", "a comma too many", "values of Python")
"""The tasks for the Trainer, which reads strict JSON."""


def facts_of(title: str) -> dict[str, Any]:
    return TRAINER if title in STRICT else GPUS


def edited(text: str, edits: list[dict[str, Any]]) -> str:
    """The text with the edits of a fix."""
    for edit in sorted(edits, key=lambda edit: -edit["range"]["start"]["offset"]):
        text = text[: edit["range"]["start"]["offset"]] + edit["content"] + text[edit["range"]["end"]["offset"] :]
    return text


FENCED = r"`([^`]+)`"


def followed(text: str, finding: dict[str, Any]) -> str | None:
    """The text changed as a help line says; None if it says nothing that can be done without a decision."""
    try:
        config = json.loads(text)
    except ValueError:
        return None
    if finding["pointer"] is None:
        return None
    *parents, name = finding["pointer"].split("/")[1:] or [""]
    section = config
    for parent in parents:
        section = section[int(parent)] if isinstance(section, list) else section.get(parent, {})
    advice = finding["help"] or ""
    written = re.search(rf"(?:Write|Set it to|Set {FENCED} to) (?:[^.]*?such as )?(\"[^\"]*\"|[\d.e+-]*\d|true|false)", advice)
    moved = re.search(rf"Move it (?:in)?to {FENCED}", advice)
    added = re.search(r"Add (\"\w+\": (?:\{[^}]*\}|[^.,]*))", advice)
    if added:
        there = section.get(name) if name else config
        (there if isinstance(there, dict) else section).update(json.loads(f"{{{added[1]}}}"))
    elif moved and name in section:
        value, target = section.pop(name), config
        for part in moved[1].split("."):
            target = target.setdefault(part, {})
        target[name] = value
    elif re.search(r"\b(?:Remove|remove|Delete)\b", advice) and name in section:
        del section[name]
    elif written:
        section[name] = json.loads(written[2])
    else:
        return None
    return json.dumps(config, indent=2)


async def solve(client: Session, text: str, facts: dict[str, Any]) -> tuple[str, list[dict[str, Any]], int]:
    """Ask and change until nothing is left: the text, the findings that are left, and the number of questions."""
    for asked in range(1, ROUNDS + 1):
        _, data = await client.tool("check", text=text, **facts)
        left = [one for one in data["diagnostics"] if one["severity"] != "info"]
        if not left:
            return text, [], asked
        left.sort(key=lambda one: (one["severity"] != "error", one["fix"] is None))
        for finding in left:
            fix = finding["fix"]
            new = edited(text, fix["edits"]) if fix and fix["applicability"] != "display" else followed(text, finding)
            if new is not None and new != text:
                text = new
                break
        else:
            return text, left, asked
    return text, left, ROUNDS


async def solve_all(client: Session) -> dict[str, tuple[str, list[dict[str, Any]], int]]:
    return {title: await solve(client, text, facts_of(title)) for title, text in TASKS.items()}


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, list[dict[str, Any]], int]]:
    return session(tmp_path_factory.mktemp("tasks"), solve_all)


@pytest.mark.slow
def test_every_task_is_solved_by_what_the_tools_answer(solved: dict[str, tuple[str, list[dict[str, Any]], int]]) -> None:
    assert len(TASKS) >= 30
    assert {title: [(one["code"], one["message"], one["help"]) for one in left] for title, (_, left, _) in solved.items() if left} == {}
    assert max(asked for _, _, asked in solved.values()) <= 8


@pytest.mark.slow
def test_every_task_has_something_to_solve(tmp_path: Path) -> None:
    async def talk(client: Session) -> None:
        for title, text in TASKS.items():
            _, data = await client.tool("check", text=text, **facts_of(title))
            assert data["summary"]["error"] + data["summary"]["warning"], title

    session(tmp_path, talk)


@pytest.mark.slow
def test_what_only_the_user_knows_is_not_guessed(tmp_path: Path) -> None:
    text = START + ', "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 100}}}'

    async def talk(client: Session) -> tuple[str, list[dict[str, Any]], int]:
        return await solve(client, text, GPUS)

    solution, left, _ = session(tmp_path, talk)
    assert "total_num_steps" not in solution
    assert [(one["code"], one["help"]) for one in left] == [("DS610", 'Add "total_num_steps".')]


@pytest.mark.deepspeed
def test_the_engine_runs_what_the_client_wrote(solved: dict[str, tuple[str, list[dict[str, Any]], int]], engine: Engine) -> None:
    cases = [Case(title, text=text, world_size=8, upto="step", optimizer=True) for title, (text, _, _) in solved.items()]
    raised = {outcome.id: outcome.error for outcome in engine.ask(cases) if outcome.raised}
    assert raised == {}


@pytest.mark.slow
def test_a_training_that_does_not_fit_is_made_to_fit(tmp_path: Path) -> None:
    """ "Make this run on 2 GPUs of 40 GiB": `fit` answers with a diff, and `estimate` agrees that it fits."""
    facts = {"model": "llama-3-8b", "world_size": 8, "gpu": "a100-40gb"}
    text = json.dumps({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}, indent=2)

    async def talk(client: Session) -> None:
        _, answer = await client.tool("fit", text=text, **facts)
        assert not answer["fits"]
        way = next(way for way in answer["ways"] if way["diff"] and not way["program"])
        fixed = patched(text, way["diff"])
        _, again = await client.tool("fit", text=fixed, **facts)
        assert again["fits"]
        _, checked = await client.tool("check", text=fixed, **facts)
        assert not [one for one in checked["diagnostics"] if one["severity"] == "error"]

    session(tmp_path, talk)


def patched(text: str, diff: str) -> str:
    """A text with a unified diff applied: each hunk replaces its lines."""
    for hunk in re.split(r"^@@.*@@.*$", diff, flags=re.MULTILINE)[1:]:
        lines = [line for line in hunk.strip("\n").split("\n") if line[:1] in " -+"]
        old = "\n".join(line[1:] for line in lines if line[0] in " -")
        assert text.count(old) == 1
        text = text.replace(old, "\n".join(line[1:] for line in lines if line[0] in " +"))
    return text
