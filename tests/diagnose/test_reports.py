"""The reports of `dslint diagnose`, its options and exit codes."""

from __future__ import annotations

import gzip
import json
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from dslint.cli.diagnose import command
from dslint.diagnose.diagnosis import Diagnosis, End, JobOutcome, LikelyCause
from dslint.diagnose.job import LoggedJob
from dslint.diagnose.typed_facts import NAMES
from dslint.report.diagnosis_html import as_html
from dslint.report.diagnosis_markdown import as_markdown
from dslint.report.diagnosis_page import page
from dslint.report.style import Style
from tests.diagnose.logs import FINISHED, OOM, RETURNED, STARTED, WATCHDOG, steps, traceback

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/logs/out-of-memory.log"
FORMATS = ("text", "json", "markdown", "html")


def run(*arguments: str | Path, stdin: str | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(command, [str(argument) for argument in arguments], input=stdin)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def test_json_says_everything() -> None:
    code, text = run(EXAMPLE, "--output-format", "json")
    (job,) = json.loads(text)["jobs"]
    assert code == 1
    assert job["outcome"]["end"] == "failed"
    assert (job["facts"]["ranks"], job["facts"]["zero_stage"], job["facts"]["model"]) == (4, 2, "llama-3.2-3b")
    assert job["places"]["ranks"] == {"file": str(EXAMPLE), "line": 1}
    (cause,) = job["causes"]
    assert (cause["kind"], cause["rank"], cause["certain"]) == ("oom", 2, True)
    assert "train_micro_batch_size_per_gpu" in cause["changes"]
    assert [finding["code"] for finding in job["findings"]] == ["DS501"]
    after = next(row for row in job["memory"] if row["estimated_gib"] is not None)
    assert after["allocated_gib"] == pytest.approx(after["estimated_gib"], rel=0.02)


class Tags(HTMLParser):
    """Checks that tags are closed in order, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "line", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "rect"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_well_formed_and_has_a_chart() -> None:
    _, text = run(EXAMPLE, "--output-format", "html")
    page = Tags()
    page.feed(text)
    assert page.open == []
    assert "ran out of memory in the loss" in page.text
    assert "<svg" in text
    assert "<script" not in text


def test_what_a_log_says_is_inert_in_markup(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        "\n".join([STARTED, traceback("ValueError: <script>alert(1)</script> [a](http://b) `|\x1b[31m"), RETURNED.format(code=1)])
    )
    assert "<script>" not in run(log, "--output-format", "html")[1]
    markdown = run(log, "--output-format", "markdown")[1].partition("```text")[0]
    assert "<script>" not in markdown
    assert "[a](http" not in markdown
    assert "\x1b" not in run(log)[1]


SECRET = "/home/jane/secret-project"


@pytest.mark.parametrize("output_format", FORMATS)
def test_redacted_reports_name_no_place(tmp_path: Path, output_format: str) -> None:
    log = tmp_path / "job.log"
    host = "gpu-node-17"
    lines = [
        f"{host}: {STARTED}",
        traceback(
            "FileNotFoundError: [Errno 2] No such file: '/data/corpus-x/index.npy' at 10.1.2.3",
            (f"{SECRET}/train.py", 3, "main", "run()"),
            prefix=f"{host}: [rank4]: ",
        ),
        f"srun: error: {host}: task 0: Exited with exit code 1",
    ]
    log.write_text("\n".join(lines))
    _, plain = run(log, "--output-format", output_format)
    _, text = run(log, "--output-format", output_format, "--redact")
    hidden = ("jane", "corpus-x", "10.1.2.3", host, str(tmp_path))
    assert any(word in plain.replace("<wbr>", "") for word in hidden)
    assert [word for word in hidden if word in text.replace("<wbr>", "")] == []
    assert "index.npy" in text.replace("<wbr>", "")


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([STARTED, FINISHED], 0),
        ([STARTED, traceback(OOM), RETURNED.format(code=1)], 1),
        ([STARTED], 1),
        (["nothing of a job"], 2),
        ([], 2),
    ],
)
def test_exit_codes(lines: list[str], code: int) -> None:
    assert run("-", stdin="\n".join(lines))[0] == code


def test_a_folder_of_rank_logs_is_one_job(tmp_path: Path) -> None:
    for rank in (0, 1, 10):
        (tmp_path / f"rank_{rank}.log").write_text(STARTED + "\n" + (traceback("ValueError: no") if rank == 10 else ""))
    _, text = run(tmp_path, "--output-format", "json")
    (job,) = json.loads(text)["jobs"]
    assert [(cause["rank"], cause["evidence"][0]["file"]) for cause in job["causes"]] == [(10, str(tmp_path / "rank_10.log"))]


@pytest.mark.parametrize("options", [(), ("--redact",)])
def test_lines_of_several_logs_come_with_the_names_of_the_logs(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "rank_0.log").write_text(STARTED)
    (tmp_path / "rank_1.log").write_text("DeepSpeed info: version=0.16.9\n" + traceback("ValueError: no"))
    _, text = run(tmp_path, *options)
    assert "DeepSpeed 0.16.9 (rank_1.log:1); ranks 4 (rank_0.log:1)" in " ".join(text.split())
    _, text = run(tmp_path / "rank_1.log")
    assert "line 1" in text


def test_each_of_several_jobs_comes_with_the_name_of_its_log(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.log").write_text(EXAMPLE.read_text())
    _, text = run(tmp_path)
    assert [line.rpartition("/")[2] for line in text.splitlines() if line.startswith("Job ")] == ["a.log", "b.log"]


def test_a_diff_stands_below_the_advice_that_it_carries_out() -> None:
    cause = LikelyCause("oom", "GPU memory is full", advice=("First", "Second"), changes='-  "a": 1\n+  "a": 2', changed_by="First")
    found = [Diagnosis(LoggedJob(), JobOutcome(End.FAILED, "The job failed."), [cause])]
    for text in (page(found, Style(color=False, width=80)), as_markdown(found), as_html(found)):
        assert sorted(("First", "+  ", "Second"), key=text.index) == ["First", "+  ", "Second"]


def test_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(tmp_path / "missing.log")])
    assert "missing.log" in str(done.exception)


def test_the_config_and_the_model_may_be_given(tmp_path: Path) -> None:
    config = tmp_path / "ds.json"
    config.write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}')
    log = tmp_path / "job.log"
    log.write_text(
        "\n".join(
            [
                STARTED,
                "After initializing ZeRO optimizer",
                "MA 11.21 GB         Max_MA 11.3 GB         CA 12.0 GB         Max_CA 12 GB ",
                FINISHED,
            ]
        )
    )
    (job,) = json.loads(run(log, "--output-format", "json", "--config", config, "--model", "llama-3-8b")[1])["jobs"]
    assert [finding["code"] for finding in job["findings"]] == ["DS501"]
    assert [row["estimated_gib"] is not None for row in job["memory"]] == [True]
    assert run(log, "--config", config, "--program", config)[0] == 2


def test_a_program_leads_to_the_config(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'
    )
    script = tmp_path / "train.sh"
    script.write_text("deepspeed --num_gpus 4 train.py --deepspeed ds.json\n")
    log = tmp_path / "job.log"
    log.write_text("\n".join([STARTED, FINISHED]))
    (job,) = json.loads(run(log, "--output-format", "json", "--program", script)[1])["jobs"]
    assert "DS501" in [finding["code"] for finding in job["findings"]]


@pytest.mark.parametrize(
    ("stage", "named"), [("args.stage", "computes zero_optimization.stage, which the diagnosis takes as unknown"), ("2", "")]
)
def test_values_that_a_program_computes_do_not_lose_the_answer(tmp_path: Path, stage: str, named: str) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import argparse, deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--stage', type=int)\nargs = parser.parse_args()\n"
        f"config = {{'train_batch_size': 9, 'train_micro_batch_size_per_gpu': 2, 'zero_optimization': {{'stage': {stage}}}}}\n"
        "deepspeed.initialize(model=model, config=config)\n"
    )
    log = tmp_path / "job.log"
    log.write_text(
        "Traceback (most recent call last):\n"
        '  File "train.py", line 6, in <module>\n    deepspeed.initialize(model=model, config=config)\n'
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 9 != 2 * 2 * 2\n"
    )
    done = CliRunner().invoke(command, [str(log), "--output-format", "json", "--program", str(program), "--world-size", "2"])
    (job,) = json.loads(done.stdout)["jobs"]
    assert done.exit_code == 1
    assert job["causes"]
    assert "DS201" in [finding["code"] for finding in job["findings"]]
    assert named in done.stderr
    assert ("takes as unknown" in done.stderr) == bool(named)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.sh", "deepspeed train.py --deepspeed ds.json --output_dir out --per_device_train_batch_size 4{}\n"),
        ("train.py", "import torch, deepspeed\nm = torch.nn.Linear(2, 2)\n{}deepspeed.initialize(model=m, config='ds.json')\n"),
        ("neox.yml", "{}num-layers: 2\nhidden-size: 64\ntrain_micro_batch_size_per_gpu: 4\nzero_optimization:\n  stage: 1\n"),
    ],
)
@pytest.mark.parametrize("on", [True, False])
def test_checkpointing_that_is_on_is_not_advised(tmp_path: Path, name: str, text: str, on: bool) -> None:
    switch = {
        "train.sh": " --gradient_checkpointing True",
        "train.py": "m.gradient_checkpointing_enable()\n",
        "neox.yml": "checkpoint-activations: true\n",
    }
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}')
    (tmp_path / name).write_text(text.format(switch[name] if on else ""))
    log = tmp_path / "job.log"
    log.write_text(
        "RuntimeError: CUDA out of memory. Tried to allocate 1.86 GiB (GPU 0; 23.70 GiB total capacity; 20.49 GiB already allocated)\n"
    )
    code, report = run(log, "--program", tmp_path / name)
    assert code == 1
    assert ("Turn on activation checkpointing" in " ".join(report.split())) is not on


@pytest.mark.parametrize("disabled", [True, False])
def test_checkpointing_that_a_framework_turns_on_is_not_advised(tmp_path: Path, disabled: bool) -> None:
    """LLaMA-Factory has it on unless disable_gradient_checkpointing is true."""
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}')
    training = "stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 2\ndeepspeed: ds.json\n"
    (tmp_path / "sft.yaml").write_text(training + f"disable_gradient_checkpointing: {str(disabled).lower()}\n" * disabled)
    log = tmp_path / "job.log"
    log.write_text(f"{OOM}\n")
    _, report = run(log, "--program", tmp_path / "sft.yaml")
    assert ("Turn on activation checkpointing" in " ".join(report.split())) is disabled


def test_the_end_of_a_log_asks_for_the_rest() -> None:
    end = "Root Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 7)\n"
    _, shown = run("-", stdin=f"{'=' * 60}\ntrain.py FAILED\n{end}{'=' * 60}\n")
    assert "pass the whole log" in shown
    assert "What ran" not in shown


SCHEMA = json.loads((Path(__file__).parents[2] / "docs/diagnosis.schema.json").read_text())


@pytest.mark.parametrize("options", [(), ("--redact",)])
@pytest.mark.parametrize(
    "log",
    [
        EXAMPLE.read_text(),
        f"{STARTED}\n{steps([2.0, 1.5])}\n{FINISHED}",
        f"{STARTED}\n{steps([2.0, float('nan')])}\n{WATCHDOG}",
        f"{STARTED}\n{traceback('ValueError: no')}\n{RETURNED.format(code=1)}",
        "CUDA out of memory",
        "nothing of a job",
        "",
    ],
)
def test_the_json_is_as_its_schema_says(log: str, options: tuple[str, ...]) -> None:
    _, text = run("-", "--output-format", "json", *options, stdin=log)
    jsonschema.validate(json.loads(text, parse_constant=pytest.fail), SCHEMA)


def test_the_schema_names_every_fact() -> None:
    assert list(SCHEMA["$defs"]["job"]["properties"]["facts"]["properties"]) == list(NAMES)


def test_a_followed_log_is_told_in_lines_of_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslint.cli.diagnose.INTERVAL", 0.0)
    log = tmp_path / "job.log"
    log.write_text(f"{STARTED}\n{steps([2.0, 1.5])}\n{traceback(OOM, prefix='[rank3]: ')}\n{RETURNED.format(code=1)}\n")
    code, text = run(log, "--follow", "--output-format", "json")
    lines = [json.loads(line) for line in text.splitlines()]
    assert code == 1
    assert {"event": "fact", "name": "ranks", "value": 4} in lines
    assert [line["event"] for line in lines if line["event"] in ("step", "cause")] == ["cause", "step"]
    assert lines[-1].pop("event") == "diagnosis"
    jsonschema.validate(lines[-1], SCHEMA)


def test_the_cause_comes_first_and_what_ran_last() -> None:
    _, text = run(EXAMPLE)
    order = ("GPU 2 ran out of memory", "line 67", "What to do", "1. ", "Rules on the config", "Memory of a rank", "What ran")
    assert sorted(order, key=text.index) == list(order)
    assert text.index("GPU 2 ran out") == 0


def test_damage_is_in_every_format(tmp_path: Path) -> None:
    packed = gzip.compress((traceback("ValueError: no") + "".join(f"{n * n}\n" for n in range(10_000))).encode())
    (tmp_path / "job.log.gz").write_bytes(packed[:-3000])
    for output_format in FORMATS:
        _, text = run(tmp_path / "job.log.gz", "--output-format", output_format)
        assert "is cut" in " ".join(text.split()), "it is wrapped as the path is long"


def test_several_jobs_begin_with_an_overview(tmp_path: Path) -> None:
    launch = "[2026-05-04 09:12:07,101] [INFO] [runner.py:605:main] cmd = python -m deepspeed.launcher.launch t.py"
    failed = f"{launch}\n{STARTED}\n{traceback('ValueError: no')}\n{RETURNED.format(code=1)}"
    log = tmp_path / "job.log"
    log.write_text(f"{failed}\n{failed}\n{launch}\n{STARTED}\n{steps([2.0])}\n{FINISHED}\n")
    _, text = run(log)
    assert text.splitlines()[:4] == ["3 jobs in this log", "  Jobs 1 to 2: failed, ValueError: no", "  Job 3: finished", ""]


def test_processes_that_print_at_once_raise_one_error() -> None:
    mixed = traceback("ValueErrorValueError: no more: ") + "\nno more"
    _, text = run("-", stdin=f"{STARTED}\n{traceback('ValueError: no more')}\n{mixed}\n{RETURNED.format(code=1)}")
    assert "ValueErrorValueError" not in text
    assert "Also possible" not in text
