"""Programs that call `deepspeed.init_inference`, and take no config of a training."""

from __future__ import annotations

import json

import pytest

from dslint.facts import Facts, Release
from dslint.frameworks.loader import with_loaders
from dslint.lint.files import lint_subject
from dslint.setups.open import open_text
from dslint.source.read import read
from tests.command import dslint
from tests.setup.folder import RULES, Folder

HEAD = "import deepspeed, torch\nfrom transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('gpt2')\n"


@pytest.mark.parametrize(
    ("call", "codes"),
    [
        ("deepspeed.init_inference(model, replace_with_kernel_injection=True)", ["DS871"]),
        ("deepspeed.init_inference(model, config=dict(dtype='fp16', train_batch_size=8))", ["DS871"]),
        ("deepspeed.init_inference(model, mp_size=1, dtype=torch.half, replace_method='auto', replace_with_kernel_inject=True)", []),
        ("deepspeed.init_inference(model, **settings)", []),
    ],
)
def test_a_program_is_judged_alone(folder: Folder, call: str, codes: list[str]) -> None:
    folder.write({"infer.py": f"{HEAD}engine = {call}\n"})
    assert [one.code for one in folder.diagnostics("infer.py")] == codes


@pytest.mark.parametrize("launcher", ["deepspeed --num_gpus {}", "torchrun --nproc_per_node {}"])
def test_a_group_larger_than_the_launch_is_an_error(folder: Folder, launcher: str) -> None:
    folder.write({"infer.py": f"{HEAD}engine = deepspeed.init_inference(model, tensor_parallel={{'tp_size': 4}}, dtype=torch.half)\n"})
    folder.write({"run.sh": f"{launcher.format(2)} infer.py\n"})
    (result,) = (one for one in folder.results("run.sh").values() if one.path == "run.sh")
    assert ["init_inference" in str(one) for one in result.not_judged] == [True]
    (found,) = (one for one in folder.diagnostics("run.sh") if one.code == "DS871")
    assert "tp_size 4, but run.sh:1 starts 2 ranks" in found.message
    folder.write({"run.sh": f"{launcher.format(4)} infer.py\n"})
    assert [one.code for one in folder.diagnostics("run.sh") if one.code == "DS871"] == []


def test_a_call_that_only_some_runs_make_may_raise(folder: Folder) -> None:
    folder.write({"infer.py": f"{HEAD}import sys\nif len(sys.argv) > 1:\n    model = deepspeed.init_inference(model, kernels=True)\n"})
    (found,) = folder.diagnostics("infer.py")
    assert "may raise ValidationError" in found.message


def test_a_call_whose_error_is_handled_may_raise(folder: Folder) -> None:
    handled = "try:\n    engine = deepspeed.init_inference(model, kernels=True)\nexcept Exception:\n    engine = deepspeed.init_inference(model)\n"
    folder.write({"infer.py": f"{HEAD}{handled}"})
    (found,) = folder.diagnostics("infer.py")
    assert "may raise ValidationError" in found.message


def test_a_release_before_0_9_has_arguments_of_its_own(folder: Folder) -> None:
    call = "engine = deepspeed.init_inference(model, mp_size=1, quantization_setting=(False, 64))\n"
    folder.write({"infer.py": f"{HEAD}{call}"})
    given = with_loaders(Facts(deepspeed=Release(0, 9, 0)))
    for context, codes in ((given, ["DS871"]), (given._replace(outside=Release(0, 6, 0)), [])):
        subject = open_text(read("infer.py"), "infer.py", context, named=True)
        assert [one.code for result in lint_subject(subject, context, RULES) for one in result.diagnostics] == codes


REFUSED = "deepspeed.init_inference(model, kernels=True)"

PROGRAMS = {
    "top": f"{HEAD}engine = {REFUSED}\n",
    "condition": f"{HEAD}import sys\nif len(sys.argv) > 1:\n    model = {REFUSED}\n",
    "function": f"{HEAD}def load(model):\n    return {REFUSED}\n",
    "method": f"{HEAD}class Server:\n    def __init__(self, model):\n        self.engine = {REFUSED}\n",
    "other name": f"{HEAD}from deepspeed import init_inference as wrap\nwrap(model, kernels=True)\n",
    "sound": f"{HEAD}engine = deepspeed.init_inference(model, dtype=torch.half)\n",
    "cut off": f"{HEAD}engine = {REFUSED}\nelse\n",
    "trainer": "import sys\nfrom transformers import HfArgumentParser, TrainingArguments\n(args,) = HfArgumentParser(TrainingArguments)"
    f".parse_args_into_dataclasses()\n{HEAD}if not args.do_train:\n    {REFUSED}\n",
}


