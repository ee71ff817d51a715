"""Write dslint/report/harmless_words.json: the words that `dslint diagnose --redact` keeps.

    python scripts/harmless_words.py

They come from dslint's own texts (messages, documents, the tables of errors, the keys of DeepSpeed) and from the names of files and
functions of the libraries that tracebacks lead through, as far as they are installed. No word comes from a log.
"""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import re
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "dslint/report/harmless_words.json"
LIBRARIES = ("torch", "deepspeed", "transformers", "accelerate", "lightning", "datasets", "peft", "trl", "numpy", "click")
TEXTS = ("dslint/diagnose", "dslint/memory", "dslint/report", "dslint/cli", "rules", "schemas")
WORD = re.compile(r"[A-Za-z]+\d{0,3}[a-z]?\d?")
MACHINE = re.compile(r"(?:gpu|node|worker|host|machine|ip|pod|user|team|train|trainer|n|a|b|x|job|llm)\d+", re.IGNORECASE)
"""Words that name a machine, or might."""

LONGEST = 24


def main() -> None:
    """Write the words."""
    words = {word.lower() for text in (*_texts(), *_names()) for word in _parts(text)}
    kept = sorted(word for word in words if len(word) <= LONGEST and not MACHINE.fullmatch(word))
    TARGET.write_text(json.dumps({"generated_by": "scripts/harmless_words.py", "words": kept}, indent=0) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(kept)} words\n")


def _parts(text: str) -> Iterator[str]:
    for word in WORD.findall(text.replace("_", " ")):
        yield word
        yield from re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", word)


def _texts() -> Iterator[str]:
    """The strings of dslint's own code, and its tables without the threads that they cite."""
    for folder in TEXTS:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield re.sub(r"https?://\S+", "", node.value)
    for path in (ROOT / "dslint/diagnose").rglob("*.json"):
        table = json.loads(path.read_text(encoding="utf-8"))
        for row in table if isinstance(table, list) else [table]:
            yield json.dumps({key: value for key, value in row.items() if key != "sources"})
    for row in json.loads((ROOT / "rules/errors.json").read_text(encoding="utf-8"))["errors"]:
        yield row[0]
        yield row[1]


def _names() -> Iterator[str]:
    """The names of files, functions and classes of libraries, and of Python itself."""
    yield from (*keyword.kwlist, *dir(builtins), *sys.stdlib_module_names)
    for library in LIBRARIES:
        spec = util.find_spec(library)
        if spec is None or spec.origin is None:
            continue
        yield library
        for path in Path(spec.origin).parent.rglob("*.py"):
            yield path.stem
            if library in ("deepspeed", "accelerate", "click") or path.parent.name in ("optim", "distributed", "modules", "utils"):
                yield from re.findall(r"^\s*(?:def|class) (\w+)", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)


if __name__ == "__main__":
    main()
