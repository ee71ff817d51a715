"""Random combinations of settings: 4 to 25 keys of the key table, with sensible and with edge values. Seeded, so that a run can be repeated.

    python -m tests.differential.combinations [--seed N] [--parse N] [--initialize N]

compares dslint with the real DeepSpeed on as many combinations, up to parsing and up to the first step, and prints what it counts, with
the smallest config for each disagreement. Where the other differential tests have one mistake each, these find what settings do to each other.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from dslint.diagnostics import Diagnostic, Effect, Phase
from dslint.facts import Facts, Integration, PassedAs
from dslint.lint.document import lint_document
from dslint.registry.rules import default_rules
from dslint.schemas.key_table import KEYS, OPTIMIZERS, SCHEDULERS
from dslint.source.parse import parse
from tests.engine.harness import Case, Engine, Outcome, Upto

Config = dict[str, Any]
Spec = dict[str, Any]

OF_THE_MACHINE = (
    "CUDAOpBuilder",
    "CUDA_HOME",
    "DataStates",
    "No module named",
    "No such file",
    "Is a directory",
    "NCCL",
    "only supports NVIDIA CUDA GPUs",
    "Torch not compiled with CUDA",
    "Unable to JIT load",
    "must be on supported devices",
    "no answer in",
)
"""Words of errors that depend on the machine, and on what is installed there."""
OF_THE_MODEL = ("no attention projection", "not associated with a value", "determine model policy", "same dtype, but got Half and Float")
"""Words of errors that depend on the model of the suite: three linear layers in fp32, whose input has floating-point values."""
CLIENT = "with a client provided optimizer"
"""Words of the error that the suite's own optimizer brings about, where the config has none."""
NOT_DRAWN = ("aio.use_gds", "checkpoint.writer.type", "flops_profiler.profile_step")
"""Keys with values that only work with a GPU or its libraries, or that move an error to a later step."""
UNTRIED = frozenset(rule.code for rule in default_rules() if rule.load().untried) | {"DS504"}
"""Rules for crashes that need a GPU, several ranks, or a program that calls something: their claims are not wrong where nothing raises here."""

PHASES = (Phase.PARSE, Phase.INITIALIZE, Phase.STEP)


@dataclass(frozen=True)
class Combination:
    """A config, the number of ranks, and whether the program passes it as the path of a file or as a dict."""

    config: Config
    world_size: int
    passed_as: PassedAs

    @property
    def text(self) -> str:
        """The file."""
        return json.dumps(self.config)

    def case(self, name: str, upto: Upto) -> Case:
        """The question to DeepSpeed. The program has an optimizer of its own."""
        as_dict = self.passed_as is PassedAs.DICT
        how: Any = {"config": self.config} if as_dict else {"text": self.text}
        return Case(name, world_size=self.world_size, upto=upto, optimizer=True, **how)

    def claims(self) -> tuple[Diagnostic, ...]:
        """The crashes that dslint claims."""
        facts = Facts(self.world_size, Integration.DEEPSPEED, passed_as=self.passed_as)
        found = lint_document(parse(self.text), "ds_config.json", facts, default_rules()).diagnostics
        return tuple(d for d in found if d.effect is Effect.CRASH and d.phase in PHASES and d.certain)


# ---------------------------------------------------------------------- making them


def combinations(seed: int, count: int) -> Iterator[Combination]:
    """Random combinations, the same ones for a seed."""
    for number in range(count):
        dice = random.Random(f"{seed}-{number}")
        yield _combination(dice)


def _combination(dice: random.Random) -> Combination:
    edges = dice.choice(EDGE_RATES)
    config = _start(dice, edges)
    wanted = dice.randint(4, 25)
    pool = _pool()
    sections = ["", *COMMON, *dice.sample(sorted(pool.keys()), 4)]
    while _size(config) < wanted:
        section = dice.choice(sections)
        key = dice.choice(pool[section])
        if "deprecated" not in KEYS[key] or dice.random() < edges:
            _put(config, key, _value(KEYS[key], dice, edges))
    if dice.random() < edges:
        key = dice.choice([key for key, spec in KEYS.items() if "section" in spec["types"] and _is_current(key)])
        _put(config, key, dice.choice((None, True, False, "auto", "x", 1, [], {})))
    return Combination(config, dice.choice((1, 1, 2, 4, 8)), dice.choice((PassedAs.PATH, PassedAs.DICT)))


