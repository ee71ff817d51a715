"""A framework is one module: two invented ones, each registered from its file in `invented/`, do all that the known ones do.

Quill reads a recipe in YAML with keys of its own, fills "auto" from them, and calls DeepSpeed. Forge writes the config from its arguments.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dslint.facts import Release
from dslint.frameworks.own_arguments import OwnArgument
from dslint.source.unknown import UNKNOWN
from tests.setup.folder import Folder

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

Run = Callable[..., list[str]]

OTHERS = re.compile(r"Trainer|transformers|Accelerate|accelerate|Lightning|DS9(?!01|02|03|19|74|75)\d\d")
"""What an answer about these frameworks says nothing of; the codes are those of rules about any loader."""


class Dslint:
    """A process in which a framework is known, and which answers commands in the working directory."""

    def __init__(self, module: Path, words: Path) -> None:
        command = [sys.executable, "-m", "tests.setup.with_framework", str(module), str(words)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "1000"}
        subprocess.run(command, env=environment, check=True, timeout=120)
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, *commands: str) -> list[str]:
        """What the commands print."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(Path.cwd()), [command.split() for command in commands]]) + "\n")
        self._process.stdin.flush()
        answer: list[str] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Dslint]]:
    """Starts dslint with the text of a module, once for each."""
    started: dict[str, Dslint] = {}

    def started_with(name: str, text: str) -> Dslint:
        if text not in started:
            folder = tmp_path_factory.mktemp(name)
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
            started[text] = Dslint(folder / f"{name}.py", folder / "words.py")
        return started[text]

    yield started_with
    for one in started.values():
        one.close()


def module_of(name: str) -> str:
    return (HERE / "invented" / f"{name}.py").read_text(encoding="utf-8")


@pytest.fixture
def quill(start: Callable[[str, str], Dslint], folder: Folder) -> Run:
    """Runs dslint in the folder, where Quill is known."""
    return start("quill", module_of("quill"))


@pytest.fixture
def forge(start: Callable[[str, str], Dslint], folder: Folder) -> Run:
    """Runs dslint in the folder, where Forge is known."""
    return start("forge", module_of("forge"))


@pytest.fixture
def kiln(start: Callable[[str, str], Dslint], folder: Folder) -> Run:
    """Runs dslint in the folder, where Kiln is known."""
    return start("kiln", module_of("kiln"))


RECIPE = """\
net: meta-llama/Llama-2-7b-hf
rows_per_gpu: 4
learning_rate: 2.0e-5
weight_decay: 0.1
warmup_steps: 10
max_steps: 500
limits:
  norm: 1.0
bf16: true
output_dir: out
engine_file: ds.json
"""
"""Five of its keys are those of the Trainer."""

