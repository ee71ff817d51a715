"""Measure `dslint check .` on generated repositories: one of 3,000 files, of which 300 concern DeepSpeed, and one of 600 files with 150
programs, each with a script that launches it.

    python benchmarks/repository.py

The targets: the whole check takes less than 10 s of CPU time in one process, that of the 600 files less than 5 s, and a file that does
not mention DeepSpeed costs less than 0.2 ms: finding it, reading it and searching it for the words in `dslint.schemas.recognition`.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from dslint.lint.discovery import discover
from dslint.lint.files import lint_all
from dslint.settings import Finder

OTHERS, RELEVANT = 2_700, 300
LAUNCHED = 600

CODE = "import os\n\n\n" + "".join(f"def helper_{number}(a, b):\n    return a * b + {number}\n\n\n" for number in range(120))
CONFIG = (
    '{"train_batch_size": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": %d}}'
)
SCRIPT = "#!/bin/bash\nN=${N:-8}\ndeepspeed --num_gpus $N train.py --deepspeed ds.json --bf16 --learning_rate 1e-5 --output_dir o\n"
PROGRAM = (
    "from transformers import TrainingArguments\n" + CODE + "args = TrainingArguments(output_dir='o', deepspeed='ds.json', bf16=True)\n"
)
TRAINING = "stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\nbf16: true\nlearning_rate: 1e-5\ndeepspeed: ds.json\n"
USES = {"ds.json": CONFIG % 2, "run.sh": SCRIPT, "train.py": PROGRAM, "sft.yaml": TRAINING}


def write(top: Path, others: int, relevant: int) -> None:
    """The files of the repository."""
    (top / ".git").mkdir()
    for number in range(others):
        folder = top / f"package{number % 40}"
        folder.mkdir(exist_ok=True)
        (folder / f"module{number}.{('py', 'yaml', 'sh')[number % 3]}").write_text(
            CODE if number % 3 == 0 else "a: 1\n" * 300, encoding="utf-8"
        )
    for number in range(relevant // len(USES)):
        folder = top / f"experiment{number}"
        folder.mkdir()
        for name, text in USES.items():
            (folder / name).write_text(text, encoding="utf-8")


def timed(path: str) -> tuple[float, int]:
    """The CPU seconds of a check in one process, and the number of files that it reports."""
    start = time.process_time()
    finder = Finder(only="")
    results = lint_all(discover([path], finder).targets, finder, jobs=1)
    return time.process_time() - start, len(results)


def main() -> None:
    """Print both figures."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), OTHERS, RELEVANT)
        os.chdir(folder)
        whole, reported = timed(".")
        others = sum(timed(f"package{number}")[0] for number in range(40))
        print(f"whole repository: {whole:.2f} s of CPU time, {reported} files reported (target: 10 s)")
        print(f"a file that does not mention DeepSpeed: {others / OTHERS * 1e3:.3f} ms (target: 0.2 ms)")
        os.chdir("/")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), 0, LAUNCHED)
        os.chdir(folder)
        print(f"{LAUNCHED} files with {LAUNCHED // len(USES)} launched programs: {timed('.')[0]:.2f} s of CPU time (target: 5 s)")
        os.chdir("/")


if __name__ == "__main__":
    main()
