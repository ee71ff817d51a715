"""A file on which dslint fails is one internal error, whatever fails; the other files are reported, and no command ends with a traceback."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

from dslint.cli import cli, main
from dslint.config import Config
from dslint.diagnostics import Diagnostic
from dslint.facts import Facts, Release
from dslint.lint.document import lint_text
from dslint.registry.rules import all_rules
from tests.command import dslint

BATCH = '"train_micro_batch_size_per_gpu": 4'
NEIGHBOUR = f'{{{BATCH}, "zero_optimisation": {{"stage": 2}}}}'
"""A config with a finding, linted beside every bad one."""

STAGES = {
    "parse": "dslint.lint.files.opened",
    "facts": "dslint.settings.find",
    "rules": "dslint.lint.document.run_rules",
    "comments": "dslint.suppress.run.apply_comments",
}


def fails_on(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """The function, failing where one of its arguments names a file or folder called `name`."""

    def work(*arguments: Any, **options: Any) -> Any:
        if any(name in str(getattr(argument, "path", argument)) for argument in arguments):
            raise KeyError("made to fail")
        return real(*arguments, **options)

    return work


def resolved(path: str) -> Any:
    import importlib

    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("flags", [(), ("--fix", "--unsafe-fixes")], ids=["check", "fix"])
def test_each_stage_of_a_file_is_isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, flags: tuple[str, ...]) -> None:
    for folder in ("b0rken", "sound"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ds_config.json").write_text(NEIGHBOUR, encoding="utf-8")
    monkeypatch.setattr(STAGES[stage], fails_on("b0rken", resolved(STAGES[stage])))
    monkeypatch.chdir(tmp_path)
    paths = ("b0rken/ds_config.json", "sound/ds_config.json")
    done = CliRunner().invoke(cli, ["check", *flags, *paths, "--output-format", "json"])
    found = json.loads(done.stdout)["diagnostics"]
    assert done.exit_code == 2
    assert [d["code"] for d in found if d["path"] == paths[0]] == ["DS000"]
    if flags:
        assert "zero_optimization" in (tmp_path / paths[1]).read_text(encoding="utf-8")
    else:
        assert "DS102" in [d["code"] for d in found if d["path"] == paths[1]]


def test_a_report_that_fails_on_one_file_holds_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = resolved("dslint.report.concise._diagnostic")

    def fail(diagnostic: Diagnostic, style: object) -> str:
        if diagnostic.path == "b0rken.json" and diagnostic.code != "DS000":
            raise KeyError("made to fail")
        return str(real(diagnostic, style))

    for name in ("b0rken.json", "sound.json"):
        (tmp_path / name).write_text(NEIGHBOUR, encoding="utf-8")
    monkeypatch.setattr("dslint.report.concise._diagnostic", fail)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["check", "b0rken.json", "sound.json", "--output-format", "concise"])
    assert done.exit_code == 2
    assert "b0rken.json:1:1: error DS000" in done.stdout
    assert "sound.json:1:" in done.stdout


@pytest.mark.parametrize("command", ["check", "show", "estimate", "fit", "probe", "init", "rule", "schema", "config"])
def test_a_defect_in_any_command_is_a_sentence_and_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("made to fail")

    monkeypatch.setattr(cli.get_command(None, command), "invoke", fail)  # type: ignore[arg-type]
    monkeypatch.setattr("sys.argv", ["dslint", command, *(["x.json"] if command in ("show", "estimate", "fit", "probe") else [])])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "DSLINT_TRACEBACK" in said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1


def test_a_developer_gets_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DSLINT_TRACEBACK", "1")
    monkeypatch.setattr("dslint.cli.rule.all_rules", lambda: 1 // 0)
    monkeypatch.setattr("sys.argv", ["dslint", "rule"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "Traceback" in capsys.readouterr().err


CONFIGS = {
    "an empty key": ('{"": 1, "train_batch_size": 1}', Release(0, 19, 8)),
    "aio is all there is": ('{"aio": {"block_size": 1}}', Release(0, 19, 8)),
    "torch_autocast is too new": ('{"torch_autocast": {"enabled": true}}', Release(0, 15, 0)),
    "aio of a wrong type": (
        f'{{{BATCH}, "zero_optimization": {{"stage": 3, "offload_optimizer": {{"device": "nvme", "nvme_path": "/x"}}}}, "aio": {{"block_size": "x"}}}}',
        Release(0, 19, 8),
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("world_size", [None, 8])
def test_no_rule_fails_on(name: str, world_size: int | None) -> None:
    text, release = CONFIGS[name]
    result = lint_text(text, "ds_config.json", Facts(world_size, deepspeed=release), all_rules())
    assert result is not None
    assert "DS000" not in [d.code for d in result.diagnostics]


DIGITS = "9" * 5_000
AROUND = {
    "braces in the name of a requirements file": {"requirements{x}.txt": "deepspeed==0.16.9\n"},
    "more processes than a float can count": {
        "accelerate.yaml": f"compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: {'9' * 400}\nnum_machines: 2\n"
        "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n"
    },
    "digits in a Poetry constraint": {"pyproject.toml": f'[tool.poetry.dependencies]\ndeepspeed = "^{DIGITS}"\n'},
    "digits in #SBATCH": {
        "run.sh": f"#SBATCH --nodes={DIGITS}\n#SBATCH --gres=gpu:{DIGITS}\ndeepspeed train.py --deepspeed ds_config.json\n"
    },
    "digits in a hostfile": {
        "hostfile": f"a slots={DIGITS}\n",
        "run.sh": "deepspeed --hostfile hostfile train.py --deepspeed ds_config.json\n",
    },
    "a control character behind a number": {
        "run.sh": "deepspeed train.py --deepspeed ds_config.json --gradient_accumulation_steps '4\x1f' --max_grad_norm '1\x1f'\n"
    },
    "a number of 400 digits": {
        "train.yaml": f"deepspeed: ds_config.json\nper_device_train_batch_size: {DIGITS[:400]}\nmax_grad_norm: {DIGITS[:400]}\noutput_dir: x\n"
    },
    "NUL in a path": {"dslint.toml": 'checkpoint = "a\\u0000b"\n'},
    "a key of 20,000 parts": {"dslint.toml": "a." * 20_000 + "b = 1\n"},
}


@pytest.mark.parametrize("name", AROUND)
def test_files_around_a_config(tmp_path: Path, name: str) -> None:
    (tmp_path / "ds_config.json").write_text(NEIGHBOUR, encoding="utf-8")
    for file, text in AROUND[name].items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    named = [file for file in AROUND[name] if file.endswith((".sh", ".yaml"))]
    done = dslint("check", "ds_config.json", *named, cwd=tmp_path)
    assert "DS000" not in done.stdout
    assert "internal error" not in done.stderr
    if "dslint.toml" in AROUND[name]:
        assert done.returncode == 2
        assert "dslint.toml" in done.stderr
    else:
        assert done.returncode == 1
        assert "zero_optimisation" in done.stdout


BASELINES = ['{"version": 1, "findings": {"a": [{"code": "DS1", "place": "", "count": Infinity}]}}', '{"version": Infinity}', "[" * 100_000]


@pytest.mark.parametrize("text", BASELINES)
def test_baselines(tmp_path: Path, text: str) -> None:
    (tmp_path / "ds_config.json").write_text(NEIGHBOUR, encoding="utf-8")
    (tmp_path / "known.json").write_text(text, encoding="utf-8")
    done = dslint("check", "ds_config.json", "--baseline", "known.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "known.json" in done.stderr
    assert "internal error" not in done.stderr


POLICIES = {
    "$schema is a list": '{"$schema": []}',
    "refers to itself": '{"$ref": "#"}',
    "refers to itself after a breach": '{"required": ["bf16"], "$ref": "#"}',
    "parts refer to each other": '{"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}',
    "a broken address": '{"$id": "http://[bad", "$ref": "a"}',
    "nested too deeply": '{"not": ' * 400 + "{}" + "}" * 400,
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies(tmp_path: Path, name: str) -> None:
    (tmp_path / "ds_config.json").write_text(NEIGHBOUR, encoding="utf-8")
    (tmp_path / "policy.json").write_text(POLICIES[name], encoding="utf-8")
    done = dslint("check", "ds_config.json", "--policy", "policy.json", cwd=tmp_path)
    assert done.returncode == (1 if "DS118" in done.stdout else 2)
    assert "policy.json" in done.stdout + done.stderr
    assert "DS000" not in done.stdout
    assert "internal error" not in done.stderr


def test_checkpoints_with_impossible_names(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text(f'{{{BATCH}, "zero_optimization": {{"stage": 2}}}}', encoding="utf-8")
    step = tmp_path / "run" / "global_step1"
    step.mkdir(parents=True)
    many = 10**15
    (step / f"bf16_zero_pp_rank_{many}_mp_rank_{many}_optim_states.pt").touch()
    (step / "mp_rank_00_model_states.pt").touch()
    (tmp_path / "run" / "latest").write_bytes(b"global_step1")
    (tmp_path / "run" / "latest_universal").write_bytes(b"a\0b")
    done = dslint("check", "ds_config.json", "--checkpoint", "run", cwd=tmp_path)
    assert done.returncode in (0, 1)
    assert "DS000" not in done.stdout


@pytest.mark.parametrize(
    "config",
    [
        '{"train_micro_batch_size_per_gpu": 1' + "0" * 300 + "}",
        f'{{{BATCH}, "zero_optimization": {{"stage": 2, "reduce_bucket_size": 1{"0" * 400}}}}}',
    ],
    ids=["micro batch", "bucket"],
)
def test_estimates_of_impossible_sizes(tmp_path: Path, config: str) -> None:
    (tmp_path / "ds_config.json").write_text(config, encoding="utf-8")
    done = dslint("estimate", "ds_config.json", "--model", "llama-2-7b", "--world-size", "8", cwd=tmp_path)
    assert done.returncode == 2
    assert "internal error" not in done.stderr


@pytest.mark.parametrize("digits", [300, 1000, 1001, 4300])
@pytest.mark.parametrize("command", [["check"], ["check", "--world-size", "8"], ["show"], ["check", "--fix"]], ids=" ".join)
def test_products_of_long_numbers(tmp_path: Path, digits: int, command: list[str]) -> None:
    number = "9" * digits
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    (tmp_path / "ds_config.json").write_text("{" + ", ".join(f'"{key}": {number}' for key in keys) + "}", encoding="utf-8")
    done = dslint(*command, "ds_config.json", cwd=tmp_path)
    assert done.returncode in (0, 1)
    assert "DS000" not in done.stdout
    assert "internal error" not in done.stderr


def test_a_file_that_has_no_content_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some files of the kernel: a read that does not block gives None."""
    from dslint.source import read

    (tmp_path / "ds.json").write_text("{}", encoding="utf-8")
    opened = open

    class Empty:
        def __init__(self, *arguments: Any) -> None:
            self.file = opened(*arguments)
            self.fileno, self.read = self.file.fileno, lambda _: None

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

    monkeypatch.setattr(read, "open", Empty, raising=False)
    with pytest.raises(read.ReadError, match="no content yet"):
        read.read(tmp_path / "ds.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("where", ["requirements.txt", "uv.lock", "dslint.toml", "--config", "--files-from", "latest"])
@pytest.mark.parametrize("what", ["fifo", "/dev/zero"])
def test_what_never_ends_is_not_read(tmp_path: Path, where: str, what: str) -> None:
    (tmp_path / "ds_config.json").write_text(NEIGHBOUR, encoding="utf-8")
    (tmp_path / "run" / "global_step1").mkdir(parents=True)
    (tmp_path / "run" / "global_step1" / "mp_rank_00_model_states.pt").touch()
    endless = tmp_path / ("run/latest" if where == "latest" else "endless" if where.startswith("--") else where)
    if what == "fifo":
        os.mkfifo(endless)
    else:
        endless.symlink_to(what)
    flags = {"latest": ("--checkpoint", "run"), "--config": ("--config", "endless"), "--files-from": ("--files-from", "endless")}
    paths = () if where == "--files-from" else ("ds_config.json",)
    done = dslint("check", *paths, *flags.get(where, ()), cwd=tmp_path)
    assert done.returncode in ((0, 1, 2) if where.startswith("--") else (1, 2))
    assert "internal error" not in done.stderr


def test_rules_that_fail_together_are_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("made to fail")

    monkeypatch.setattr(Config, "value", fail)
    linted = lint_text(NEIGHBOUR, "ds_config.json", Facts(), all_rules())
    assert linted is not None
    found = [one.message for one in linted.diagnostics if one.code == "DS000"]
    assert len(found) == 1
    assert re.search(r"KeyError: 'made to fail'.* The other rules ran\. \d+ of them failed, too\.", found[0])


@pytest.mark.parametrize(
    "argument", ["zero_stage", "offload_optimizer_device", "offload_param_device", "gradient_clipping", "zero3_save_16bit_model"]
)
@pytest.mark.parametrize("value", ['"auto"', '"three"', "[3]", "{}", "2.5", "True", "-1", "10 ** 30", "b'3'"])
def test_what_a_plugin_is_given_fails_no_rule(tmp_path: Path, argument: str, value: str) -> None:
    program = tmp_path / "train.py"
    plugin = f"DeepSpeedPlugin(hf_ds_config='ds.json', {argument}={value})"
    program.write_text(f"from accelerate import Accelerator, DeepSpeedPlugin\nAccelerator(deepspeed_plugin={plugin})\n", encoding="utf-8")
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto", "zero_optimization": {"stage": "auto", '
        '"stage3_gather_16bit_weights_on_model_save": "auto", "offload_optimizer": {"device": "auto"}, "offload_param": {"device": "auto"}}}',
        encoding="utf-8",
    )
    done = CliRunner().invoke(cli, ["check", str(tmp_path / "ds.json"), "--output-format", "json"])
    assert "DS000" not in {d["code"] for d in json.loads(done.stdout)["diagnostics"]}
    program.write_text(program.read_text(encoding="utf-8").replace("hf_ds_config='ds.json', ", ""), encoding="utf-8")
    done = CliRunner().invoke(cli, ["check", str(program), "--output-format", "json"])
    assert "DS000" not in {d["code"] for d in json.loads(done.stdout)["diagnostics"]}
