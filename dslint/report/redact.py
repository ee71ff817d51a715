"""Publishes a diagnosis without what tells where a job ran, and of whom: what is not known to be harmless is replaced.

The list of what may stay is `harmless_words.json`: the words of dslint's own texts, of the keys of DeepSpeed, and the names in the
libraries that tracebacks lead through. Numbers, sizes, times, versions and operators stay, too. Everything else gets a stand-in, the same
for the same text: `<host-1>`, `<path-2>/train.py`, `<user-1>`, `<token-1>`, `<address-1>`, `<url-1>`, `<name-3>`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cache
from importlib import resources
from typing import Any

from dslint.diagnose.diagnosis import Diagnosis
from dslint.diagnostics import Diagnostic

LIBRARIES = frozenset(
    [
        "torch",
        "deepspeed",
        "transformers",
        "accelerate",
        "lightning",
        "pytorch_lightning",
        "lightning_fabric",
        "datasets",
        "peft",
        "trl",
        "numpy",
        "click",
        "triton",
        "flash_attn",
        "bitsandbytes",
        "megatron",
        "huggingface_hub",
        "safetensors",
        "tokenizers",
        "diffusers",
        "pydantic",
        "pydantic_core",
        "torchvision",
        "tqdm",
        "wandb",
        "ray",
        "vllm",
        "evaluate",
        "scipy",
        "pandas",
        "pyarrow",
        "psutil",
        "requests",
        "urllib3",
    ]
)
"""The packages with paths that stay."""

OWN = frozenset({"kind", "end", "rules", "code", "name", "severity", "phase", "pointer", "doc", "applicability"})
"""Fields with values of dslint's own."""

SHORTEST = 3
"""The fewest characters of a machine's name that is replaced wherever it stands."""

_UNIT = r"(?:[KMGTP]?i?B|[Bb]ytes?|[kKmMbB]|ms|us|ns|s|min|h|%|x|it|W|Hz|TFLOPS?|GPUs?|nd|rd|th|st)"
_NUMBER = re.compile(rf"[+-]?\d[\d_,]*(?:\.\d+){{0,2}}(?:[eE][+-]?\d+)?{_UNIT}?|[+-]?(?:inf|nan|NaN)")
_VERSION = re.compile(r"v?\d+(?:\.\d+)+(?:\.?(?:a|b|rc|post|dev)\d+)?(?:\+(?:cu|rocm|cpu)[\d.]*)?")
_TIME = re.compile(r"20\d\d-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:[.,]\d+)?Z?)?|\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?")
_RANK = re.compile(r"(?:rank|default|stage|layer|step|epoch|attempt|group|process|job)_?-?\d{1,6}", re.IGNORECASE)
_SMALL = re.compile(r"[A-Za-z]?|[0-9]+|\d+d|[a-z]\d")

_SECRET = re.compile(
    r"(?i)(?P<key>[\w.-]*(?:token|secret|passw(?:or)?d|passphrase|pwd|apikey|credential|auth\w*|cookie|session|bearer|signature|sig|sas"
    r"|(?:[_-]|\bapi|\b)key))(?P<sign>[\"']?\s*[=:]\s*(?:bearer\s+|basic\s+)?|\s+(?=\S*\d\S*[A-Za-z]|\S*[A-Za-z]\S*\d))"
    r"(?P<quote>[\"']?)(?P<value>[^\s\"',;)}\]]+)"
)
_SECRETS_KEPT = re.compile(r"(?i)(?:pad|eos|bos|unk|sep|cls|mask)_token(?:_id)?|\w*tokens|tokeniz\w*|tokens?_per\w*|\w*num_token\w*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"'<>\\,)\]}]+")
_USER_AT = re.compile(r"[\w.+%-]+@[\w.-]+(?::[^\s\"',;)]+)?")
_UUID = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z])")
_MAC = re.compile(r"(?<![0-9A-Za-z:-])[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5}(?![0-9A-Za-z:-])")
_IPV6 = re.compile(
    r"(?<![\w:.])(?=[0-9a-fA-F:]*::|(?:[0-9a-fA-F]{1,4}:){7})(?:[0-9a-fA-F]{0,4}:){2,7}"
    r"(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9a-fA-F]{1,4})?(?:%\w+)?(?![\w:])"
)
_IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?!\d|\.\d)")
_NAME = r"[^\s\"'`<>|:;,()\[\]{}/\\=]"
_PATH = re.compile(rf"(?:[A-Za-z]:|~[\w.-]*|\.{{1,2}})?(?:[/\\]{{1,2}}{_NAME}*)+|{_NAME}+(?:[/\\]{{1,2}}{_NAME}*)+")
_RUN = re.compile(r"[^\W_](?:[\w.+@#$%&!?*~^-]*[\w+@#$%&^~])?|_[\w.+@#$%&^~-]*", re.UNICODE)
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_STAND_IN = re.compile(r"<(?:host|path|user|token|address|url|name)-\d+>")
_SIGNS = re.compile(r"[\W_]*")


