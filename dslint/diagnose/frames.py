"""Lines of tracebacks, as Python and as rich print them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

LONGEST_CODE = 300
"""The most characters of a line of code that are kept."""

SHORTEST_CODE = 6
"""The fewest characters of a line of code that is printed several times."""

UNKNOWN = 0
"""The line of a frame that stands with the code below it, and not with the file."""

_FRAME = re.compile(
    r'\s*(?:│\s*)?(?:File "(?P<file>[^"]{1,500})", line (?P<line>\d{1,9})(?:, in (?P<function>.{1,200}))?$'
    r"|(?P<path>[^\s:]{1,500}\.py):(?P<at>\d{1,9}) in (?P<name>\w{1,200})"  # as rich prints it
    r"|(?P<older>[^\s:\"]{1,500}\.py|<ipython-input-[\w-]{1,40}>) in (?P<of>[\w.<>]{1,200})(?:\(.*\))?$"  # as IPython did before 8
    r"|(?:File |Cell )(?P<there>[^\s:\"]{1,500})(?::|, line )(?P<row>\d{1,9})(?:, in (?P<called>[\w.<>]{1,200})\(.*)?$)"  # as IPython does
)


_ARROW = re.compile(r"^-+> (\d+) +")
"""What IPython prints before the line that raised."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a traceback: file, line, function, code."""

    file: str
    line: int
    function: str
    code: str = ""

    @property
    def place(self) -> str:
        """File and function."""
        return f"{self.file}:{self.function}"

    def with_code(self, line: str) -> Frame:
        """The frame with the line of code that is printed below it; the first one counts."""
        number = _ARROW.match(line.strip())
        if self.line == UNKNOWN:
            return replace(self, line=int(number[1]), code=_ARROW.sub("", line.strip())[:LONGEST_CODE]) if number else self
        code = once(_ARROW.sub("", line.strip())[:LONGEST_CODE])
        return self if self.code or not code else replace(self, code=code)

    @property
    def whole_code(self) -> str:
        """The code with its calls closed: a traceback prints the first line of a statement only."""
        if self.code.count("(") <= self.code.count(")"):
            return self.code
        return f"{self.code.rstrip(' ,')}{'' if self.code.endswith('(') else ', '}...)"


def once(text: str) -> str:
    """A text that several processes print at once, as one of them prints it alone: "f(x)f(x)" is "f(x)"."""
    length = (text + text).find(text, 1)
    return text[:length] if SHORTEST_CODE <= length < len(text) else text


def read_frame(line: str) -> Frame | None:
    """The frame that a line shows, None for any other line."""
    match = _FRAME.match(line.rstrip())
    if match is None:
        return None
    if match["older"]:
        return Frame(match["older"], UNKNOWN, match["of"])
    file, line = match["file"] or match["path"] or match["there"], match["line"] or match["at"] or match["row"]
    called = (match["called"] or "").rpartition(".")[2]  # IPython names the class, too
    return Frame(file, int(line), match["function"] or match["name"] or called)
