"""Launches of VS Code's debugger: the same findings as for the commands that they stand for."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}'
PROGRAM = (
    "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    'Trainer(model=AutoModelForCausalLM.from_pretrained("m"), args=args).train()\n'
)
MISMATCH = "but 4 from .vscode/launch.json"


def launch(started: str, request: str = "launch", kind: str = "debugpy") -> str:
    """A file with a comment, a comma too many, and one configuration."""
    return (
        '{\n  // made by the editor\n  "version": "0.2.0",\n  "configurations": [\n'
        f'    {{"name": "train", "type": "{kind}", "request": "{request}", {started}}},\n  ]\n}}\n'
    )


ARGUMENTS = '"train.py", "--deepspeed", "ds.json", "--output_dir", "o", "--per_device_train_batch_size", "4"'


@pytest.mark.parametrize(
    "started",
    [
        f'"program": "/opt/env/bin/deepspeed", "args": ["--num_gpus", "2", {ARGUMENTS}]',
        f'"module": "deepspeed.launcher.runner", "args": ["--num_gpus=2", {ARGUMENTS}]',
        f'"module": "torch.distributed.run", "args": ["--nproc_per_node=2", {ARGUMENTS}]',
        f'"module": "torch.distributed.run", "args": ["--nproc_per_node=2", "${{workspaceFolder}}/{ARGUMENTS[1:]}]',
        f'"module": "torch.distributed.run", "args": "--nproc_per_node=2 {ARGUMENTS.replace(chr(34), "").replace(",", "")}"',
        f'"program": "${{workspaceFolder}}/train.py", "args": [{ARGUMENTS.partition(", ")[2]}]',
    ],
)
def test_the_arguments_of_a_launch_count(folder: Folder, started: str) -> None:
    folder.write({".git/HEAD": "", ".vscode/launch.json": launch(started), "ds.json": CONFIG, "train.py": PROGRAM})
    for named in (".vscode/launch.json", "train.py", "ds.json"):
        found = [d.message for result in folder.results(named).values() for d in result.diagnostics if d.code == "DS904"]
        assert any(MISMATCH in one for one in found), named


def test_the_folder_and_the_variables_of_a_launch_count(folder: Folder) -> None:
    more = f'"cwd": "${{workspaceFolder}}/src", "env": {{"CUDA_VISIBLE_DEVICES": "2,3"}}, "args": ["--num_gpus", "2", {ARGUMENTS}]'
    text = launch(f'"program": "/opt/env/bin/deepspeed", {more}')
    folder.write({".git/HEAD": "", ".vscode/launch.json": text, "src/ds.json": CONFIG, "src/train.py": PROGRAM})
    codes = {d.code for result in folder.results(".vscode/launch.json").values() for d in result.diagnostics}
    assert {"DS904", "DS953"} <= codes


@pytest.mark.parametrize(
    "text",
    [
        launch(f'"program": "${{file}}", "args": [{ARGUMENTS}]'),
        launch('"program": "serve.js"', kind="node"),
        launch('"connect": {"port": 5678}', request="attach"),
        '{"configurations": "none"}',
        '{"configurations": [',
        "",
    ],
)
def test_what_starts_no_training_is_not_judged(folder: Folder, text: str) -> None:
    folder.write({".vscode/launch.json": text})
    assert folder.results(".vscode/launch.json", named=False).get(".vscode/launch.json") is None
    assert not folder.results(".vscode/launch.json")[".vscode/launch.json"].diagnostics


def test_a_directory_is_searched_for_them_and_not_for_other_settings_of_the_editor(folder: Folder) -> None:
    from dslint.lint.discovery import discover
    from dslint.settings import Finder

    folder.write({".vscode/launch.json": launch('"program": "a.py"'), ".vscode/settings.json": "{}", ".idea/launch.json": "{}"})
    assert [one.path for one in discover(["."], Finder()).targets] == [".vscode/launch.json"]
