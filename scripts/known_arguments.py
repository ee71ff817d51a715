"""Write dslint/diagnose/known_arguments.json: which releases of the libraries know an argument that another release refuses.

    python scripts/known_arguments.py CLONES --wheels FOLDER

CLONES is a folder with a git clone, with its tags, of each library under the name that `LIBRARIES` has; a library that is not there keeps
its table. FOLDER holds wheels of libraries that are not read from a clone (`transformers-4.57.1-py3-none-any.whl`). The sources are read
and never run.

Of each class or function, the table has the arguments that all releases know, and of every other one the first and the last release
that knows it. A function that takes any keyword argument refuses none, and is left out from then on.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

TARGET = Path(__file__).resolve().parent.parent / "dslint" / "diagnose" / "known_arguments.json"

RELEASE = re.compile(r"^v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)$")
"""A tag or a version that is a release, and not a candidate for one."""


class Wanted(NamedTuple):
    """A class or function whose arguments are read: where it may stand in the releases, and the classes whose fields it takes besides."""

    name: str
    files: str
    more: tuple[str, ...] = ()


class Library(NamedTuple):
    """A library: its clone, the first release that counts, and what is read of it. `program` are patterns of files whose classes and
    parsers define the arguments of its command.
    """

    clone: str
    first: str
    wanted: tuple[Wanted, ...]
    program: str = ""


_TRL_FILES = r"trl/(?:experimental|trainer)/(?:.*/)?\w*(?:config|trainer|base)\w*\.py"
_TRL = ("SFT", "DPO", "GRPO", "Reward", "PPO", "KTO", "ORPO", "CPO", "RLOO", "OnlineDPO")

LIBRARIES = {
    "deepspeed": Library(
        "DeepSpeed",
        "0.3.10",
        (
            Wanted("initialize", r"deepspeed/__init__\.py"),
            Wanted("init_inference", r"deepspeed/__init__\.py|deepspeed/inference/config\.py", ("DeepSpeedInferenceConfig",)),
            Wanted("init_distributed", r"deepspeed/comm/comm\.py|deepspeed/utils/distributed\.py"),
            Wanted("Init", r"deepspeed/runtime/zero/partition_parameters\.py"),
            Wanted("GatheredParameters", r"deepspeed/runtime/zero/partition_parameters\.py"),
            Wanted("PipelineModule", r"deepspeed/runtime/pipe/module\.py"),
            Wanted("DeepSpeedCPUAdam", r"deepspeed/ops/adam/cpu_adam\.py"),
            Wanted("FusedAdam", r"deepspeed/ops/adam/fused_adam\.py"),
            Wanted("MoE", r"deepspeed/moe/layer\.py"),
        ),
    ),
    "accelerate": Library(
        "accelerate",
        "0.6.0",
        (
            Wanted("Accelerator", r"src/accelerate/accelerator\.py"),
            Wanted("DeepSpeedPlugin", r"src/accelerate/utils/dataclasses\.py|src/accelerate/utils\.py"),
            Wanted("DataLoaderConfiguration", r"src/accelerate/utils/dataclasses\.py"),
            Wanted("ProjectConfiguration", r"src/accelerate/utils/dataclasses\.py"),
        ),
    ),
    "transformers": Library(
        "",
        "4.20.0",
        (
            Wanted("TrainingArguments", r"transformers/training_args\.py"),
            Wanted("Seq2SeqTrainingArguments", r"transformers/training_args(?:_seq2seq)?\.py", ("TrainingArguments",)),
            Wanted("Trainer", r"transformers/trainer\.py"),
            Wanted("Seq2SeqTrainer", r"transformers/trainer_seq2seq\.py"),
        ),
    ),
    "peft": Library(
        "peft",
        "0.2.0",
        (
            Wanted("LoraConfig", r"src/peft/tuners/lora(?:/config)?\.py|src/peft/(?:utils/)?config\.py", ("PeftConfig", "PeftConfigMixin")),
            Wanted("get_peft_model", r"src/peft/mapping(?:_func)?\.py"),
            Wanted("prepare_model_for_kbit_training", r"src/peft/utils/other\.py"),
        ),
    ),
    "trl": Library(
        "trl",
        "0.4.1",
        tuple(Wanted(f"{name}{kind}", _TRL_FILES) for name in _TRL for kind in ("Config", "Trainer")),
    ),
    "lightning": Library(
        "pytorch-lightning",
        "1.6.0",
        (
            Wanted("DeepSpeedStrategy", r"(?:src/)?(?:pytorch_lightning|lightning/pytorch)/strategies/deepspeed\.py"),
            Wanted("Fabric", r"src/lightning/fabric/fabric\.py"),
        ),
    ),
    "ms-swift": Library(
        "ms-swift", "2.0.0", (), r"swift/(?:llm/utils/argument\.py|llm/argument/.*\.py|arguments/.*\.py|(?:rlhf_)?trainers/arguments\.py)"
    ),
    "LLaMA-Factory": Library("LlamaFactory", "0.2.0", (), r"src/(?:llmtuner|llamafactory)/hparams/.*args\.py"),
    "axolotl": Library("axolotl", "0.4.0", (), r"src/axolotl/utils/(?:schemas|config/models)/.*\.py"),
    "OpenRLHF": Library("OpenRLHF", "0.2.0", (), r"openrlhf/cli/train_\w+\.py|examples/train_\w+\.py"),
}

PROGRAM = "program"
"""The name of the arguments of a library's command in the table."""


