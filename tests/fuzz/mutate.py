"""Mutations of texts: some know nothing of the format, others replace whole tokens, keys and values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from dslint.schemas.key_table import KEYS

MOST = 16_000
"""The largest input in characters."""

TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[\w.$-]+|\s+|.', re.DOTALL)

VALUES: tuple[Any, ...] = (
    None, True, False, "auto", "", 0, 1, -1, 2, 3, 4, 0.5, 1e3, -0.0, 1e308, 2**31, 2**63, 2**64, 10**30, "1", "1e3", "0.1", "true", "None",
    [], {}, [1], [None], [[]], {"": 1}, {"enabled": True}, {"enabled": "auto"}, {"device": "cpu"}, {"device": "nvme"}, "cpu", "nvme",
    "/x", "bf16", "Adam", "AdamW", "WarmupLR", {"type": "Adam", "params": {"lr": "auto"}}, float("inf"), float("nan"), "\ud800", "\x1b[31m",
    "a\n::error::b", "a\u202eb", "a\0b", "x" * 300,
)  # fmt: skip
"""Values that mean something somewhere, or nothing anywhere."""

WORDS = (
    "{", "}", "[", "]", ":", ",", '"', "'", "'''", "\\", "//", "/*", "*/", "#", "\n", "\r\n", "\r", "\t", " ", "\ufeff", "\u2028", "\x0c", "\x1f",
    "\x85", "\xa0", "\x1b[31m", "\u202e", "漢", "😀", "\\u0000", "\\ud800", "-", "+", ".", "=", "$", "$(", "`", "${", "${x:-", "{{", "}}", "{%", "<<", ";",
    "&", "&&", "|", ">", "*", "@", "!", "%", "0x1F", "-0", "1e999", "9" * 40, "9" * 5_000, "NaN", "Infinity", "-Infinity", "null", "true", "false", "auto",
    '"auto"', "~", "---", "...", "- ", "? ", "&a ", "*a ", "!!python/object:x ", "import deepspeed\n", "def f():\n", "lambda: ", "**", "\nif ", "\nfi\n",
    "\n#SBATCH --nodes=", "\n::error::x", "// dslint: ignore[DS102] reason\n", "# dslint: ignore-file[DS1]\n", "// dslint: ignore[", "DS000", "deepspeed",
    "deepspeed==0.16.9", "--deepspeed ds_config.json", "--num_gpus 8", "../../etc/passwd", "/dev/zero", "ds_config.json", "(", ")", ">=", "^", "\\\n",
)  # fmt: skip
"""Pieces of the formats that dslint reads, and characters that some of them treat in a special way."""

NAMES = sorted({step for path in KEYS for step in path.split(".")})
"""The names of all keys that DeepSpeed knows."""


def mutated(text: str, rng: Random, others: Sequence[str]) -> str:
    """The text with one to six mutations. Text for which JSON exists is mutated as data in every second case."""
    if rng.random() < 0.5:
        text = _as_data(text, rng, others)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 6))):
        text = rng.choice(MUTATIONS)(text, rng, others)
        if len(text) > MOST:
            start = rng.randrange(len(text) - MOST + 1)
            text = text[start : start + MOST]
    return text


def _slice(text: str, rng: Random) -> tuple[int, int]:
    start = rng.randrange(len(text) + 1)
    return start, min(len(text), start + int(rng.expovariate(1 / 12)))


def _delete(text: str, rng: Random, others: Sequence[str]) -> str:
    start, end = _slice(text, rng)
    return text[:start] + text[end:]


def _repeat(text: str, rng: Random, others: Sequence[str]) -> str:
    start, end = _slice(text, rng)
    return text[:end] + text[start:end] * rng.choice((1, 1, 2, 10, 300)) + text[end:]


def _insert(text: str, rng: Random, others: Sequence[str]) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(WORDS) * rng.choice((1, 1, 1, 1, 3, 40, 2_000)) + text[at:]


def _replace_character(text: str, rng: Random, others: Sequence[str]) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + chr(rng.choice((rng.randrange(1, 128), rng.randrange(1, 0x3000)))) + text[at + 1 :]


def _swap_lines(text: str, rng: Random, others: Sequence[str]) -> str:
    lines = text.splitlines(keepends=True)
    if len(lines) > 1:
        first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[first], lines[second] = lines[second], lines[first]
    return "".join(lines)


def _replace_token(text: str, rng: Random, others: Sequence[str]) -> str:
    tokens = TOKEN.findall(text)
    if tokens:
        other = TOKEN.findall(rng.choice(others)) or [""]
        value = json.dumps(rng.choice(VALUES))
        tokens[rng.randrange(len(tokens))] = rng.choice((rng.choice(other), rng.choice(WORDS), value, json.dumps(rng.choice(NAMES))))
    return "".join(tokens)


def _splice(text: str, rng: Random, others: Sequence[str]) -> str:
    other = rng.choice(others)
    start, end = sorted((rng.randrange(len(other) + 1), rng.randrange(len(other) + 1)))
    at = rng.randrange(len(text) + 1)
    return text[:at] + other[start:end] + text[at:]


def _comment(text: str, rng: Random, others: Sequence[str]) -> str:
    """Comments where a line ends: the fixers have to keep them."""
    ends = [match.start() for match in re.finditer(r"\n|,|\{|$", text)]
    at = rng.choice(ends)
    return f"{text[:at]}{rng.choice((' // c%d', ' # c%d', ' /* c%d */', ' // dslint: ignore[DS102] c%d'))} \n{text[at:]}".replace(
        "%d", str(at)
    )


Mutation = Callable[[str, Random, Sequence[str]], str]

MUTATIONS: tuple[Mutation, ...] = (
    _delete, _repeat, _insert, _insert, _replace_character, _swap_lines, _replace_token, _replace_token, _replace_token, _splice, _comment,
)  # fmt: skip


def _as_data(text: str, rng: Random, others: Sequence[str]) -> str:
    try:
        data, other = json.loads(text), json.loads(rng.choice(others))
    except ValueError:
        return text
    for _ in range(rng.randrange(1, 5)):
        data = _changed(data, rng, other)
    return json.dumps(data, indent=rng.choice((None, 2, 4)), ensure_ascii=rng.random() < 0.5)


def _changed(data: Any, rng: Random, other: Any) -> Any:
    """The data with one change at a random depth."""
    if isinstance(data, dict) and data and rng.random() < 0.7:
        key = rng.choice(list(data))
        return {**data, key: _changed(data[key], rng, other)}
    if isinstance(data, dict) and rng.random() < 0.8:
        taken = dict(rng.sample(list(other.items()), rng.randrange(len(other) + 1))) if isinstance(other, dict) else {}
        return {
            **data,
            **taken,
            rng.choice((rng.choice(NAMES), rng.choice(NAMES), _misspelt(rng), str(rng.choice(VALUES)))): rng.choice(VALUES),
        }
    if isinstance(data, list) and data and rng.random() < 0.5:
        at = rng.randrange(len(data))
        return [*data[:at], _changed(data[at], rng, other), *data[at + 1 :]]
    return rng.choice(VALUES)


def _misspelt(rng: Random) -> str:
    name = rng.choice(NAMES)
    at = rng.randrange(len(name))
    return name[:at] + rng.choice(("", name[at] * 2, "x")) + name[at + 1 :]
