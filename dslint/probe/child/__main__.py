"""`python -m dslint.probe.child`: answers the one question that comes on standard input, in lines of JSON on standard output.

A line is {"doing": what, "done": part} while it works, and {"answer": {...}} at the end. It ends itself, with all that it started, when
standard input closes before that: whoever asked is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from dslint.probe.question import Question


def main() -> None:
    """Answer, and leave without waiting for what libraries do at exit."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print; answers have the stream to themselves
    line = sys.stdin.readline()
    threading.Thread(target=_watch, daemon=True).start()
    lock = threading.Lock()

    def say(**data: Any) -> None:
        with lock:
            out.write(json.dumps(data, default=str) + "\n")
            out.flush()

    say(answer=answer(Question.from_json(line), say))
    os._exit(0)


def answer(question: Question, say: Callable[..., None]) -> dict[str, Any]:
    """The answer as plain data."""
    try:
        from dslint.probe.child.run import run
    except ImportError as error:
        return {"unable": f"{error.name or 'a library'} cannot be imported: {error}"}
    return run(question, say)


def _watch() -> None:
    sys.stdin.read()
    if hasattr(os, "killpg") and os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
