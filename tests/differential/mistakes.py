"""Configs with one mistake each, made from working ones: seeded, so that a run can be had again.

Two sources. The mistakes that people make in the text and in the structure are written down here, a generator function for each group. The mistakes in
single keys come from the key table: every key of every section, with values of each wrong kind.
"""

from __future__ import annotations

import copy
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dslint.config.sections import children
from dslint.schemas.key_table import KEYS, OPTIMIZERS, SCHEDULERS

Config = dict[str, Any]


@dataclass(frozen=True)
class Mistake:
    """A text with one mistake. `kind` names the mistake and the section it is in; `harmless` ones are no mistakes at all.

    `base` is the text that it was made from.
    """

    kind: str
    text: str
    world_size: int = 1
    harmless: bool = False
    base: str = ""


OPTIMIZER = {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}

BASES: list[tuple[Config, int]] = [
    ({"train_micro_batch_size_per_gpu": 2, "optimizer": OPTIMIZER, "zero_optimization": {"stage": 1}, "bf16": {"enabled": True}}, 1),
    (
        {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 4,
            "gradient_accumulation_steps": 2,
            "gradient_clipping": 1.0,
            "steps_per_print": 10,
            "optimizer": OPTIMIZER,
            "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-4, "warmup_num_steps": 100}},
            "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
            "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 500000000, "contiguous_gradients": True},
        },
        8,
    ),
    (
        {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 16,
            "optimizer": OPTIMIZER,
            "bf16": {"enabled": True},
            "zero_optimization": {
                "stage": 3,
                "offload_optimizer": {"device": "cpu", "pin_memory": True},
                "offload_param": {"device": "nvme", "nvme_path": "/local", "buffer_count": 5},
                "stage3_max_live_parameters": 1000000000,
                "stage3_prefetch_bucket_size": 50000000,
                "sub_group_size": 1000000000,
            },
            "aio": {"block_size": 1048576, "queue_depth": 8},
            "activation_checkpointing": {"partition_activations": True, "number_checkpoints": 4},
        },
        4,
    ),
    (
        {
            "train_batch_size": 16,
            "optimizer": {"type": "Lamb", "params": {"lr": 1e-3}},
            "wall_clock_breakdown": False,
            "tensorboard": {"enabled": False, "output_path": "logs"},
            "csv_monitor": {"enabled": False, "job_name": "x"},
            "wandb": {"enabled": False, "project": "p"},
            "flops_profiler": {"enabled": False, "profile_step": 5, "top_modules": 3},
            "comms_logger": {"enabled": False, "prof_ops": ["all_reduce"]},
            "checkpoint": {"tag_validation": "Ignore", "load_universal": False},
            "data_types": {"grad_accum_dtype": "fp32"},
            "communication_data_type": "fp32",
            "timers": {"throughput": {"enabled": True}},
        },
        2,
    ),
    (
        {
            "train_micro_batch_size_per_gpu": 8,
            "optimizer": OPTIMIZER,
            "zero_optimization": {"stage": 0},
            "compile": {"deepcompile": False},
            "tensor_parallel": {"autotp_size": 0},
            "torch_autocast": {"enabled": True, "dtype": "bfloat16"},
            "hybrid_engine": {"enabled": False, "max_out_tokens": 512},
            "data_efficiency": {"enabled": False, "seed": 7},
            "pipeline": {"activation_checkpoint_interval": 1},
        },
        1,
    ),
]


def mistakes(seed: int, per_key: int = 2) -> Iterator[Mistake]:
    """All kinds of mistakes that parsing may meet. `per_key` says how many wrong values each key of the table gets."""
    dice = random.Random(seed)
    for base, ranks in BASES:
        for make in (_text, _names, _places, _batch, _relations, _sections, _harmless):
            for kind, text, harmless in make(copy.deepcopy(base), dice):
                yield Mistake(kind, text, ranks, harmless, _dump(base))
    yield from _keys(dice, per_key, BASES[:4])


STEPPING: list[tuple[Config, int]] = [
    (
        {
            "train_micro_batch_size_per_gpu": 2,
            "gradient_clipping": 1.0,
            "optimizer": OPTIMIZER,
            "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-4, "warmup_num_steps": 10}},
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": stage, **offload},
        },
        1,
    )
    for stage, offload in (
        (0, {}),
        (1, {"reduce_bucket_size": 500000000}),
        (2, {"offload_optimizer": {"device": "cpu"}, "overlap_comm": True}),
        (3, {"stage3_prefetch_bucket_size": 50000000, "offload_param": {"device": "cpu"}}),
    )
]
"""Configs that train on a CPU."""


