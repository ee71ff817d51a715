"""Detects the kind of a file from its keys. Only training configs are checked as configs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from dslint.config.sections import children, is_habit
from dslint.schemas.derive import TRAIN
from dslint.schemas.recognition import ACCELERATE_KEYS, INFERENCE_KEYS, MODEL_KEYS, SECTIONS, TELLING_IN_YAML, TELLING_KEYS, TRAINER_KEYS
from dslint.source.similar import MANY, similar
from dslint.source.tree import Document, Mapping, Member, Node, Scalar, Sequence


class FileKind(StrEnum):
    """The kinds of files. Rules check a `DS_CONFIG`, and the configs that the next four kinds contain or name."""

    DS_CONFIG = "ds_config"
    ACCELERATE = "accelerate"
    TRAINING = "training"
    SCRIPT = "script"
    PYTHON = "python"
    INFERENCE = "inference"
    TEMPLATE = "template"
    UNRELATED = "unrelated"
    UNREADABLE = "unreadable"


_PLACEHOLDER = r"\{\{[^{}\n]*+\}\}|\{%[^{%\n]*+%\}|\$\{[^{}\x22\n]*+\}|<<[A-Z_]+>>|\$[A-Z][A-Z_]{2,}\b"
"""Placeholders of Jinja, the shell and Hydra; none of them goes over the end of a string, as between two words of a vocabulary."""

_BLANK = r""":\s*+"(<[A-Z][A-Z0-9_]*+>)\""""
"""A value to fill in by hand: `"<BATCH_SIZE>"`."""

_SHOUTED = r"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+),?"
"""An unquoted placeholder for `sed`, as in Megatron's templates: `CONFIG_BATCH_SIZE`."""


def looks_like_config(section: Mapping, *, about: bool) -> bool:
    """Whether a section is a config. `about` says that its name is one for a config; any other needs a section of DeepSpeed in it."""
    names = {member.key.value for member in section.members}
    known = names & children()[""].keys()
    if about:
        return bool(names & TELLING_KEYS) or len(known) >= 2
    return bool(names & TELLING_KEYS) and len(known) >= 2 and _has_section(section, known)


def detect_kind(document: Document, *, named: bool, hinted: bool = False, templates: bool = True) -> tuple[FileKind, str | None]:
    """The kind of a document, and a sentence for the user if it is not simply a config.

    A named file counts as a config unless it is clearly something else. A file found in a directory must look like one: two top-level keys
    of DeepSpeed, or one that no other tool uses, even if it is misspelt. One key, misspelt or not, is enough for a file that is `hinted`:
    its name is one that configs have, or a program mentions it. Otherwise keys that every program has count only in the form that DeepSpeed
    reads. `templates` says whether a placeholder makes the file a template.
    """
    root = document.root
    names = {member.key.value for member in root.members} if isinstance(root, Mapping) else set()
    if document.problems:  # what stands behind the first error may not be in the tree
        names |= _words(document)
    known = names & children()[""].keys()
    telling = names & TELLING_KEYS
    hole = _hole(document) if templates else None
    if hole and (document.problems or (known and not _is_of_another_program(root, names, known))):
        return FileKind.TEMPLATE, f"a template: it contains the placeholder {hole}. Check the rendered file instead."
    if len(names & INFERENCE_KEYS) >= 2 and not telling and len(names - INFERENCE_KEYS) <= MANY_UNKNOWN:
        return FileKind.INFERENCE, "a config for deepspeed.init_inference; dslint checks only training configs."
    if not telling and len(names & ACCELERATE_KEYS) >= 2 and "distributed_type" in names:
        return FileKind.ACCELERATE, None
    has_arguments = not telling and len(names & TRAINER_KEYS - known) >= (2 if "deepspeed" in names else 3)
    if has_arguments or _is_around_config(document, names, known):
        return FileKind.TRAINING, None
    if not telling and len(known) < 2 and names & MODEL_KEYS:
        return FileKind.UNRELATED, "not checked: it is the config.json of a model. Pass it with --model FILE, next to a DeepSpeed config."
    if telling or len(known) >= 2:
        if other := _of_another_program(document, names, known):
            return FileKind.UNRELATED, other
        is_vague = not (telling or named or hinted) and _has_only_common_words(document, names, known)
        return (FileKind.UNRELATED if is_vague else FileKind.DS_CONFIG), None
    if not named:
        return FileKind.DS_CONFIG if _is_meant_for_one(document, names, known, hinted=hinted) else FileKind.UNRELATED, None
    if why := _of_others(document, names, known):
        return FileKind.UNRELATED, why
    if document.problems or known or not names:
        return FileKind.DS_CONFIG, None
    if not names & {"zero", "zero_optimisation", "lr_scheduler"} and _is_foreign(names):
        return FileKind.UNRELATED, "not checked: it has no key of a DeepSpeed config."
    return FileKind.DS_CONFIG, None