def redacted(found: Sequence[Diagnosis]) -> list[Diagnosis]:
    """The diagnoses with stand-ins for everything that is not known to be harmless, in all that reports show."""
    cleaner = Cleaner(_hosts(found))
    return [_diagnosis(one, cleaner.clean) for one in found]


class Cleaner:
    """Replaces what is not known to be harmless; the same text by the same stand-in."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        names = sorted(hosts, key=lambda name: (-len(name), name))
        self._hosts = re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])(?:\.[\w.-]+\w)?" for name in names)) if names else None

    def clean(self, text: str) -> str:
        """A text of any length; lines stay lines."""
        parts: list[str] = []
        for pattern, sort in _FOUND:
            text = pattern.sub(lambda match, sort=sort: self._structured(match, sort), text)  # type: ignore[misc]
        if self._hosts is not None:
            text = self._hosts.sub(lambda match: self._stand_in("host", match[0]), text)
        end = 0
        for kept in _STAND_IN.finditer(text):
            parts += [self._plain(text[end : kept.start()]), kept[0]]
            end = kept.end()
        return "".join([*parts, self._plain(text[end:])])

    def _stand_in(self, sort: str, text: str) -> str:
        if (sort, text) not in self._known:
            self._counts[sort] = self._counts.get(sort, 0) + 1
            self._known[sort, text] = f"<{sort}-{self._counts[sort]}>"
        return self._known[sort, text]

    def _structured(self, match: re.Match[str], sort: str) -> str:
        """The stand-in of what is recognised by its form."""
        if _STAND_IN.search(match[0]) and sort != "secret":
            return match[0]
        if sort == "secret":
            if _SECRETS_KEPT.fullmatch(match["key"]) or _NUMBER.fullmatch(match["value"]) or _STAND_IN.match(match["value"]):
                return match[0]
            if _is_word(match["value"].strip("(.")) and not match["sign"].strip("\"' ").startswith("="):
                return match[0]
            return f"{match['key']}{match['sign']}{match['quote']}{self._stand_in('token', match['value'])}"
        return self._stand_in(sort, match[0])

    def _plain(self, text: str) -> str:
        """A text without stand-ins: its paths, then its words."""
        parts, end = [], 0
        for match in _PATH.finditer(text):
            parts += [self._words(text[end : match.start()]), self._path(match[0])]
            end = match.end()
        return "".join([*parts, self._words(text[end:])])

    def _path(self, path: str) -> str:
        """A path: what lies in a known library stays, of others the name of the file if it is harmless."""
        parts = re.split(r"[/\\]+", path)
        if all(_SMALL.fullmatch(part) or _NUMBER.fullmatch(part) or part.lower() in _RATES for part in parts) or set(path) <= set("/\\."):
            return path
        for index, part in enumerate(parts):
            inner = parts[index:]
            begins = part in ("site-packages", "dist-packages") or (part in LIBRARIES and index + 1 < len(parts))
            if begins and (part in LIBRARIES or LIBRARIES.intersection(inner[1:2])) and all(map(_is_harmless, inner[1:])):
                outside = self._stand_in("path", "/".join(parts[:index])) + "/" if index else ""
                return outside + "/".join(inner)
        last = parts[-1]
        folder = self._stand_in("path", "/".join(parts[:-1]))
        if not last:
            return folder + "/"
        return f"{folder}/{last if _is_harmless(last) else self._file(last)}"

    def _file(self, name: str) -> str:
        """The stand-in of a name, with its ending if that is usual."""
        stem, dot, ending = name.rpartition(".")
        return self._stand_in("name", stem) + dot + ending if stem and dot and ending in _ENDINGS else self._stand_in("name", name)

    def _words(self, text: str) -> str:
        return _RUN.sub(lambda match: match[0] if _is_harmless(match[0]) else self._file(match[0]), text)


_RATES = frozenset(
    {
        "it",
        "s",
        "sec",
        "step",
        "token",
        "tokens",
        "samples",
        "sample",
        "gpu",
        "and",
        "or",
        "iter",
        "bf16",
        "fp16",
        "fp32",
        "gib",
        "gb",
        "n",
        "a",
    }
)
_ENDINGS = frozenset(
    {
        "py",
        "json",
        "yaml",
        "yml",
        "log",
        "txt",
        "sh",
        "pt",
        "bin",
        "safetensors",
        "err",
        "out",
        "jsonl",
        "npy",
        "ipynb",
        "gz",
        "cpp",
        "cu",
        "so",
    }
)
_FOUND = (
    (_SECRET, "secret"),
    (_URL, "url"),
    (_USER_AT, "user"),
    (_UUID, "address"),
    (_MAC, "address"),
    (_IPV6, "address"),
    (_IPV4, "address"),
)


@cache
def _words() -> frozenset[str]:
    data = json.loads(resources.files("dslint.report").joinpath("harmless_words.json").read_text(encoding="utf-8"))
    return frozenset(data["words"])


@cache
def _is_harmless(run: str) -> bool:
    """Whether a run of letters, digits and signs may stay: a number, a version, a time, or words of the list."""
    if any(pattern.fullmatch(run) for pattern in (_NUMBER, _VERSION, _TIME, _RANK)):
        return True
    if "-" in run and any(map(str.isdigit, run)):
        return False  # names of machines, pods and jobs
    parts = re.split(r"[.\-_+*?!]+", run)
    if len(parts) > 3 and all(map(str.isdecimal, parts)):
        return False
    return all(not part or part.isdecimal() or _is_word(part) or _NUMBER.fullmatch(part) is not None for part in parts)


def _is_word(part: str) -> bool:
    """Whether a word, or all words that its capitals divide it into, are on the list."""
    if part.lower() in _words() or len(part) == 1:
        return True
    pieces = _CAMEL.findall(part)
    return "".join(pieces) == part and len(pieces) > 1 and all(len(piece) > 2 and piece.lower() in _words() for piece in pieces)


def _hosts(found: Iterable[Diagnosis]) -> set[str]:
    """The names of machines that the logs tell."""
    names: set[str] = set()
    for one in found:
        names |= set(one.job.get("hosts") or ())
        names |= {host for event in one.job.events for host in (event.host, event.values.get("host")) if host}
        names |= {cause.host for cause in (*one.causes, *one.notices) if cause.host}
    return {name for name in names if len(name) >= SHORTEST and name.lower() not in _ORDINARY}


_ORDINARY = frozenset({"localhost", "worker", "node", "host", "rank", "error", "info", "warning"})


def _diagnosis(found: Diagnosis, clean: Callable[[str], str]) -> Diagnosis:
    shown = {name: _walk(getattr(found.job, name), clean) for name in ("facts", "moments", "first")}
    steps = [dataclasses.replace(event, text="", values=_numbers(event.values), source="", host=None) for event in found.job.steps]
    job = dataclasses.replace(found.job, **shown, files=set(map(clean, found.job.files)), steps=steps, events=_safe_events(found, clean))
    fields = {field.name: _walk(getattr(found, field.name), clean) for field in dataclasses.fields(found) if field.name != "job"}
    return Diagnosis(job=job, **fields)


def _safe_events(found: Diagnosis, clean: Callable[[str], str]) -> list[Any]:
    """The events from which reports compute figures, with nothing but figures."""
    return [_walk(event, clean) for event in found.job.events if event.kind == "breakdown"]


def _numbers(values: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if _NUMBER.fullmatch(value)}


def _walk(value: Any, clean: Callable[[str], str]) -> Any:
    """The value with every text in it cleaned."""
    if isinstance(value, str):
        return value if isinstance(value, Enum) else clean(value)
    if isinstance(value, Diagnostic):
        return value._replace(message=clean(value.message), help=clean(value.help) if value.help else None, path=clean(value.path))
    if hasattr(value, "_asdict"):  # a record, or a named tuple
        return value._replace(**{name: _walk(entry, clean) for name, entry in value._asdict().items() if name not in OWN})
    if isinstance(value, list | tuple | set):
        return type(value)(_walk(entry, clean) for entry in value)
    if isinstance(value, dict):
        return {clean(key) if isinstance(key, str) else key: _walk(entry, clean) for key, entry in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kept = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **{name: entry if name in OWN else _walk(entry, clean) for name, entry in kept.items()})
    return value