CONFIG = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "train_batch_size": "auto",
  "gradient_clipping": "auto",
  "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 3}
}
"""

PIN = "quill==1.5\n"


def values_of(shown: str) -> dict[str, tuple[Any, str, str]]:
    """The values in the JSON of `dslint show`, each with its origin and note."""
    text = shown[shown.index("{\n") :]
    return {".".join(map(str, key["path"])): (key["value"], key["origin"], key["note"]) for key in json.loads(text)["keys"]}


def said(output: str) -> str:
    """An output without its line breaks."""
    return " ".join(output.split())


def codes(output: str) -> list[str]:
    return re.findall(r"^(?:error|warning|info)\[(\w+)\]", output, re.MULTILINE)


LAUNCHES = {
    "run.sh": "quill fit --recipe recipe.yaml --gpus 8\n",
    "torch.sh": "torchrun --nproc_per_node 8 -m quill.fit recipe.yaml\n",
    "Makefile": "train:\n\tquill fit --recipe recipe.yaml --gpus 8\n",
    "job.yaml": "name: job\nresources:\n  accelerators: H200:8\nrun: quill fit --recipe recipe.yaml --gpus 8\n",
    "launch.py": 'import subprocess\nsubprocess.run(["quill", "fit", "--recipe", "recipe.yaml", "--gpus", "8"])\n',
}


@pytest.mark.parametrize("launch", LAUNCHES)
def test_every_file_of_a_job_gives_the_same_config(folder: Folder, quill: Run, launch: str) -> None:
    """Its own command and torchrun start it; the recipe, the config and the launch lead to the same values."""
    folder.write({"recipe.yaml": RECIPE, "ds.json": CONFIG, "requirements.txt": PIN, launch: LAUNCHES[launch]})
    names = ("recipe.yaml", "ds.json", launch)
    checked = quill(*(f"check -v {name}" for name in names), "check -v .")
    for output in checked:
        assert "No problems found" in output, output
        assert "Inferred --integration deepspeed: Quill passes it to DeepSpeed itself" in output
        assert "Inferred --world-size 8" in output
        assert not OTHERS.search(output), output
    for shown in quill(*(f"show {name} --output-format json" for name in names)):
        values = values_of(shown)
        assert values["train_micro_batch_size_per_gpu"] == (4, "filled", "rows_per_gpu in recipe.yaml:2")
        assert values["gradient_accumulation_steps"] == (1, "filled", "the default of rounds")
        assert values["train_batch_size"] == (32, "filled", "rows_per_gpu in recipe.yaml:2")
        assert values["gradient_clipping"] == (1.0, "filled", "limits.norm in recipe.yaml:8")
        assert values["optimizer.params.lr"] == (2e-5, "filled", "learning_rate in recipe.yaml:3")
        assert values["bf16.enabled"] == (True, "filled", "bf16 in recipe.yaml:9")


def test_flags_and_words_count_more_than_the_recipe(folder: Folder, quill: Run) -> None:
    folder.write({"recipe.yaml": RECIPE, "ds.json": CONFIG, "other.json": CONFIG})
    folder.write({"run.sh": "quill fit recipe.yaml rounds=2 limits.norm=0.3 --learning-rate 1e-5 --no-bf16 --engine-file other.json\n"})
    (shown, checked) = quill("show run.sh --output-format json", "check run.sh")
    values = values_of(shown)
    assert values["gradient_accumulation_steps"][0] == 2
    assert values["gradient_clipping"] == (0.3, "filled", "limits.norm in run.sh:1")
    assert values["optimizer.params.lr"] == (1e-5, "filled", "learning-rate in run.sh:1")
    assert values["bf16.enabled"][0] is False
    assert "with DeepSpeed config other.json" in checked


@pytest.mark.parametrize(("pin", "rounds"), [("quill==1.5", 1), ("quill==2.1", 4), ("", None)])
def test_a_default_is_that_of_the_release(folder: Folder, quill: Run, pin: str, rounds: int | None) -> None:
    folder.write({"recipe.yaml": RECIPE, "ds.json": CONFIG, "requirements.txt": f"{pin}\n"})
    (shown,) = quill("show recipe.yaml --output-format json")
    assert values_of(shown)["gradient_accumulation_steps"][0] == rounds


def test_an_auto_that_it_leaves_is_found_in_its_name(folder: Folder, quill: Run) -> None:
    kept = CONFIG.replace('"lr": "auto"', '"lr": "auto", "eps": "auto"')
    folder.write({"recipe.yaml": RECIPE, "kept.yaml": RECIPE.replace("ds.", "kept."), "both.yaml": RECIPE.replace("ds.", "both.")})
    folder.write({"ds.json": CONFIG.replace("3}", '"auto"}'), "kept.json": kept, "both.json": kept.replace("3}", '"auto"}')})
    outputs = quill("check recipe.yaml", "check kept.yaml", "check both.yaml")
    assert [codes(output) for output in outputs] == [["DS901"], ["DS902"], ["DS902"]]
    dropped, raised, both = map(said, outputs)
    assert 'zero_optimization.stage is "auto", and Quill does not replace it: DeepSpeed 0.19.8 drops the key and trains' in dropped
    assert 'optimizer.params.eps is "auto", and Quill does not replace it: DeepSpeed raises TypeError' in raised
    assert 'These 2 values are "auto", and Quill does not replace them. DeepSpeed raises TypeError' in both
    assert not any(OTHERS.search(output) for output in outputs)


@pytest.mark.slow
def test_an_auto_that_it_refuses_is_found_with_its_error(folder: Folder, start: Callable[[str, str], Dslint]) -> None:
    strict = start("strict", module_of("quill").replace("fills={", 'raises="no value for {key}",\n        fills={'))
    folder.write({"recipe.yaml": RECIPE, "ds.json": CONFIG.replace('"stage": 3', '"stage": 3, "sub_group_size": "auto"')})
    (output,) = strict("check recipe.yaml")
    assert codes(output) == ["DS903"]
    assert '"auto", but Quill has no value for it: it raises "no value for zero_optimization.sub_group_size".' in said(output)
    assert not OTHERS.search(output)


@pytest.mark.slow
def test_an_unknown_key_with_an_auto_that_it_refuses_has_its_error(folder: Folder, start: Callable[[str, str], Dslint]) -> None:
    strict = start("strict", module_of("quill").replace("fills={", 'raises="no value for {key}",\n        fills={'))
    unknown = CONFIG.replace("gradient_clipping", "gradient_cliping").replace('"bf16"', '"my_own": {"size": "auto"}, "bf16"')
    folder.write({"recipe.yaml": RECIPE, "ds.json": unknown, "run.sh": "quill fit recipe.yaml --gpus 2\n"})
    for output in map(said, strict("check recipe.yaml", "check run.sh")):
        assert (
            'Unknown top-level key "gradient_cliping": Quill has no value for its "auto", and raises "no value for gradient_cliping"'
            in output
        )
        assert 'Quill has no value for its "auto", and raises "no value for my_own.size"' in output
        assert not OTHERS.search(output)


def test_an_unknown_key_with_an_auto_that_it_leaves_is_ignored(folder: Folder, quill: Run) -> None:
    folder.write({"recipe.yaml": RECIPE, "ds.json": CONFIG.replace("gradient_clipping", "gradient_cliping")})
    (output,) = quill("check recipe.yaml")
    assert 'Unknown top-level key "gradient_cliping": DeepSpeed silently ignores it' in said(output)


def test_a_flag_replaces_the_config_of_the_recipe(folder: Folder, quill: Run) -> None:
    """The config that it names is not read for the launch, and what says so of the recipe names both."""
    folder.write({"recipe.yaml": RECIPE, "ds.json": CONFIG, "other.json": CONFIG})
    folder.write({"run.sh": "quill fit recipe.yaml --engine-file other.json --gpus 2\n"})
    script, recipe = map(said, quill("check -v run.sh", "check -v recipe.yaml"))
    assert "in 3 files (1 config, 1 training file, 1 script)" in script
    assert "recipe.yaml: training arguments for Quill; DeepSpeed config: ds.json. run.sh:1 replaces it by other.json." in recipe
    assert "in 4 files (2 configs, 1 training file, 1 script)" in recipe


def test_an_unknown_argument_in_a_section(folder: Folder, quill: Run) -> None:
    folder.write({"ds.json": CONFIG, "recipe.yaml": RECIPE.replace("  norm: 1.0\n", "  norm: 1.0\n  nrm: 2.0\n")})
    (output,) = quill("check recipe.yaml")
    assert codes(output) == ["DS974"]
    assert 'Unknown argument "limits.nrm": Quill raises "recipe: unknown field limits.nrm".' in output
    assert 'Write "limits.norm"' in output
    assert " --> recipe.yaml:9:3" in output


def test_who_replaces_auto_where_no_loader_is_known(folder: Folder, quill: Run, forge: Run) -> None:
    folder.write({"ds.json": '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": "auto"}}'})
    (filling,), (building,) = quill("check ds.json"), forge("check ds.json")
    assert "Only the Hugging Face Trainer, Accelerate and Quill replace" in said(filling)
    assert "Only the Hugging Face Trainer and Accelerate replace" in said(building)


def test_mistakes_in_what_it_fills_are_found_at_their_arguments(folder: Folder, quill: Run) -> None:
    config = CONFIG.replace('"train_batch_size": "auto"', '"train_batch_size": 100')
    folder.write({"recipe.yaml": RECIPE, "ds.json": config, "requirements.txt": PIN, "run.sh": LAUNCHES["run.sh"]})
    for output in quill("check recipe.yaml", "check ds.json", "check run.sh"):
        assert codes(output) == ["DS201"], output
        assert "recipe.yaml:2" in output
        assert "fills train_micro_batch_size_per_gpu" in output
        assert not OTHERS.search(output)


def test_a_launch_with_nothing_but_flags_is_found(folder: Folder, quill: Run) -> None:
    """Its flag for the config is a word by which a script tells what it is about."""
    folder.write({"run.sh": "quill fit --engine-file ds.json --rows-per-gpu 2 --rounds 3 --gpus 4\n"})
    folder.write({"ds.json": CONFIG.replace('"train_batch_size": "auto"', '"train_batch_size": 100')})
    for output in quill("check ds.json", "check run.sh", "check ."):
        assert codes(output) == ["DS201"], output
        assert "run.sh:1" in output
        assert not OTHERS.search(output)


def test_unknown_arguments_and_missing_configs(folder: Folder, quill: Run) -> None:
    folder.write(
        {"slip.yaml": RECIPE.replace("weight_decay", "weight_decai"), "ds.json": CONFIG, "gone.yaml": RECIPE.replace("ds.", "no.")}
    )
    folder.write({"old.yaml": f"{RECIPE}ema: true\n", "requirements.txt": "quill==1.3\n", "recipe.json": '{"net": "m", "rows_per_gpu": 1}'})
    slip, gone, old, without = quill("check slip.yaml", "check gone.yaml", "check old.yaml", "check recipe.json")
    assert 'Unknown argument "weight_decai": Quill raises "recipe: unknown field weight_decai".' in slip
    assert 'Write "weight_decay"' in slip
    assert codes(gone) == ["DS919"]
    assert "it ends with the error of Quill for a file that does not exist" in gone
    assert 'Unknown argument "ema"' in old
    assert "training arguments for Quill, which do not use DeepSpeed" in without
    assert not any(OTHERS.search(output) for output in (slip, gone, old))


def test_an_empty_argument_fills_nothing(folder: Folder, quill: Run) -> None:
    folder.write({"recipe.yaml": f"{RECIPE}rounds:\n", "ds.json": CONFIG})
    (output,) = quill("check recipe.yaml")
    assert codes(output) == []
    assert "error" not in output


@pytest.mark.slow
def test_the_key_for_the_config_may_be_in_a_section(folder: Folder, start: Callable[[str, str], Dslint]) -> None:
    sections = start("sections", module_of("quill").replace('config_keys=("engine_file",)', 'config_keys=("engine.file",)'))
    folder.write({"recipe.yaml": RECIPE.replace("engine_file:", "engine:\n  file:"), "ds.json": CONFIG})
    (output,) = sections("check recipe.yaml")
    assert codes(output) == []


def test_the_recipe_may_say_the_ranks(folder: Folder, quill: Run) -> None:
    """The launch counts more, whatever starts it."""
    folder.write({"recipe.yaml": f"{RECIPE}gpus: 4\nmachines: 2\n", "ds.json": CONFIG, "own.sh": "quill fit recipe.yaml\n"})
    folder.write({"torch.sh": "torchrun --nproc_per_node 2 -m quill.fit recipe.yaml\n", "flag.sh": "quill fit recipe.yaml --gpus 1\n"})
    outputs = quill(*(f"check -v {name}" for name in ("own.sh", "torch.sh", "flag.sh")))
    assert [re.findall(r"--world-size (\d+): (.*?) \(", said(one)) for one in outputs] == [
        [("8", "gpus: 4 on 2 machines")],
        [("2", "--nproc_per_node 2")],
        [("1", "--gpus 1")],
    ]


def test_what_it_refuses_is_found(folder: Folder, quill: Run) -> None:
    folder.write({"recipe.yaml": f"{RECIPE}ema: true\n", "ds.json": CONFIG, "two.yaml": f"{RECIPE.replace('ds.', 'two.')}ema: true\n"})
    folder.write({"two.json": CONFIG.replace("3}", "2}")})
    refused, accepted = quill("check recipe.yaml", "check two.yaml")
    assert codes(refused) == ["DS975"]
    assert 'ema: true at ZeRO stage 3: Quill raises "ema needs the whole weights"' in said(refused)
    assert codes(accepted) == []


def test_no_optimizer_is_found_in_its_name(folder: Folder, quill: Run) -> None:
    """What it passes to `deepspeed.initialize` is known."""
    config = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'
    folder.write({"recipe.yaml": RECIPE, "ds.json": config})
    (output,) = quill("check recipe.yaml")
    assert codes(output) == ["DS654"]
    assert "Quill passes no optimizer to deepspeed.initialize, and the config has no section optimizer" in said(output)


def test_a_program_of_the_project_may_change_its_arguments(folder: Folder, quill: Run) -> None:
    """What such a program makes of flags with the names of arguments is not known."""
    folder.write({"recipe.yaml": RECIPE, "ds.json": CONFIG, "train.py": "import quill\nquill.fit(quill.parse())\n"})
    folder.write({"run.sh": "torchrun --nproc_per_node 2 train.py --config recipe.yaml --rows-per-gpu 8\n"})
    shown, checked = quill("show run.sh --output-format json", "check -v run.sh")
    assert values_of(shown)["train_micro_batch_size_per_gpu"][0] is None
    assert values_of(shown)["optimizer.params.lr"][0] == 2e-5
    assert "Inferred --world-size 2" in checked
    assert not OTHERS.search(checked)


def test_a_program_that_imports_it_is_not_the_trainer_s(folder: Folder, quill: Run) -> None:
    """Its flags may have the names of the Trainer's arguments; what the program makes of them is not known."""
    config = CONFIG.replace('"lr": "auto"', '"lr": "auto", "eps": "auto"')
    folder.write({"ds.json": config, "recipe.yaml": RECIPE, "train.py": "from quill import fit, parse\nfit(parse())\n"})
    flags = "--output_dir out --learning_rate 1e-5 --bf16 --per_device_train_batch_size 2"
    folder.write({"run.sh": f"torchrun --nproc_per_node 2 train.py {flags} --engine_file ds.json\n"})
    folder.write({"file.sh": "torchrun --nproc_per_node 2 train.py --recipe recipe.yaml --learning_rate 1e-5\n"})
    outputs = quill("check -v run.sh", "check -v file.sh")
    for output in outputs:
        assert codes(output) == ["DS902"], output
        assert 'optimizer.params.eps is "auto", and Quill does not replace it' in said(output)
        assert "Inferred --world-size 2" in output
        assert not OTHERS.search(output)
    by_flags, by_file = (values_of(one) for one in quill("show run.sh --output-format json", "show file.sh --output-format json"))
    assert by_flags["optimizer.params.lr"][0] is by_file["optimizer.params.lr"][0] is None
    assert by_file["train_micro_batch_size_per_gpu"][0] == 4