def checked(*arguments: str, text: str | None = None) -> list[tuple[str, str, str]]:
    """The findings of a check: code, severity and message."""
    done = dslint("check", *arguments, "--output-format", "json", input=text)
    return [(one["code"], one["severity"], one["message"]) for one in json.loads(done.stdout)["diagnostics"]] if done.stdout else []


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_gets_the_same_findings_however_it_is_named(folder: Folder, program: str) -> None:
    folder.write({"infer.py": PROGRAMS[program], "more/notes.txt": "none"})
    of_file = checked("infer.py")
    assert bool(of_file) == (program not in ("sound", "cut off", "trainer"))
    ways = [["."], ["*.py"], ["./infer.py"], ["**/*.py"], [str(folder.path)], ["infer.py", "."]]
    found = {" ".join(way): [(*one, said.replace(f"{folder.path}/", "")) for *one, said in checked(*way)] for way in ways}
    found["-"] = checked("-", "--stdin-filename", "infer.py", text=PROGRAMS[program])
    assert found == dict.fromkeys(found, of_file)


@pytest.mark.parametrize("program", ["top", "other name", "sound"])
def test_a_launch_beside_a_program_changes_nothing(folder: Folder, program: str) -> None:
    folder.write({"infer.py": PROGRAMS[program], "run.sh": "deepspeed --num_gpus 1 infer.py\n"})
    assert checked(".") == checked("run.sh") == checked("infer.py")


def test_a_launch_beside_a_program_says_what_is_certain(folder: Folder) -> None:
    folder.write({"infer.py": PROGRAMS["condition"], "run.sh": "deepspeed --num_gpus 1 infer.py\n"})  # it passes --local_rank
    assert [severity for _, severity, _ in checked("infer.py")] == ["warning"]
    assert [severity for _, severity, _ in checked(".")] == [severity for _, severity, _ in checked("run.sh")] == ["error"]


def test_a_notebook_gets_the_same_findings_however_it_is_named(folder: Folder) -> None:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": PROGRAMS["top"]}]
    folder.write({"infer.ipynb": json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})})
    assert [code for code, *_ in checked("infer.ipynb")] == ["DS871"]
    assert checked(".") == checked("*.ipynb") == checked("infer.ipynb")


def test_a_folder_says_nothing_of_a_program_without_a_finding(folder: Folder) -> None:
    folder.write({"infer.py": PROGRAMS["sound"]})
    assert "nothing to check" in dslint("check", ".").stderr
    folder.write({"ds_config.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2}}'})
    done = dslint("check", ".", "-v", "--output-format", "json")
    assert [one["path"] for one in json.loads(done.stdout)["files"]] == ["ds_config.json"]
    folder.write({"infer.py": f"# dslint: ignore-file[DS871]\n{PROGRAMS['top']}"})
    assert "Not checked" not in dslint("check", ".").stdout


def test_a_config_that_such_a_program_reads_keeps_its_findings(folder: Folder) -> None:
    given = "import json\nwith open('ds_config.json') as file:\n    known = json.load(file)\n"
    folder.write({"infer.py": f"{given}{PROGRAMS['top']}", "ds_config.json": '{"train_batch_size": 8, "zero_optimisation": {"stage": 2}}'})
    assert sorted(code for code, *_ in checked(".")) == sorted([code for code, *_ in checked("ds_config.json")] + ["DS871"])


def test_a_program_that_does_not_name_the_function_is_not_followed(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr("dslint.setups.program.read_python", lambda text, shown, path: read.append(shown))
    for name, text in (("a.py", "import deepspeed\ndeepspeed.init_distributed()\n"), ("b.py", PROGRAMS["top"])):
        folder.write({name: text})
        assert folder.results(name, named=False) == {}
    assert read == ["b.py"]


def test_a_module_and_its_program_say_a_mistake_once(folder: Folder) -> None:
    folder.write({"load.py": f"import deepspeed\ndef load(model):\n    return {REFUSED}\n"})
    folder.write({"infer.py": f"# init_inference is in load.py\n{HEAD}from load import load\nload(model)\n"})
    assert [severity for _, severity, _ in checked("load.py")] == ["warning"]
    for way in (["."], ["infer.py", "load.py"], ["load.py", "infer.py"]):
        assert [severity for _, severity, _ in checked(*way)] == ["error"]


def test_a_module_of_a_launched_program_is_a_program(folder: Folder) -> None:
    folder.write({"load.py": f"import deepspeed\ndef load(model):\n    return {REFUSED}\n"})
    folder.write({"infer.py": f"{HEAD}from load import load\nload(model)\n", "run.sh": "deepspeed infer.py\n"})
    assert folder.results("run.sh")["load.py"].kind == "python"