EDGE_RATES = (0.0, 0.0, 0.0, 0.02, 0.05, 0.2)
"""How many values of a combination are edge values: none in half of them, so that DeepSpeed gets far enough to meet what they do together."""

COMMON = ("zero_optimization",)
"""Sections that most configs have."""


def _start(dice: random.Random, edges: float) -> Config:
    """Batch sizes, and in most cases an optimizer and a schedule."""
    config: Config = {}
    kind = dice.random()
    if kind < 0.85:
        config["train_micro_batch_size_per_gpu"] = dice.choice((1, 2, 4, 8))
        if dice.random() < 0.4:
            config["gradient_accumulation_steps"] = dice.choice((1, 2, 4))
    elif kind < 0.97:
        config["train_batch_size"] = dice.choice((8, 16, 24, 64, 100))
        if dice.random() < 0.4:
            config["train_micro_batch_size_per_gpu"] = dice.choice((1, 2, 4, 3))
    if dice.random() < 0.75:
        config["optimizer"] = _typed(OPTIMIZERS, USUAL_OPTIMIZERS, dice, {"lr": 1e-4}, edges)
    if dice.random() < 0.4:
        config["scheduler"] = _typed(SCHEDULERS, USUAL_SCHEDULES, dice, NEEDED, edges)
    if dice.random() < 0.5:
        config["zero_allow_untested_optimizer"] = True
    if dice.random() < 0.8:
        config["zero_optimization"] = {"stage": dice.choice((0, 1, 1, 2, 2, 3, 3))}
    if dice.random() < 0.6:
        config[dice.choice(("fp16", "bf16"))] = {"enabled": True}
    return config


NEEDED = {
    "total_num_steps": 100,
    "warmup_num_steps": 10,
    "cycle_min_lr": 1e-5,
    "cycle_max_lr": 1e-4,
    "max_lr": 1e-3,
    "T_max": 10,
    "T_0": 10,
}
NEEDED |= {"base_lr": 1e-5, "step_size": 10, "milestones": [10, 20], "gamma": 0.9, "total_steps": 100, "step_size_up": 10}
"""Parameters without which schedules do not start."""


USUAL_OPTIMIZERS = ("AdamW", "AdamW", "Adam", "Adam", "FusedAdam", "Lamb", "Lion", "Muon", "Adagrad", "SGD")
USUAL_SCHEDULES = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest")


def _typed(table: dict[str, Spec], usual: tuple[str, ...], dice: random.Random, needed: Config, edges: float) -> Config:
    """A type of optimizer or schedule with some of its parameters."""
    current = [name for name, spec in table.items() if "until" not in spec]
    name = dice.choice([one for one in usual if one in table] if dice.random() < 0.75 else current)
    if dice.random() < edges:
        return {"type": dice.choice((name.lower(), name.upper(), "auto", "x", None, 1))}
    specs = {key: spec for key, spec in table[name]["params"].items() if "until" not in spec}
    params = {key: value for key, value in needed.items() if key in specs and dice.random() < 0.97}
    for key in dice.sample(list(specs), min(len(specs), dice.randint(0, 2))):
        if key not in params or dice.random() < 0.3:
            params[key] = _value(specs[key], dice, edges)
    section: Config = {"type": name, "params": params}
    return section if dice.random() < 0.98 else {"type": name}


@cache
def _pool() -> dict[str, list[str]]:
    """The keys to draw from, by section: those that the release reads, besides batch sizes and types, which are there from the start."""
    at_start = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "optimizer.", "scheduler.")
    pool: dict[str, list[str]] = {}
    for key, spec in KEYS.items():
        if _is_current(key) and "section" not in spec["types"] and not key.startswith(at_start) and key not in NOT_DRAWN:
            pool.setdefault(key.rpartition(".")[0], []).append(key)
    return pool