def _is_around_config(document: Document, names: set[str], known: set[str]) -> bool:
    """Whether a file of a program has the config as one of its sections, beside keys of its own.

    `optimizer` and `wandb` at the top level are then words of the program: 50 public files of ArcticTraining have them.
    """
    return len(known) >= _KNOWN and len(names - known - SECTIONS) >= _OWN and wrapper_of(document) is not None


_KNOWN, _OWN = 2, 2
"""Keys of DeepSpeed that make a file a config, and keys of its own that make it one of a program."""


def _of_another_program(document: Document, names: set[str], known: set[str]) -> str | None:
    """Why a file with keys of a config is one of another program; None if it is a config.

    `optimizer`, `checkpoint` and `seed` are words of every program with a YAML file.
    """
    if document.language == "yaml" and not known & TELLING_IN_YAML:
        return _YAML_OF_A_PROGRAM
    return OF_ANOTHER_PROGRAM if _is_of_another_program(document.root, names, known) else None


_NAMED = ("optimizer", "scheduler")
"""Keys with which other programs name a class, and DeepSpeed has a section."""


def _has_only_common_words(document: Document, names: set[str], known: set[str]) -> bool:
    """Whether a file that nothing names has words of every program beside keys of its own, and none in the form that DeepSpeed reads.

    An example is `{"optimizer": "adam", "fp16": true, "epochs": 3}`.
    """
    root = document.root
    if document.problems or not isinstance(root, Mapping) or all(name in known or is_habit(name) for name in names):
        return False
    if any(_is_read(member) for member in root.members if member.key.value in known) or _is_misspelt(document, names, known):
        return False
    return TRAIN not in known or any(
        isinstance(member.value, Scalar) and isinstance(member.value.value, str) for member in root.members if member.key.value in _NAMED
    )


def _is_read(member: Member) -> bool:
    """Whether a key of a config holds a section in DeepSpeed's form, or leaves its value to a loader. Other programs have monitors, too."""
    name, value = member.key.value, member.value
    if not isinstance(value, Mapping):
        return isinstance(value, Scalar) and value.value == "auto"
    inner = {one.key.value for one in value.members}
    if name in _NAMED:
        return "params" in inner
    return name not in ("wandb", "tensorboard", "comet") and not inner.isdisjoint(children().get(name, {}))


def _of_others(document: Document, names: set[str], known: set[str]) -> str | None:
    """Why a named file with at most one key of a config is one of another program; None if it may be a config.

    With a key of a config, sections make it one: those of the others may be misspelt. That does not count in YAML, which only programs and
    launchers read, nor where the one key stands among many others and has not the form that DeepSpeed reads.
    """
    if known and document.language == "yaml" and not _is_misspelt(document, names, known):
        return _YAML_OF_A_PROGRAM
    if len(names - known) >= MANY_UNKNOWN and known and _has_only_common_words(document, names, known):
        return OF_ANOTHER_PROGRAM
    if known and isinstance(document.root, Mapping) and any(isinstance(member.value, Mapping) for member in document.root.members):
        return None
    if not known and document.language == "yaml" and _SECOND_DOCUMENT.search(document.text):
        return "not checked: none of its YAML documents has a key of a DeepSpeed config."
    return OF_ANOTHER_PROGRAM if not document.problems and _is_of_another_program(document.root, names, known) else None


_SECOND_DOCUMENT = re.compile(r"\S[^\n]*\n---(?:\s|\Z)")
"""The beginning of another document behind a line of YAML. Jobs of Kubernetes and pipelines of SkyPilot are files of several."""

_KEYS = re.compile(r"""["'](\w{1,64})["']|\b(\w{1,64})["']?\s*(?::|\Z)""")
"""Keys in a text that is broken: a quote or the colon may be what is missing."""

_FAR = 20_000
"""How far into a broken text its keys are looked for, in characters."""


def _is_meant_for_one(document: Document, names: set[str], known: set[str], *, hinted: bool) -> bool:
    """Whether a file that is not quite a config was meant for one. A program mentions other files, too: a vocabulary has every word."""
    hinted = hinted and not _is_of_another_program(document.root, names, known)
    if document.departures:  # HJSON may accept a slip in another way than it was meant
        names = names | _words(document)
    known = names & children()[""].keys()
    if isinstance(document.root, Mapping) and not document.problems:  # no key of a config holds a list: "checkpoints" of a result does
        names = names - {member.key.value for member in document.root.members if isinstance(member.value, Sequence)}
    return _is_misspelt(document, names, known) or (hinted and (bool(known) or not _is_foreign(names)))


def _words(document: Document) -> set[str]:
    return {word for pair in _KEYS.findall(document.text[:_FAR]) for word in pair if word}


