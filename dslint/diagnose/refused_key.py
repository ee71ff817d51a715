"""What the table of keys says of a key that the installed DeepSpeed refuses: which releases know it."""

from __future__ import annotations

import re
from dataclasses import replace

from dslint.diagnose.diagnosis import LikelyCause
from dslint.facts.release import OLDEST
from dslint.schemas.key_table import KEYS

SECTIONS = {
    "DeepSpeedZeroConfig": "zero_optimization",
    "DeepSpeedFP16Config": "fp16",
    "DeepSpeedBF16Config": "bf16",
    "HybridEngineConfig": "hybrid_engine",
    "TPTrainingConfig": "tensor_parallel",
    "CompileConfig": "compile",
}
"""The sections of the config by the classes that refuse keys which they do not have."""

_EXTRA = r"(?i:extra inputs are not permitted|extra fields not permitted)"
_REFUSED = (
    re.compile(rf"ValidationError: \d+ validation errors? for (?P<model>\w+): (?P<key>[A-Za-z_][\w.]*): {_EXTRA}"),
    re.compile(rf"ValidationError: (?P<key>[A-Za-z_][\w.]*): (?P<model>\w+): {_EXTRA}"),
)
"""How the title of a cause begins that is about such a key: from a log, and from a text without its traceback."""


def with_releases(cause: LikelyCause) -> LikelyCause:
    """The cause; of a key that only other releases know, with these releases in place of what holds for any refused key."""
    found = next((match for pattern in _REFUSED if (match := pattern.match(cause.title))), None)
    told = _told(SECTIONS.get(found["model"], ""), found["key"]) if found else None
    if told is None:
        return cause
    why, advice, codes = told
    rest = tuple(one for one in cause.why if one not in cause.of_table)
    return replace(cause, why=(why, *rest), advice=(advice,), rules=codes, unchecked=codes, of_table=(why, advice))


def _of_another_section(section: str, key: str) -> tuple[str, str, tuple[str, ...]] | None:
    """What is told of a key that is known in one other section, and in no release in this one."""
    others = {path.rpartition(".")[0] for path in KEYS if path.rpartition(".")[2] == key}
    if key in AMBIGUOUS or len(others) != 1 or not (other := next(iter(others))):
        return None
    why = f"{key} is a key of {other}, and no release has it in {section}; those that refuse unknown keys there end with this error."
    return why, f"Remove it from {section}, or move it to {other} if it is meant for that.", ("DS101",)


AMBIGUOUS = frozenset({"enabled", "stage", "device"})
"""Keys that say nothing of the section that they belong to."""


def _told(section: str, key: str) -> tuple[str, str, tuple[str, ...]] | None:
    """The cause, the advice and the codes of the rules about a key; None for a key that no release or the installed one may know."""
    path = f"{section}.{key}"
    spec = KEYS.get(path)
    if spec is None:
        return _of_another_section(section, key) if section else None
    since, until = spec.get("since"), spec.get("until")
    last = until["release"] if until else ""
    if since and until:
        why = f"Only DeepSpeed {since} to {last} know {path}: the installed release is older or newer."
        return why, f"Remove the key, or install one of these releases. {until.get('note', '')}".strip(), ("DS109", "DS112")
    if since:
        why = f"{path} was added in DeepSpeed {since}: the installed release is older."
        return why, f"Remove the key, or install DeepSpeed {since} or newer.", ("DS112",)
    if until:
        why = f"DeepSpeed knows {path} up to {last}: the installed release is newer."
        return why, f"Use {until['use']}." if until.get("use") else "Remove the key.", ("DS109",)
    if section != "zero_optimization" or key.startswith("stage3_"):  # a key with two names is refused if both are written
        return None
    why = f"Each release from DeepSpeed {OLDEST} on knows {path}: the installed release is older."
    return why, f"Remove the key, or install DeepSpeed {OLDEST} or newer.", ()
