"""What `tune` names fits by estimate, is written as meant, and is the fastest of what fits."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from dslint.facts import Integration
from dslint.memory.changes import SMALL_BUCKET, SMALL_PREFETCH
from dslint.memory.estimate import estimate
from dslint.memory.ways import Goal
from dslint.tune.search import TOO_SLOW, most_offloaded
from dslint.tune.space import choices, present
from dslint.tune.write import write
from tests.tune.setups import CONFIG, search


def some_config(pick: random.Random) -> dict[str, Any]:
    """A config of a random stage with random offload and batch sizes."""
    stage = pick.choice((0, 1, 2, 3))
    zero: dict[str, Any] = {"stage": stage}
    if stage and pick.random() < 0.5:
        zero["offload_optimizer"] = {"device": "cpu"}
    if stage == 3 and pick.random() < 0.3:
        zero["offload_param"] = {"device": "cpu"}
    if pick.random() < 0.5:
        zero["overlap_comm"] = pick.choice((True, False))
    return {
        "train_micro_batch_size_per_gpu": pick.choice((1, 2, 4)),
        "gradient_accumulation_steps": pick.choice((1, 4, 6)),
        "bf16": {"enabled": True},
        "zero_optimization": zero,
    }


SETUPS = [
    (seed, gpu, world, nodes, model)
    for seed, (gpu, world, nodes, model) in enumerate(
        [("a100", 8, None, "llama-3-8b"), ("rtx4090", 4, None, "gpt2"), ("h100", 16, 2, "llama-3-8b"), ("a100-40gb", 1, None, "gpt2-xl")]
        * 2
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "gpu", "world", "nodes", "model"), SETUPS)
def test_what_is_named_surely_fits_and_is_written_as_meant(seed: int, gpu: str, world: int, nodes: int | None, model: str) -> None:
    pick = random.Random(seed)
    found = search(some_config(pick), gpu=gpu, world=world, nodes=nodes, model=model, length=1024)
    result = found.run()
    samples = result.now.plan.samples
    for one in result.best:
        config, plan = found.planner(one.written.text, one.written.said)
        assert present(plan) == one.candidate.choice
        assert plan.samples == samples
        assert result.goal.sure(estimate(found.model, plan))
        assert one.candidate.seconds <= TOO_SLOW * result.best[0].candidate.seconds
        assert not config.violations


@pytest.mark.parametrize("seed", range(4))
def test_no_fitting_config_is_passed_over(seed: int) -> None:
    """What is decided without an estimate is what the estimate says: every choice that fits by estimate counts as fitting."""
    pick = random.Random(100 + seed)
    gpu, model = pick.choice((("a100-40gb", "llama-3-8b"), ("rtx4090", "gpt2-xl"), ("a100", "llama-3-8b")))
    found = search(some_config(pick), gpu=gpu, model=model, length=pick.choice((512, 2048)))
    every = list(choices(found.base, found.model, free_batch=seed % 2 == 1))
    pick.shuffle(every)
    answers = {choice: found.fits(choice) for choice in every[:25]}
    for choice, answer in answers.items():
        assert answer is found.goal.sure(estimate(found.model, choice.plan(found.base))), choice


@pytest.mark.slow
def test_the_first_is_the_fastest_of_all_that_fit() -> None:
    found = search(CONFIG)
    result = found.run()
    fitting = [choice for choice in choices(found.base, found.model, free_batch=False) if found.fits(choice)]
    fastest = min(found.candidate(choice).seconds for choice in fitting)
    assert result.best[0].candidate.seconds <= 1.05 * fastest


def test_needless_offload_and_checkpointing_go() -> None:
    """A small model on a large GPU needs neither."""
    best = search(CONFIG, model="gpt2").run().best[0]
    assert best.candidate.choice.optimizer_device is None
    assert best.candidate.choice.checkpoint_every == 0
    assert "offload_optimizer" not in best.written.text
    assert best.written.program == ("disable activation checkpointing",)


def test_the_batch_stays_unless_it_may_change() -> None:
    kept, free = search(CONFIG, model="gpt2").run(), search(CONFIG, model="gpt2").run(free_batch=True)
    assert {one.candidate.plan.samples for one in kept.best} == {64}
    assert free.best[0].candidate.plan.samples != 64
    assert free.best[0].candidate.seconds < kept.best[0].candidate.seconds


def test_a_written_train_batch_size_stays_consistent() -> None:
    config = {"train_batch_size": 64, **CONFIG}
    for free in (False, True):
        for one in search(config, model="gpt2").run(free_batch=free).best:
            data = json.loads(one.written.text)
            sizes = data["train_micro_batch_size_per_gpu"] * data["gradient_accumulation_steps"] * 8
            assert data["train_batch_size"] == sizes == one.candidate.plan.samples


def test_comments_and_other_keys_are_kept() -> None:
    text = '{\n  // the team\'s config\n  "train_micro_batch_size_per_gpu": 1,\n  "bf16": {"enabled": true}, // fast\n  "wall_clock_breakdown": true\n}\n'
    result = search(text, model="gpt2").run(free_batch=True)
    changed = next(one for one in result.best if one.written.text != text)
    assert "// the team's config" in changed.written.text
    assert "// fast" in changed.written.text
    assert '"wall_clock_breakdown": true' in changed.written.text


def test_nothing_is_named_where_nothing_fits() -> None:
    result = search(CONFIG, model="llama-3-70b", gpu="rtx4090", world=1).run()
    assert result.best == ()
    assert all(loss.needs is not None or loss.slower is not None for loss in result.lost)
    assert {"no ZeRO", "stage 3"} <= {loss.name for loss in result.lost}


def test_a_lost_choice_has_its_reason() -> None:
    lost = {loss.name: loss for loss in search(CONFIG).run().lost}
    stage_0 = lost["no ZeRO"]
    assert stage_0.needs is not None
    assert stage_0.needs > 8e9 * 16
    offload = lost.get("parameter offload")
    assert offload is not None
    assert offload.slower is not None
    assert offload.slower > 1


def test_hpz_is_considered_only_across_machines() -> None:
    one, two = search(CONFIG), search(CONFIG, world=16, nodes=2)
    assert {choice.secondary for choice in choices(one.base, one.model, free_batch=False)} == {1}
    assert {choice.secondary for choice in choices(two.base, two.model, free_batch=False)} == {1, 8}


def test_a_config_that_does_not_pass_the_check_is_not_named() -> None:
    found = search(CONFIG)
    found.checked = lambda config: config.value("zero_optimization.stage") != 3
    assert all(one.candidate.choice.stage != 3 for one in found.run().best)


def test_progress_counts_up_to_the_estimates() -> None:
    seen: list[tuple[int, int]] = []
    search(CONFIG).run(progress=lambda done, most: seen.append((done, most)))
    assert seen == sorted(seen)
    assert all(done <= most for done, most in seen)


@pytest.mark.parametrize(("model", "gpu", "world", "nodes"), [("llama-3-70b", "h100", 1024, 128), ("llama-3-8b", "a100", 16, 2)])
def test_offload_saves_no_more_than_the_bound(model: str, gpu: str, world: int, nodes: int) -> None:
    found = search({**CONFIG, "gradient_accumulation_steps": 2}, model=model, gpu=gpu, world=world, nodes=nodes)
    every = [choice for choice in choices(found.base, found.model, free_batch=False) if choice.stage == 3]
    offloaded = [choice for choice in every if choice.optimizer_device or choice.parameter_device]
    for choice in random.Random(1).sample(offloaded, 12):
        without = choice._replace(optimizer_device=None, offload_ratio=1.0, parameter_device=None)
        saved = found.estimate(without).device.high - found.estimate(choice).device.high
        assert saved <= most_offloaded(found.model, choice.plan(found.base)), choice


@pytest.mark.slow
def test_offload_that_saves_little_is_not_named() -> None:
    """A rank of 1,024 has less than 1 GiB to offload; smaller micro batches save more, and are named instead."""
    result = search(
        {**CONFIG, "gradient_accumulation_steps": 4}, model="llama-3-70b", gpu="h100", world=1024, nodes=128, zero_init=True
    ).run()
    assert len(result.best) >= 3
    assert all(one.candidate.choice.optimizer_device is None for one in result.best)
    assert len({one.candidate.choice.micro_batch for one in result.best}) > 1
    lost = {loss.name: loss for loss in result.lost}
    assert lost["optimizer offload to the CPU"].slower is not None
    assert result.estimated <= 45


def test_the_best_are_listed_by_speed() -> None:
    seconds = [one.candidate.seconds for one in search(CONFIG).run().best]
    assert seconds == pytest.approx(sorted(seconds), rel=0.03)  # fewer changes count a little


@pytest.mark.slow
def test_quantized_weights_are_considered_between_machines_where_they_save_much() -> None:
    config = {**CONFIG, "zero_optimization": {"stage": 3}}
    slow = search(config, world=16, nodes=2)
    slow.rates = slow.rates._replace(network=10e9 / 8)
    assert any(one.candidate.choice.quantized_weights for one in slow.run().best)
    for found in (search(config, world=8), search(config, world=16, nodes=2, model="gpt2-xl", length=1024)):
        found.rates = found.rates._replace(network=3200e9 / 8)
        assert not any(one.candidate.choice.quantized_weights for one in found.run().best)


def test_quantized_gradients_are_considered_between_machines_where_they_save_much() -> None:
    config = {**CONFIG, "zero_optimization": {"stage": 3}}
    slow = search(config, world=16, nodes=2)
    slow.rates = slow.rates._replace(network=10e9 / 8)
    written = [one.written.text for one in slow.run().best if one.candidate.choice.quantized_gradients]
    assert written
    assert all('"zero_quantized_gradients": true' in text for text in written)
    one = search(config, world=8)
    assert not any(choice.quantized_gradients for choice in choices(one.base, one.model, free_batch=False))


@pytest.mark.slow
def test_one_of_the_best_trains_as_before_where_all_others_quantize() -> None:
    found = search({**CONFIG, "zero_optimization": {"stage": 3}}, world=64, nodes=8, model="llama-3-70b", length=4096, zero_init=True)
    found.rates = found.rates._replace(network=10e9 / 8)
    best = [one.candidate.choice for one in found.run().best]
    quantizes = [choice.quantized_weights or choice.quantized_gradients for choice in best]
    assert any(quantizes)
    assert not all(quantizes)


def test_secondary_partitions_are_not_combined_with_offload() -> None:
    """With both, users report trainings that make no progress (DS426)."""
    found = search(CONFIG, world=16, nodes=2)
    both = [choice for choice in choices(found.base, found.model, free_batch=False) if choice.secondary > 1 and choice.optimizer_device]
    assert not both
    kept = search({**CONFIG, "zero_optimization": {**CONFIG["zero_optimization"], "zero_hpz_partition_size": 8}}, world=16, nodes=2)
    assert present(kept.base) in set(choices(kept.base, kept.model, free_batch=False))


def test_tensor_parallelism_is_considered_where_the_config_alone_begins_it() -> None:
    """The Trainer's loader gives the ranks of a group the same samples; a program of its own has to."""
    config = {**CONFIG, "zero_optimization": {"stage": 1}}
    trainer = search(config, gpu="h100", integration=Integration.TRANSFORMERS)
    assert {choice.tensor for choice in trainer.choices(free_batch=False)} == {1, 2, 4, 8}
    assert {choice.tensor for choice in search(config, gpu="h100").choices(free_batch=False)} == {1}
    adapters = search(config, gpu="h100", integration=Integration.TRANSFORMERS, lora_rank=8)
    assert {choice.tensor for choice in adapters.choices(free_batch=False)} == {1}
    now = present(trainer.base)
    divided = next(choice for choice in trainer.choices(free_batch=False) if choice.tensor == 2 and choice.stage == now.stage)
    written = write(trainer.text, trainer.config, divided, now)
    assert written is not None
    assert '"tensor_parallel": {"autotp_size": 2}' in written.text
    assert not any("tensor parallelism" in sentence for sentence in written.program)
    assert trainer.makes(divided, trainer.planner(written.text, written.said)[1])


