#!/usr/bin/env python3
"""Fix every config in a folder of real ones (in memory), and report the results.

    python scripts/corpus_fix.py FOLDER [--integration NAME] [--world-size N]

For each file: it still loads, no comment is lost unless strict JSON requires it, and a second run changes nothing. New findings after a fix
are listed. Prints counts; the exit code is 1 if a file broke or kept changing.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from dslint.config.detect import FileKind
from dslint.diagnostics import Applicability
from dslint.facts import Facts, Integration
from dslint.fixes.apply import fix
from dslint.lint.discovery import discover
from dslint.lint.document import lint_text
from dslint.lint.results import FileResult
from dslint.registry.rules import default_rules
from dslint.settings import Finder
from dslint.source.parse import parse
from dslint.source.read import ReadError, decode_base64, read

KINDS = {"safe": {Applicability.SAFE}, "safe and unsafe": {Applicability.SAFE, Applicability.UNSAFE}}


def main() -> int:
    """Fix the files in the folder, and print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--integration", choices=[i.value for i in Integration])
    parser.add_argument("--world-size", type=int)
    arguments = parser.parse_args()
    facts = Facts(arguments.world_size, Integration(arguments.integration) if arguments.integration else None)
    targets = discover([str(arguments.folder)], Finder(only="")).targets
    texts = [text for target in targets if not target.leads and (text := _text(target.path))]
    return max(_fix_all(name, texts, facts, allowed) for name, allowed in KINDS.items())


def _text(path: str) -> str | None:
    try:
        text = read(path)
    except ReadError:
        return None
    return None if decode_base64(text) or parse(text).problems else text


def _fix_all(name: str, texts: list[str], facts: Facts, allowed: set[Applicability]) -> int:
    def lint(text: str) -> FileResult:
        result = lint_text(text, "ds.json", facts, default_rules())
        assert result is not None
        return result

    counts: Counter[str] = Counter()
    new: Counter[str] = Counter()
    for text in texts:
        before = lint(text)
        if before.kind is not FileKind.DS_CONFIG:
            continue
        counts["configs"] += 1
        fixed = fix(text, lint, allowed)
        if fixed.text == text:
            continue
        counts["changed"] += 1
        counts["findings fixed"] += len(fixed.fixed)
        counts["broken"] += bool(parse(fixed.text).problems)
        counts["changed again"] += fix(fixed.text, lint, allowed).text != fixed.text
        lost = {c.text for c in parse(text).comments} - {c.text for c in parse(fixed.text).comments}
        counts["lost comments"] += bool(lost) and not {d.code for d in fixed.fixed} & {"DS002", "DS007"}
        had = {(d.code, d.pointer) for d in before.diagnostics}
        new.update(d.code for d in fixed.result.diagnostics if (d.code, d.pointer) not in had)
    print(f"{name}: " + ", ".join(f"{number} {what}" for what, number in counts.items()))
    print(f"  new findings: {', '.join(f'{code} {number} times' for code, number in new.most_common()) or 'nothing'}")
    return int(bool(counts["broken"] or counts["changed again"] or counts["lost comments"]))


if __name__ == "__main__":
    sys.exit(main())
