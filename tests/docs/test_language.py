"""Phrases that dslint does not use, in messages, help texts, docstrings, comments and documents. CONTRIBUTING.md says how we write."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = [path for folder in ("dslint", "rules", "schemas", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(path for path in (ROOT / "examples").rglob("*") if path.is_file()),
    ROOT / "action.yml",
    ROOT / ".pre-commit-hooks.yaml",
]
COMPILED = ("schemas/key_table.py", "rules/index.py")

# Only archaisms and words that tools of the field do not use: a ban on ordinary words ("whose", "alone") breeds odder ones.
AVOIDED = {
    r"(?<!there )(?:is|are) no (?!longer\b|more\b|less\b|need\b|\w+er\b)\w+": "is not a ..., has no ...",
    r"mend(?:s|ed|ing|er)?\b": "fix",
    r"without a word\b": "silently",
    r"for want of\b": "because ... is missing",
    r"rules? (?:(?:is|are|was|were|be) )?(?:not )?asked\b|ask(?:s|ed|ing)? (?:of |about )?(?:a|the|each|every|other) rules?\b": "run",
    r"(?:is|are) to (?:be|have|stay|resume|find|fit|do|use|come)\b": "should, must",
    r"wants\b": "requires, expects",
    r"of old\b": "existing",
    r"heed(?:s|ed|ing)?\b": "follow, read, use",
    r"wherefore\b": "so, therefore",
    r"nothing that dslint\b": "unknown ...",
}
"""A pattern of a phrase, which begins with a word, and what to write instead."""


def test_plain_english() -> None:
    any_avoided = re.compile(rf"\b(?:{'|'.join(AVOIDED)})")  # of lower case: to ignore it in each pattern takes ten times as long
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r} (write: {instead}) in {line.strip()[:100]!r}"
        for path in (*CODE, *DOCUMENTS)
        if path.relative_to(ROOT).as_posix() not in COMPILED  # from other files, which are tested
        if any_avoided.search(path.read_text(encoding="utf-8").lower())  # most have none, and need not be split into tokens
        for number, line in _lines(path)
        if any_avoided.search(line.lower())
        for pattern, instead in AVOIDED.items()
        for match in re.finditer(rf"\b(?:{pattern})", line, re.IGNORECASE)
    ]
    assert found == []


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a document; of Python code the lines of its comments and strings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    kinds = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            yield from enumerate(token.string.splitlines(), token.start[0])