def test_other_tasks_of_its_command_train_nothing(folder: Folder, quill: Run) -> None:
    folder.write({"recipe.yaml": RECIPE, "ds.json": CONFIG, "run.sh": "quill print --recipe recipe.yaml\n"})
    (output,) = quill("check run.sh")
    assert "no command in this file launches a DeepSpeed training" in output


def test_its_workload_is_estimated(folder: Folder, quill: Run) -> None:
    folder.write({"recipe.yaml": RECIPE, "ds.json": CONFIG, "run.sh": LAUNCHES["run.sh"]})
    (output,) = quill("estimate ds.json")
    assert "Llama-2-7b" in output
    assert "--sequence-length is 2048, from the default of Quill" in output
    assert "--micro-batch is 4, from recipe.yaml:2" in output


def test_forge_builds_the_config_from_its_flags(folder: Folder, forge: Run) -> None:
    folder.write({"run.sh": "export NPROC_PER_NODE=8\nforge-train --shard-level 2 --samples 4 --offload\n"})
    checked, shown = forge("check -v run.sh", "show run.sh --output-format json")
    assert "forge-train launches a training with Forge on 8 ranks with the DeepSpeed config that its flags describe" in checked
    assert codes(checked) == ["DS501"]
    assert not OTHERS.search(checked)
    values = values_of(shown)
    assert values["train_batch_size"][:2] == (32, "derived")
    assert values["zero_optimization.stage"][:2] == (2, "written")
    assert values["optimizer.params.lr"][:2] == (1e-4, "written")