_PARTS = (
    "zer",
    "opt",
    "mic",
    "bat",
    "gpu",
    "act",
    "poi",
    "wal",
    "clo",
    "ste",
    "per",
    "pri",
    "pre",
    "gra",
    "flo",
    "pro",
    "csv",
    "mon",
    "com",
    "log",
)
"""Parts of the telling keys, at least two of each. Comparing words is slow, and a word without any of them is close to none."""


def _is_misspelt(document: Document, names: set[str], known: set[str]) -> bool:
    """Whether a key is close to one that only DeepSpeed has, and something else in the file is DeepSpeed's, too."""
    if len(names) > MANY:
        return False
    for name in names:
        plain = name.lower().replace("-", "_")
        if any(part in plain for part in _PARTS) and (close := similar(plain, TELLING_KEYS, cutoff=0.85)):
            found = document.lookup((name,))
            section = found.value if isinstance(found, Member) else None
            inner = {member.key.value for member in section.members} if isinstance(section, Mapping) else set()
            if known or inner & children().get(close[0], {}).keys():
                return True
    return False


OF_ANOTHER_PROGRAM = "not checked: it has no section of a DeepSpeed config, and DeepSpeed does not know most of its keys."

_YAML_OF_A_PROGRAM = "not checked: a YAML file without a key that only DeepSpeed configs have."

MANY_UNKNOWN = 10
UNKNOWN_FOR_EACH_KNOWN = 3
"""How many keys that DeepSpeed does not know make a file without a section one of another program: results of a benchmark and saved
arguments have dozens beside a batch size and a learning rate; a config with misspelt keys has a few. The vocabulary of a tokenizer has the
words of a config for inference, too."""


def _is_of_another_program(root: Node | None, names: set[str], known: set[str]) -> bool:
    """Whether a file has some of DeepSpeed's words but no section: the results of a benchmark, a program's arguments, counts of words."""
    unknown = sum(not is_habit(name) for name in names - known)
    if unknown >= max(1, len(known) / 2) and isinstance(root, Mapping) and _has_only_numbers(root, known & children().keys()):
        return True
    sections = isinstance(root, Mapping) and _has_section(root, known)
    return not sections and unknown >= max(MANY_UNKNOWN, UNKNOWN_FOR_EACH_KNOWN * len(known))


def _has_only_numbers(root: Mapping, sections: set[str]) -> bool:
    """Whether each value is a number, also that of one of these keys: the file counts how often a word occurs."""
    values = {member.key.value: member.value for member in root.members}
    numbers = all(isinstance(node, Scalar) and type(node.value) in (int, float) for node in values.values())
    return numbers and bool(sections & values.keys())


def _has_section(root: Mapping, known: set[str]) -> bool:
    """Whether one of the known keys holds a section."""
    return any(member.key.value in known and isinstance(member.value, Mapping) for member in root.members)


def wrapper_of(document: Document) -> Member | None:
    """The member below which a file has a whole config, as in `{"deepspeed": {...}}`; None if the config is not wrapped."""
    root = document.root
    if not isinstance(root, Mapping) or {member.key.value for member in root.members} & TELLING_KEYS:
        return None
    for member in root.members:
        if member.key.value in SECTIONS and isinstance(member.value, Mapping):
            names = {inner.key.value for inner in member.value.members}
            known = names & children()[""].keys()
            if names & TELLING_KEYS or len(known) >= 2 or _is_misspelt(Document(document.text, member.value), names, known):
                return member
    return None


def _hole(document: Document) -> str | None:
    marked = any(mark in document.text for mark in ("{{", "{%", "$", "<<"))
    placeholder = re.search(_PLACEHOLDER, document.text) if marked else None
    if placeholder:
        return placeholder.group()
    if '"<' in document.text and (blank := re.search(_BLANK, document.text)):
        return blank[1]
    if not any(departure.kind == "bare-string" for departure in document.departures):
        return None
    shouted = (re.fullmatch(_SHOUTED, word) for word in _bare_words(document.root))
    return next((match[1] for match in shouted if match), None)


def _bare_words(node: Node | None) -> Iterator[str]:
    if isinstance(node, Scalar):
        if node.style == "bare" and isinstance(node.value, str):
            yield node.value
    elif isinstance(node, Mapping):
        for member in node.members:
            yield from _bare_words(member.value)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _bare_words(item)


def _is_foreign(names: set[str]) -> bool:
    """Whether the names contain no key of DeepSpeed, not even a misspelt one."""
    top = list(children()[""])
    return not any(_is_near(name.lower().replace("-", "_"), top) for name in sorted(names)[:MANY])


def _is_near(name: str, keys: list[str]) -> bool:
    """Whether a name is one of these keys, or a slip away from one.

    One slip in a name of four letters leaves 0.75 of it. Of such names only the two precisions are keys of every second config, and hardly
    another program has names like them: "fp1s", "bf61".
    """
    return bool(similar(name, keys, cutoff=0.8) or (len(name) == 4 and similar(name, ("fp16", "bf16"), cutoff=0.75)))
