"""The files that entries name as their sources exist in the installed libraries."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from dslint.diagnose import template
from dslint.diagnose.texts import entries

LIBRARIES = ("deepspeed", "accelerate", "transformers", "lightning")


SENTENCE = 20
"""The characters from which on a text is that of a message, and not a name that much code has."""


def folder_of(library: str) -> Path:
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None:
        pytest.skip(f"{library} is not installed")
    return Path(found.origin).parent


@pytest.mark.deepspeed
@pytest.mark.integrations
@pytest.mark.parametrize("library", LIBRARIES)
def test_source_files_exist(library: str) -> None:
    folder = folder_of(library)
    named = {source for entry in entries() for source in entry.sources if source.startswith(f"{library}/") and source.endswith(".py")}
    assert named
    assert not [source for source in sorted(named) if not (folder.parent / source).is_file()]


@pytest.mark.deepspeed
def test_a_text_of_deepspeed_ends_where_a_word_ends() -> None:
    """The search takes the last word of a text as a whole: "key" is not found where DeepSpeed prints "keys"."""
    code = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in folder_of("deepspeed").rglob("*.py"))
    code = re.sub(r"""["']\s*\n\s*f?["']""", "", code)
    cut = []
    for entry in entries():
        for text in entry.texts:
            (part, *more) = template.parse(text)
            if more or not isinstance(part, str) or len(part) < SENTENCE or " " not in part:
                continue
            longer = {code[match.start() : match.end()] for match in re.finditer(re.escape(part) + "[a-zA-Z_]+", code)}
            cut += [(entry.id, said) for said in longer if not any(said.startswith(other) for other in entry.texts if other != text)]
    assert not cut
