"""The size of a model by its name."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d{1,2})x)?(\d{1,4}(?:\.\d{1,3})?)([bmt])(?![a-z0-9])")
"""`235b`, `8x22b`; not the `a22b` after it, which counts what is active for a token."""

_OTHER = re.compile(
    r"\dbit|\d-bit|quan|gptq|awq|aqlm|hqq|bnb|gguf|mlx|exl\d|(?:int|nf|fp|mx|nvfp|mxfp|q|w)[48]|fp8|float8|distil|draft|eagle|spec|token|adapter|lora"
    r"|teacher|synth|data|prun|tiny|mini|student|reap|judge|output|layer|(?:from|by)-\d|bitnet|ternary|deepseek|kimi|minimax|gpt-oss|devstral|ministral|mistral-large-3"
)
"""What makes a name say less: weights of fewer bits (also families that are published in 8 or 4 bits), another model than the one of this
size, tokens.
"""

ROUNDED_UP = 1.05
"""By how much a name may round the number of parameters up."""

_SHARED = 0.75
"""The share of "8x22B" that a model has at least: its experts share attention (8x7B has 46.7 billion, 8x22B 141)."""


def billions_in(name: str) -> float | None:
    """The parameters that a name says, in billions, at least; None if it says none, more than one number, or other weights than 16 bits."""
    last = re.sub(r"[\s_]+", "-", name.strip().rstrip("/").rpartition("/")[2].lower())
    sizes = _SIZE.findall(last)
    if len(sizes) != 1 or _OTHER.search(last) is not None or sizes[0][2] != "b":
        return None
    experts, size, _ = sizes[0]
    return float(size) * (int(experts) * _SHARED if experts else 1)
