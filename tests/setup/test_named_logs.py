"""The log of a job that a person names is not a config, whatever it begins with: `dslint diagnose` reads it."""

from __future__ import annotations

from tests.cases import table
from tests.setup.folder import Folder

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 4, in <module>\n    train()\nValueError: no data {}\n'
INFO = "[2026-01-05 10:00:00,123] [INFO] [config.py:953:print]   json = {\n  \"train_batch_size\": 'x'\n}\n"
CONFIG = '{\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimisation": {"stage": 2}\n}\n'


@table(
    "name, text, is_log",
    [
        ("error.log", TRACEBACK, True),
        ("error.log", "Epoch: 1 {'loss': 2.5}\n", True),
        ("slurm-12.out", INFO, True),
        ("error.txt", TRACEBACK, True),
        ("error.txt", "[rank0]: " + TRACEBACK, True),
        ("pasted", INFO, True),
        ("pasted", "train_batch_size: 4\n", False),
        ("config.txt", CONFIG, False),
        ("config.log", CONFIG, False),
        ("ds_config.json", "[INFO] [x]\n", False),
        ("error.txt", "It fails:\n" + TRACEBACK + "with this config\n" + CONFIG, False),
        ("hostfile", "worker-1 slots=8\n", False),
        ("notes.txt", "Nothing about it.\n", False),
    ],
)
def test_a_log_is_said_to_be_one(folder: Folder, name: str, text: str, is_log: bool) -> None:
    folder.write({name: text})
    found = folder.results(name)[name]
    assert (found.note == f"a log; to explain it, run dslint diagnose {name}.") is is_log
    assert not (is_log and found.diagnostics)
