"""Write the tables of frameworks into `dslint/frameworks/_generated`, as their installed packages and unpacked wheels tell them.

    python scripts/framework_tables.py ENVIRONMENTS [--wheels FOLDER]

ENVIRONMENTS is a folder with one virtual environment for each framework (`trl`, `llamafactory`, `ms-swift`, `axolotl`, `lightning`); each
is asked in a process of its own, and one that is not there keeps its table. FOLDER holds wheels of older releases, unpacked to
`transformers-4.57.3`, `trl-0.24.0` and so on: their source is read and never run. With --only-older the tables keep what the installed
packages said, and the older releases without a wheel.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
from pathlib import Path
from typing import Any

from dslint.job.training import ARGUMENTS, WORKLOAD

TARGET = Path(__file__).resolve().parent.parent / "dslint" / "frameworks" / "_generated"

ASKS = {
    "huggingface": (
        "trl",
        "transformers",
        """
from transformers import Seq2SeqTrainingArguments, TrainingArguments
kinds, more = [TrainingArguments], [Seq2SeqTrainingArguments]
""",
    ),
    "trl": (
        "trl",
        "trl",
        """
import trl
from trl.scripts.utils import DatasetMixtureConfig
kinds = [trl.SFTConfig]
more = [trl.ScriptArguments, trl.ModelConfig, DatasetMixtureConfig]
more += [trl.DPOConfig, trl.GRPOConfig, trl.RewardConfig, trl.RLOOConfig, trl.KTOConfig]
""",
    ),
    "llama_factory": (
        "llamafactory",
        "llamafactory",
        """
import importlib.machinery, types
empty = types.ModuleType("torchaudio")  # imported, and used only for sound
empty.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
sys.modules["torchaudio"] = empty
from llamafactory.hparams import DataArguments, FinetuningArguments, GeneratingArguments, ModelArguments, TrainingArguments
kinds, more = [TrainingArguments], [ModelArguments, DataArguments, FinetuningArguments, GeneratingArguments]
""",
    ),
    "ms_swift": (
        "ms-swift",
        "ms-swift",
        """
from swift.arguments import PretrainArguments, RLHFArguments, SftArguments
kinds, more = [SftArguments], [RLHFArguments, PretrainArguments]
""",
    ),
    "axolotl": (
        "axolotl",
        "axolotl",
        """
from axolotl.utils.schemas.config import AxolotlInputConfig
kinds, more = [AxolotlInputConfig], []
""",
    ),
    "lightning": (
        "lightning",
        "lightning",
        """
from lightning.pytorch.strategies import DeepSpeedStrategy
kinds, more = [DeepSpeedStrategy], []
""",
    ),
}
"""By module: the environment, the package, and the program that names the classes of arguments. The first class gives the defaults."""

PROGRAM = """
import dataclasses, enum, importlib.metadata, inspect, json, sys, typing
{ask}
def plain(value):
    value = getattr(value, "value", value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else "..."
def fields(kind):
    if dataclasses.is_dataclass(kind):
        return {{f.name: plain(None if f.default is dataclasses.MISSING else f.default) for f in dataclasses.fields(kind)}}
    if not hasattr(kind, "model_fields"):
        parameters = inspect.signature(kind).parameters.values()
        return {{one.name: plain(None if one.default is one.empty else one.default) for one in parameters}}
    found = {{}}
    for name, field in kind.model_fields.items():
        for one in {{name, field.alias}} - {{None}}:
            found[one] = plain(None if field.is_required() else field.default)
    return found
def choices(kind):
    found = {{}}
    for name, hint in (typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {{}}).items():
        for one in (hint, *typing.get_args(hint)):
            if isinstance(one, type) and issubclass(one, enum.Enum) and name in {choices}:
                found[name] = [one.__name__, *(each.value for each in one)]
    return found
def valued(kind):  # a switch that may also be None needs a value
    if not dataclasses.is_dataclass(kind):
        return set()
    from transformers import HfArgumentParser
    actions = HfArgumentParser([kind])._actions
    return {{one.dest for one in actions if one.nargs is None and getattr(one.type, "__name__", "") == "string_to_bool"}}
own = fields(kinds[0])
accepted = set(own).union(*(fields(kind) for kind in more))
tasks = {{name: fields(getattr(trl, kind)) for name, kind in {tasks}.items()}}
answer = {{"release": importlib.metadata.version("{package}"), "defaults": own, "accepted": sorted(accepted)}}
answer |= {{"choices": choices(kinds[0]), "tasks": tasks, "valued": sorted(set().union(*map(valued, [*kinds, *more])))}}
print("\\n@@" + json.dumps(answer))
"""

TASKS = {"trl": {"dpo": "DPOConfig", "grpo": "GRPOConfig", "kto": "KTOConfig", "reward": "RewardConfig", "rloo": "RLOOConfig"}}
"""By package: the classes of arguments of the tasks of its command."""

CHOICES = {"transformers": ["optim", "lr_scheduler_type", "save_strategy", "eval_strategy", "logging_strategy"]}
"""By package: the arguments whose choices dslint reads."""

WHOLE = {"lightning"}
"""The modules that read all defaults of their table, not only those of training arguments."""

PRESETS = {
    "ms_swift": ("ms-swift", "swift", "config/*.json"),
    "trl": ("trl", "trl", "accelerate_configs/*.yaml"),
}
"""By module: the environment, the package, and the files in it that ship as configs."""


def main() -> None:
    """Write all tables that can be asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environments", type=Path)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--only-older", action="store_true")
    given = parser.parse_args()
    TARGET.mkdir(exist_ok=True)
    for module, (environment, package, ask) in ASKS.items():
        if not given.only_older and not (given.environments / environment).is_dir():
            continue
        if given.only_older:
            file = TARGET / f"{module}.json"
            table = json.loads(file.read_text(encoding="utf-8"))
            table["older"] |= compared(set(table["accepted"].split()), older_names(given.wheels, package))
            file.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
            continue
        table = asked(given.environments / environment, package, ask)
        if module in PRESETS:
            table["presets"] = presets(given.environments, *PRESETS[module])
        older = older_names(given.wheels, package) if given.wheels is not None else {}
        known = ARGUMENTS | WORKLOAD | {"micro_batch_size", "optimizer", "lr_scheduler"}
        kept = set(table["accepted"]) if module in WHOLE else known
        (TARGET / f"{module}.json").write_text(written(table, older, kept), encoding="utf-8")


