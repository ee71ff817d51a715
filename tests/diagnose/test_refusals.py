"""Errors that frameworks raise about arguments: the conditions of their sources, and what the job has for them."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli.diagnose import command
from dslint.diagnose.refusals import refusals_of, sentences
from tests.diagnose.logs import diagnosed, traceback
from tests.docs.test_language import AVOIDED

TABLES = json.loads(resources.files("dslint.diagnose").joinpath("refusals.json").read_text(encoding="utf-8"))
BADAM = "ValueError: Radio-based BAdam does not yet support distributed training, use layer-wise BAdam."
OF_BADAM = traceback(BADAM, ("/LLaMA-Factory/src/llamafactory/hparams/parser.py", 231, "get_train_args", "raise ValueError("))


def _told(text: str) -> tuple[str, str]:
    found = diagnosed(text)
    return " ".join(found.causes[0].why), " ".join(found.causes[0].all_advice)


def test_the_conditions_of_an_error_are_told() -> None:
    told, advised = _told(OF_BADAM)
    assert "LLaMA-Factory raises this where use_badam is set and badam_mode is ratio, under further conditions." in told
    assert advised == "Do what the message says, or choose another badam_mode, or leave use_badam out."


def test_what_the_given_files_have_for_them_is_told(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}', encoding="utf-8")
    (tmp_path / "train.yaml").write_text(
        "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\ndo_train: true\nfinetuning_type: full\nuse_badam: true\n"
        "badam_mode: ratio\ndeepspeed: ds.json\ndataset: identity\ntemplate: llama3\noutput_dir: out\nper_device_train_batch_size: 1\nbf16: true\n",
        encoding="utf-8",
    )
    (tmp_path / "job.log").write_text(OF_BADAM, encoding="utf-8")
    result = CliRunner().invoke(command, [str(tmp_path / "job.log"), "--program", str(tmp_path / "train.yaml")])
    assert re.search(r"The job has use_badam: true \(\S*train.yaml:5\) and badam_mode: ratio", " ".join(result.stdout.split()))


def test_what_a_command_of_the_log_has_for_them_is_told() -> None:
    started = "[2026-11-01 10:00:00,000] [INFO] [runner.py:571:main] cmd = python -u -m deepspeed.launcher.launch src/train.py --use_badam --badam_mode ratio --stage sft"
    assert "The job has --use_badam (line 1 of the log) and --badam_mode ratio (line 1 of the log)." in _told(f"{started}\n{OF_BADAM}")[0]


def test_an_assertion_without_a_message_is_told_by_its_place() -> None:
    code = "assert args.start_weight_decay is None"
    told, _ = _told(traceback("AssertionError", ("/Megatron-DeepSpeed/megatron/arguments.py", 400, "validate_args", code)))
    assert "Megatron-DeepSpeed raises this" in told
    assert "start_weight_decay" in told


@pytest.mark.parametrize(
    "text",
    [
        traceback(BADAM, ("/home/me/train.py", 3, "main", "raise ValueError(")),  # of a program of one's own
        traceback("ValueError: Unknown mixing strategy.", ("/home/me/parser.py", 3, "get_train_args", "raise ValueError(")),
        traceback("AssertionError", ("/home/me/megatron/arguments.py", 3, "mine", "assert args.start_weight_decay is None")),
        "ValueError: `lora_alpha` must be",
        "RuntimeError: something else failed here, which no framework says",
    ],
)
def test_nothing_is_told_of_errors_raised_elsewhere(text: str) -> None:
    assert " raises this " not in _told(text)[0]


def test_a_text_that_is_known_says_more() -> None:
    error = "ValueError: Please use scripts/pissa_init.py to initialize PiSSA in DeepSpeed ZeRO-3."
    assert " raises this " not in _told(error)[0]


@pytest.mark.parametrize("library", TABLES)
def test_each_row_can_be_told(library: str) -> None:
    for words, place, error, _, _, _ in TABLES[library]:
        assert ":" in place
        assert re.fullmatch(r"[A-Z]\w*", error), (words, error)
        found = refusals_of(f"{error}: {words.replace('{}', '7')}") if len(words.split()) > 3 else []
        told = sentences(found) if len({one.library for one in found}) == 1 else None
        for sentence in told or ():
            assert sentence[0].isupper() or sentence.startswith(("ms-swift", "axolotl", "transformers")), sentence
            assert sentence.endswith("."), sentence
            assert not re.search(r"  | [.,:](?=\s|$)|\bNone\b|\[|\]", sentence), sentence
            assert not [pattern for pattern in AVOIDED if re.search(pattern, sentence, re.IGNORECASE)], sentence
