"""`python -m dslint.probe.child`: reads one question from standard input, and writes lines of JSON to standard output.

Progress lines are {"doing": activity, "done": fraction}; the last line is {"answer": {...}}. If standard input closes before that, the
parent is gone: the process kills itself and its children.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from dslint.probe.question import Question
from dslint.probe.safety import UNDONE


def main() -> None:
    """Answer, and exit without running exit handlers of libraries."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print to standard output, which is reserved for answers
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
        os.killpg(0, signal.SIGINT)
        time.sleep(UNDONE)
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
