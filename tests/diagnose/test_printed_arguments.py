"""Arguments that a program prints as Python shows them: `Namespace(...)`, `TrainingArguments(` with a line for each."""

from __future__ import annotations

from dslint.diagnose.job import LoggedJob
from tests.cases import table
from tests.diagnose.logs import FINISHED, STARTED, diagnosed

SMALL = "Namespace(zero_stage=2, per_device_train_batch_size=4, gradient_checkpointing=True, model_name_or_path='org/small', max_length=20)"
LINES = (
    "06/01/2026 10:00:00 - INFO - __main__ - Training/evaluation parameters TrainingArguments(",
    "bf16=True,",
    "deepspeed=conf/zero2.json,",
    "fp16=False,",
    "gradient_accumulation_steps=8,",
    "gradient_checkpointing=False,",
    "optim=OptimizerNames.ADAMW_TORCH,",
    "per_device_train_batch_size=2,",
    ")",
)


def told(job: LoggedJob) -> dict[str, object]:
    names = ("stage", "micro_batch", "accumulation", "checkpointing", "dtype", "model_name", "config_path", "length")
    return {name: known.value for name, known in job.facts.items() if name in names}


@table(
    "lines, facts",
    [
        ((SMALL,), {"stage": 2, "micro_batch": 4, "checkpointing": True, "model_name": "org/small"}),
        ((f"[rank0]: args: {SMALL}",), {"stage": 2, "micro_batch": 4, "checkpointing": True, "model_name": "org/small"}),
        (("ModelArguments(model_name_or_path='org/small', use_lora=True)",), {"model_name": "org/small"}),
        (("06/01 - INFO - parameters TrainingArguments(fp16=True, deepspeed='z.json')",), {"dtype": "float16", "config_path": "z.json"}),
        (("Namespace(zero_stage=0, deepspeed_config=None, gradient_checkpointing=False, bf16=False)",), {}),  # its config may have one
        (LINES, {"dtype": "bfloat16", "config_path": "conf/zero2.json", "accumulation": 8, "micro_batch": 2}),
        (("    args = TrainingArguments(bf16=True, per_device_train_batch_size=8)",), {}),  # code of a traceback
        (("    bf16=True,",), {}),
        (("AttributeError: 'Namespace' object has no attribute 'bf16'",), {}),
        (("use Namespace(bf16=True) instead of a dict",), {}),
    ],
)
def test_printed_arguments_are_facts(lines: tuple[str, ...], facts: dict[str, object]) -> None:
    assert told(diagnosed(STARTED, *lines, FINISHED).job) == facts


def test_what_is_told_before_counts() -> None:
    batch = "[INFO|trainer.py:1970] 2026-06-01 10:00:00,000 >>   Instantaneous batch size per device = 16"
    assert told(diagnosed(STARTED, batch, SMALL, FINISHED).job)["micro_batch"] == 16
