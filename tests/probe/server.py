"""`python -m tests.probe.server`: imports torch and DeepSpeed once, then forks for every question, so that each has a fresh process.

A line of standard input is {"question": ..., "by": "probe" | "allocator"}; a line of standard output is what was found.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import tempfile
import traceback
from typing import Any

EARLY = (
    "deepspeed",
    "torch._dynamo",
    "torch.profiler",
    "torch.testing._internal.distributed.fake_pg",
    "torch.distributed._tools.fake_collectives",
    "deepspeed.runtime.zero.stage3",
    "deepspeed.runtime.zero.stage_1_and_2",
    "deepspeed.runtime.bf16_optimizer",
    "deepspeed.ops.op_builder.all_ops",
    "dslint.probe.child.run",
    "dslint.probe.child.tracker",
    "tests.probe.allocator",
)
"""What every run imports: seconds that are spent once. None of it is changed before the fork."""
OPTIONAL = ("transformers.models.auto.modeling_auto", "transformers.models.llama.modeling_llama")


def main() -> None:
    """Answer until standard input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print; answers have the stream to themselves
    os.environ["DS_ACCELERATOR"] = "cpu"
    for name in EARLY:
        importlib.import_module(name)
    if importlib.util.find_spec("transformers") is not None:
        for name in OPTIONAL:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a run collects its garbage four times, and need not look through all modules
    for line in sys.stdin:
        print(_forked(json.loads(line)), file=out, flush=True)


def _forked(wish: dict[str, Any]) -> str:
    reader, writer = os.pipe()
    with tempfile.TemporaryDirectory(prefix="probe-test-") as folder:
        child = os.fork()
        if child == 0:
            with os.fdopen(writer, "w", encoding="utf-8") as pipe:
                pipe.write(_found(wish, folder))
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as pipe:
            found = pipe.read()
        os.waitpid(child, 0)
    return found


def _found(wish: dict[str, Any], folder: str) -> str:
    from dslint.probe.child.run import run
    from dslint.probe.question import Question
    from dslint.probe.safety import environment
    from tests.probe.allocator import measure

    os.chdir(folder)
    os.environ.update(environment(folder))
    question = Question.from_json(wish["question"])
    try:
        found = measure(question) if wish["by"] == "allocator" else run(question, lambda **_: None)
    except BaseException:  # noqa: BLE001 - whatever it is, the test is to show it
        found = {"unable": traceback.format_exc()}
    return json.dumps(found, default=str)


if __name__ == "__main__":
    main()
