"""`dslint rule --error`: the rules behind what DeepSpeed and the loaders print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dslint.diagnose.parse_log import LoggedError, errors_in
from dslint.diagnose.search import EXACT, PART, SIMILAR, VAGUE, find, known
from dslint.diagnostics import Effect
from dslint.registry.rules import loaded_rules
from tests.command import dslint

TRACEBACK = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/train.py", line 20, in <module>
[rank0]:     engine, *_ = deepspeed.initialize(model=model, config="ds.json")
[rank0]:                  ^^^^^^^^^^^^^^^^^^^^
[rank0]:   File "/home/me/venv/lib/python3.11/site-packages/deepspeed/runtime/config.py", line 1017, in _batch_assertion
[rank0]:     assert micro_batch > 0
[rank0]: AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 4 * 1 * 4
[rank1]: AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 4 * 1 * 4
E1121 09:00:00.000000 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""

PYDANTIC = """\
pydantic_core._pydantic_core.ValidationError: 2 validation errors for DeepSpeedZeroConfig
stage
  Input should be 0, 1, 2, 3 or 4 [type=enum, input_value=[1, 2], input_type=list]
    For further information visit https://errors.pydantic.dev/2.12/v/enum
stge
  Extra inputs are not permitted [type=extra_forbidden, input_value='a] b', input_type=str]
    For further information visit https://errors.pydantic.dev/2.12/v/extra_forbidden
