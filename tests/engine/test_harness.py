"""The harness shows what a GPU job would: good configs reach the step, and known mistakes raise in their phase."""

from __future__ import annotations

import pytest

from tests.engine.harness import Case, Engine

pytestmark = pytest.mark.deepspeed

BASE = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}


@pytest.mark.parametrize("precision", ["fp16", "bf16", None])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_good_configs_reach_the_step(engine: Engine, stage: int, precision: str | None) -> None:
    config = {**BASE, "zero_optimization": {"stage": stage}, **({precision: {"enabled": True}} if precision else {})}
    outcome = engine.ask([Case("good", config=config, world_size=4, upto="step")])[0]
    assert outcome.error is None
    assert outcome.engine["stage"] == stage
    assert outcome.engine["steps"] == 2
    assert outcome.engine["dtype"] == {"fp16": "torch.float16", "bf16": "torch.bfloat16", None: "torch.float32"}[precision]
    assert outcome.effective["train_batch_size"] == 8


@pytest.mark.parametrize("stage", [2, 3])
def test_offload_reaches_the_step(engine: Engine, stage: int) -> None:
    zero = {"stage": stage, "offload_optimizer": {"device": "cpu"}, **({"offload_param": {"device": "cpu"}} if stage == 3 else {})}
    outcome = engine.ask([Case("offload", config={**BASE, "bf16": {"enabled": True}, "zero_optimization": zero}, upto="step")])[0]
    assert outcome.error is None
    assert outcome.engine["optimizer"] == "DeepSpeedCPUAdam"


@pytest.mark.parametrize(
    ("config", "phase", "words"),
    [
        ({**BASE, "zero_optimization": {"stge": 2}}, "parse", "Extra inputs are not permitted"),
        ({**BASE, "train_batch_size": 7}, "parse", "AssertionError"),
        ({**BASE, "optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}}, "initialize", "ValueError"),
        ({**BASE, "optimizer": {"type": "NoSuch"}}, "initialize", "NoSuch"),
        ({**BASE, "bf16": {"enabled": True}, "gradient_clipping": "1.0"}, "step", "TypeError"),
    ],
)
def test_known_mistakes_raise_in_their_phase(engine: Engine, config: dict[str, object], phase: str, words: str) -> None:
    outcome = engine.ask([Case("bad", config=config, upto="step")])[0]
    assert outcome.phase == phase
    assert outcome.error is not None
    assert words in outcome.error


def test_a_file_goes_through_deepspeeds_own_loader(engine: Engine) -> None:
    commented = Case("hjson", text="{train_micro_batch_size_per_gpu: 3, // a comment\n}")
    twice = Case("twice", text='{"train_batch_size": 1, "train_batch_size": 1}')
    outcomes = engine.ask([commented, twice])
    assert outcomes[0].effective["train_micro_batch_size_per_gpu"] == 3
    assert outcomes[1].phase == "parse"
    assert "Duplicate keys" in str(outcomes[1].error)


def test_a_program_may_bring_its_own_optimizer(engine: Engine) -> None:
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
    alone, brought = engine.ask([Case("alone", config=config, upto="step"), Case("brought", config=config, upto="step", optimizer=True)])
    assert alone.phase == "initialize"
    assert brought.error is None


def test_a_hang_is_an_outcome() -> None:
    pytest.importorskip("deepspeed")
    with Engine(jobs=1, timeout=0.01) as hasty:
        outcome = hasty.ask([Case("slow", config=BASE, upto="parse")])[0]
    assert outcome.error is not None
    assert "no answer" in outcome.error
