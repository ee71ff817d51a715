"""Names of GPUs as tools print them, and sizes as people write them."""

from __future__ import annotations

import pytest

import dslint
from dslint.facts.gpus import GIB, GPUS, gpu_named, size
from tests.cases import table


@table(
    "text, name",
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA RTX A6000", "a6000"),
        ("AMD Instinct MI300X", "mi300x"),
        ("3090", "rtx3090"),
        ("RTX 3080 Ti", "rtx3080ti"),
        ("TITAN RTX", "titanrtx"),
        ("Quadro RTX 8000", "rtx8000"),
        ("NVIDIA RTX A5000", "a5000"),
        ("910B", "ascend910b"),
        ("A800 80G", "a800"),
        ("V100-32G", "v100"),
        ("a100-40g", "a100-40gb"),
        ("AMD Instinct MI210", "mi210"),
        *((name, name) for name in GPUS),
    ],
)
def test_a_gpu_is_known_by_the_name_that_tools_print(text: str, name: str) -> None:
    assert gpu_named(text).name == name


@pytest.mark.parametrize("text", ["a100-32gb", "a800-40g", "v100-80gb", "rtx3090-80gb", "banana", "", "gb", "80gb"])
def test_a_gpu_of_another_size_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a known GPU"):
        gpu_named(text)


def test_a_bare_number_is_bytes_and_has_to_be_some() -> None:
    assert size("85899345920") == size("80 GiB") == 80 * GIB
    for text in ("80", "10", "0GiB", "-1GiB", "x"):
        with pytest.raises(ValueError, match=text):
            size(text)


@pytest.mark.parametrize("elements", [0, 1, 1_000_000_000])
def test_sub_groups_hold_whole_weights(elements: int) -> None:
    """A tiny `sub_group_size`, as it is while a person types it, makes a group of each weight."""
    offload = {"device": "cpu", "pin_memory": True}
    zero = {"stage": 3, "sub_group_size": elements, "offload_param": offload, "offload_optimizer": offload}
    found = dslint.estimate({"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}, world_size=8, model="llama-3-8b", gpu="h100")
    assert 0 < len(found.details.host.pinned) < 1_000
