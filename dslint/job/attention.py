"""Which kernel computes attention, by the words of programs and training files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dslint.job.arguments import SourcedValue
from dslint.job.model import Program
from dslint.source.unknown import UNKNOWN

EAGER, SDPA, FLEX, FLASH_2, FLASH_3 = KERNELS = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3")
"""The kernels, as transformers names them. `FLASH_3` stands for newer ones, too."""

ON: Mapping[Any, str] = {True: FLASH_2}
"""The values of a switch for flash attention."""

NAMED: Mapping[Any, str] = {
    **{name: name for name in KERNELS},
    "flash_attention_4": FLASH_3,
    "kernels-community/flash-attn": FLASH_2,
    "kernels-community/flash-attn2": FLASH_2,
    "kernels-community/flash-attn3": FLASH_3,
    "kernels-community/vllm-flash-attn3": FLASH_3,
}
"""The values of `attn_implementation` of transformers; those with a slash are kernels of its hub."""

LOADING: Mapping[str, Mapping[Any, str]] = {
    "attn_implementation": NAMED,
    "_attn_implementation": NAMED,
    "use_flash_attention_2": ON,
}
"""Arguments with which transformers loads a model. `use_flash_attention_2` is that of releases before 4.36."""

OF_PROGRAMS: Mapping[str, Mapping[Any, str]] = {
    "attn_implementation": NAMED,
    "use_flash_attention_2": ON,
    "use_flash_attn": ON,
    "flash_attn": ON,
}
"""Arguments of programs, which often have the name of what they are given to."""

PATCHES = r"(\w+\.)+replace_\w*attn\w*"
"""Functions that replace the attention of a model's class by FlashAttention: those of FastChat and LLaVA, and their copies."""

_LOADS = r"(.+\.)?(from_pretrained|from_config)"


def kernel_named(kernels: Mapping[Any, str], value: Any) -> str | None:
    """The kernel for a value of an argument. The text of a switch, from a command, is what it says."""
    return kernels.get({"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value)


def kernel_of(program: Program) -> SourcedValue | None:
    """The kernel that a program chooses, if it chooses one for all models that it loads: by an argument, by a patch, or by what
    its text says.
    """
    given = [(event, name, one) for event in program.events.of(_LOADS) for name, one in event.arguments.items() if name in LOADING]
    named = [(None if one.value is UNKNOWN else kernel_named(LOADING[name], one.value), event) for event, name, one in given]
    if not named:
        patch = next((event for event in program.events.of(PATCHES) if event.certain), None)
        return replace(patch.at, value=FLASH_2) if patch is not None else program.attention
    kernel, event = named[0]
    return replace(event.at, value=kernel) if kernel is not None and all(one == kernel for one, _ in named) else None
