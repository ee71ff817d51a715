"""The output of a few commands that only rewrite text: echo, cat, sed, dirname, pwd. Nothing is executed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from dslint.evaluate.shell.arithmetic import calculate
from dslint.evaluate.shell.pieces import Text, TextPiece, cut, joined, known
from dslint.source.integers import integer

_MOST_NUMBERS = 1_000
"""The most numbers that `seq` prints here. Loops over more end by the budget of steps before."""

ReadFile = Callable[[Text], "Text | None"]


def output_of(words: list[Text], given: Text | None, read: ReadFile, folder: str) -> Text | None:
    """What a command prints; None if it is not known. `given` is its standard input."""
    name, rest = known(words[0]) or "", words[1:]
    blank = words[0][0]._replace(text=" ", exact=False, splits=False)
    if name == "echo":
        while rest and known(rest[0]) in ("-n", "-e", "-ne", "-en"):
            rest = rest[1:]
        return (*joined(rest, blank), blank._replace(text="\n"))
    if name == "printf" and rest:
        return _printed(rest, blank)
    if name == "wc":
        return _counted([known(word) for word in rest], given, blank)
    if name in ("cut", "tr", "grep", "awk"):
        return _filtered(name, [known(word) for word in rest], given, blank)
    if (name == "command" and rest and known(rest[0]) == "-v") or name in ("which", "type"):
        programs = [word for word in rest if not (known(word) or "").startswith("-")]
        return programs[0] if len(programs) == 1 else None
    if name == "seq":
        return _sequence(rest, blank)
    if name == "pwd":
        return (blank._replace(text=folder or "."),)
    if name == "cat":
        texts = [read(word) for word in rest if not (known(word) or "").startswith("-")]
        return given if not texts else None if None in texts else tuple(piece for text in texts for piece in text or ())
    if name == "tee":
        return given
    if name == "sed":
        return _sed(rest, given, read)
    return _of_path(name, rest, blank)


def _printed(words: list[Text], blank: TextPiece) -> Text | None:
    """`printf FORMAT WORD...`, with the plain conversions."""
    pattern, values = known(words[0]), words[1:]
    if pattern is None or "-v" in pattern:
        return None
    parts = re.split(r"(%[sd]|%%|\\[nt\\])", pattern)
    if any("%" in part or "\\" in part for part in parts[::2]) or (values and parts.count("%s") + parts.count("%d") != len(values)):
        return None
    found: list[TextPiece] = []
    for part in parts:
        if part in ("%s", "%d"):
            found += values.pop(0) if values else ()
        elif part:
            found.append(blank._replace(text={"%%": "%", "\\n": "\n", "\\t": "\t", "\\\\": "\\"}.get(part, part)))
    return tuple(found)


def _filtered(name: str, words: list[str | None], given: Text | None, blank: TextPiece) -> Text | None:
    """`cut -d, -f2`, `tr a b`, `tr -d a`, `grep -o ,`, `awk -F, '{print NF}'` of a text that is known: scripts count GPUs so."""
    text = known(given) if given is not None else None
    flags = " ".join(word for word in words if word is not None) if None not in words else None
    if text is None or flags is None:
        return None
    if name != "cut":
        made = {"tr": _translated, "grep": _matches, "awk": _fields}[name]([str(word) for word in words], text)
        return None if made is None else (blank._replace(text=made),)
    match = re.fullmatch(r"-d ?(.) ?-f ?(\d)", flags)
    if match is None or text.count("\n") > 1:
        return None
    parts = text.rstrip("\n").split(match[1])
    number = int(match[2]) - 1
    return (blank._replace(text=parts[0] if len(parts) == 1 else parts[number] if number < len(parts) else ""),)


def _translated(words: list[str], text: str) -> str | None:
    """`tr OLD NEW` or `tr -d OLD` of plain characters."""
    old, new = (re.sub(r"\\n", "\n", one) for one in words) if len(words) == 2 else ("", "")
    if words[:1] == ["-cd"] and len(new) == 1:
        return new * text.count(new)
    if words[:1] == ["-d"]:
        return text.translate(dict.fromkeys(map(ord, new))) if new and not set(new) & set("[-\\") else None
    plain = len(old) == len(new) and (len(old) == 1 or not set(old + new) & set("[-\\"))
    return text.translate(str.maketrans(old, new)) if old and plain else None


def _matches(words: list[str], text: str) -> str | None:
    """`grep -o TEXT`: each match on a line of its own."""
    if len(words) != 2 or words[0] != "-o" or not words[1] or re.search(r"[^\w,:; =/]", words[1]):
        return None
    return f"{words[1]}\n" * sum(line.count(words[1]) for line in text.split("\n"))


_AWK = re.compile(r"\{ *print +(?:NF|\$(\d)) *;? *\}")


def _fields(words: list[str], text: str) -> str | None:
    """`awk -F, '{print NF}'` and `'{print $2}'`, of each line; without -F blanks stand between the fields."""
    separator = words[0][2:] if words and words[0].startswith("-F") else ""
    if words[:1] == ["-F"]:
        separator, words = "".join(words[1:2]), words[1:]
    match = _AWK.fullmatch(words[-1]) if len(words) == 1 + bool(separator) else None
    if match is None or (len(separator) > 1 or separator in tuple("\\ ")):
        return None
    lines = text.removesuffix("\n").split("\n") if text else []
    rows = [line.split(separator or None) if line else [] for line in lines]
    if match[1] is None:
        return "".join(f"{len(row)}\n" for row in rows)
    at = int(match[1]) - 1
    printed = lines if at < 0 else [row[at] if at < len(row) else "" for row in rows]
    return "".join(f"{one}\n" for one in printed)


def _counted(words: list[str | None], given: Text | None, blank: TextPiece) -> Text | None:
    """`wc -l`, `wc -w` or `wc -c` of its standard input."""
    text = known(given) if given is not None else None
    if text is None or len(words) != 1 or not text.isascii():
        return None
    counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text)}
    return (blank._replace(text=f"{counts[words[0]]}\n"),) if words[0] in counts else None


def _sequence(rest: list[Text], blank: TextPiece) -> Text | None:
    """`seq 1 8`: one number a line, or `-s,` between them."""
    separator = "\n"
    if rest and (flag := known(rest[0]) or "").startswith("-s"):
        mark = rest[1:2] if flag == "-s" else [rest[0]]
        text = known(mark[0]) if mark else None
        if text is None:
            return None
        separator, rest = text if flag == "-s" else text[2:], rest[2 if flag == "-s" else 1 :]
    numbers = [integer(known(word) or "") for word in rest]
    bounds = [number for number in numbers if number is not None]
    if len(bounds) < len(rest) or not 0 < len(bounds) < 4:
        return None
    first, step, last = (1, 1, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1] if len(bounds) == 3 else 1, bounds[-1])
    if not step:
        return None
    found = range(first, last + (1 if step > 0 else -1), step)[:_MOST_NUMBERS]
    last_of = len(found) - 1
    return tuple(blank._replace(text=f"{number}{separator if index < last_of else chr(10)}") for index, number in enumerate(found))


def _of_path(name: str, rest: list[Text], blank: TextPiece) -> Text | None:
    operands = [known(word) for word in rest]
    if not operands or None in operands:
        return None
    words = [str(word) for word in operands if not str(word).startswith("-") or name == "expr"]
    text: str | None = None
    if name == "dirname" and len(words) == 1:
        text = os.path.dirname(words[0].rstrip("/")) or "."
    elif name in ("realpath", "readlink") and len(words) == 1:
        text = os.path.normpath(words[0])
    elif name == "basename" and words:
        text = os.path.basename(words[0].rstrip("/")).removesuffix(words[1] if len(words) > 1 else "")
    elif name == "expr":
        value = calculate(" ".join(words), lambda *_: None)
        text = str(value) if value is not None else None
    return (blank._replace(text=text),) if text is not None else None


def written_by(words: list[Text], given: Text | None) -> Iterator[tuple[Text, Text | None]]:
    """The files that a command writes by itself, each with its text."""
    if known(words[0]) == "tee":
        yield from ((word, given) for word in words[1:] if not (known(word) or "").startswith("-"))
    elif known(words[0]) in ("cp", "mv") and len(words) == 3:
        yield words[2], None


_SUBSTITUTION = re.compile(r"s(.)(.*)\1(.*)\1(g?)", re.DOTALL)


def _sed(words: list[Text], given: Text | None, read: ReadFile) -> Text | None:
    """`sed s/OLD/NEW/g`, where OLD is plain text. The new text takes the place of the old one."""
    scripts = [word for word in words if (known(word) or "").startswith("s") and _parts(word)]
    others = [word for word in words if word not in scripts and known(word) not in ("-e", "-r", "-E")]
    if not scripts:
        unknown = [word for word in words if (word[0].text or "").startswith("s") and known(word) is None]
        return None if unknown or words else given
    if any((known(word) or "").startswith("-") for word in others):
        return None
    text = read(others[0]) if len(others) == 1 else given if not others else None
    for script in scripts:
        parts = _parts(script)
        if text is None or parts is None:
            return None
        text = _replaced(text, *parts)
    return text


def _parts(word: Text) -> tuple[str, str, bool] | None:
    match = _SUBSTITUTION.fullmatch(known(word) or "")
    if match is None:
        return None
    old, new = re.sub(r"\\([/.|#@{}])", r"\1", match[2]), match[3].replace("\\" + match[1], match[1])
    return None if not old or re.search(r"[\\*\[\]^]|\$$", old) or re.search(r"[\\&]", new) else (old, new, bool(match[4]))


def _replaced(text: Text, old: str, new: str, every: bool) -> Text | None:  # noqa: FBT001 - the flag of sed
    characters = known(text)
    if characters is None:
        return None
    found: Text = ()
    done = 0
    for line in re.finditer(r"[^\n]*\n?", characters):
        position = line.start()
        while (start := characters.find(old, position, line.end())) >= 0:
            place = cut(text, start, start + len(old))
            found += (*cut(text, done, start), place[0]._replace(text=new, exact=False, span=place[0].span))
            done = position = start + len(old)
            if not every:
                break
    return found + cut(text, done, len(characters))
