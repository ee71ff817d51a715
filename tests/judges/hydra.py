"""Hydra judges what is read of its composed configs: lists of defaults, groups, packages and the overrides of a command."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from dslint.facts import Facts
from dslint.frameworks.loader import with_loaders
from dslint.setups.open import open_text
from dslint.source.tree import plain
from dslint.source.unknown import UNKNOWN
from tests.judges.table import Row

RECORDED = Path(__file__).parent / "hydra.json"

PROGRAM = """import deepspeed
import hydra
from omegaconf import OmegaConf


@hydra.main(version_base={base}, config_path="conf", config_name="config")
def main(cfg):
    deepspeed.initialize(model=model, config=OmegaConf.to_container(cfg))


main()
"""

_GROUPS = {"ds": ("small", "large"), "ds/opt": ("adam", "sgd"), "data": ("one", "two")}
_VALUES = {
    "train_batch_size": ("8", "16", "auto"),
    "gradient_clipping": ("1.0", "0.5", "1e-1"),
    "steps_per_print": ("10", "100"),
    "wall_clock_breakdown": ("true", "false"),
    "name": ("x", "'7'", "null"),
}
_SECTIONS = {"zero_optimization": ("stage", "overlap_comm", "reduce_bucket_size"), "bf16": ("enabled",)}
_OF_SECTIONS = {
    "stage": ("1", "2", "3"),
    "overlap_comm": ("true", "false"),
    "reduce_bucket_size": ("5e8", "200000000"),
    "enabled": ("true", "false", "auto"),
}


def missing() -> str:
    """Why Hydra cannot be asked here; "" if it can."""
    return "" if find_spec("hydra") is not None and find_spec("omegaconf") is not None else "no hydra"


class Case:
    """The files of a folder, by their paths, and the words of the command after the program."""

    def __init__(self, seed: int) -> None:
        rng = Random(f"hydra {seed}")
        self.words: list[str] = []
        self.files: dict[str, str] = {}
        groups = [group for group in _GROUPS if rng.random() < 0.7]
        for group in groups:
            for option in _GROUPS[group]:
                header = rng.choices(("", "# @package _global_\n", "# @package other.place\n"), (8, 1, 1))[0]
                self.files[f"conf/{group}/{option}.yaml"] = header + _values(rng)
        listed = ["base"] if rng.random() < 0.4 else []
        if listed:
            self.files["conf/base.yaml"] = _values(rng)
        listed += [_item(rng, group) for group in groups if rng.random() < 0.8]
        if rng.random() < 0.75:
            listed.insert(rng.choice((0, len(listed))), "_self_")
        defaults = "defaults:\n" + "".join(f"  - {one}\n" for one in listed) if listed else ""
        self.files["conf/config.yaml"] = defaults + "\n" + _values(rng)
        self.files["train.py"] = PROGRAM.format(base=rng.choice(("None", '"1.1"', '"1.3"')))
        for _ in range(rng.choice((0, 0, 1, 2))):
            group = rng.choice(groups) if groups else ""
            key, value = rng.choice([*((key, value) for key, values in _VALUES.items() for value in values if "'" not in value)])
            self.words.append(
                rng.choice(
                    (
                        f"{group}={rng.choice(_GROUPS[group])}" if group else f"{key}={value}",
                        f"{key}={value}",
                        f"zero_optimization.stage={rng.choice('123')}",
                        f"++{key}={value}",
                        f"+added={value}",
                        f"~{key}",
                        f"{group.replace('/', '.')}.{key}={value}" if group else f"{key}={value}",
                    )
                )
            )

    def lay_out(self, folder: Path) -> None:
        """Write the files."""
        for name, text in {**self.files, "run.sh": f"python train.py {' '.join(self.words)}\n"}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")


def _item(rng: Random, group: str) -> str:
    option = rng.choice(_GROUPS[group])
    ways = (f"{group}: {option}", f"optional {group}: {option}", f"{group}@place: {option}", f"{group}/{option}", f"{group}: nothing")
    return rng.choices(ways, (12, 1, 1, 1, 0.3))[0]


def _values(rng: Random) -> str:
    lines = [f"{key}: {rng.choice(_VALUES[key])}\n" for key in rng.sample(list(_VALUES), rng.randint(1, 4))]
    for section, keys in _SECTIONS.items():
        if rng.random() < 0.6:
            lines.append(f"{section}:\n")
            lines += [f"  {key}: {rng.choice(_OF_SECTIONS[key])}\n" for key in rng.sample(keys, rng.randint(1, len(keys)))]
    return "".join(lines)


def answer(case: Case) -> dict[str, Any] | None:
    """What Hydra composes; None if it raises."""
    import warnings

    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    base = case.files["train.py"].partition("version_base=")[2].partition(",")[0]
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case.lay_out(Path(scratch))
        try:
            with initialize_config_dir(f"{scratch}/conf", version_base=None if base == "None" else base.strip('"')):
                found = OmegaConf.to_container(compose("config", overrides=case.words))
        except Exception:  # noqa: BLE001 - Hydra refuses the job
            return None
    return {str(key): value for key, value in found.items()} if isinstance(found, dict) else None


def said(case: Case) -> Any:
    """What dslint reads of the config, with `UNKNOWN` for what it does not know; None if it reads none."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        case.lay_out(Path(scratch))
        os.chdir(scratch)
        try:
            subject = open_text(Path("run.sh").read_text(encoding="utf-8"), "run.sh", with_loaders(Facts()))
        finally:
            os.chdir(here)
    configs = [one.loaded.document for one in subject.configs] if subject is not None else []
    root = configs[0].root if len(configs) == 1 else None
    return (plain(root), getattr(root, "may_have_more", False)) if root is not None else None


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values of a tree by their paths."""
    if isinstance(tree, dict) and tree:
        for name, inner in tree.items():
            yield from leaves(inner, (*path, str(name)))
    else:
        yield path, tree


def compare(case: Case, real: dict[str, Any] | None) -> tuple[int, int, list[str]]:
    """How many values there are, how many are known, and what is wrong."""
    if real is None:
        return 0, 0, []
    held, made = dict(leaves(real)), said(case)
    shown, open_ = ({}, True) if made is None else (dict(leaves(made[0])), made[1])
    wrong = [
        f"{'.'.join(path)} of {case.words}: {value!r}, and it is {held.get(path, 'absent')!r}"
        for path, value in shown.items()
        if value is not UNKNOWN and value != {} and (path not in held or type(value) is not type(held[path]) or value != held[path])
    ]
    absent = [path for path in held if path not in shown and not open_ and not any(path[:n] in shown for n in range(len(path)))]
    wrong += [f"{'.'.join(path)} of {case.words} is said to be absent, and is {held[path]!r}" for path in absent]
    return len(held), sum(path in shown and shown[path] is not UNKNOWN for path in held), wrong


def ask(count: int, seed: int) -> Row:
    """Compare the folders of `count` seeds with Hydra."""
    found = read = 0
    wrong: list[tuple[int, str]] = []
    for number in range(seed, seed + count):
        case = Case(number)
        values, known, bad = compare(case, answer(case))
        found, read = found + values, read + known
        wrong += [(number, text) for text in bad]
    return Row("hydra", count, "values", found, read, wrong)


def record(count: int, seed: int) -> str:
    """Write the answers to the folders of `count` seeds."""
    made = {number: answer(Case(number)) for number in range(seed, seed + count)}
    RECORDED.write_text(json.dumps(made, separators=(",", ":")) + "\n", encoding="utf-8")
    return f"{count} folders recorded"