"""


def codes(text: str) -> list[str]:
    return [match.code for raised in errors_in(text) for match in find(raised)]


def test_a_traceback_of_several_ranks_is_one_error() -> None:
    named = [raised for raised in errors_in(TRACEBACK) if raised.kind == "AssertionError"]
    assert len(named) == 1
    assert named[0].message.endswith("world_size # != # * # * #")
    assert codes(TRACEBACK) == ["DS201", "DS202"]


def test_an_error_of_pydantics_is_the_errors_it_lists() -> None:
    stge, stage = errors_in(PYDANTIC)
    assert stage == LoggedError("ValidationError", "DeepSpeedZeroConfig: Input should be #, #, #, # or # (enum)", "stage")
    assert stge.where == "stge"
    assert {(match.code, match.fit, match.keys) for match in find(stage)} >= {("DS107", EXACT, ("zero_optimization.stage",))}
    assert next(match.code for match in find(stge)) == "DS101"


@pytest.mark.parametrize("lines", [slice(None), slice(1, None)], ids=["with its type", "without"])
def test_pydantics_errors_are_read_in_one_line_too(lines: slice) -> None:
    folded = " ".join(PYDANTIC.split(": ", 1)[1].split())
    assert {raised.where for raised in errors_in(folded)} == {"stage", "stge"}


def test_pydantic_1_says_it_otherwise() -> None:
    old = "1 validation error for DeepSpeedZeroConfig\nstage\n  value is not a valid enumeration member; permitted: 0, 1, 2, 3 (type=type_error.enum; enum_values=[<a: 0>])"
    (match,) = find(errors_in(old)[0])[:1]
    assert match.fit == VAGUE
    assert match.keys == ("zero_optimization.stage",)
    unknown = "1 validation error for DeepSpeedZeroConfig\nstge\n  extra fields not permitted (type=value_error.extra)"
    assert codes(unknown)[0] == "DS101"
    assert "extra fields not permitted" in str(errors_in(unknown)[0])


@pytest.mark.slow
def test_every_record_is_found_by_its_own_words() -> None:
    lost = []
    for row in known():
        where = row.keys[0].rpartition(".")[2] if row.keys and row.kind == "ValidationError" else ""
        matches = find(LoggedError(row.kind, row.message, where))
        if row.code not in [match.code for match in matches] or matches[0].fit != EXACT:
            lost.append(row)
    assert lost == []


def test_the_keys_that_lead_to_an_error_are_named() -> None:
    (raised,) = errors_in("'>' not supported between instances of 'str' and 'int'")
    by_code = {match.code: match.keys for match in find(raised)}
    assert "train_micro_batch_size_per_gpu" in by_code["DS104"]
    assert "train_micro_batch_size_per_gpu" in by_code["DS902"]


@pytest.mark.parametrize(
    ("text", "code", "fit"),
    [
        ("AssertionError: Adagradd is not a supported DeepSpeed Optimizer", "DS602", EXACT),
        ("gradient_predivide_factor != 1.0 is not yet supported with ZeRO-2", "DS416", PART),
        ('AssertionError: You are using an untested ZeRO Optimizer. Please add "zero_allow_untested_optimizer": true', "DS612", SIMILAR),
        ("json.decoder.JSONDecodeError: Invalid control character at: line 3 column 4 (char 33)", "DS002", VAGUE),
        ('ValueError: mics_shard_size: not found in kwargs. Please specify it without "auto"', "DS903", EXACT),
        ("`--mixed_precision` arg cannot be set to `fp16` when `bf16` is set in the DeepSpeed config file.", "DS905", SIMILAR),
    ],
)
def test_what_is_not_pasted_word_for_word_is_found(text: str, code: str, fit: int) -> None:
    matches = find(errors_in(text)[0])
    assert code in [match.code for match in matches]
    assert matches[0].fit == fit


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
        "KeyError: 'labels'",
        "ModuleNotFoundError: No module named 'flash_attn'",
        "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error",
        "subprocess.CalledProcessError: Command '['which', 'nvcc']' returned non-zero exit status 1.",
        "everything went well",
        "not",
        "the",
        "\N{GRINNING FACE}",
    ],
)
def test_what_no_rule_is_behind_finds_none(text: str) -> None:
    assert codes(text) == []


def test_a_list_of_choices_may_be_another_in_another_release() -> None:
    old = "1 validation error for DeepSpeedZeroConfig\nstage\n  Input should be 0, 1, 2 or 3 [type=enum, input_value=7, input_type=int]"
    matches = find(errors_in(old)[0])
    assert "DS107" in [match.code for match in matches]
    assert all(match.keys == ("zero_optimization.stage",) for match in matches)


@pytest.mark.deepspeed
def test_every_crash_that_can_be_tried_is_on_record() -> None:
    """A new rule is put on record by scripts/record_errors.py."""
    missing = {rule.code for rule in loaded_rules() if rule.effect is Effect.CRASH} - {row.code for row in known()}
    untried = {rule.code for rule in loaded_rules() if rule.untried}
    assert missing <= untried


def test_the_command_shows_rules_and_exits_with_0() -> None:
    done = dslint("rule", "--error", "'>' not supported between instances of 'str' and 'int'")
    assert done.returncode == 0
    assert "DS104" in done.stdout
    assert "train_micro_batch_size_per_gpu" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.slow
def test_the_command_reads_files_and_standard_input(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(TRACEBACK, encoding="utf-8")
    from_file = dslint("rule", "--error", log)
    assert from_file.stdout == dslint("rule", "--error", "-", input=TRACEBACK).stdout == dslint("rule", "--error", TRACEBACK).stdout
    log.write_bytes(b"\xff\xfe" + TRACEBACK.encode("utf-16-le"))
    assert dslint("rule", "--error", log).stdout == from_file.stdout


@pytest.mark.slow
def test_a_long_log_is_read_at_its_end(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("step 1 loss 2.3\n" * 700_000 + TRACEBACK, encoding="utf-8")
    done = dslint("rule", "--error", log)
    assert done.returncode == 0
    assert "DS201" in done.stdout
    assert "loss" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "given", "code", "words"),
    [
        (("--error", ""), None, 2, "empty text"),
        (("--error", "-"), " \n\n", 2, "empty text"),
        (("DS501", "--error", "x"), None, 2, "only one of"),
        (("--error", "-"), "\0\1\2\N{REPLACEMENT CHARACTER}" * 500, 1, "known to raise it"),
        (("--error", "-"), "{" * 100_000, 1, "known to raise it"),
        (("--error", "-"), "Error: " * 20_000, 1, "known to raise it"),
        (("--error", "\x1b[31mKeyError: 'a'\x1b[0m"), None, 0, "KeyError"),
        (("--error", "CUDA out of memory"), None, 0, "dslint estimate"),
    ],
)
def test_bad_input_is_normal_input(arguments: tuple[str, ...], given: str | None, code: int, words: str) -> None:
    done = dslint("rule", *arguments, input=given)
    assert done.returncode == code
    assert words in done.stdout + done.stderr
    assert "\x1b" not in done.stdout


@pytest.mark.deepspeed
def test_the_records_are_up_to_date(root: Path) -> None:
    pytest.importorskip("deepspeed")
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    done = subprocess.run(
        [sys.executable, str(root / "scripts" / "record_errors.py"), "--check"], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