def later_mistakes(seed: int, per_key: int = 1) -> Iterator[Mistake]:
    """Mistakes that parsing lets pass: in optimizers and schedulers, their parameters, and what DeepSpeed looks at when it builds and steps."""
    dice = random.Random(seed)
    for base, ranks in STEPPING:
        for make in (_names, _places, _relations, _optimizers, _schedulers):
            for kind, text, harmless in make(copy.deepcopy(base), dice):
                yield Mistake(kind, text, ranks, harmless, _dump(base))
    yield from _keys(dice, per_key, STEPPING)


Made = Iterator[tuple[str, str, bool]]


def _dump(config: Any, indent: int | None = 2) -> str:
    return json.dumps(config, indent=indent)


# ---------------------------------------------------------------------- the text


def _text(base: Config, dice: random.Random) -> Made:
    text = _dump(base)
    replace: dict[str, Callable[[str], str]] = {
        "no closing brace": lambda t: t.rstrip()[:-1],
        "no opening brace": lambda t: t[1:],
        "an inner brace lost": lambda t: t.replace("}", "", 1) if t.count("}") > 1 else t[:-1],
        "one brace too many": lambda t: t + "}",
        "no colon": lambda t: t.replace(":", "", 1),
        "equals for colon": lambda t: t.replace(":", " =", 1),
        "semicolons": lambda t: t.replace(",", ";"),
        "no comma on one line": lambda t: " ".join(t.split()).replace(",", "", 1),
        "two commas": lambda t: t.replace(",", ",,", 1),
        "string not closed": lambda t: t.replace('":', ":", 1),
        "smart quotes": lambda t: t.replace('"', "\u201c"),
        "garbage behind": lambda t: t + "\nand so on",
        "garbage before": lambda t: "config = " + t,
        "comment not closed": lambda t: t.replace("{", "{ /* why", 1),
        "python literals on a line": lambda t: " ".join(t.split()).replace("true", "True").replace("false", "False"),
        "a tab escape left bare": lambda t: t.replace('"train', '"\ttrain', 1),
        "a bad escape": lambda t: t.replace('"train', '"\\qtrain', 1),
        "a list for an object": lambda t: "[" + t + "]",
        "only a number": lambda _: "16",
        "only a string": lambda _: '"stage2"',
        "only null": lambda _: "null",
        "nothing": lambda _: "",
        "a bare name": lambda _: "zero2",
        "yaml": lambda _: "train_micro_batch_size_per_gpu: 2\nzero_optimization:\n  stage: 2\n",
        "cut in the middle": lambda t: t[: len(t) // 2],
        "cut at a random place": lambda t: t[: dice.randrange(1, len(t) - 1)],
        "a random character lost": lambda t: (lambda i: t[:i] + t[i + 1 :])(dice.randrange(len(t))),
        "a random character more": lambda t: (lambda i: t[:i] + dice.choice('{}[]:,"#/x') + t[i:])(dice.randrange(len(t))),
    }
    for kind, change in replace.items():
        yield f"text: {kind}", change(text), False
    for name in list(base):
        member = json.dumps(name) + ": " + json.dumps(base[name])
        if dice.random() < 0.4:
            yield "text: duplicate key at the top", text[:-2] + ",\n  " + member + "\n}", False
    for name, section in base.items():
        if isinstance(section, dict) and section:
            inner = next(iter(section))
            doubled = _dump(section)[:-2] + f", {json.dumps(inner)}: {json.dumps(section[inner])}" + "}"
            yield "text: duplicate key in a section", _dump({**base, name: "@@"}).replace('"@@"', doubled), False
    word = dice.choice(["True", "None", "NaN", "auto", "fp16", "0x10", "+1"])
    yield f"text: bare {word}", text.replace('"train_', f'"prescale_gradients": {word},\n  "train_', 1), False
    yield f"text: bare {word} for a number", text.replace('"train_', f'"gradient_predivide_factor": {word},\n  "train_', 1), False


# ---------------------------------------------------------------------- names and places


def _misspell(name: str, dice: random.Random) -> dict[str, str]:
    place = dice.randrange(len(name))
    swap = min(place, len(name) - 2)
    return {
        "letter lost": name[:place] + name[place + 1 :],
        "letter more": name[:place] + dice.choice(string.ascii_lowercase) + name[place:],
        "letters swapped": name[:swap] + name[swap + 1] + name[swap] + name[swap + 2 :],
        "capitals": name.upper(),
        "hyphens": name.replace("_", "-"),
        "blank behind": name + " ",
        "camel case": "".join(part.capitalize() if number else part for number, part in enumerate(name.split("_"))),
    }


def _renamed(config: Config, old: str, new: str) -> Config:
    return {new if name == old else name: value for name, value in config.items()}


def _names(base: Config, dice: random.Random) -> Made:
    for name in base:
        for kind, wrong in _misspell(name, dice).items():
            if wrong != name and wrong not in base:
                yield f"name: {kind} at the top", _dump(_renamed(base, name, wrong)), False
    for section, content in base.items():
        if not isinstance(content, dict):
            continue
        for name in content:
            for kind, wrong in _misspell(name, dice).items():
                if wrong not in content:
                    yield f"name: {kind} in {section}", _dump({**base, section: _renamed(content, name, wrong)}), False
        for value in (1, "x", None, {}, "auto", True, []):
            label = f"name: unknown key with {json.dumps(value)} in {section}"
            yield label, _dump({**base, section: {**content, "no_such_key": value}}), False
        yield f"name: a note in {section}", _dump({**base, section: {**content, "_comment": "why"}}), False


def _places(base: Config, dice: random.Random) -> Made:
    for section, content in base.items():
        if not isinstance(content, dict):
            continue
        for name in content:
            rest = {key: value for key, value in content.items() if key != name}
            yield (
                f"place: from {section} to the top",
                _dump({**base, section: rest, **({name: content[name]} if name not in base else {})}),
                False,
            )
        other = dice.choice([name for name in base if isinstance(base[name], dict)])
        if other != section:
            yield (
                f"place: {section} inside {other}",
                _dump({**{k: v for k, v in base.items() if k != section}, other: {**base[other], section: content}}),
                False,
            )
    for name in ("train_micro_batch_size_per_gpu", "gradient_clipping"):
        if name in base and "zero_optimization" in base:
            moved = {key: value for key, value in base.items() if key != name}
            yield (
                "place: from the top to zero_optimization",
                _dump({**moved, "zero_optimization": {**base["zero_optimization"], name: base[name]}}),
                False,
            )


# ---------------------------------------------------------------------- values that must agree


def _batch(base: Config, dice: random.Random) -> Made:
    triad = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    rest = {key: value for key, value in base.items() if key not in triad}
    values = (0, -4, 1, 2, 3, 4, 16, 48, 64, 100, 2.0, 2.5, "16", "auto", None, True, [4], {}, 10**20)
    for first in values:
        for key in triad[:2]:
            yield f"batch: {key} alone", _dump({**rest, key: first}), False
        yield "batch: all three", _dump({**rest, triad[0]: dice.choice(values), triad[1]: dice.choice(values), triad[2]: first}), False
        yield "batch: train and micro", _dump({**rest, triad[0]: dice.choice(values), triad[1]: first}), False
        yield "batch: train and steps", _dump({**rest, triad[0]: dice.choice(values), triad[2]: first}), False
        yield "batch: micro and steps", _dump({**rest, triad[1]: first, triad[2]: dice.choice(values)}), False
    yield "batch: none", _dump(rest), False
    yield "batch: steps alone", _dump({**rest, triad[2]: 4}), False


def _with(base: Config, section: str, **keys: Any) -> str:
    content = base.get(section)
    return _dump({**base, section: {**(content if isinstance(content, dict) else {}), **keys}})


def _relations(base: Config, dice: random.Random) -> Made:
    zero = "zero_optimization"
    without = {key: value for key, value in base.items() if key not in ("fp16", "bf16")}
    yield "relation: fp16 and bf16", _dump({**without, "fp16": {"enabled": True}, "bf16": {"enabled": True}}), False
    yield "relation: fp16 and bfloat16", _dump({**without, "fp16": {"enabled": True}, "bfloat16": {"enabled": True}}), False
    yield "relation: bf16 off beside bfloat16", _dump({**without, "bf16": {}, "bfloat16": {"enabled": True}}), False
    for stage in (0, 1, 2, 3):
        yield "relation: summed gradients", _dump({**base, "gradient_allreduce_op": "sum", zero: {"stage": stage}}), False
        yield (
            "relation: fp16 master weights",
            _dump({**without, "fp16": {"enabled": True, "fp16_master_weights_and_grads": True}, zero: {"stage": stage}}),
            False,
        )
        yield (
            "relation: bf16 master weights",
            _dump({**without, "bf16": {"enabled": True, "bf16_master_weights_and_grads": True}, zero: {"stage": stage}}),
            False,
        )
        yield (
            "relation: bf16 optimizer states",
            _dump({**without, "bf16": {"enabled": True, "bf16_optimizer_states": True}, zero: {"stage": stage}}),
            False,
        )
        both = {"enabled": True, "bf16_optimizer_states": True, "bf16_master_weights_and_grads": True}
        yield "relation: bf16 optimizer states and master weights", _dump({**without, "bf16": both, zero: {"stage": stage}}), False
        yield (
            "relation: offload ratio",
            _dump({**base, zero: {"stage": stage, "offload_optimizer": {"device": "cpu", "ratio": dice.choice([0.0, 0.3, 1.0])}}}),
            False,
        )
        yield (
            "relation: zenflow",
            _dump({**base, zero: {"stage": stage, "offload_optimizer": {"device": "cpu"}, "zenflow": {"topk_ratio": 0.1}}}),
            False,
        )
    yield (
        "relation: summed gradients with deepcompile",
        _dump({**base, "gradient_allreduce_op": "sum", "compile": {"deepcompile": True}, zero: {"stage": 1}}),
        False,
    )
    yield (
        "relation: summed gradients with zenflow",
        _dump({**base, "gradient_allreduce_op": "sum", zero: {"stage": 2, "zenflow": {}}}),
        False,
    )
    yield "relation: deprecated cpu_offload", _with(base, zero, cpu_offload=True), False
    yield "relation: cpu_offload with its replacement", _with(base, zero, cpu_offload=True, offload_optimizer={"device": "cpu"}), False
    yield (
        "relation: cpu_offload_param with its replacement",
        _with(base, zero, cpu_offload_param=True, offload_param={"device": "cpu"}),
        False,
    )
    gather = {"stage3_gather_fp16_weights_on_model_save": True, "stage3_gather_16bit_weights_on_model_save": True}
    yield "relation: gather under both names", _with(base, zero, **gather), False
    yield "relation: two names of one key", _with(base, zero, stage3_prefetch_bucket_size=1, prefetch_bucket_size=1), False
    yield "relation: elastic checkpoint", _with(base, zero, elastic_checkpoint=True), False
    for removed in (
        "elasticity",
        "amp",
        "curriculum_learning",
        "sparse_attention",
        "nebula",
        "eigenvalue",
        "progressive_layer_drop",
        "sparse_gradients",
    ):
        yield "relation: a removed section", _dump({**base, removed: dice.choice([None, False, {}, {"enabled": False}, True])}), False
    for removed in ("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param"):
        yield "relation: a removed ZeRO key", _with(base, zero, **{removed: dice.choice([None, 1, {}])}), False
    for scale in (0, 1, -1, True, "0", "x", None, 0.5, 1e300):
        yield "relation: loss scale", _with(without, "fp16", enabled=True, loss_scale=scale), False
    for window in (0, -1, True, 1000.0, 1.5):
        yield "relation: loss scale window", _with(without, "fp16", enabled=True, loss_scale_window=window), False
        yield "relation: least loss scale", _with(without, "fp16", enabled=True, min_loss_scale=window), False
    for grad_norm in (0, 1.0, "x"):
        yield (
            "relation: max_grad_norm in the optimizer",
            _dump({**base, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "max_grad_norm": grad_norm}}}),
            False,
        )
    for size in (7, 8, 0, "8", None, 50257):
        yield "relation: vocabulary size", _dump({**base, "vocabulary_size": size}), False


