"""The step-time model: its parts by hand, what every config must obey, and the comparison of two configs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dslint.facts.gpus import GPUS
from dslint.speed.collectives import gathered, reduced, ring, tensor_parallel
from dslint.speed.compare import SpeedVerdict, compare
from dslint.speed.compute import compute, flops_per_token, paced, rate
from dslint.speed.constants import FITTED
from dslint.speed.hardware import BETWEEN, HARDWARE, SHARED, TO_HOST, WITHIN, assumed_network, hardware_of, network_rate
from dslint.speed.job import EXPERT_MODULES, MODULES, Job
from dslint.speed.optimizer import offload
from dslint.speed.step import ADAPTERS, AGAIN, ATTENTION, BUBBLE, COMPUTE, COPIES, FETCHED, HOST, LAUNCHES, NETWORK, TENSOR, UNEVEN, step
from tests.cases import table
from tests.speed.jobs import job


def test_the_operations_of_a_token_are_those_of_the_published_formula() -> None:
    """96 x layers x hidden^2 x (1 + seq / (6 hidden) + vocab / (16 layers hidden)) per token with recomputation (Narayanan et al. 2021)."""
    layers, hidden, length, vocabulary = 96, 12288, 2048, 51200
    params = 12 * layers * hidden**2 + vocabulary * hidden
    gpt3 = job(params=params, active=params, trained=params, layers=layers, hidden=hidden, attended=length, flash=False)
    with_recomputation = flops_per_token(gpt3) + 2 * 12 * layers * hidden**2 + 4 * layers * hidden * length
    published = 96 * layers * hidden**2 * (1 + length / (6 * hidden) + vocabulary / (16 * layers * hidden))
    assert with_recomputation == pytest.approx(published, rel=1e-9)


def test_frozen_weights_need_no_gradient() -> None:
    assert flops_per_token(job(trained=0.0, attended=0)) == 4 * 7e9
    assert flops_per_token(job(attended=0)) == 6 * 7e9


def test_the_ring_of_one_machine_and_of_several() -> None:
    one = job(stage=3)
    assert ring(one, 8e9, FITTED) == pytest.approx(8e9 * 7 / 8 / (300e9 * WITHIN))
    four = job(gpus=32, network=100e9)
    assert ring(four, 8e9, FITTED) == pytest.approx(8e9 * 3 / 4 / (100e9 * BETWEEN) + 4 * FITTED.latency)
    without_links = job("rtx4090")
    assert ring(without_links, 8e9, FITTED) == pytest.approx(8e9 * 7 / 8 / (32e9 * SHARED))


def test_a_measured_bandwidth_counts_as_it_is() -> None:
    assert ring(job(gpus=32, network=100e9, given=("network",)), 8e9, FITTED) == pytest.approx(8e9 * 3 / 4 / 100e9 + 4 * FITTED.latency)


def test_tensor_parallel_groups_share_the_network_of_a_machine() -> None:
    """With tp 8 each of the 8 groups of a machine reduces its eighth of the model over the same network: as much as one group with tp 1."""
    alone, divided = job(gpus=32, stage=1), job(gpus=32, stage=1, tensor=8)
    assert reduced(divided, FITTED) == pytest.approx(reduced(alone, FITTED), rel=1e-6)


def test_stage_0_reduces_twice_as_much_as_stage_1_and_stage_3_gathers_twice() -> None:
    assert reduced(job(stage=0), FITTED) == pytest.approx(2 * reduced(job(stage=1), FITTED))
    forward, backward = gathered(job(stage=3), FITTED)
    assert forward == backward > reduced(job(stage=3), FITTED)
    assert gathered(job(stage=3, gpus=1, local=1), FITTED) == (0, 0)


def test_quantized_gradients_are_4_bits_between_machines_only() -> None:
    c = FITTED._replace(latency=0.0)
    wide = job(stage=3, gpus=64)
    assert reduced(wide.but(quantized_gradients=True), c) == pytest.approx(reduced(wide, c) / 4)
    assert reduced(job(stage=3, quantized_gradients=True), c) == reduced(job(stage=3), c)


def test_without_overlap_stage_3_waits_for_its_reduction() -> None:
    slow = job(stage=3, gpus=64, network=5e9)
    waits = [step(slow.but(overlap=overlap)).of(NETWORK) for overlap in (True, False)]
    fast = [step(job(stage=3, overlap=overlap)).of(NETWORK) for overlap in (True, False)]
    assert waits[0] <= waits[1]
    assert fast[1] >= reduced(job(stage=3), FITTED) > fast[0]


def test_hpz_keeps_the_backward_within_the_machine() -> None:
    plain, divided = job(stage=3, gpus=64), job(stage=3, gpus=64, secondary=8)
    assert gathered(divided, FITTED)[0] == gathered(plain, FITTED)[0]
    assert gathered(divided, FITTED)[1] < gathered(plain, FITTED)[1] / 2


def test_the_cpu_optimizer_shares_the_memory_of_its_machine() -> None:
    """All ranks of a machine update its part of the model: the time does not depend on their number, only on that of machines."""
    eight, one = offload(job(optimizer_on="cpu"), FITTED), offload(job(optimizer_on="cpu", gpus=1, local=1), FITTED)
    assert eight.cpu == pytest.approx(one.cpu) == pytest.approx(7e9 * 28 / (410e9 * FITTED.adam))
    assert offload(job(optimizer_on="cpu", gpus=16), FITTED).cpu == pytest.approx(eight.cpu / 2)
    assert offload(job(optimizer_on="cpu", host_rate=2 * 410e9 * FITTED.adam), FITTED).cpu == pytest.approx(eight.cpu / 2)
    assert offload(job(optimizer_on="cpu", offloaded=0.5), FITTED).cpu == pytest.approx(eight.cpu / 2)
    assert eight.once == pytest.approx(7e9 / 8 * 4 / (32e9 * TO_HOST))


def test_a_pipeline_waits_as_its_bubble_says() -> None:
    """(stages - 1) / micro batches of the rest (Narayanan et al. 2021)."""
    found = step(job(pipeline=4, accumulation=12, stage=0, gpus=4, local=4, vocabulary=0))
    work = sum(found.of(kind) for kind in (COMPUTE, ATTENTION, AGAIN)) / 12
    assert found.of(BUBBLE) / 3 == pytest.approx(work, rel=0.02)


def test_every_stage_of_a_pipeline_waits_for_the_one_with_the_head() -> None:
    """A head as large as the other weights of a stage makes the last one twice as slow; layers that are divided by cost may hide it."""
    large = job(params=8e9, active=8e9, pipeline=8, stage=0, accumulation=64, vocabulary=250_000, layers=32)
    small = large.but(vocabulary=0)
    assert step(small).of(UNEVEN) == 0
    assert step(large).of(UNEVEN) > 0.5 * step(large).of(COMPUTE)
    assert step(large.but(pipeline=1)).of(UNEVEN) == 0
    assert [part.low for part in step(large).parts if part.kind is UNEVEN] == [0.0]


def test_a_loss_that_writes_no_logits_saves_their_traffic() -> None:
    wide = job(vocabulary=250_000, hidden=1024, layers=4, params=5e8, active=5e8)
    narrow = wide.but(vocabulary=1000)
    saved = [step(one).of(COMPUTE) - step(one.but(fused=True)).of(COMPUTE) for one in (wide, narrow)]
    assert saved[0] > 3 * saved[1]


def test_adapters_cost_what_depends_on_their_kernels() -> None:
    found = step(job(trained=7e7, adapted=32 * 19 * 4096))
    (adapters,) = (part for part in found.parts if part.kind is ADAPTERS)
    assert adapters.low == 0
    assert 0.1 < adapters.seconds / found.of(COMPUTE) < 0.25
    (attention,) = (part for part in step(job(trained=7e7, adapted=32 * 8 * 4096)).parts if part.kind is ADAPTERS)
    assert attention.seconds == pytest.approx(adapters.seconds * 8 / 19)
    assert step(job()).of(ADAPTERS) == 0


def test_bf16_without_tensor_cores_is_as_slow_as_fp32() -> None:
    assert rate(job("v100"), FITTED) < rate(job("v100", precision="fp16"), FITTED) / 5
    assert rate(job("v100"), FITTED) == pytest.approx(rate(job("v100", precision="fp32"), FITTED))


def test_the_slower_of_gpu_and_host_decides() -> None:
    assert paced(1, 0) == 1
    assert paced(0, 0) == 0
    assert 1 < paced(1, 1) < 1.2
    assert paced(10, 1) == pytest.approx(10, rel=1e-3)


def any_job(seed: int) -> Job:
    """A random job: an Adam on one of the GPUs, with any stage and offload that belong together."""
    pick = random.Random(seed)
    stage = pick.choice((0, 1, 2, 3))
    local = pick.choice((1, 2, 4, 8))
    gpu = pick.choice([name for name in HARDWARE if name != "p100"])
    layers, hidden = pick.choice(((12, 768), (32, 4096), (80, 8192)))
    params = 12.0 * layers * hidden**2
    return job(
        gpu,
        params=params,
        active=params,
        trained=pick.choice((params, params / 100)),
        layers=layers,
        hidden=hidden,
        heads=hidden // 64,
        length=pick.choice((128, 2048, 32_768)),
        attended=pick.choice((128, 2048)),
        micro_batch=pick.choice((1, 4, 32)),
        accumulation=pick.choice((1, 8)),
        local=local,
        gpus=local * pick.choice((1, 2, 16)),
        stage=stage,
        recomputed=pick.choice((0.0, 1.0)),
        flash=pick.choice((True, False)),
        optimizer_on=pick.choice((None, "cpu")) if stage else None,
        overlap=pick.choice((True, False)),
    )


SLOWER: tuple[tuple[str, dict[str, Any]], ...] = (
    ("checkpointing", {"recomputed": 1.0}),
    ("attention with scores", {"flash": False}),
    ("optimizer offload", {"optimizer_on": "cpu"}),
    ("optimizer on NVMe", {"optimizer_on": "nvme"}),
    ("parameter offload", {"parameters_on": "cpu"}),
    ("no page-locked memory", {"pinned": False}),
    ("a slower network", {"network": 1e8}),
    ("slower links", {"link": 1e9}),
    ("slower PCIe", {"pcie": 1e9}),
    ("fewer kernels fused", {"fused": False}),
    ("no overlap", {"overlap": False}),
)


@table("seed", range(60))
def test_what_costs_time_never_saves_it(seed: int) -> None:
    base = any_job(seed)
    before = step(base)
    assert 0 < before.low < before.seconds < before.high
    assert 0 < before.utilisation < 1
    for name, change in SLOWER:
        if name == "parameter offload" and base.stage < 3:
            continue
        if "optimizer" in name and (base.stage == 0 or base.optimizer_on):
            continue
        assert step(base.but(**change)).seconds >= before.seconds * 0.999999, name


@table("seed", range(60))
def test_more_samples_take_longer_but_not_each(seed: int) -> None:
    base = any_job(seed)
    double = base.but(micro_batch=2 * base.micro_batch)
    assert step(base).seconds < step(double).seconds
    assert step(double).tokens_per_second >= 0.99 * step(base).tokens_per_second
    longer = base.but(accumulation=2 * base.accumulation)
    assert step(longer).seconds > step(base).seconds


@table("seed", range(60))
def test_comparisons_are_antisymmetric_and_bounded(seed: int) -> None:
    """Swapping the configs swaps the verdict, a config is too close to itself, and the expected gain lies in its range."""
    opposite = {SpeedVerdict.FASTER: SpeedVerdict.SLOWER, SpeedVerdict.LIKELY_FASTER: SpeedVerdict.LIKELY_SLOWER}
    opposite |= {there: back for back, there in opposite.items()}
    base = any_job(seed)
    first = step(base)
    assert compare(first, first).verdict is SpeedVerdict.CLOSE
    for _, change in SLOWER:
        second = step(base.but(**change))
        there, back = compare(first, second), compare(second, first)
        assert there.low <= there.gain <= there.high
        if SpeedVerdict.CLOSE not in (there.verdict, back.verdict) and abs(there.gain) > 0.1:
            assert back.verdict in (opposite[there.verdict], SpeedVerdict.LIKELY_FASTER, SpeedVerdict.LIKELY_SLOWER)
        if there.verdict is SpeedVerdict.CLOSE:
            assert abs(there.gain) < 0.03


def test_equal_expected_times_of_other_collectives_are_not_too_close_to_call() -> None:
    """Stages 1 and 2 of a small model on two GPUs without NVLink: their expected times are equal, measured ones differ by 25 to 50 %
    (LianjiaTech/BELLE issue 402). Where collectives take little time, they are close.
    """
    small = job("titanrtx", gpus=2, local=2, precision="fp16", params=1e9, active=1e9, trained=1e9, layers=24, hidden=1536, micro_batch=1)
    small = small.but(length=512, attended=512)
    found = compare(step(small.but(stage=1)), step(small.but(stage=2)))
    assert abs(found.gain) < 0.03
    assert found.verdict in (SpeedVerdict.LIKELY_FASTER, SpeedVerdict.LIKELY_SLOWER)
    assert found.kind is not None
    large = job(micro_batch=8, accumulation=16)
    assert compare(step(large.but(stage=0)), step(large.but(stage=1))).verdict is SpeedVerdict.CLOSE


def test_another_micro_batch_is_too_close_to_call_only_where_products_are_large() -> None:
    """Kernels of other sizes reach other shares of their peak: the ratio of two such configs is unsure by what compute takes. From 16,384
    tokens on, adapters of 7B models on an A100 differ by 0.2 to 1.2 % (tables of fms-acceleration).
    """
    small = job(micro_batch=4, accumulation=2)
    found = compare(step(small), step(small.but(micro_batch=8, accumulation=1)))
    assert found.verdict is not SpeedVerdict.CLOSE
    assert found.low < found.gain < found.high
    large = job(micro_batch=16, accumulation=2)
    assert compare(step(large), step(large.but(micro_batch=32, accumulation=1))).verdict is SpeedVerdict.CLOSE
    experts = large.but(params=2.8e10)
    assert compare(step(experts), step(experts.but(micro_batch=32, accumulation=1))).verdict is not SpeedVerdict.CLOSE
    accumulated = compare(step(large), step(large.but(accumulation=4)))
    assert accumulated.verdict is SpeedVerdict.CLOSE


def test_sdpa_with_a_mask_computes_the_whole_square() -> None:
    """PyTorch's flash kernel takes no mask; FlashAttention leaves padding out. A 1-GPU training of Llama 3.1 8B on 2 x 8,192 tokens took
    9.7 s on an A100 and 4.7 s on an H100 by SDPA; the model says 7.3 and 2.8 s without a mask (ljm565/universal-llm-trainer, docs).
    """
    for gpu, seconds in (("a100", 9.7), ("h100", 4.7)):
        large = job(gpu, params=8e9, active=8e9, trained=8e9, length=8192, attended=8192, micro_batch=2, gpus=1, local=1, stage=0)
        large = large.but(vocabulary=128_256, recomputed=1.0)
        plain, masked = step(large), step(large.but(masked=True))
        assert masked.of(ATTENTION) > 3 * plain.of(ATTENTION)
        assert masked.low < seconds < masked.high
        assert step(large.but(masked=True, kernel="flash_attention_2")).of(ATTENTION) < 1.5 * plain.of(ATTENTION)


def test_a_known_kernel_has_no_range_of_its_own() -> None:
    long = job("h100", length=65_536, attended=65_536, micro_batch=1)
    expected = {kernel: step(long.but(kernel=kernel)).seconds for kernel in ("", "sdpa", "flash_attention_2", "flash_attention_3")}
    assert expected["flash_attention_2"] > expected[""] == expected["sdpa"] > expected["flash_attention_3"]
    widths = {kernel: step(long.but(kernel=kernel)) for kernel in expected}
    assert widths["flash_attention_2"].high / widths["flash_attention_2"].low < widths[""].high / widths[""].low
    older = job("a100", length=65_536, attended=65_536, micro_batch=1)
    assert step(older.but(kernel="flash_attention_3")).seconds == step(older).seconds


def test_experts_that_are_modules_are_launched_each() -> None:
    plain = job(micro_batch=1, length=128, attended=128)
    experts = plain.but(modules=(MODULES + 128 * EXPERT_MODULES) * plain.layers)
    assert step(experts).of(LAUNCHES) > 10 * step(plain).of(LAUNCHES)
    assert step(plain.but(modules=MODULES * plain.layers)).seconds == step(plain).seconds


def test_offload_is_never_too_close_to_none() -> None:
    without, with_it = step(job()), step(job(optimizer_on="cpu"))
    assert compare(without, with_it).verdict is SpeedVerdict.FASTER
    assert with_it.of(HOST) > 0 < with_it.of(COPIES)
    assert step(job(stage=3, parameters_on="cpu")).of(FETCHED) > 0


def test_stage_3_waits_for_a_slow_network_and_stage_2_accumulates_first() -> None:
    slow = job(gpus=16, network=1.25e9, accumulation=8, micro_batch=1, stage=3)
    assert step(slow).of(NETWORK) > 5 * step(slow.but(stage=1)).of(NETWORK)


def test_tensor_parallelism_across_machines_uses_the_network() -> None:
    assert tensor_parallel(job(gpus=16, tensor=16), FITTED) > 3 * tensor_parallel(job(tensor=8), FITTED)
    assert step(job(tensor=2)).of(TENSOR) > 0


@table("name", GPUS)
def test_every_gpu_of_the_facts_has_its_speed(name: str) -> None:
    assert hardware_of(GPUS[name]) is HARDWARE[name]
    assert compute(job(name), FITTED).device > 0
    assert HARDWARE[name].source


@pytest.mark.parametrize(
    ("text", "rate"), [("8x400Gb/s", 400e9), ("200 Gb/s", 25e9), ("25GB/s", 25e9), ("2 x 100Gbps", 25e9), ("800Mb/s", 1e8)]
)
def test_network_rates(text: str, rate: float) -> None:
    assert network_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "fast", "0Gb/s", "0x100Gb/s", "100", "-1Gb/s", "1e9Gb/s"])
def test_other_texts_are_no_network_rates(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        network_rate(text)


def test_the_assumed_network_follows_the_gpus() -> None:
    assert assumed_network(HARDWARE["h100"], 8) == pytest.approx(100e9)
    assert assumed_network(HARDWARE["rtx4090"], 8) == pytest.approx(12.5e9)


def test_newer_gpus_have_hosts_with_faster_memory() -> None:
    """DDR5 instead of DDR4; the memory of a Grace CPU belongs to one GPU."""
    older, newer, grace = (offload(job(name, optimizer_on="cpu"), FITTED).cpu for name in ("a100", "h100", "gh200"))
    assert newer == pytest.approx(older * 410 / 614)
    assert grace == pytest.approx(older * 410 / 4000)


def test_attention_has_a_range_by_its_kernel_on_hopper() -> None:
    """FlashAttention-2 does not use what Hopper added; its successors are nearly twice as fast there (Shah et al. 2024)."""
    narrow, wide = (
        next(part for part in step(job(name, length=65536, attended=65536)).parts if part.kind.name == "attention")
        for name in ("a100", "h100")
    )
    assert narrow.high / narrow.low < 2
    assert 3 < wide.high / wide.low < 4.5
    assert "FlashAttention-2" in wide.kind.why


def test_experts_that_are_modules_of_their_own_cost_hooks_at_stage_3() -> None:
    """The host needs a time for each module whatever the size of the micro batch, so that a larger one is nearly free."""
    few, many = job(stage=3, micro_batch=1), job(stage=3, micro_batch=1, modules=32 * (9 + 5 * 128))
    assert step(many).seconds > 5 * step(few).seconds
    assert step(many.but(micro_batch=2)).seconds < 1.2 * step(many).seconds
