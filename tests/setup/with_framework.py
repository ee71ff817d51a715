"""Runs dslint as if a module with a framework stood in `dslint/frameworks`, and `python scripts/generate.py frameworks` had run.

    python -m tests.setup.with_framework MODULE WORDS

Each line of the input is a folder and commands in JSON, each command a list of words without `dslint`; it is answered by a line with the
list of their outputs. Where the file WORDS does not exist, it is only written: what the readers of scripts and programs, below the
frameworks, know of these.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import dslint.frameworks


def main(module: Path, words: Path) -> None:
    """Run the commands, or write the words."""
    with tempfile.TemporaryDirectory() as folder:  # so that no module beside it is found
        shutil.copy(module, folder)
        dslint.frameworks.__path__.append(folder)
        if not words.exists():
            from scripts.framework_commands import text

            words.write_text(text(), encoding="utf-8")
            return
        name = "dslint.schemas.framework_commands"
        spec = spec_from_file_location(name, words)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
        for line in sys.stdin:
            here, commands = json.loads(line)
            os.chdir(here)
            print(json.dumps([output_of(command) for command in commands]), flush=True)


def output_of(command: list[str]) -> str:
    """What a command prints."""
    from dslint.cli import main as run

    sys.argv = ["dslint", *command]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit):
        run()
    return printed.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
