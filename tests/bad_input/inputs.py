"""Inputs that grow, each with the work of dslint on it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from dslint.config import resolve
from dslint.config.context import Context
from dslint.config.policy import Policy, breaches
from dslint.diagnose.parse_log import errors_in
from dslint.errors import UserError
from dslint.facts import OLDEST, Facts
from dslint.facts.checkpoint import CheckpointFacts, describe
from dslint.facts.find_release import _conda, _project, _requirements
from dslint.facts.gpus import gpu_named, size
from dslint.fixes.apply import fix
from dslint.fixes.run import ALL
from dslint.lint.document import lint_text
from dslint.lint.files import lint_given
from dslint.lint.results import FileResult, Results
from dslint.memory.estimate import estimate
from dslint.memory.numbers import of_numbers
from dslint.memory.plan import Workload
from dslint.memory.planning import make_plan
from dslint.registry.rules import default_rules
from dslint.settings import Finder, Layer, Settings
from dslint.settings.sources import read_file
from dslint.setups.hostfile import read_hostfile
from dslint.source.parse import parse
from dslint.source.read import decode_base64
from dslint.suppress.run import suppress
from tests.report.scenes import written

BATCH = '"train_micro_batch_size_per_gpu": 1'
LAUNCH = "deepspeed --num_gpus 8 train.py --deepspeed ds_config.json\n"

FINDER = Finder(only="")
SETTINGS = Settings()


def lint(text: str, name: str = "ds_config.json") -> list[FileResult]:
    """Lint a text and apply its comments, without settings."""
    return suppress(lint_given(text, name, SETTINGS), FINDER)


def assumed(text: str) -> FileResult | None:
    """Lint a config for a release that is only assumed: an older one may take what it refuses."""
    return lint_text(text, "ds_config.json", Context(oldest=OLDEST), default_rules())


def settings_of(text: str) -> Layer | None:
    """Read a text as a settings file."""
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(UserError):
        path = Path(folder) / "dslint.toml"
        path.write_text(text, encoding="utf-8")
        return read_file(str(path))
    return None


def refused(work: Callable[[str], object], text: str) -> None:
    """Run work that may refuse the text."""
    with contextlib.suppress(ValueError):
        work(text)


def fixed(text: str, name: str = "ds_config.json") -> str:
    """The text with all fixes made."""
    return fix(text, lambda fresh: lint(fresh, name)[0], ALL).text


def reported(files: int) -> str:
    """The report on many files that have the same finding."""
    broken = '{"train_batch_size": 8, "zero_optimisation": {}}'
    results = (result for number in range(files) for result in lint(broken, f"ds_{number}.json"))
    return written(Results(Context(Facts()), tuple(results)), "full")


def checkpoint(names: Iterable[str]) -> CheckpointFacts:
    """A checkpoint of empty files."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            (Path(folder) / name).touch()
        return describe(folder)


def estimated(layers: int) -> object:
    """The estimate for a model of many layers."""
    model = of_numbers(None, hidden=64, layers=layers, heads=4, kv_heads=None, inner=None, vocabulary=1_000)
    config = resolve(parse("{" + BATCH + ', "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'), Context(Facts(8)))
    return estimate(model, make_plan(config, Workload(512), model.hidden))


def breaks(policy: dict[str, object], config: object) -> object:
    """Where a config breaks a policy."""
    return list(breaches(Policy("policy.json", policy), config))


ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"