def _is_current(key: str) -> bool:
    """Whether the newest release reads a key and its sections, and it has one place."""
    names = key.split(".")
    above = (".".join(names[:length]) for length in range(1, len(names) + 1))
    return "*" not in key and "[]" not in key and not any("until" in KEYS[one] for one in above if one in KEYS)


def _put(config: Config, key: str, value: Any) -> None:
    """Write a key, and the sections that it is in; a section that is no object stays as it is."""
    *sections, name = key.split(".")
    node = config
    for section in sections:
        node = node.setdefault(section, {})
        if not isinstance(node, dict):
            return
    node[name] = value


def _size(config: Config) -> int:
    """The number of settings."""
    return sum(_size(value) if isinstance(value, dict) and value else 1 for value in config.values())


EDGES: list[Any] = [
    "x",
    "",
    "1",
    "true",
    "auto",
    None,
    True,
    False,
    0,
    -1,
    -0.5,
    0.5,
    2.0,
    1e3,
    2.5,
    10**18,
    1e30,
    [],
    [1],
    ["x"],
    {},
    {"x": 1},
]


def _value(spec: Spec, dice: random.Random, edges: float) -> Any:
    if dice.random() < edges:
        return copy.deepcopy(dice.choice(EDGES))
    return copy.deepcopy(dice.choice(list(_sensible(spec))))


