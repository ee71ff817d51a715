"""A text with an error gets the best answer there is, and says how sure it is; more input never loses an answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli.diagnose import command
from dslint.diagnose.diagnosis import End, JobOutcome
from tests.diagnose.logs import RETURNED, STARTED, diagnosed, traceback

KNOWN = {
    "CUDA out of memory": "oom",
    "train.py: error: unrecognized arguments: --local_rank": "launcher",
    "train.py: error: argument --stage: invalid int value: 'two'": "launcher",
    "ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with cuda>=11.0": "precision",
    "[2025-01-02 10:00:00,000] [INFO] [runner.py:1:main] Detected CUDA_VISIBLE_DEVICES=1 but ignoring it because one or several of "
    "--include/--exclude/--num_gpus/--num_nodes cl args were used. If you want to use CUDA_VISIBLE_DEVICES don't pass any of these": "launcher",
    "/bin/sh: 1: c++: not found": "build",
    "bash: deepspeed: command not found": "environment",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.": "crash",
}


@pytest.mark.parametrize("text", KNOWN)
@pytest.mark.parametrize("prefix", ["", "2026-05-04T09:12:07Z trainer-0 | "])
def test_a_line_is_enough(text: str, prefix: str) -> None:
    found = diagnosed(prefix + text)
    assert (found.outcome.end, found.causes[0].kind) == (End.FAILED, KNOWN[text])
    assert found.causes[0].why
    assert found.causes[0].advice


def test_frames_without_a_header_tell_the_place() -> None:
    whole = traceback("", ("/env/lib/python3.11/site-packages/deepspeed/launcher/runner.py", 349, "parse_inclusion_exclusion", "return x"))
    (cause,) = diagnosed(whole.partition("\n")[2].rstrip()).causes
    assert "launcher" in " ".join(cause.why)
    assert not cause.certain


def test_a_message_that_is_not_known_is_quoted_as_such() -> None:
    (cause,) = diagnosed("step 1 ok, 0 errors", "frobnication failed: the widget of rank 3 is upside down", "bye").causes
    assert (cause.title, cause.certain) == ("frobnication failed: the widget of rank 3 is upside down", False)
    assert "does not know" in cause.why[0]


def test_a_line_that_finished_jobs_print_is_not_the_error() -> None:
    """The launcher warns of a missing hostfile wherever a job runs on one machine."""
    hostfile = "[WARNING] [runner.py:132:fetch_hostfile] Unable to find hostfile, will proceed with training with local resources only."
    (cause,) = diagnosed(hostfile, "step 1 failed: the widget is upside down").causes
    assert cause.title == "step 1 failed: the widget is upside down"
    assert diagnosed(hostfile, "bye").causes == []


@pytest.mark.parametrize("text", ["", "all is well", "0 errors, 3 warnings\nno error", '{"error": null}'])
def test_a_text_without_an_error_has_no_answer(text: str) -> None:
    found = diagnosed(text)
    assert (found.outcome.end, found.causes) == (End.UNKNOWN, [])


def test_the_line_before_an_exit_code_is_the_cause() -> None:
    found = diagnosed(STARTED, "/bin/sh: 1: c++: not found", RETURNED.format(code=2))
    assert [cause.kind for cause in found.causes] == ["build", "exit"]


@pytest.mark.parametrize("option", ["--config", "--program"])
@pytest.mark.parametrize("content", [None, "{", "import x", "\0"])
def test_what_cannot_be_read_does_not_lose_the_answer(tmp_path: Path, option: str, content: str | None) -> None:
    (tmp_path / "job.log").write_text(traceback("ValueError: no"))
    if content is not None:
        (tmp_path / "train.py").write_text(content)
    result = CliRunner().invoke(command, [str(tmp_path / "job.log"), option, str(tmp_path / "train.py")])
    assert result.exit_code == 1
    assert "ValueError: no" in result.output
    is_read = option == "--program" and content in ("{", "import x")
    assert ("train.py leads to no config" if is_read else "train.py is not used") in result.output


def test_a_config_that_the_log_names_is_used(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimisation": {"stage": 2}}')
    launch = "[2026-05-04 09:12:07,101] [INFO] [runner.py:605:main] cmd = python -m deepspeed.launcher.launch train.py --deepspeed ds.json"
    (tmp_path / "job.log").write_text(f"{launch}\n{traceback('ValueError: no')}\n")
    result = CliRunner().invoke(command, [str(tmp_path / "job.log")])
    assert "zero_optimisation" in result.output


def test_the_key_that_pydantic_names_is_in_the_title() -> None:
    error = (
        "pydantic.error_wrappers.ValidationError: 1 validation error for DeepSpeedInferenceConfig\n"
        "injection_policy_tuple\n  value is not a valid tuple (type=type_error.tuple)"
    )
    assert (
        diagnosed(traceback(error)).causes[0].title.endswith(": injection_policy_tuple: value is not a valid tuple (type=type_error.tuple)")
    )


def test_a_group_that_does_not_divide_the_ranks_is_told_apart_from_a_size_of_the_model() -> None:
    error = "AssertionError: 4 is not divisible by 8"
    of_ranks = diagnosed(traceback(error, ("/x/deepspeed/utils/groups.py", 54, "_ensure_divisibility", "assert"))).causes[0]
    of_model = diagnosed(traceback(error, ("/x/megatron/core/utils.py", 18, "ensure_divisibility", "assert"))).causes[0]
    assert "ep_size" in of_ranks.why[0]
    assert "ep_size" not in of_model.why[0]


@pytest.mark.parametrize("prefix", ["", "worker-1: ", "2023-08-01T10:00:00.123456789Z stderr F ", "(train pid=12, ip=10.0.0.1) "])
@pytest.mark.parametrize(
    "line",
    [
        "[2023-08-01 10:00:00,123] [INFO] [launch.py:164:main] Setting CUDA_VISIBLE_DEVICES=0,1",
        "[2023-08-01 10:00:00,123] [WARNING] [runner.py:201:fetch_hostfile] Unable to find hostfile, will proceed with training with local resources only.",
        "[2024-01-01 10:00:00,123] [INFO] [real_accelerator.py:191:get_accelerator] Setting ds_accelerator to cuda (auto detect)",
        "[2024-01-01 10:00:00,123] [INFO] [comm.py:637:init_distributed] cdb=None",
    ],
)
@pytest.mark.parametrize("times", [1, 30])
def test_one_line_of_deepspeed_is_a_job(line: str, times: int, prefix: str) -> None:
    found = diagnosed(*[prefix + line] * times)
    assert found.outcome == JobOutcome(
        End.UNFINISHED, "The log ends; no line tells a failure or how the job ended.", found.outcome.evidence
    )
    waits = "cdb=None" in line and times > 1  # 30 ranks that connect, after which the log stops
    assert [(cause.kind, cause.certain) for cause in found.causes] == ([("hang", False)] if waits else [])


def test_a_launcher_that_stops_the_other_ranks_is_a_failure() -> None:
    (cause,) = diagnosed("[2023-08-01 10:00:00,123] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 123").causes
    assert cause.title == "The launcher ended its processes"
    assert not cause.certain


@pytest.mark.parametrize(
    "warning",
    [
        "[W socket.cpp:663] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign requested address).",
        "No module named 'flash_attn', falling back to sdpa",
        "UserWarning: None of the inputs have requires_grad=True. Gradients will be None",
        "Invalidate trace cache @ step 10: expected module 3, but got module 5",
    ],
)
def test_a_warning_does_not_come_before_the_end_of_the_process(warning: str) -> None:
    """Every start of several machines prints some of these: a job that fails without a traceback failed elsewhere."""
    found = diagnosed(STARTED, warning, "loading data", RETURNED.format(code=1))
    assert found.causes[0].kind == "exit"
    assert not any(cause.certain for cause in found.causes[1:])
    error = "RuntimeError: CUDA error: device-side assert triggered"
    assert diagnosed(STARTED, warning, error, RETURNED.format(code=1)).causes[0].title == error


def test_a_warning_of_nccl_is_an_error() -> None:
    line = "pod:46:85 [0] include/shm.h:41 NCCL WARN Error while creating shared memory segment nccl-shm-recv (size 9637888)"
    assert diagnosed(STARTED, line, RETURNED.format(code=1)).causes[0].kind != "exit"


WITHOUT_TRACEBACK = {
    "Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n"
    "- ds train_batch_size=8 vs hf train_batch_size (calculated)=128\n"
    "- ds scheduler.params.warmup_num_steps=500 vs hf warmup_steps=0\n"
    "The easiest method is to set these DeepSpeed config values to 'auto'.": "contradict each other",
    "When using `deepspeed_config_file`, the following accelerate config variables will be ignored: ['zero_stage'].\n"
    "Please specify them appropriately in the DeepSpeed config file.\n"
    "If you are using an accelerate config file, remove others config variables mentioned in the above specified list.\n"
    "The easiest method is to create a new config following the questionnaire via `accelerate config`.\n"
    "It will only ask for the necessary config variables when using `deepspeed_config_file`.": "names a DeepSpeed config",
    "Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit\n"
    "the quantized model. Check https://huggingface.co/docs/accelerate/main/en/usage_guides/quantization#offload-between-cpu-and-gpu\n"
    "for more details.": "device_map",
}
"""Messages of several lines, as transformers and Accelerate raise them, and what is said of their cause."""


@pytest.mark.parametrize("text", WITHOUT_TRACEBACK, ids=WITHOUT_TRACEBACK.values())
def test_a_message_of_several_lines_without_its_traceback_is_one_cause(text: str) -> None:
    (cause,) = diagnosed(text).causes
    assert cause.title in text.partition("\n")[0]
    assert WITHOUT_TRACEBACK[text] in " ".join(cause.why)


def test_the_last_line_of_a_message_of_a_library_is_not_called_one_of_python() -> None:
    text = "It will only ask for the necessary config variables when using `deepspeed_config_file`."
    (cause,) = diagnosed(text).causes
    assert "DS911" in " ".join(cause.why)
    assert "Python itself" not in " ".join(cause.why)


PLACEHOLDER = (
    "size mismatch for {}: copying a param with shape torch.Size([{}]) from checkpoint, the shape in current model is torch.Size([{}])."
)
SHAPES = {
    "a matrix of one number": (
        [("norm.weight", "1", "64"), ("mlp.weight", "1", "64, 256")],
        ["placeholder of size 1", "zero_to_fp32.py"],
        False,
    ),
    "empty": ([("norm.weight", "0", "64"), ("mlp.weight", "0", "64, 256")], ["holds empty tensors", "zero_to_fp32.py"], False),
    "a head": ([("head.bias", "1", "2"), ("head.weight", "1, 64", "2, 64")], ["another head", "config.json"], True),
    "a model": ([("mlp.weight", "64, 128", "64, 256")], ["config.json"], True),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("head", ["", "RuntimeError: Error(s) in loading state_dict for Net:\n\t"])
def test_weights_that_stage_3_had_divided_are_not_those_of_another_model(name: str, head: str) -> None:
    weights, said, is_of_another = SHAPES[name]
    cause = diagnosed(head + "\n\t".join(PLACEHOLDER.format(*weight) for weight in weights)).causes[0]
    told = " ".join((*cause.why, *cause.advice))
    assert all(words in told for words in said), told
    assert ("config.json that belongs" in told) is is_of_another


def test_an_empty_weight_of_a_file_is_told_apart_from_one_of_the_model() -> None:
    """Accelerate's loader names the shape in the file first, and the one in the model behind it."""
    text = (
        'ValueError: Trying to set a tensor of shape torch.Size([{}]) in "weight" (which has shape torch.Size([{}])), this looks incorrect.'
    )
    assert "file holds empty tensors" in diagnosed(text.format("0", "64, 256")).causes[0].why[0]
    assert "into a model whose weights are divided" in diagnosed(text.format("64, 256", "0")).causes[0].why[0]


def test_a_parameter_that_is_empty_everywhere_was_copied() -> None:
    """The assertion and the summary of the parameter, as several ranks print them at once."""
    summary = "{'id': 249, 'status': 'NOT_AVAILABLE', 'numel': 0, 'ds_numel': 0, 'shape': (0,), 'ds_shape': (0,)}"
    asserts = "assert param.ds_status == ZeroParamStatus.AVAILABLE, param.ds_summary()"
    for text in (f"AssertionError: {summary}", f"{asserts}\n    AssertionError{asserts}\n: {summary}"):
        (cause,) = diagnosed(text).causes
        assert cause.why[0].startswith("Parameter 249 has no elements, on no rank")
