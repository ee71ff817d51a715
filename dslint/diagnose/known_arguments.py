"""What the table of arguments says of one that a library refuses: which of its releases know it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from dslint.diagnose.diagnosis import LikelyCause
from dslint.diagnose.frames import Frame
from dslint.diagnose.places import is_library
from dslint.diagnose.texts import match_line
from dslint.record import Record

GENERAL = frozenset(
    {"training-arguments-removed", "releases-do-not-match", "optimizer-keyword", "unexpected-argument", "unrecognized-arguments", ""}
)
"""The entries for refused arguments that name no release, "" for none: what is known of the argument takes their place."""

PROGRAM = "program"
"""The arguments of a library's command in the table."""

MOST = 3
"""The most arguments of a command that are told."""

RENAMED = {
    "transformers": {
        "evaluation_strategy": "eval_strategy",
        "no_cuda": "use_cpu",
        "per_gpu_train_batch_size": "per_device_train_batch_size",
        "per_gpu_eval_batch_size": "per_device_eval_batch_size",
        "tokenizer": "processing_class",
    },
    "trl": {"tokenizer": "processing_class", "max_seq_length": "max_length"},
    "ms-swift": {
        "sft_type": "train_type",
        "train_type": "tuner_type",
        "model_id_or_path": "model",
        "model_id": "model",
        "dtype": "torch_dtype",
        "template_type": "template",
        "batch_size": "per_device_train_batch_size",
        "eval_batch_size": "per_device_eval_batch_size",
        "lora_target_modules": "target_modules",
        "custom_train_dataset_path": "dataset",
        "custom_val_dataset_path": "val_dataset",
    },
}
"""What arguments are called in later releases of a library."""

MOVED = {"Trainer": "Config", "Accelerator": "DataLoaderConfiguration"}
"""How the names of classes end whose arguments later releases take in another class, and how the name of that ends."""

_REFUSED = re.compile(r"TypeError: (?:(?P<of>\w+)\.)?(?P<function>\w+)\(\) got an unexpected keyword argument '(?P<argument>\w+)'")
_UNUSED = re.compile(r"not used by the HfArgumentParser: (?P<listed>\[.*\])|remaining_argv: (?P<swift>\[.*\])")
_WRAPS = re.compile(r"/_?deprecation\.py$")
"""Files of wrappers around functions with arguments that have another name now: they pass on what the program passes."""

_OF_SWIFT = re.compile(r"(?:^|/)swift/")
_OF_LLAMA_FACTORY = re.compile(r"(?:^|/)(?:llmtuner|llamafactory)/")


class Taken(Record):
    """An argument of a class, function or command of a library: the first and the last release that takes it, "" for a bound that no known
    release is outside of, with the release before the first and the one after the last.
    """

    library: str
    thing: str
    since: str
    until: str
    before: str
    after: str

    @property
    def sentence(self) -> str:
        """Which releases take it, and what that says of the installed one."""
        if self.since and self.until:
            only = f"{self.library} {self.since}" if self.since == self.until else f"{self.library} {self.since} to {self.until}"
            return f"only {only} {'takes' if self.since == self.until else 'take'} it, of the releases that dslint knows"
        if self.since:
            return f"{self.library} takes it from {self.since} on (not {self.before}): the installed release is older"
        return f"{self.library} takes it up to {self.until} (not {self.after}): the installed release is newer"

    @property
    def install(self) -> str:
        """The releases to install for it."""
        if self.since and self.until:
            return self.since if self.since == self.until else f"{self.since} to {self.until}"
        return f"{self.since} or newer" if self.since else f"{self.until} or older"


@cache
def _tables() -> dict[str, Any]:
    return dict(json.loads(resources.files("dslint.diagnose").joinpath("known_arguments.json").read_text(encoding="utf-8")))


def taken(library: str, thing: str, argument: str) -> Taken | None:
    """What is known of an argument; None for one that all known releases take, or none."""
    table = _tables().get(library, {"releases": "", "things": {}})
    bounds = table["things"].get(thing, {}).get("changed", {}).get(argument)
    if bounds is None:
        return None
    releases = table["releases"].split()
    since, until = bounds
    before = releases[releases.index(since) - 1] if since and releases.index(since) else ""
    after = releases[releases.index(until) + 1] if until and until != releases[-1] else ""
    if (since and not before) or (until and not after):
        return None
    return Taken(library, thing, since, until, before, after)


def takes(library: str, thing: str, argument: str) -> bool:
    """Whether the newest known release takes an argument."""
    known = _tables().get(library, {"things": {}})["things"].get(thing)
    if known is None:
        return False
    return argument in known["always"].split() or known["changed"].get(argument, ("", "gone"))[1] == ""


def with_known_argument(cause: LikelyCause, frames: Sequence[Frame] = ()) -> LikelyCause:
    """The cause; of an argument that only other releases of a library take, with these in place of what holds for any refused argument."""
    known = match_line(cause.title, [frame.place for frame in frames])
    if known is not None and known[0].id not in GENERAL:
        return cause
    told = _of_call(cause.title, frames) or _of_command(cause.title, frames)
    if told is None:
        return cause
    why, advice = told
    rest = tuple(one for one in cause.why if one not in cause.of_table)
    return replace(cause, why=(*why, *rest), advice=tuple(advice), rules=(), unchecked=(), of_table=(*why, *advice))