def _sensible(spec: Spec) -> Iterator[Any]:
    """Values that a key takes: its default and others like it, its choices, the ends of its range."""
    default = spec.get("default")
    if default is not None and not isinstance(default, dict):
        yield default
    yield from (choice for choice in (*spec.get("choices", ()), *spec.get("words", ())) if choice is not None)
    kind = spec["types"][0]
    if "choices" in spec:
        return
    if kind == "bool":
        yield from (True, False)
    elif kind in ("int", "float"):
        yield from (end for name in ("ge", "le") if (end := spec.get(name)) is not None)
        base = default if isinstance(default, int | float) and default else 4 if kind == "int" else 0.5
        others = (base * 2, max(1, base // 2) if kind == "int" else base / 2, float(base * 4) if kind == "int" else 1)
        yield from (other for other in others if spec.get("ge", other) <= other <= spec.get("le", other) and other != spec.get("lt"))
    elif kind == "str":
        yield from ("name", "folder/name") if "words" not in spec else ()
    elif kind == "list":
        items = spec.get("item_choices") or {"int": (1, 2, 3), "float": (0.9, 0.99, 0.5), "str": ("a", "b", "c")}.get(
            spec.get("items", ("str",))[0], (1, 2, 3)
        )
        yield list(items)[: spec.get("length", 2)]
    else:
        yield {}
    if "null" in spec["types"]:
        yield None


# ---------------------------------------------------------------------- comparing


@dataclass(frozen=True)
class Disagreement:
    """A combination of which dslint and DeepSpeed say different things, and the wrong claim; None if a crash was missed."""

    combination: Combination
    outcome: Outcome
    claim: Diagnostic | None = None

    @property
    def kind(self) -> tuple[str, ...]:
        """What is wrong: one cause gives one kind."""
        if self.claim is None:
            return ("missed", str(self.outcome.phase), (self.outcome.error or "")[:60])
        return ("claimed", self.claim.code, str(self.claim.pointer))

    def __str__(self) -> str:
        said = f"{self.outcome.error} ({self.outcome.phase})" if self.outcome.raised else "no error"
        claim = f"CLAIMED {self.claim.code} ({self.claim.phase}) {self.claim.message}" if self.claim else "MISSED"
        one = self.combination
        return f"{claim}\n    DeepSpeed: {said[:300]}\n    {one.passed_as}, {one.world_size} ranks: {one.text}"


@dataclass
class Tally:
    """What a comparison counts; `found` is by rule."""

    tried: int = 0
    raised: int = 0
    excused: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    missed: list[Disagreement] = field(default_factory=list)
    claimed: list[Disagreement] = field(default_factory=list)

    def report(self, upto: Upto) -> str:
        """The figures, and what is wrong."""
        wrong = Counter(one.claim.code for one in self.claimed if one.claim)
        lines = [
            f"up to {upto}: {self.tried} combinations, DeepSpeed raises for {self.raised}; {len(self.missed)} missed, {len(self.claimed)} claimed wrongly",
            f"  found by rule: {_counts(self.found)}",
            f"  left out: {_counts(self.excused)}" if self.excused else "",
            f"  claimed wrongly by rule: {_counts(wrong)}" if wrong else "",
            *(f"  {one}" for one in (*self.missed, *self.claimed)),
        ]
        return "\n".join(line for line in lines if line)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counter.most_common())


def compare(engine: Engine, seed: int, count: int, upto: Upto) -> Tally:
    """Ask DeepSpeed and dslint about combinations, and count where they agree. What they disagree about is shrunk, one of each kind."""
    tally = Tally()
    made = list(combinations(seed, count))
    outcomes = engine.ask(one.case(str(number), upto) for number, one in enumerate(made))
    for one, outcome in zip(made, outcomes, strict=True):
        excuse = _excuse(outcome)
        if excuse:
            tally.excused[excuse] += 1
        else:
            _count(tally, one, outcome, upto)
    for wrong in (tally.missed, tally.claimed):
        shrunk = {one.kind: shrink(engine, one, upto) for one in {one.kind: one for one in wrong}.values()}
        wrong[:] = [shrunk.pop(one.kind, one) for one in wrong]
    return tally


def _excuse(outcome: Outcome) -> str | None:
    return next((words for words in (*OF_THE_MACHINE, *OF_THE_MODEL, CLIENT) if words in (outcome.error or "")), None)


def _count(tally: Tally, one: Combination, outcome: Outcome, upto: Upto) -> None:
    tally.tried += 1
    claims = one.claims()
    tally.found.update({claim.code for claim in claims if outcome.raised and claim.phase == outcome.phase})
    tally.raised += outcome.raised
    for wrong in _disagreements(one, outcome, claims, upto):
        (tally.missed if wrong.claim is None else tally.claimed).append(wrong)


def _disagreements(one: Combination, outcome: Outcome, claims: Iterable[Diagnostic], upto: Upto) -> Iterator[Disagreement]:
    """A crash is found if it is claimed for its phase, and a claim is wrong if DeepSpeed gets through its phase."""
    if outcome.raised and not any(claim.phase == outcome.phase for claim in claims):
        yield Disagreement(one, outcome)
    passed = _passed(outcome, upto)
    yield from (Disagreement(one, outcome, claim) for claim in claims if claim.phase in passed and claim.code not in UNTRIED)


def _passed(outcome: Outcome, upto: Upto) -> Iterable[Phase]:
    """The phases that DeepSpeed got through. `deepspeed.initialize` may raise before it parses the config."""
    if outcome.raised and not outcome.effective:
        return ()
    reached = PHASES.index(Phase(outcome.phase)) if outcome.phase else PHASES.index(Phase(upto)) + 1
    return PHASES[:reached]


def shrink(engine: Engine, wrong: Disagreement, upto: Upto) -> Disagreement:
    """The disagreement without the settings that it does not need."""
    smaller = True
    while smaller:
        smaller = False
        for path in _paths(wrong.combination.config):
            config = copy.deepcopy(wrong.combination.config)
            _remove(config, path)
            one = replace(wrong.combination, config=config)
            (outcome,) = engine.ask([one.case("smaller", upto)])
            kinds = {other.kind: other for other in _disagreements(one, outcome, one.claims(), upto)}
            if wrong.kind in kinds:
                wrong, smaller = kinds[wrong.kind], True
                break
    return wrong


def _paths(config: Config) -> Iterator[tuple[str, ...]]:
    """The path of every setting, sections before what is in them."""
    for name, value in config.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *path) for path in _paths(value))


def _remove(config: Config, path: tuple[str, ...]) -> None:
    *sections, name = path
    for section in sections:
        config = config[section]
    del config[name]


def main() -> None:
    """Compare, and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--parse", type=int, default=300)
    parser.add_argument("--initialize", type=int, default=100, help="up to the first step")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    counts: tuple[tuple[Upto, int], ...] = (("parse", arguments.parse), ("step", arguments.initialize))
    with Engine(jobs=1) as engine:
        for upto, count in counts:
            if count:
                print(compare(engine, arguments.seed, count, upto).report(upto), flush=True)


if __name__ == "__main__":
    main()