@pytest.mark.slow
def test_tensor_parallelism_may_go() -> None:
    found = search({**CONFIG, "zero_optimization": {"stage": 1}, "tensor_parallel": {"autotp_size": 2}}, gpu="h100")
    without = [one for one in found.run().best if one.candidate.choice.tensor == 1]
    assert without
    assert all("use no tensor parallelism: each rank takes samples of its own" in one.written.program for one in without)
    assert all('"autotp_size": 1' in one.written.text for one in without)


@pytest.mark.slow
def test_overlap_is_turned_on_at_stage_3() -> None:
    found = search({**CONFIG, "zero_optimization": {"stage": 3, "overlap_comm": False}}, world=16, nodes=2)
    best = [one for one in found.run().best if one.candidate.choice.stage == 3]
    assert best
    assert all(one.candidate.choice.overlap and '"overlap_comm": true' in one.written.text for one in best)
    now = present(found.base)
    assert found.candidate(now._replace(overlap=True)).seconds < found.candidate(now).seconds


def test_small_buckets_are_named_where_larger_ones_do_not_fit() -> None:
    found = search({**CONFIG, "zero_optimization": {"stage": 3}})
    large = next(one for one in found.run().best if one.candidate.choice.stage == 3)
    choice = large.candidate.choice._replace(reduce_bucket=SMALL_BUCKET, prefetch_bucket=SMALL_PREFETCH)
    between = (large.found.device.high + estimate(found.model, choice.plan(found.base)).device.high) // 2
    tight = search({**CONFIG, "zero_optimization": {"stage": 3}})
    tight.goal = Goal(between)
    best = tight.run().best
    assert any(one.candidate.choice == choice for one in best)
    text = next(one.written.text for one in best if one.candidate.choice == choice)
    assert f'"reduce_bucket_size": {SMALL_BUCKET}' in text