def test_forge_reads_a_file_and_the_flags_of_torchrun(folder: Folder, forge: Run) -> None:
    folder.write({"forge.yaml": "shard_level: 3\nsamples: 4\noffload: true\n", "train.py": "import forge\n"})
    folder.write({"run.sh": "torchrun --nproc_per_node 4 -m forge forge.yaml --shard-level 1\n"})
    outputs = forge("check -v run.sh", "check -v forge.yaml", "check -v .")
    for output in outputs:
        assert codes(output) == ["DS501"], output
        assert " --> forge.yaml:3:1" in output
        assert "run.sh:1:4" in output
        assert "Inferred --world-size 4" in output
        assert not OTHERS.search(output)


@pytest.mark.parametrize("engine", ["engine: {deepspeed: ds.json}\n", "engine:\n  deepspeed:\n    zero_optimisation: {stage: 3}\n"])
def test_forge_may_be_given_a_config(folder: Folder, forge: Run, engine: str) -> None:
    """A key in a section names it or holds it; then none is built."""
    folder.write({"forge.yaml": f"shard-level: 1\nsamples: 4\n{engine}", "ds.json": '{"zero_optimisation": {"stage": 3}}'})
    folder.write({"run.sh": "forge-train forge.yaml\n", "train.py": "import forge\n"})
    script, file = forge("check -v run.sh", "check -v forge.yaml")
    for output in (script, file):
        assert codes(output) == ["DS204", "DS102"], output
        assert "Inferred --integration deepspeed: Forge passes it to DeepSpeed itself (forge.yaml:" in said(output)
        assert not OTHERS.search(output)