def _sections(base: Config, dice: random.Random) -> Made:
    for section in children()[""]:
        if "section" not in KEYS[section]["types"] or "until" in KEYS[section]:
            continue
        for value in (None, True, False, "auto", "x", 1, 2.5, [], ["x"], {}):
            yield f"section: {section} given as {json.dumps(value)}", _dump({**base, section: value}), False


# ---------------------------------------------------------------------- optimizers and schedulers


def _optimizers(base: Config, dice: random.Random) -> Made:
    yield from _built("optimizer", OPTIMIZERS, {"lr": 1e-4}, base, dice)
    for kind in ("adamw", "ADAM", "Adam8bit", "FusedAdam", "sgd", "", "x", 1, None, ["AdamW"]):
        yield f"optimizer: type {json.dumps(kind)}", _dump({**base, "optimizer": {"type": kind, "params": {"lr": 1e-4}}}), False


def _schedulers(base: Config, dice: random.Random) -> Made:
    needed = {"total_num_steps": 100, "warmup_num_steps": 10, "warmup_max_lr": 1e-4, "cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4}
    yield from _built("scheduler", SCHEDULERS, needed, base, dice)
    for kind in ("warmuplr", "CosineLR", "", "x", 1, None, ["WarmupLR"]):
        yield f"scheduler: type {json.dumps(kind)}", _dump({**base, "scheduler": {"type": kind, "params": {}}}), False


def _built(section: str, table: dict[str, Any], needed: Config, base: Config, dice: random.Random) -> Made:
    """Each type as it may be, with a parameter misspelt, one it does not have, and each parameter with a wrong value."""
    for name, spec in table.items():
        params = {key: value for key, value in needed.items() if key in spec["params"]}

        def text(given: Any, name: str = name) -> str:
            return _dump({**base, section: {"type": name, "params": given}})

        yield f"{section}: {name}", text(params), False
        yield f"{section}: {name} without params", _dump({**base, section: {"type": name}}), False
        yield f"{section}: {name} with a parameter it does not have", text({**params, "no_such": 1}), False
        for key in spec["params"]:
            kind = dice.choice(list(WRONG))
            yield f"{section}: {kind} in {name}", text({**params, key: dice.choice(WRONG[kind])}), False
        if params:
            key = dice.choice(list(params))
            wrong = _misspell(key, dice)["letters swapped"]
            yield f"{section}: {name} with a misspelt parameter", text(_renamed(params, key, wrong)), False


# ---------------------------------------------------------------------- no mistakes


def _harmless(base: Config, dice: random.Random) -> Made:
    def floats(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: entry if name in ("hysteresis", "steps_per_print", "warmup_num_steps") else floats(entry)
                for name, entry in value.items()
            }
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    names = list(base)
    dice.shuffle(names)
    yield "harmless: whole floats", _dump(floats(base)), True
    yield "harmless: another order", _dump({name: base[name] for name in names}), True
    yield "harmless: a schema and notes", _dump({"$schema": "x.json", "_comment": "why", **base, "comment": "none"}), True
    yield "harmless: one line", _dump(base, None), True
    yield "harmless: tabs and CRLF", _dump(base).replace("  ", "\t").replace("\n", "\r\n"), True
    yield "harmless: comments and trailing commas", _dump(base).replace("{\n", "{ // a comment\n").replace("\n}", ",\n}"), True
    yield "harmless: unicode escapes", _dump(base).replace('"train', '"\\u0074rain'), True
    yield "harmless: a byte order mark", "\ufeff" + _dump(base), True
    kind = base["optimizer"]["type"]
    yield "harmless: the optimizer in capitals", _dump({**base, "optimizer": {**base["optimizer"], "type": kind.upper()}}), True
    yield "harmless: null for an optional key", _dump({**base, "communication_data_type": None}), True
    yield "harmless: true in words, in a parsed section", _with(base, "comms_logger", enabled="off", debug="no"), True
    if "zero_optimization" in base:
        yield "harmless: offload to nowhere", _with(base, "zero_optimization", offload_param={"device": "none"}), True


# ---------------------------------------------------------------------- every key of the table

WRONG: dict[str, list[Any]] = {
    "a word": ["x", "maybe"],
    "a quoted number": ["1", "2.5", "5e8", "-3", " 4 "],
    "a quoted boolean": ["true", "false", "off", "Yes"],
    "auto": ["auto"],
    "null": [None],
    "a boolean": [True, False],
    "a negative number": [-1, -0.5],
    "zero": [0],
    "a fraction": [0.5, 2.5],
    "a large number": [10**18, 1e30],
    "a whole float": [2.0, 5e8],
    "a list": [[], [1], ["x"]],
    "an object": [{}, {"x": 1}],
}


def _keys(dice: random.Random, per_key: int, bases: list[tuple[Config, int]]) -> Iterator[Mistake]:
    for key, spec in KEYS.items():
        if "until" in spec or "*" in key or "[]" in key or key == "aio.use_gds":
            continue  # use_gds is refused on a CPU alone
        section = key.rpartition(".")[0] or "the top"
        for kind in dice.sample(list(WRONG), min(per_key, len(WRONG))):
            base, ranks = copy.deepcopy(dice.choice(bases))
            before = _dump(base)
            if key.startswith("fp16."):
                base.pop("bf16", None)
            elif key.startswith(("bf16.", "bfloat16.")):
                base.pop("fp16", None)
            if key in ("train_batch_size", "gradient_accumulation_steps"):
                continue  # _batch has them, with what must agree with them
            node = base
            for name in key.split(".")[:-1]:
                below = node.get(name)
                node[name] = dict(below) if isinstance(below, dict) else {}
                node = node[name]
            node[key.rpartition(".")[2]] = dice.choice(WRONG[kind])
            yield Mistake(f"value: {kind} in {section.split('.')[0]}", _dump(base), ranks, base=before)
