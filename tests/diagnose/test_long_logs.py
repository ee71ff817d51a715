"""Long logs: of what is printed thousands of times not every line is read, and nothing that counts is lost by it."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator

import pytest

from dslint.diagnose.diagnose import diagnose
from dslint.diagnose.diagnosis import Diagnosis, End
from dslint.diagnose.job import SURVIVING
from dslint.diagnose.reading import LogSource

SIZE = 2_000_000
LAUNCH = "[2024-05-01 10:00:00,000] [INFO] [runner.py:610:main] cmd = /usr/bin/python3 -u -m deepspeed.launcher.launch train.py"
FRAME = '  File "/w/loader.py", line {line}, in get\n    return self.read(key)'
NOISE = {
    "steps": "[2024-05-01 10:00:01,000] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]",
    "losses": "{{'loss': 1.{line:04}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.5}}",
    "bars": " 10%|#         | {step}/9000000 [00:10<00:50,  1.05s/it]",
    "survived": "Traceback (most recent call last):\n" + FRAME + "\nOSError: sample {line} cannot be read\nnext sample",
    "skipped": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {line}.00 MiB. GPU 1 has a total capacity of 79.15 GiB",
    "memory": "[utils.py:804:see_memory_usage] MA 3.{line} GB         Max_MA 4.0 GB         CA 5.0 GB         Max_CA 5 GB ",
}
"""What programs print without end."""


def noise(chance: random.Random, size: int, first: int) -> Iterator[str]:
    """Lines of some kinds, with steps that go on from `first`."""
    kinds = [NOISE["steps"], *chance.sample(sorted(NOISE.values()), 3)]
    step = first
    while size > 0:
        step += 1
        line = chance.choice(kinds).format(step=step, line=chance.randrange(10_000))
        size -= len(line)
        yield line


def run(chance: random.Random, error: str, size: int, first: int) -> tuple[list[str], int]:
    """The lines of a job that trains and fails, and its last step."""
    lines = [LAUNCH, "[Rank 0] DeepSpeed info: version=0.16.9, git-hash=unknown", *noise(chance, size, first)]
    last = first + size
    lines += [NOISE["steps"].format(step=step) for step in range(last - SURVIVING, last + 1)]
    lines += ["[rank3]: Traceback (most recent call last):", "[rank3]:" + FRAME.format(line=9).partition("\n")[0], f"[rank3]: {error}"]
    return [
        *lines,
        "[2024-05-01 12:00:00,000] [ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = 1",
    ], last


def assert_fails(found: Diagnosis, error: str, step: int) -> None:
    assert found.outcome.end is End.FAILED
    assert f"after step {step:,}" in found.outcome.sentence
    assert error.partition(": ")[2] in found.causes[0].title


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_errors_and_steps_of_jobs_in_a_long_log(seed: int) -> None:
    chance = random.Random(f"long-{seed}")
    jobs, texts = [], []
    for number in range(3):
        error = f"RuntimeError: shape {chance.randrange(10**9)} is invalid for input of size {chance.randrange(10**6)}"
        lines, last = run(chance, error, SIZE, number)
        jobs.append((error, last))
        texts += lines
    found = diagnose([LogSource("job.log", io.BytesIO("\n".join(texts).encode()))])
    assert len(found) == len(jobs)
    for one, (error, last) in zip(found, jobs, strict=True):
        assert_fails(one, error, last)
        assert any("only a part was read after the first" in sentence for sentence in one.unread)


@pytest.mark.parametrize("before", [1, 40])
def test_an_error_that_the_job_survived_before_is_not_the_cause(before: int) -> None:
    lines = [LAUNCH]
    for sample in range(before):
        lines += [NOISE["survived"].format(line=sample), *(NOISE["steps"].format(step=10 * sample + step) for step in range(SURVIVING))]
    again = [NOISE["survived"].format(line=9_999), NOISE["steps"].format(step=9_999)]
    lines += [*again, "Traceback (most recent call last):", FRAME.format(line=7), "RuntimeError: the end"]
    [found] = diagnose([LogSource("job.log", io.BytesIO("\n".join(lines).encode()))])
    assert found.causes[0].title == "RuntimeError: the end"