def test_forge_without_deepspeed(folder: Folder, forge: Run) -> None:
    folder.write({"run.sh": "NPROC_PER_NODE=8 forge-train --backend ddp --shard-level 2 --offload\n", "train.py": "import forge\n"})
    folder.write({"forge.yaml": "backend: ddp\nshard_level: 2\nsamples: 1\noffload: true\n"})
    script, file = forge("check run.sh", "check forge.yaml")
    assert "no command in this file launches a DeepSpeed training" in script
    assert "training arguments for Forge, which do not use DeepSpeed" in file


ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 4
deepspeed_config:
  deepspeed_config_file: ds.json
"""

FIRED = "clay: m\nlearning_rate: 1e-5\nweight_decay: 0.1\nmax_steps: 10\nbf16: true\nbatch: 4\n"
"""Four of its keys are those of the Trainer."""


@pytest.mark.slow
def test_accelerate_fills_for_kiln(folder: Folder, kiln: Run) -> None:
    """The loader of its loop is Accelerate, by a file of Accelerate or by its own key; the Trainer has nothing to do with it."""
    config = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2, "sub_group_size": "auto"}}'
    folder.write({"ds.json": config, "a.yaml": ACCELERATE, "fire.yaml": FIRED, "train.py": "import kiln\n"})
    folder.write({"own.yaml": f"{FIRED}ds_file: ds.json\n", "own.sh": "accelerate launch --num_processes 4 -m kiln.fire own.yaml\n"})
    folder.write({"run.sh": "accelerate launch --config_file a.yaml -m kiln.fire fire.yaml\n"})
    for output in map(said, kiln("check -v run.sh", "check -v own.sh", "check -v own.yaml")):
        assert "Inferred --integration accelerate: Kiln passes it to Accelerate" in output, output
        assert "Inferred --world-size 4" in output
        assert 'zero_optimization.sub_group_size is "auto", but Accelerate has no value for it: it raises' in output
        assert "DS904" not in output
        assert "Trainer" not in output


def test_without_its_module_it_is_nobody_s(folder: Folder) -> None:
    """What no known framework reads is not checked, and never the Trainer's."""
    folder.write({"recipe.yaml": RECIPE, "ds.json": CONFIG, "run.sh": LAUNCHES["run.sh"]})
    results = folder.results("recipe.yaml")
    (reason,) = results["recipe.yaml"].not_judged
    assert "no known framework uses these keys" in reason.reason


@pytest.mark.parametrize(
    ("release", "default"),
    [(None, UNKNOWN), ("1.0", UNKNOWN), ("1.4", 1), ("1.9.9", 1), ("2.0", 2), ("3.5", 3), ("4.0", UNKNOWN)],
)
def test_an_argument_by_release(release: str | None, default: object) -> None:
    argument = OwnArgument(int, 1, changed={"3.0": 3, "2.0": 2}, since="1.4", before="4.0")
    assert argument.default_in(Release.parse(release) if release else None) is default or default is not UNKNOWN
    assert argument.default_in(Release.parse(release) if release else None) == default or default is UNKNOWN


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [(int, "8", 8), (int, "x", UNKNOWN), (float, "1e-5", 1e-5), (float, 4, 4), (bool, "true", True), (str, 7, UNKNOWN), (str, "a", "a")],
)
def test_an_argument_is_read_by_its_kind(kind: type, written: object, value: object) -> None:
    found = OwnArgument(kind).read(written)
    assert found is value if value is UNKNOWN else found == value