def _of_call(title: str, frames: Sequence[Frame]) -> tuple[list[str], list[str]] | None:
    """The cause and the advice for an argument of a call."""
    refused = _REFUSED.search(title)
    if refused is None:
        return None
    argument = refused["argument"]
    names = [refused["of"] or refused["function"]] if refused["function"] == "__init__" or not refused["of"] else []
    if names == ["__init__"]:  # Python before 3.10 does not name the class: the line that calls it does
        names = re.findall(r"\b([A-Z]\w+)\(", frames[-1].code) if frames else []
    names = [name.removeprefix("_Unsloth") for name in names]
    things = [(library, name) for library, table in _tables().items() for name in names if name in table["things"]]
    found = [one for library, name in things if (one := _of(library, name, argument)) is not None]
    if len({one.library for one in found}) != 1:
        return None
    one = found[0]
    thing = "deepspeed.zero.Init" if one.thing == "Init" else one.thing
    own = [frame for frame in frames if not _WRAPS.search(frame.file)][-1:]
    caller = own[0].file.rpartition("-packages/")[2].partition("/")[0] if own and is_library(own[0]) else ""
    why = [f"{thing} does not take {argument} in the installed release: {one.sentence}."]
    if caller and caller != one.library and "-packages/" in own[0].file:
        return why, [f"{caller} passes it: install {one.library} {one.install}, or a release of {caller} from the same time as yours."]
    instead = _instead(one, argument) or f"Leave {argument} out."
    return why, [f"{instead} Or install {one.library} {one.install}."]


def _of(library: str, thing: str, argument: str) -> Taken | None:
    """What is known of an argument of a class, also of one that it takes as a class of the training arguments of transformers."""
    if (found := taken(library, thing, argument)) is not None:
        return found
    if library == "trl" and thing.endswith("Config"):
        return taken("transformers", "TrainingArguments", argument)
    return None


def _instead(one: Taken, argument: str) -> str:
    """What to write instead of an argument that later releases do not take."""
    if not one.until:
        return ""
    dashes = "--" if one.thing == PROGRAM else ""
    renamed = RENAMED.get(one.library, {}).get(argument, "")
    between = taken(one.library, one.thing, renamed)
    newer = RENAMED.get(one.library, {}).get(renamed, "") if between is not None and between.until else ""
    if newer and between is not None and takes(one.library, one.thing, newer):
        return f"Write {dashes}{renamed}, as releases up to {between.until} call it, or {dashes}{newer}, its name in later ones."
    if renamed and takes(one.library, one.thing, renamed):
        return f"Write {dashes}{renamed}, as later releases call it."
    for end, other in MOVED.items():
        name = f"{one.thing.removesuffix(end)}{other}" if end != one.thing else other
        if one.thing.endswith(end):
            for moved in filter(None, (argument, renamed)):
                of_trainer = one.library == "trl" and takes("transformers", "TrainingArguments", moved)
                if of_trainer or takes(one.library, name, moved):
                    return f"Pass {moved} to {name}, which takes it in later releases."
    return ""


def _of_command(title: str, frames: Sequence[Frame]) -> tuple[list[str], list[str]] | None:
    """The cause and the advice for arguments of a command that the program does not know."""
    unused = _UNUSED.search(title)
    if unused is None:
        return None
    names = list(_names(unused["listed"] or unused["swift"]))
    if "local_rank" in names or "local-rank" in names:
        return (
            ["The launcher passes --local_rank to each process, and this program does not take it."],
            ["Pass --no_local_rank to the launcher of DeepSpeed, start with torchrun, or with plain python if one process is enough."],
        )
    if any(name.strip("\\") == "" for name in names):
        said = "A backslash arrived as an argument: it continues a line only as its last character, and only in a shell such as bash."
        return [said], ["Write the command in one line without backslashes. In cmd of Windows a line ends with ^, in PowerShell with `."]
    places = " ".join(frame.file.replace("\\", "/") for frame in frames)
    own = "ms-swift" if unused["swift"] or _OF_SWIFT.search(places) else "LLaMA-Factory" if _OF_LLAMA_FACTORY.search(places) else ""
    found = [(name, one) for name in names if (one := (taken(own, PROGRAM, name) if own else None) or _of_trainer(own, name))]
    if not found:
        return None
    why = [f"--{name}: {one.sentence if own else _of_unknown_program(one)}." for name, one in found[:MOST]]
    advice = [f"{_instead(one, name) or f'Leave --{name} out.'} Or install {one.library} {one.install}." for name, one in found[:MOST]]
    return why, list(dict.fromkeys(advice))


def _of_trainer(own: str, name: str) -> Taken | None:
    """What is known of an argument of the Trainer, unless the framework has one of that name itself."""
    return None if own and takes(own, PROGRAM, name) else taken("transformers", "TrainingArguments", name)


def _of_unknown_program(one: Taken) -> str:
    """What is said of an argument of the Trainer that a program does not know, which may not be one of the Trainer."""
    return f"an argument of the Trainer; {one.sentence.replace('the installed release is ', 'the installed release may be ')}"


def _names(listed: str) -> Iterator[str]:
    """The names in a list of arguments with their values."""
    try:
        parts = ast.literal_eval(listed)
    except (SyntaxError, ValueError):
        return
    for part in parts if isinstance(parts, list) else []:
        text = str(part)
        if text.startswith("--"):
            yield text[2:].partition("=")[0]
        elif text.strip() in ("\\", ""):
            yield text.strip()
