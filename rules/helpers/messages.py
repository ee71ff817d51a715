"""Phrases of messages that several chapters share: a value, the values a key accepts, an error and when DeepSpeed raises it."""

from __future__ import annotations

import re
from typing import Any

from dslint.diagnostics import SharedCause

_WHEN = {"parse": "while parsing", "initialize": "in deepspeed.initialize", "step": "at the first step"}


def raises(error: str, phase: str) -> str:
    """What DeepSpeed does with a value that it cannot use: `raises TypeError "..." while parsing`.

    Args:
        error: the recorded error: its type, usually followed by a colon and the message.
        phase: "parse", "initialize" or "step".
    """
    error = error.partition(", got ")[0]  # the recorded value is not the value in this config
    if error.count("(") > error.count(")"):
        error = error.rpartition(" (")[0]
    name, colon, message = error.partition(": ")
    return f'raises {name} "{message}" {_WHEN[phase]}' if colon else f"raises {error} {_WHEN[phase]}"


def shown_value(value: Any) -> str:
    """A value in a message: as in JSON, and large round numbers as `5e8`."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1e5 and value % 1e5 == 0:
        return f"{value:.12g}" if "e" in f"{value:.12g}" else re.sub(r"0+$", lambda zeros: f"e{len(zeros[0])}", f"{value:.0f}")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f'"{value}"' if isinstance(value, str) else str(value)


TYPE_NAMES = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "list": "a list",
    "dict": "an object",
    "section": "an object",
    "null": "null",
}


def expected(spec: dict[str, Any]) -> str:
    """The values that a key accepts, in words: `an integer >= 0`, `one of "cpu", "nvme", "none"`."""
    if "choices" in spec:
        choices = [choice for choice in spec["choices"] if choice is not None]
        words = "one of " + ", ".join(shown_value(choice) for choice in choices) if len(choices) > 1 else shown_value(choices[0])
        return words + (" or null" if "null" in spec["types"] else "")
    if "words" in spec:
        return " or ".join([_expected_kinds(spec, without="str"), *map(shown_value, spec["words"])])
    words = _expected_kinds(spec)
    bounds = [f"{sign} {shown_value(spec[name])}" for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")) if name in spec]
    words = " ".join([words, " and ".join(bounds)]) if bounds else words
    return f"{words}, or null" if bounds and "null" in spec["types"] else f"{words} or null" if "null" in spec["types"] else words


def _expected_kinds(spec: dict[str, Any], without: str = "") -> str:
    kinds = [kind for kind in spec["types"] if kind not in (without, "null") and not (kind == "int" and "float" in spec["types"])]
    return " or ".join(dict.fromkeys(_list_words(spec) if kind == "list" else TYPE_NAMES[kind] for kind in kinds)) or "null"


def _list_words(spec: dict[str, Any]) -> str:
    """`a list of 2 numbers`."""
    items = spec.get("items", ())
    plural = {"int": "integers", "float": "numbers", "str": "strings", "bool": "booleans"}.get(items[0]) if len(items) == 1 else None
    count = f"{spec['length']} " if "length" in spec else ""
    return f"a list of {count}{plural or 'items'}" if plural or count else "a list"


PIPELINE = SharedCause(
    "pipeline in the config",
    "{count} settings in `pipeline` make no pipeline: {keys}. A program makes one with PipelineModule and its arguments.",
    "Pass num_stages to PipelineModule, and remove them.",
)
"""The cause of findings about settings that look as if they configured a pipeline."""