GROWING: dict[str, tuple[int, Callable[[int], object]]] = {
    "a long word in an import": (2_000, lambda n: lint(f"import deepspeed, {'x' * n}\ndeepspeed.initialize(config={{}})\n", "train.py")),
    "requirement with blanks": (500, lambda n: _requirements("deepspeed" + " " * n + "(x@", "r.txt")),
    "requirement with brackets": (500, lambda n: _requirements("deepspeed[" * n, "r.txt")),
    "requirement with hashes": (500, lambda n: _requirements("deepspeed" + "--hash" * n + "\n;", "r.txt")),
    "requirement of a tag": (500, lambda n: _requirements("/deepspeed@v1" * n, "r.txt")),
    "conda line": (500, lambda n: _conda("- deepspeed" + " " * n + "=x" * n + "\n" + "- " + "a." * n, "e.yml")),
    "pyproject key": (2_000, lambda n: _project("a." * n + "b = 'deepspeed'", "pyproject.toml")),
    "comment with blanks": (1_000, lambda n: lint("{// dslint: ignore[DS102] a" + " " * n + "b\n" + BATCH + "}")),
    "comment of stars": (1_000, lambda n: lint("{/*" + "* " * n + "dslint : " + " " * n + "x */" + BATCH + "}")),
    "placeholders": (2_000, lambda n: lint("{" + BATCH + ', "x": "' + "{{" * n + '"}')),
    "other placeholders": (2_000, lambda n: lint("{" + BATCH + ', "x": "' + "{%" * n + "${" * n + "<<A" * n + "$AAA_" * n + 'a"}')),
    "Accelerate keys": (100, lambda n: lint(ACCELERATE + "".join(f"key{i}: 1\n" for i in range(n)), "accelerate.yaml")),
    "Accelerate block keys": (100, lambda n: lint(ACCELERATE + "".join(f"  key{i}: 1\n" for i in range(n)), "accelerate.yaml")),
    "#SBATCH": (2_000, lambda n: lint("#SBATCH " + "=" * n + " x y\n" + LAUNCH, "run.sh")),
    "#SBATCH blanks": (2_000, lambda n: lint("#SBATCH a" + " " * n + "b" + "\t" * n + "c\n" + LAUNCH, "run.sh")),
    "quotes": (500, lambda n: lint("x " + "\"'\\" * n + "\n" + LAUNCH, "run.sh")),
    "parameter expansion": (500, lambda n: lint("x " + "${A:-" * n + "\n" + "$(" * n + "\n" + LAUNCH, "run.sh")),
    "launch lines": (20, lambda n: lint(LAUNCH * n, "run.sh")),
    "words of a launch": (500, lambda n: lint(LAUNCH.rstrip() + " word" * n + "\n", "run.sh")),
    "words": (2_000, lambda n: lint("word " * n + "\n" + LAUNCH, "run.sh")),
    "assignments before a command": (500, lambda n: lint("A=1 " * n + LAUNCH, "run.sh")),
    "make assignment": (1_000, lambda n: lint("a" + " " * n + "b\n" + "export" + " " * n + "\n\t" + LAUNCH, "Makefile")),
    "gpu of dashes": (2_000, lambda n: refused(gpu_named, "-" * n)),
    "gpu of digits": (2_000, lambda n: refused(gpu_named, "a-" * n + "1" * n + "gb-x")),
    "size of blanks": (2_000, lambda n: refused(size, "1" + " " * n + "x")),
    "settings key": (2_000, lambda n: settings_of("a." * n + "b = 1")),
    "settings key in quotes": (2_000, lambda n: settings_of('"a" . ' * n + "b = 1")),
    "settings without names": (200, lambda n: settings_of("".join(f"selects{i} = 1\n" for i in range(n)))),
    "duplicate sections": (100, lambda n: lint("{" + BATCH + ', "zero_optimization": {"stage": 2}' * n + "}")),
    "duplicate keys": (100, lambda n: lint("{" + BATCH + f", {BATCH}" * n + "}")),
    "misspelt keys": (100, lambda n: lint("{" + BATCH + "".join(f', "zero_optimisation{i}": 1' for i in range(n)) + "}")),
    "unknown keys": (1_000, lambda n: lint('{"fp16": {},' + BATCH + "".join(f', "mine{i}": 1' for i in range(n)) + "}")),
    "keys that a later release refuses": (100, lambda n: assumed("{" + BATCH + ', "zero_optimization": {' + ", ".join(f'"mine{i}": 1' for i in range(n)) + "}}")),
    "files with the same finding": (50, reported),
    "a long misspelt key": (1_000, lambda n: lint("{" + BATCH + f', "{"zero_optimization" * n}": 1}}')),
    "a long optimizer": (1_000, lambda n: lint("{" + BATCH + f', "optimizer": {{"type": "{"Adam" * n}"}}}}')),
    "base64": (2_000, lambda n: decode_base64("A" * n + "\n" * n + "!")),
    "base64 lines": (2_000, lambda n: decode_base64("A\n" * n + "!")),
    "syntax errors": (100, lambda n: lint("{" + BATCH + ', "a" 1' * n + "}")),
    "unclosed": (200, lambda n: lint('{"a": [' * n)),
    "yaml keys": (200, lambda n: lint(ACCELERATE + "x:\n" + "".join(f"  - a{i}: [1, 2]\n" for i in range(n)), "accelerate.yaml")),
    "a program": (10, lambda n: lint("import deepspeed\n" + "deepspeed.initialize(config={'train_batch_size': 8})\n" * n, "train.py")),
    "assignments of a program": (100, lambda n: lint("import deepspeed\na = {}\n" + "a = {'b': a, 'c': a}\n" * n + "deepspeed.initialize(config=a)", "train.py")),
    "ignore comments on lines": (50, lambda n: lint("{" + BATCH + "".join(f',\n"a{i}": 1 // dslint: ignore[DS103] r' for i in range(n)) + "\n}")),
    "ignore comments on one line": (50, lambda n: lint("{" + BATCH + "/* dslint: ignore[DS102] r */" * n + "}")),
    "ignore comments above keys": (50, lambda n: lint("{" + BATCH + "".join(f',\n// dslint: ignore[DS103] r\n"a{i}": 1' for i in range(n)) + "\n}")),
    "ignore comments above one key": (50, lambda n: lint("{\n" + "// dslint: ignore[DS103] r\n" * n + BATCH + "}")),
    "ignore comments of unknown rules": (200, lambda n: lint("{\n" + "".join(f"// dslint: ignore[offload-{i}] r\n" for i in range(n)) + BATCH + "}")),
    "ignore comments of many rules": (100, lambda n: lint("{\n// dslint: ignore[" + "DS103, " * n + "] r\n" + BATCH + "}")),
    "ignored and broken": (50, lambda n: lint("{" + BATCH + ',\n"a" 1 // dslint: ignore[DS001] r' * n + "\n}")),
    "duplicate keys that are fixed": (20, lambda n: fixed("{" + BATCH + f", {BATCH}" * n + "}")),
    "misspelt keys that are fixed": (20, lambda n: fixed("{" + BATCH + "".join(f', "x{i}": 1 // c\n' for i in range(n)) + "}")),
    "doubling variables": (40, lambda n: lint("A0=x\n" + "".join(f"A{i}=$A{i - 1}$A{i - 1}\n" for i in range(1, n)) + LAUNCH, "run.sh")),
    "doubling arrays": (40, lambda n: lint("A=(x y)\n" + 'A=("${A[@]}" "${A[@]}")\n' * n + LAUNCH, "run.sh")),
    "long variables": (40, lambda n: lint("A=x\n" + "A=$A$B$A\n" * 8 + "B=$A$A\n" * n + LAUNCH, "run.sh")),
    "a cut variable": (500, lambda n: lint("A='" + "a" * n + "'\nB=${A##*b}\n" + LAUNCH, "run.sh")),
    "branches": (40, lambda n: lint("".join(f'if [ "$X" = {i} ]; then A{i}=1; fi\n' for i in range(n)) + LAUNCH, "run.sh")),
    "log of digits": (1_000, lambda n: errors_in("1" * n)),
    "log of brackets": (1_000, lambda n: errors_in("1 validation error for A\n" + "[type=a, input_value=" * n)),
    "log of lines": (100, lambda n: errors_in("ValueError: a\n" * n)),
    "names of a checkpoint": (50, lambda n: checkpoint(f"zero_pp_rank_{10**i % 997}_mp_rank_{i:02d}_optim_states.pt" for i in range(n))),
    "layers of an estimate": (100, estimated),
    "policy on many keys": (100, lambda n: breaks({"additionalProperties": False}, {f"a{i}": 1 for i in range(n)})),
    "policy of many properties": (100, lambda n: breaks({"properties": {f"a{i}": {"const": 1} for i in range(n)}}, {f"a{i}": 2 for i in range(n)})),
    "hostfile": (500, lambda n: read_hostfile("a slots=8\n" * n)),
    "hostfile of one line": (2_000, lambda n: read_hostfile("a " * n)),
}  # fmt: skip
"""By name: a size to start with, and the work for a size."""
