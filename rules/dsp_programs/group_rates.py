"""DSP: learning rates of a program's groups of weights that a schedule of DeepSpeed replaces."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.syntax import tree_of

_WARMS_UP = (
    '{"train_micro_batch_size_per_gpu": 4, "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-5, '
    '"warmup_num_steps": 100}}, "zero_optimization": {"stage": 2}}'
)
_DECAYS = _WARMS_UP.replace('"WarmupLR"', '"WarmupDecayLR"').replace(
    '"warmup_num_steps": 100', '"warmup_num_steps": 100, "total_num_steps": 1000'
)
_COSINE = _DECAYS.replace('"WarmupDecayLR"', '"WarmupCosineLR"').replace('"warmup_min_lr": 0, "warmup_max_lr": 1e-5, ', "")
_GROUPS = (
    "import deepspeed\nimport torch\nnet = Net()\noptimizer = torch.optim.AdamW(\n    [\n"
    '        {"params": net.encoder.parameters(), "lr": 1e-5},\n        {"params": net.head.parameters(), "lr": 1e-3},\n    ]\n)\n'
    'engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config="ds_config.json")\n'
)
_OF_TRAINER = (
    "import torch\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\nclass Own(Trainer):\n    def create_optimizer(self):\n"
    "        groups = [{'params': self.model.text.parameters(), 'weight_decay': 0.1}, {'params': self.model.head.parameters(), 'lr': 1e-3}]\n"
    "        self.optimizer = torch.optim.AdamW(groups, lr=self.args.learning_rate)\n        return self.optimizer\n"
    "arguments = TrainingArguments('out', deepspeed='ds_config.json')\nOwn(load(), arguments).train()\n"
)
_BY_FLAG = _GROUPS.replace("optimizer = torch", "if args.head_lr is not None:\n  optimizer = torch").replace("1e-3", "args.head_lr")


@rule(
    "DSP04",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/lr_schedules.py, WarmupLR._format_param and _update_optimizer",
        "deepspeed/runtime/engine.py, DeepSpeedEngine._configure_lr_scheduler",
    ),
)
@bad(
    _WARMS_UP,
    at="scheduler.type",
    program=_GROUPS,
    integration="deepspeed",
    message='scheduler.type is "WarmupLR", and train.py:5 gives groups of weights learning rates of their own (1e-05, 0.001): the schedule sets warmup_max_lr for all groups, and their own rates are lost.',
)
@bad(
    _DECAYS,
    at="scheduler.type",
    program=_OF_TRAINER,
    integration="transformers",
    message='scheduler.type is "WarmupDecayLR", and train.py:5 gives groups of weights learning rates of their own (0.001): the schedule sets warmup_max_lr for all groups, and their own rates are lost.',
)
@good(_COSINE, program=_GROUPS, integration="deepspeed")
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', program=_GROUPS, integration="deepspeed")
@good(_WARMS_UP.replace('"warmup_max_lr": 1e-5', '"warmup_max_lr": [1e-5, 1e-3]'), program=_GROUPS, integration="deepspeed")
@good(_WARMS_UP, program=_GROUPS.replace("1e-3", "1e-5"), integration="deepspeed")
@good(
    _WARMS_UP,
    program=_GROUPS.replace('"lr": 1e-5', '"weight_decay": 0').replace('"lr": 1e-3', '"weight_decay": 0.1'),
    integration="deepspeed",
)
@good(_WARMS_UP, program=_GROUPS.replace('        {"params": net.head.parameters(), "lr": 1e-3},\n', ""), integration="deepspeed")
@good(_WARMS_UP, program=_GROUPS.replace('"params"', '"weights"'), integration="deepspeed")
@good(_WARMS_UP, program=_BY_FLAG, integration="deepspeed")
@good(
    _DECAYS.replace('"scheduler"', '"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "scheduler"'),
    program=_OF_TRAINER,
    integration="transformers",
)
def rates_of_groups_lost(config: Config) -> Iterator[Finding]:
    """The program gives groups of weights rates of their own, and a schedule of DeepSpeed sets one rate for all groups.

    WarmupLR, WarmupDecayLR, OneCycle and LRRangeTest compute a learning rate from their parameters and write it into each group of the
    optimizer. A smaller rate for the pretrained part, a larger one for a new head or projector, or a group with 0, is lost in the first step.
    WarmupCosineLR multiplies the rates of the groups instead, and so do the schedules of PyTorch and transformers.

    Remove the scheduler section, so that the program's own schedule runs, or use WarmupCosineLR. With a list, such as `"warmup_max_lr": [1e-5,
    1e-3]`, each group gets a rate.
    """
    setup, program = config.setup, config.setup.program if config.setup else None
    kind = config.value("scheduler.type") if program is not None and config.has("scheduler.type") else None
    key = _ONE_RATE.get(kind) if isinstance(kind, str) else None
    if key is None or setup is None:
        return
    rate = f"scheduler.params.{key}"
    if config.has(rate) and isinstance(config.value(rate), list | tuple):
        return
    loader = config.facts.integration
    if loader not in (Integration.DEEPSPEED, Integration.ACCELERATE, Integration.TRANSFORMERS):
        return
    if loader is Integration.TRANSFORMERS and config.has("optimizer"):
        return  # the groups of the program are not used
    passed = setup.launch.passed.flags if setup.launch is not None and setup.launch.passed is not None else {}
    arguments = config.arguments
    for path in setup.documents:
        for rates, line in _groups(tree_of(config, path), lambda name: name in passed or (arguments is not None and name in arguments)):
            own = ", ".join(dict.fromkeys(one for one in rates if one is not None))
            yield Finding(
                "scheduler.type",
                f"scheduler.type is {config.quote('scheduler.type')}, and {path}:{line} gives groups of weights learning rates of their own ({own}): the "
                f"schedule sets {key} for all groups, and their own rates are lost.",
                help="Remove the scheduler section, so that the program's own schedule runs, or use WarmupCosineLR.",
                on="value",
                certain=False,  # another optimizer may be used
            )
            return


_ONE_RATE = {
    "WarmupLR": "warmup_max_lr",
    "WarmupDecayLR": "warmup_max_lr",
    "OneCycle": "cycle_max_lr",
    "LRRangeTest": "lr_range_test_min_lr",
}
"""The schedules that write one rate into all groups, and the parameter that it comes from."""


def _groups(tree: ast.Module | None, is_given: Callable[[str], bool]) -> Iterator[tuple[list[str | None], int]]:
    """The lists of groups of weights in a file that have different learning rates, and their lines.

    A list that a condition on one of its rates selects counts only if the launch or the arguments give that rate.
    """
    if tree is None:
        return
    switched = {
        id(inner): ast.unparse(one.test)
        for one in ast.walk(tree)
        if isinstance(one, ast.If)
        for each in one.body
        for inner in ast.walk(each)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.List) or len(node.elts) < 2:
            continue
        groups = [
            {_key(key): value for key, value in zip(one.keys, one.values, strict=True)} for one in node.elts if isinstance(one, ast.Dict)
        ]
        if len(groups) != len(node.elts) or not all("params" in one for one in groups):
            continue
        rates = [ast.unparse(one["lr"]) if "lr" in one else None for one in groups]
        test = switched.get(id(node), "")
        selected = [one for one in rates if one is not None and re.search(rf"(?<![\w.]){re.escape(one)}(?!\w)", test)]
        if len(set(rates)) > 1 and all(is_given(one.rpartition(".")[2]) for one in selected):
            yield rates, node.lineno


def _key(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None
