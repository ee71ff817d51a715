"""Changes of the config between releases, for `dslint schema --diff` and the pages on upgrading.

They come from the release facts in the key table, and from a list of changes that concern several keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from dslint.facts import OLDEST, RELEASES, Release
from dslint.schemas.key_table import KEYS, OPTIMIZERS, SCHEDULERS

Spec = dict[str, Any]


class Change(NamedTuple):
    """One change: its release, key ("" for the whole config), kind, and an explanation.

    `kind` is one of "new", "gone", "default", "range", "choices", "stricter", "deprecated", "meaning".
    """

    release: Release
    key: str
    kind: str
    text: str


MEANINGS = (
    ("0.15.0", "", "Sections are parsed by pydantic 2, which rejects 2.5 for an integer, a number for a string and [] for a section."),
    ("0.15.0", "zero_optimization.offload_optimizer.ratio", "Below ZeRO stage 3 a ratio under 1 is rejected; before, it was not checked."),
    (
        "0.17.0",
        "sequence_parallel_size",
        "It divides the world size in the batch sizes on its own; before, only together with data_parallel_size.",
    ),
    (
        "0.17.1",
        "fp16.enabled",
        'A string is parsed, and "auto" is dropped; before, every string (also "false" and "auto") enabled fp16.',
    ),
    (
        "0.17.1",
        "bf16.enabled",
        'A string is parsed, and "auto" is dropped; before, every string (also "false" and "auto") enabled bf16.',
    ),
    ("0.18.3", "fp16.fp16_master_weights_and_grads", "It works with ZeRO stages 1 to 3; before, only with stage 2."),
    ("0.19.3", "sequence_parallel_size", "A wrong value raises; before, the error was suppressed and the world size was 1."),
)
"""(release, key, explanation): changes that concern several keys, or that no mark expresses. Each was verified on the releases."""

_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def changes(start: Release, to: Release) -> list[Change]:
    """What changed after `start` up to `to`, by release, kind and key."""
    order = ("gone", "stricter", "meaning", "default", "range", "choices", "deprecated", "new")
    found = (change for change in _all() if start < change.release <= to)
    return sorted(found, key=lambda change: (change.release, order.index(change.kind), change.key))


def _all() -> Iterator[Change]:
    for key, spec in KEYS.items():
        if "[]" not in key and "shadowed_by" not in KEYS[key.partition(".")[0]]:  # another name of the same section
            yield from _of_key(key, spec)
    for section, registry in (("optimizer.type", OPTIMIZERS), ("scheduler.type", SCHEDULERS)):
        for name, kind in registry.items():
            yield from _comings_and_goings(f'{section}: "{name}"', kind)
    for release, key, text in MEANINGS:
        yield Change(Release.parse(release), key, "meaning", text)


def _of_key(key: str, spec: Spec) -> Iterator[Change]:
    yield from _comings_and_goings(key, spec)
    held = list(spec.get("defaults", ()))
    for (_, before), (release, now) in pairwise(held):
        yield Change(Release.parse(release), key, "default", f"{_json(now)}, before {_json(before)}")
    for until, bounds in spec.get("bounds", ()):
        now = {name: spec[name] for name in _BOUNDS if name in spec}
        yield Change(after(Release.parse(until)), key, "range", f"{_range(now)}, before {_range(bounds)}")
    for until, choices in spec.get("old_choices", ()):
        now = [choice for choice in spec["choices"] if choice is not None]
        yield Change(after(Release.parse(until)), key, "choices", f"{_words(now)}, before {_words(choices)}")
    if (
        "forbids_since" in spec
        and spec.get("since") != spec["forbids_since"]
        and (release := Release.parse(spec["forbids_since"])) > OLDEST
    ):
        yield Change(release, key, "stricter", "rejects unknown keys, which it ignored before")
    if "deprecated" in spec:
        use = spec["deprecated"].get("use")
        yield Change(Release.parse(spec["deprecated"]["release"]), key, "deprecated", f"write {use}" if use else "leave it out")


def _comings_and_goings(key: str, spec: Spec) -> Iterator[Change]:
    if "since" in spec:
        yield Change(Release.parse(spec["since"]), key, "new", _default(spec))
    for first, last in spec.get("absent", ()):
        yield Change(Release.parse(first), key, "gone", f"not read up to {last}")
        yield Change(after(Release.parse(last)), key, "new", _default(spec) or "read again")
    until = spec.get("until")
    if until is None:
        return
    last = Release.parse(until["release"])
    then = {"raises": "a config with this key is rejected", "ignored": "silently ignored", "unknown": "an unknown key"}
    instead = f"; write {until['use']}" if until.get("use") else ""
    note = f". {until['note']}" if until.get("note") else ""
    raises_since = until.get("raises_since")
    if last >= RELEASES[0]:
        said = then["ignored" if raises_since else until["then"]]
        yield Change(after(last), key, "gone", said + instead + note)
    if raises_since:
        yield Change(Release.parse(raises_since), key, "stricter", then["raises"] + instead + note)


def after(release: Release) -> Release:
    """The release after the given one."""
    return next((later for later in RELEASES if later > release), RELEASES[-1])


def _default(spec: Spec) -> str:
    held = list(spec.get("defaults", ()))
    value = held[0][1] if held else spec.get("default")
    return "" if value is None else f"default {_json(value)}"


def _range(bounds: Spec) -> str:
    return " and ".join(f"{_BOUNDS[name]} {value:,}" for name, value in bounds.items()) or "any number"


def _words(choices: Any) -> str:
    return ", ".join(map(_json, choices))


def _json(value: Any) -> str:
    import json

    return json.dumps(value)
