"""Text for terminals: colours, width in columns, wrapping, and characters that are unsafe to print."""

from __future__ import annotations

from collections.abc import Callable

from dslint import project

ANSI = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}

TAB = "    "
"""A tab is drawn as a fixed number of blanks, so that columns depend neither on the text before it nor on the terminal."""


class Style:
    """Whether to use colours, and how many columns to fill."""

    __slots__ = ("color", "width")

    def __init__(self, *, color: bool, width: int) -> None:
        self.color = color
        self.width = width

    def paint(self, text: str, *names: str) -> str:
        """The text in these colours; unchanged if colours are off."""
        if not self.color or not text:
            return text
        return f"\x1b[{';'.join(ANSI[name] for name in names)}m{text}\x1b[0m"

    def link(self, text: str, url: str | None) -> str:
        """The text as a link to a page of the site, for terminals that open links (OSC 8; others show only the text)."""
        return f"\x1b]8;;{url}\x1b\\{text}\x1b]8;;\x1b\\" if self.color and url else text


def is_plain(text: str) -> bool:
    """Whether every character is printable ASCII, and so safe and one column wide."""
    return text.isascii() and text.isprintable()


def visible(text: str) -> str:
    """The text with everything that a terminal would interpret or hide (control characters, line ends, direction marks, unusual blanks,
    lone surrogates) made visible: `␛` for ASCII control characters, `<U+202E>` for others. A tab becomes blanks.
    """
    return text if text.isprintable() else "".join(map(_visible_character, text))


def printable(text: str, *, color: bool = False) -> str:
    """A whole page as it may reach a terminal or the log of a CI job: every page passes here before it is printed.

    Control characters that a name or a value brought along become visible; the line ends and, with `color`, the colours of the page and its
    links to the site stay.
    No line is a command of a CI runner: GitHub obeys lines that begin with `::`, and it and Azure Pipelines obey `##[...]` and `##vso[...]`
    anywhere in a line.
    """
    if color:
        import re  # slow to import, and a page without colours needs none of it

        site = re.escape(project.SITE) + r"[\w/.#-]*" if project.SITE else ""
        pieces = re.split(rf"(\x1b\[[\d;]*m|\x1b\]8;;(?:{site})?\x1b\\)", text)
        text = "".join(piece if index % 2 else _lines(piece) for index, piece in enumerate(pieces))
    else:
        text = _lines(text)
    return "\n".join(map(_inert, text.split("\n"))) if "::" in text or "##" in text else text


def _lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def _inert(line: str) -> str:
    """A line that no CI runner takes for a command: one of the two characters that begin it becomes another that looks like it."""
    start = line.lstrip()
    if start.startswith("::") and not start.startswith(":::"):  # three colons name no command
        line = line.replace("::", ":\ua789", 1)
    return line.replace("##[", "#\u266f[").replace("##vso[", "#\u266fvso[")


def visible_lines(text: str) -> str:
    """The text made visible, its own line breaks kept."""
    return "\n".join(visible(line) for line in text.replace("\r\n", "\n").split("\n"))


def clipped(text: str, size: int) -> str:
    """The text, cut to at most `size` characters."""
    return text if len(text) <= size else text[: size - 1] + "…"


def _visible_character(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if character == "\t":
        return TAB
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def columns(text: str) -> int:
    """The width of `visible(text)` in terminal columns."""
    if is_plain(text):
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(_width(character, category, east_asian_width) for character in visible(text))


def _width(character: str, category: Callable[[str], str], east_asian_width: Callable[[str], str]) -> int:
    if category(character) in ("Mn", "Me") or "\u1160" <= character <= "\u11ff":  # combining marks; Hangul vowels and finals
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, broken at blanks. A word (a path, a key) is never broken, even if it is longer."""
    lines: list[str] = []
    line, used = "", 0
    for word in text.split(" "):
        size = columns(word)
        if line and used + 1 + size > width:
            lines.append(line)
            line, used = word, size
        else:
            line, used = (f"{line} {word}", used + 1 + size) if line else (word, size)
    return [*lines, line]


def paragraphs(text: str, width: int) -> list[str]:
    """The text made visible and wrapped, its own line breaks kept."""
    return [line for part in text.replace("\r\n", "\n").split("\n") for line in wrap(visible(part), width)]