class Source(Protocol):
    """The sources of a release."""

    def paths(self) -> list[str]: ...
    def read(self, path: str) -> str: ...


class Clone:
    """A clone of a repository, read by one process of git."""

    def __init__(self, path: Path) -> None:
        self.path = path
        command = ["git", "-C", str(path), "cat-file", "--batch"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def text(self, name: str) -> str:
        """The content of an object, such as "v1.0:setup.py"."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name}\n".encode())
        self.process.stdin.flush()
        size = int(self.process.stdout.readline().split()[-1])
        content = self.process.stdout.read(size)
        self.process.stdout.read(1)
        return content.decode()


class Tag:
    """A release as a tag of a clone."""

    def __init__(self, clone: Clone, tag: str) -> None:
        self.clone, self.tag = clone, tag

    def paths(self) -> list[str]:
        """The files of the release."""
        return _git(self.clone.path, "ls-tree", "-r", "--name-only", self.tag).splitlines()

    def read(self, path: str) -> str:
        """A file of the release."""
        return self.clone.text(f"{self.tag}:{path}")


class Wheel:
    """A release as a wheel."""

    def __init__(self, path: Path) -> None:
        self.archive = zipfile.ZipFile(path)

    def paths(self) -> list[str]:
        """The files of the release."""
        return self.archive.namelist()

    def read(self, path: str) -> str:
        """A file of the release."""
        return self.archive.read(path).decode()


def _git(clone: Path, *command: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *command], check=True, capture_output=True, encoding="utf-8").stdout


def releases(library: Library, name: str, clones: Path, wheels: Path | None) -> Iterator[tuple[str, Source]]:
    """The releases of a library that can be read, the oldest first."""
    found: dict[str, Source] = {}
    clone = clones / library.clone
    if library.clone and clone.is_dir():
        tags, opened = _git(clone, "tag").split(), Clone(clone)
        found = {match[1]: Tag(opened, tag) for tag in tags if (match := RELEASE.match(tag))}
    elif wheels is not None:
        for path in wheels.glob(f"{name}-*.whl"):
            if match := RELEASE.match(path.name.split("-")[1]):
                found[match[1]] = Wheel(path)
    for release in sorted(found, key=order):
        if order(release) >= order(library.first):
            yield release, found[release]


def order(release: str) -> tuple[int, ...]:
    """The numbers of a release, to sort by."""
    return tuple(int(part) for part in re.findall(r"\d+", release))


def arguments_in(source: Source, library: Library) -> dict[str, set[str] | None]:
    """The arguments of each thing in a release; None for one that takes any."""
    every = [path for path in source.paths() if path.endswith(".py")]
    trees: dict[str, ast.Module] = {}

    def trees_of(pattern: str) -> list[ast.Module]:
        own = [path for path in every if re.fullmatch(pattern, path)]
        trees.update((path, ast.parse(source.read(path))) for path in own if path not in trees)
        return [trees[path] for path in own]

    found: dict[str, set[str] | None] = {}
    for wanted in library.wanted:
        nodes: Nodes = {}
        for tree in trees_of(wanted.files):
            for node in ast.walk(tree):
                if isinstance(node, _NAMED) and (node.name not in nodes or len(node.body) > len(nodes[node.name].body)):
                    nodes[node.name] = node  # the class itself, and not an empty one that stands for it at its former place
        if wanted.name not in nodes:
            continue
        own = _taken(nodes[wanted.name], nodes)
        more = [_taken(nodes[name], nodes).names for name in wanted.more if name in nodes]
        found[wanted.name] = own.names.union(*more) if more or not own.takes_any else None
    if library.program:
        found[PROGRAM] = {name for tree in trees_of(library.program) for name in _of_command(tree)}
    return found


Nodes = dict[str, ast.ClassDef | ast.FunctionDef]
_NAMED = (ast.ClassDef, ast.FunctionDef)


class Arguments(NamedTuple):
    """The arguments that a call takes, and whether it takes any other."""

    names: set[str]
    takes_any: bool = False


def _taken(node: ast.ClassDef | ast.FunctionDef, nodes: Nodes) -> Arguments:
    """The arguments that a call of a class or function takes. `nodes` are the others of the same files."""
    if isinstance(node, ast.ClassDef):
        init = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
        if init is None:
            bases = [nodes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in nodes and base.id != node.name]
            return Arguments(_fields(node).union(*(_taken(base, nodes).names for base in bases)))
        node = init
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    names = {one.arg for one in every}.union(*map(_former, node.decorator_list)) - {"self"}
    return Arguments(names, node.args.kwarg is not None)


def _former(decorator: ast.expr) -> set[str]:
    """The names that a decorator takes for arguments which have other ones now."""
    if not isinstance(decorator, ast.Call) or "deprecate" not in ast.unparse(decorator.func):
        return set()
    given = [*decorator.args[:1], *(one.value for one in decorator.keywords if one.arg in ("old_name", "deprecated_args"))]
    return {node.value for one in given for node in ast.walk(one) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _fields(node: ast.ClassDef) -> set[str]:
    return {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}


def _of_command(tree: ast.Module) -> Iterator[str]:
    """The arguments that a module defines for a command line: the fields of its classes, and what its parsers add."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from _fields(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            yield from (name.lstrip("-").replace("-", "_") for name in names if name.startswith("--"))


def table(library: Library, name: str, clones: Path, wheels: Path | None) -> dict[str, Any] | None:
    """The table of a library; None without sources."""
    known: list[str] = []
    seen: dict[str, dict[str, list[str]]] = {}
    read_in: dict[str, list[str]] = {}
    for release, source in releases(library, name, clones, wheels):
        known.append(release)
        for thing, taken in arguments_in(source, library).items():
            if taken is None:
                continue
            read_in.setdefault(thing, []).append(release)
            for argument in taken:
                seen.setdefault(thing, {}).setdefault(argument, []).append(release)
    if not known:
        return None
    things = {}
    for thing, arguments in sorted(seen.items()):
        whole = read_in[thing]
        always = sorted(one for one, of in arguments.items() if of == whole)
        changed = {}
        for one, of in sorted(arguments.items()):
            if of != whole and of == whole[whole.index(of[0]) : whole.index(of[-1]) + 1]:  # without gaps
                changed[one] = [of[0] if of[0] != whole[0] else "", of[-1] if of[-1] != whole[-1] else ""]
        things[thing] = {"first": whole[0], "last": whole[-1], "always": " ".join(always), "changed": changed}
    return {"releases": known, "things": things}


def main() -> None:
    """Write the tables of all libraries that can be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--only", nargs="+", default=list(LIBRARIES), choices=list(LIBRARIES), help="the libraries to read")
    options = parser.parse_args()
    written = json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.exists() else {}
    for name in options.only:
        found = table(LIBRARIES[name], name, options.clones, options.wheels)
        if found is not None:
            written[name] = found
    TARGET.write_text(text(written), encoding="utf-8")


def text(tables: dict[str, Any]) -> str:
    """The tables as JSON, with a line for each thing."""
    parts = []
    for name, one in sorted(tables.items()):
        things = ",\n".join(f"   {json.dumps(thing)}: {json.dumps(said)}" for thing, said in one["things"].items())
        known = one["releases"] if isinstance(one["releases"], str) else " ".join(one["releases"])
        parts.append(f' {json.dumps(name)}: {{\n  "releases": {json.dumps(known)},\n  "things": {{\n{things}\n  }}\n }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