def asked(environment: Path, package: str, ask: str) -> dict[str, Any]:
    """What an installed framework says of its arguments."""
    program = PROGRAM.format(ask=ask, package=package, tasks=TASKS.get(package, {}), choices=CHOICES.get(package, []))
    done = subprocess.run(
        [str(environment / "bin" / "python"), "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={"HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu", "AXOLOTL_DO_NOT_TRACK": "1", "PATH": str(environment / "bin")},
    )
    _, mark, answer = done.stdout.rpartition("@@")
    if not mark:
        raise SystemExit(f"{environment}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(answer)
    return found


def presets(environments: Path, environment: str, package: str, pattern: str) -> dict[str, str]:
    """The configs that ship with a framework, by their names."""
    (folder,) = (environments / environment).glob(f"lib/python3*/site-packages/{package}")
    texts = {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob(pattern))}
    return {name: text for name, text in texts.items() if "DEEPSPEED" in text or "zero_optimization" in text}


def older_names(wheels: Path, package: str) -> dict[str, list[str]]:
    """The names that older releases of a package accept, by release."""
    folders = sorted(found for found in wheels.glob(f"{package}-*") if found.is_dir())
    return {found.name.rpartition("-")[2]: accepted_in(found, package) for found in folders}


def accepted_in(wheel: Path, package: str) -> list[str]:
    """The names of arguments in the source of an unpacked wheel: the Trainer's, or those of all classes, of which one is too many."""
    if package == "transformers":
        kinds = {"TrainingArguments", "Seq2SeqTrainingArguments"}
        files = [wheel / "transformers" / name for name in ("training_args.py", "training_args_seq2seq.py")]
    else:
        kinds, files = set(), sorted(wheel.rglob("*.py"))
    names: set[str] = set()
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and (not kinds or node.name in kinds))
        fields = (line for node in classes for line in node.body if isinstance(line, ast.AnnAssign))
        names |= {line.target.id for line in fields if isinstance(line.target, ast.Name)}
    return sorted(names)


def written(table: dict[str, Any], older: dict[str, list[str]], known: set[str]) -> str:
    """A table as JSON: the defaults of the arguments `known`, and for older releases how their names differ."""
    accepted = set(table["accepted"])
    shown = {
        "release": table["release"],
        "defaults": {name: value for name, value in sorted(table["defaults"].items()) if name in known and value != "..."},
        "tasks": {task: _kept(values, known, table["defaults"]) for task, values in table["tasks"].items()},
        "accepted": " ".join(table["accepted"]),
        "older": compared(accepted, older),
        "presets": table.get("presets", {}),
        "choices": table["choices"],
        "valued": " ".join(table["valued"]),
    }
    return json.dumps(shown, indent=1) + "\n"


def compared(accepted: set[str], older: dict[str, list[str]]) -> dict[str, dict[str, str]]:
    """What older releases accept in addition to the newest."""
    return {release: {"more": " ".join(sorted(set(names) - accepted))} for release, names in older.items()}


def _kept(values: dict[str, Any], known: frozenset[str] | set[str], usual: dict[str, Any]) -> dict[str, Any]:
    """The defaults that dslint reads and that differ from the usual ones."""
    return {name: value for name, value in sorted(values.items()) if name in known and value not in ("...", usual.get(name))}


if __name__ == "__main__":
    main()
