"""DS8: sections that do nothing unless `enabled` is true."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config, ViolationKind
from dslint.config.sections import is_habit
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.project import is_taken_by_program
from dslint.source.tree import Mapping

OBSERVING = ("tensorboard", "wandb", "csv_monitor", "comet", "flops_profiler", "comms_logger")
"""Sections that observe training and do not change how it is done."""
OFF_BY_DEFAULT = (*OBSERVING, "hybrid_engine", "expert_parallel", "torch_autocast", "autotuning")
"""Sections with an `enabled` that defaults to false."""


@rule(
    "DS802",
    effect=Effect.IGNORED,
    watches=OFF_BY_DEFAULT,
    references=("https://www.deepspeed.ai/docs/config-json/",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "wandb": {"project": "llama"}}',
    at="wandb",
    message='wandb has no "enabled", which defaults to false: DeepSpeed ignores project.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "wandb": {"project": "llama", "enabled": true}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "flops_profiler": {"profile_step": 5, "detailed": true}}',
    at="flops_profiler",
    message='flops_profiler has no "enabled", which defaults to false: DeepSpeed ignores its settings.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "flops_profiler": {"profile_step": 5, "detailed": true, "enabled": true}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "autotuning": {"fast": false}}',
    at="autotuning",
    launch="deepspeed --autotuning run train.py --deepspeed_config ds_config.json\n",
    message='autotuning has no "enabled", which defaults to false: each experiment trains to its end, and measures nothing.',
)
@good('{"train_micro_batch_size_per_gpu": 4, "csv_monitor": {"enabled": true, "output_path": "logs", "job_name": "llama"}}')
@good('{"train_micro_batch_size_per_gpu": 4, "wandb": {"enabled": false, "project": "llama"}}')
@good('{"train_micro_batch_size_per_gpu": 4, "wandb": {}}')
@good(
    '{"train_micro_batch_size_per_gpu": 4, "wandb": {"project": "llama"}}',
    program="def train(config, args):\n    config['wandb']['enabled'] = args.wandb\n    deepspeed.initialize(model=model, config=config)\n",
)
def section_not_enabled(config: Config) -> Iterator[Finding]:
    """A section has settings but no `enabled`, so it does nothing.

    `enabled` defaults to false: writing the section does not enable it. DeepSpeed prints neither an error nor a warning.

    dslint reports nothing where a program of the project takes the section out of a config, as it may write `enabled` itself.

    Add `"enabled": true`, or `"enabled": false` to show that it is off on purpose.
    """
    for section in OFF_BY_DEFAULT:
        node = config.node(section)
        if not isinstance(node, Mapping) or not config.lacks(f"{section}.enabled"):
            continue
        names = [member.key.value for member in node.members if not is_habit(member.key.value)]
        if not names or any(
            violation.meant == (section, "enabled")
            for violation in config.violations_of(ViolationKind.UNKNOWN_KEY, ViolationKind.MISPLACED_KEY)
        ):
            continue
        if config.value(section) is None or any(violation.path == (section,) for violation in config.violations):
            continue
        if is_taken_by_program(config, section):
            continue  # it may write "enabled" itself
        launch = config.setup.launch if config.setup else None
        consequence = f"DeepSpeed ignores {'its settings' if len(names) > 1 else names[0]}"
        if section == "autotuning" and launch is not None and "autotuning" in launch.flags:
            consequence = "each experiment trains to its end, and measures nothing"  # the tuner itself reads the other settings
        yield Finding(
            section,
            f'{section} has no "enabled", which defaults to false: {consequence}.',
            help='Add "enabled": true.',
            on="key",
            fix=write(config, f"{section}.enabled", "true") if section in OBSERVING else None,
        )
