"""`dslint check`, end to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.registry.rules import all_rules
from dslint.rule import rule
from tests.command import INTERRUPTIBLE, ROOT, dslint

CLEAN = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
TYPO = '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2}}'
IGNORED = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'
ADVICE = '{"train_batch_size": 16, "activation_checkpointing": {"partition_activations": true}}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with configs, and with files that are none; it is the working directory too."""
    files = {
        "ds_config.json": CLEAN,
        "conf/typo.json": TYPO + "\n",
        "conf/zero.hjson": "zero_optimization: {stage: 1}\ntrain_micro_batch_size_per_gpu: 2 // each\n",
        "package.json": '{"name": "x", "version": "1", "dependencies": {}}',
        "notes.txt": IGNORED,
        "node_modules/ds_config.json": TYPO,
        ".cache/ds_config.json": TYPO,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, stdin: str | bytes | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["check", *arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def found(*arguments: str) -> list[tuple[str, str]]:
    done = dslint("check", *arguments, "--output-format", "json")
    return [(d["path"], d["code"]) for d in json.loads(done.stdout)["diagnostics"]]


def test_a_folder_gives_what_looks_like_a_config(folder: Path) -> None:
    done = dslint("check", ".", "--output-format", "json")
    report = json.loads(done.stdout)
    assert [file["path"] for file in report["files"]] == ["ds_config.json", "conf/typo.json", "conf/zero.hjson"]
    assert done.returncode == 1


def test_a_named_file_is_always_looked_at(folder: Path) -> None:
    assert found("notes.txt") == [("notes.txt", "DS501")]
    done = dslint("check", "package.json")
    assert done.returncode == 0
    assert "Not checked: " in done.stdout


_WORDS = ("amp", "stage", "names", "classes", "profile", "optim", "the", "of", "and", "to", "in", "a", "is", "that", "for", "it")
VOCABULARY = {word: number for number, word in enumerate(_WORDS)}
"""Words of a tokenizer, some of which are keys of DeepSpeed."""


def test_a_vocabulary_that_a_program_names_is_no_config(folder: Path) -> None:
    (folder / "vocab.json").write_text(json.dumps(VOCABULARY), encoding="utf-8")
    (folder / "train.py").write_text('import deepspeed\nWORDS = "vocab.json"\nengine, *_ = deepspeed.initialize(config="ds_config.json")\n')
    assert "vocab.json" not in {path for path, _ in found(".")}


@pytest.mark.parametrize(
    "text",
    [
        '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "torch_dtype": "float16", "vocab_size": 32}',
        json.dumps(
            dict.fromkeys(
                ["lr", "warmup", "batch-size", "clip-grad", "seq-length", "log-interval", "eval-iters", "data", "split", "seed"], 1
            )
        ),
        json.dumps(VOCABULARY),
    ],
)
def test_a_named_file_of_another_program_is_not_judged(folder: Path, text: str) -> None:
    (folder / "other.json").write_text(text, encoding="utf-8")
    done = dslint("check", "other.json")
    assert found("other.json") == []
    assert "Not checked: " in done.stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [("requirements.txt", "deepspeed==0.19.8\nray[default]>=2\n"), ("hostfile", "10.0.0.4\n10.0.0.5\n")],
)
def test_a_named_file_that_is_plain_text_is_not_judged(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    assert found(name) == []
    assert "not a DeepSpeed config" in dslint("check", name).stdout
    (folder / "broken.txt").write_text('{"train_batch_size": 4')
    (folder / "words.json").write_text(text)
    assert found("broken.txt", "words.json") == [("broken.txt", "DS001"), ("words.json", "DS001")]


def test_a_pattern_that_no_shell_expanded(folder: Path) -> None:
    assert found("conf/*.json") == [("conf/typo.json", "DS102")]
    assert found("**/typo.json") == [("conf/typo.json", "DS102")]
    done = dslint("check", "nothing/*.json")
    assert done.returncode == 2
    assert "no file matches" in done.stderr


def test_a_file_that_is_named_twice_is_read_once(folder: Path) -> None:
    assert found("conf/typo.json", "./conf/typo.json", "conf", "--ignore", "DS002") == [("conf/typo.json", "DS102")]


def test_a_file_is_the_same_with_a_dot_before_it(folder: Path) -> None:
    (folder / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stge": 2}}', encoding="utf-8")
    (folder / "train.py").write_text("import deepspeed\ndeepspeed.initialize(model=model, config='ds.json')\n", encoding="utf-8")
    assert found("./train.py", "./ds.json") == found("train.py", "ds.json") != []
    assert dslint("check", "").returncode == 2


def test_standard_input(folder: Path) -> None:
    done = dslint("check", "-", "--stdin-filename", "conf/mine.json", "--output-format", "concise", input=TYPO)
    assert done.stdout.startswith("conf/mine.json:1:39: error DS102")
    assert done.returncode == 1
    assert dslint("check", "-", input=CLEAN).returncode == 0
    assert dslint("check", "ds_config.json", "--stdin-filename", "x").returncode == 2


@pytest.mark.parametrize(
    ("text", "fail_on", "code"),
    [
        (CLEAN, "info", 0),
        (TYPO, "error", 1),
        (TYPO, "never", 0),
        (IGNORED, "warning", 1),
        (IGNORED, "error", 0),
        (ADVICE, "warning", 0),
        (ADVICE, "info", 1),
    ],
)
def test_the_exit_code_follows_fail_on(tmp_path: Path, text: str, fail_on: str, code: int) -> None:
    file = tmp_path / "c.json"
    file.write_text(text, encoding="utf-8")
    assert run(str(file), "--fail-on", fail_on)[0] == code


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ((), ["DS102", "DS501"]),
        (("--select", "DS5"), ["DS501"]),
        (("--select", "offload-param-below-stage-3"), ["DS501"]),
        (("--select", "DS102,DS5", "--ignore", "DS1"), ["DS102", "DS501"]),
        (("--select", "DS1,DS5", "--ignore", "DS102"), ["DS501"]),
        (("--ignore", "ds501", "--ignore", "misspelt-key-dropped"), []),
    ],
)
def test_rules_are_chosen_by_code_name_and_chapter(tmp_path: Path, options: tuple[str, ...], codes: list[str]) -> None:
    file = tmp_path / "c.json"
    file.write_text(IGNORED.replace("{", '{"bf61": {"enabled": true}, ', 1), encoding="utf-8")
    assert [code for _, code in found(str(file), *options)] == codes


def test_a_word_that_means_no_rule_is_refused_with_a_suggestion(folder: Path) -> None:
    for option in ("--select", "--ignore"):
        code, _, error = run("ds_config.json", option, "offload-parm-below-stage-3")
        assert code == 2
        assert 'Did you mean "offload-param-below-stage-3"?' in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--world-size", "0"), "0"),
        (("--world-size", "many"), "many"),
        (("--integration", "megatron"), "transformers"),
        (("--deepspeed", "latest"), "write it as 0.16.9"),
        (("--deepspeed", "0.3.0.."), "starts before"),
        (("--output-format", "xml"), "xml"),
        (("--no-such-option",), "no-such-option"),
    ],
)
def test_bad_usage_is_two_and_says_what_is_wrong(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    code, _, error = run("ds_config.json", *arguments)
    assert code == 2
    assert words in error.replace("-\n", "-")


def test_nothing_to_check_is_two(tmp_path: Path) -> None:
    done = dslint("check", str(tmp_path))
    assert done.returncode == 2
    assert "nothing to check" in done.stderr


def test_skipped_tests_are_named_where_there_is_nothing_else(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"test_{number}.py").write_text("import deepspeed\ndef test_it():\n    deepspeed.initialize(model=m)\n")
    (tmp_path / "test_of_nothing.py").write_text("def test_it():\n    pass\n")
    done = dslint("check", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "5 tests that mention DeepSpeed were skipped: test_0.py, test_1.py, test_2.py and 2 more." in done.stderr.replace("\n", " ")


def test_files_that_the_settings_leave_out_are_no_skipped_tests(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import deepspeed\ndef test_it():\n    deepspeed.initialize(model=m)\n")
    for setting in ('include = ["*.json"]', 'exclude = ["test_it.py"]'):
        (tmp_path / "dslint.toml").write_text(f"{setting}\n")
        done = dslint("check", ".", cwd=tmp_path)
        assert "nothing to check" in done.stderr
        assert "skipped" not in done.stderr


def test_facts_reach_the_rules(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(
        '{"train_batch_size": 12, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1}, "log_level": "info"}', encoding="utf-8"
    )
    assert found(str(file)) == [(str(file), "DS901")]
    assert found(str(file), "--world-size", "8") == [(str(file), "DS201"), (str(file), "DS901")]
    assert found(str(file), "--integration", "transformers") == []
    assert ("DS112") in [code for _, code in found(str(file), "--deepspeed", "0.18.9")]


def test_a_number_of_parameters_stands_for_a_model(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(
        '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW"}}',
        encoding="utf-8",
    )
    run = ("--world-size", "2", "--gpu", "a100-40gb", "--select", "DS706")
    assert found(str(file), *run, "--params", "13B") == [(str(file), "DS706")]
    assert found(str(file), *run, "--params", "300M") == []
    both = dslint("check", str(file), "--params", "300M", "--model", "gpt2")
    assert (both.returncode, "--model and --params cannot be combined" in both.stderr) == (2, True)


@pytest.mark.parametrize("output_format", ["full", "concise", "json", "github"])
def test_every_format_speaks_of_every_finding(folder: Path, output_format: str) -> None:
    done = dslint("check", ".", "--output-format", output_format)
    assert done.returncode == 1
    assert "DS102" in done.stdout
    assert "zero_optimisation" in done.stdout
    if output_format == "json":
        assert json.loads(done.stdout)["version"] == 1


@pytest.mark.parametrize(
    ("options", "environment", "colored"),
    [
        ((), {}, False),
        (("--color", "always"), {}, True),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour(folder: Path, options: tuple[str, ...], environment: dict[str, str], colored: bool) -> None:
    done = dslint("check", "conf/typo.json", *options, env=environment)
    assert ("\x1b[" in done.stdout) == colored


def test_a_rule_that_raises_is_reported_and_two(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @rule("DS199", effect=Effect.ADVICE)
    def broken(config: Config) -> list[object]:
        """Broken."""
        raise ZeroDivisionError

    everything = (*all_rules(), broken)
    monkeypatch.setattr("dslint.settings.all_rules", lambda: everything)
    result = CliRunner().invoke(cli, ["check", "conf/typo.json", "--output-format", "concise"])
    assert result.exit_code == 2
    assert "DS000" in result.output
    assert "ZeroDivisionError" in result.output
    assert "DS102" in result.output


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"ds_{number}.json").write_text(TYPO, encoding="utf-8")
    command = f"{sys.executable} -m dslint check {tmp_path} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_an_interrupt_is_130_and_quiet(tmp_path: Path) -> None:
    command = [*INTERRUPTIBLE, "check", "-"]
    with (
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ) as process,
    ):
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in error


def test_help_version_and_rules() -> None:
    assert "check" in dslint("--help").stdout
    usage = dslint("check", "--help").stdout
    assert "--world-size" in usage
    assert "\n    0  no findings at or above --fail-on\n" in usage
    assert dslint("--version").stdout.startswith("dslint ")
    listed = dslint("rule").stdout
    assert all(r.code in listed for r in all_rules())
    page = dslint("rule", "ds501").stdout
    assert "offload-param-below-stage-3" in page
    assert "Parameter offload works only at ZeRO stage 3" in page
    unknown = dslint("rule", "offload-param")
    assert unknown.returncode == 2
    assert "Did you mean" in unknown.stderr
    assert dslint("chekc").returncode == 2


def test_a_first_run_prints_the_most_severe_findings_and_suggests_a_baseline(tmp_path: Path) -> None:
    for number in range(4):
        text = '{"train_micro_batch_size_per_gpu": 4, "my_own_switch": 2, "zero_optimization": {"stage": 7}}'
        (tmp_path / f"ds_config{number}.json").write_text(text, encoding="utf-8")
    every = dslint("check", "--isolated", "--output-format", "concise", cwd=tmp_path)
    assert (len([line for line in every.stdout.splitlines() if line.startswith("ds_config")]), every.stderr) == (8, "")
    some = dslint("check", "--isolated", "--output-format", "concise", "--at-most", "4", cwd=tmp_path)
    assert some.returncode == 1
    assert [line for line in some.stdout.splitlines() if ": error" in line] == [
        line for line in every.stdout.splitlines() if ": error" in line
    ]
    assert "4 most severe of 8" in some.stderr
    assert "--write-baseline" in some.stderr
    assert "of 8" not in dslint("check", "--isolated", "--output-format", "json", "--at-most", "4", cwd=tmp_path).stderr
    full = dslint("check", "--isolated", "--no-group", "--at-most", "4", cwd=tmp_path).stdout
    assert "DS103" not in full
    assert "Found 4 errors and 4 info in 4 files" in full


def test_a_known_baseline_is_not_suggested(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    (elsewhere / "typo.json").write_text('{"train_batch_sise": 8}', encoding="utf-8")
    dslint("check", "--isolated", "--baseline", "known.json", "--write-baseline", str(elsewhere / "typo.json"), cwd=here)
    (here / "ds_config.json").write_text('{"train_batch_sise": 8, "zero_optimization": {"stage": 7}}', encoding="utf-8")
    done = dslint("check", "--isolated", "--baseline", "known.json", "--at-most", "1", cwd=here)
    assert "1 most severe" in done.stderr
    assert "--write-baseline" not in done.stderr


def test_without_a_command_the_help_is_printed() -> None:
    done = dslint()
    assert (done.stdout + done.stderr).startswith("Usage: dslint [OPTIONS] COMMAND [ARGS]...\n\n  Find mistakes")


def test_a_gpu_that_is_not_known_leaves_only_the_gpu_out(folder: Path) -> None:
    """The rest is judged, and its findings decide on the exit code; `--strict` fails because something is not judged."""
    done = dslint("check", "conf/typo.json", "--gpu", "h10000", cwd=folder)
    assert done.returncode == 1
    assert "zero_optimisation" in done.stdout
    assert '"h10000" is not a known GPU (like it: h100' in done.stderr
    assert dslint("check", "ds_config.json", "--gpu", "h10000", "--integration", "deepspeed", "-q", cwd=folder).returncode == 0
    assert dslint("check", "ds_config.json", "--gpu", "h10000", "--integration", "deepspeed", "--strict", cwd=folder).returncode == 1
    assert dslint("estimate", "ds_config.json", "--gpu", "h10000", "--params", "7B", cwd=folder).returncode == 2


def test_a_model_that_is_not_known_leaves_only_the_rules_about_it_out(folder: Path) -> None:
    """A file that is not there is a mistake of the command."""
    done = dslint("check", "conf/typo.json", "--model", "nobody/knows-7b", cwd=folder)
    assert done.returncode == 1
    assert "zero_optimisation" in done.stdout
    assert "the model nobody/knows-7b is neither a file nor a known name." in done.stderr
    assert "Until then no rule about the model runs." in done.stderr
    config = ("check", "ds_config.json", "--integration", "deepspeed")
    assert dslint(*config, "--model", "nobody/knows-7b", "-q", cwd=folder).returncode == 0
    assert dslint(*config, "--model", "nobody/knows-7b", "--strict", cwd=folder).returncode == 1
    assert dslint(*config, "--model", "missing/config.json", cwd=folder).returncode == 2
    assert dslint("estimate", "ds_config.json", "--model", "nobody/knows-7b", cwd=folder).returncode == 2


def test_a_gpu_that_is_not_known_is_not_replaced_by_that_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "dslint.toml").write_text('gpu = "v100"\n', encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}', encoding="utf-8")
    command = ("check", "ds_config.json", "--integration", "deepspeed")
    assert "DS323" in dslint(*command, cwd=tmp_path).stdout
    done = dslint(*command, "--gpu", "h10000", cwd=tmp_path)
    assert (done.returncode, "DS323" in done.stdout) == (0, False)
    (tmp_path / "job.log").write_text("ValueError: Type bf16 is not supported on your device.\n", encoding="utf-8")
    said = dslint("diagnose", "job.log", "--config", "ds_config.json", "--gpu", "h10000", cwd=tmp_path)
    assert "v100" not in said.stdout + said.stderr
