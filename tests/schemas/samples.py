"""Values to try on every key, and the walk to the place where a key stands."""

from __future__ import annotations

from typing import Any

from dslint.config.coerce import is_kind
from dslint.schemas.root import DeepSpeedConfig
from dslint.schemas.walk import Key, all_keys

KEYS: tuple[Key, ...] = tuple(all_keys(DeepSpeedConfig))
"""Every key of the config."""

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 7, 100, 1.5, -0.5, 0.25, "", "word", "auto", "7",
    [], [1], [0.1, 0.2], ["a"], ["a", 1], {}, {"xyzzy": 1},
)  # fmt: skip
"""One of everything that JSON can say. No whole floats, which JSON Schema takes for integers and strict pydantic does not."""


def dotted(key: Key) -> str:
    """The key's name in the table."""
    return ".".join(key.path)


def values_for(key: Key) -> list[Any]:
    """The common values, the key's own words and numbers on and beside its bounds."""
    edges = [edge + step for edge in key.shape.bounds.values() for step in (-1, 0, 1)]
    words = [word.upper() if isinstance(word, str) else word for word in key.shape.choices]
    return [*VALUES, *key.shape.choices, *words, *edges]


def document(path: tuple[str, ...], value: Any) -> Any:
    """A config that holds `value` at a key and nothing else; "*" becomes the name "mine", a list gets one item."""
    for name in reversed(path):
        value = {"mine" if name == "*" else name.removesuffix("[]"): [value] if name.endswith("[]") else value}
    return value


def place(path: tuple[str, ...]) -> list[str | int]:
    """Where that value stands, as jsonschema names it."""
    steps: list[str | int] = []
    for name in path:
        steps += [name.removesuffix("[]"), 0] if name.endswith("[]") else ["mine" if name == "*" else name]
    return steps


def fits(value: Any, spec: dict[str, Any]) -> bool:
    """What the key table says of a value, taken at its word: type, words, range, items. Conversions count as faults."""
    if isinstance(value, bool) and "bool_for" in spec:
        return True
    kind = next((kind for kind in spec["types"] if is_kind(value, kind)), None)
    if kind is None:
        return False
    if kind in ("null", "section", "dict"):
        return True
    if kind == "list":
        return all(
            fits(item, {"types": spec.get("items", ()), "choices": spec.get("item_choices")}) for item in value if "items" in spec
        ) and (len(value) == spec.get("length", len(value)))
    words = spec.get("choices") or (spec.get("words") if isinstance(value, str) else None)
    if words and value not in words:
        return bool("folded" in spec and value.lower() in [word.lower() for word in words])
    if isinstance(value, bool | str):
        return True
    return bool(
        value >= spec.get("ge", value)
        and value > spec.get("gt", value - 1)
        and value <= spec.get("le", value)
        and value < spec.get("lt", value + 1)
    ) and all(value != banned for banned, *_ in spec.get("forbids", ()))
