"""DS8: curriculum learning of data efficiency."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, bad, good, rule, safe
from dslint.rules.helpers.cost import misaligned_lengths
from dslint.rules.helpers.data_efficiency import CURRICULUM, DATA_EFFICIENCY_DOCS, missing_settings
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import spelling, write
from dslint.source.change import Remove
from dslint.source.tree import Mapping, Path

SOURCE = "deepspeed/runtime/data_pipeline/curriculum_scheduler.py, CurriculumScheduler"
ENABLED = f"{CURRICULUM}.enabled"
METRICS = f"{CURRICULUM}.curriculum_metrics"
SETTINGS_OF_TYPE = {
    "fixed_discrete": ("difficulty", "max_step"),
    "fixed_linear": ("total_curriculum_step", "difficulty_step"),
    "fixed_root": ("total_curriculum_step", "difficulty_step", "root_degree"),
    "custom": (),
}
"""What each type of schedule requires in `schedule_config`."""

EXAMPLE_METRIC = f"{METRICS}.seqlen"
LINEAR = '"min_difficulty": 64, "max_difficulty": 2048, "schedule_type": "fixed_linear", "schedule_config": {"total_curriculum_step": 9000, "difficulty_step": 8}'


def _with_metric(schedule: str) -> str:
    """The text of a config that enables curriculum learning by sequence length, with these members in the metric."""
    paths = '"index_to_sample_path": "a", "index_to_metric_path": "b", "difficulty_type": "value", "clustering_type": "single_cluster"'
    return f'{{{MINIMAL}, "data_efficiency": {{"enabled": true, "data_sampling": {{"enabled": true, "curriculum_learning": {{"enabled": true, "data_cluster_path": "c", "curriculum_metrics": {{"seqlen": {{{paths}, {schedule}}}}}}}}}}}}}'


def _metrics(config: Config) -> list[str]:
    """The paths of the metrics; empty if curriculum learning is off."""
    node = config.node(METRICS)
    if config.value(ENABLED) is not True or not isinstance(node, Mapping):
        return []
    return [f"{METRICS}.{member.key.value}" for member in node.members if isinstance(member.value, Mapping) and "." not in member.key.value]


@rule(
    "DS817",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(METRICS,),
    references=(SOURCE, DATA_EFFICIENCY_DOCS),
    untried="raised where deepspeed.initialize is given training data; a test of its own builds the schedule",
)
@bad(
    _with_metric('"min_difficulty": 64, "schedule_type": "fixed_linear"'),
    at=EXAMPLE_METRIC,
    message="The metric seqlen has no max_difficulty: DeepSpeed raises AssertionError \"Curriculum learning requires the config 'max_difficulty'\" if deepspeed.initialize gets training_data.",
)
@bad(
    _with_metric(LINEAR.replace("fixed_linear", "linear")),
    at=f"{EXAMPLE_METRIC}.schedule_type",
    message='schedule_type "linear" is not one of fixed_discrete, fixed_linear, fixed_root, custom: DeepSpeed raises RuntimeError "Unsupported curriculum schedule type" if deepspeed.initialize gets training_data.',
)
@bad(
    _with_metric(
        '"min_difficulty": 1, "max_difficulty": 3, "schedule_type": "fixed_discrete", "schedule_config": {"difficulty": [1, 2, 3], "max_step": [5, 10, 15]}'
    ),
    at=f"{EXAMPLE_METRIC}.schedule_config",
    message="difficulty has 3 entries and max_step 3, but max_step must have one fewer, because the last difficulty lasts to the end: DeepSpeed raises AssertionError if deepspeed.initialize gets training_data.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "data_efficiency": {"enabled": true, "data_sampling": {"enabled": true, "curriculum_learning": {"enabled": true, "data_cluster_path": "c", "curriculum_metrics": {"seqlen": {"index_to_sample_path": "a", "index_to_metric_path": "b", "difficulty_type": "value", "clustering_type": "single_cluster", "min_difficulty": 1, "max_difficulty": 3, "schedule_type": "fixed_discrete", "schedule_config": {"difficulty": [1, 2, 3], "max_step": [5, 10]}}}}}}}',
)
@good(_with_metric(LINEAR))
@good(
    _with_metric(LINEAR.replace("fixed_linear", "linear")),
    program='import deepspeed\ndeepspeed.initialize(model=model, config="ds_config.json")\n',
)
@good(
    _with_metric(
        '"min_difficulty": 1, "max_difficulty": 3, "schedule_type": "fixed_discrete", "schedule_config": {"difficulty": [1, 2, 3], "max_step": [5, 10]}'
    )
)
def curriculum_schedule_incomplete(config: Config) -> Iterator[Finding]:
    """The schedule of a curriculum metric is incomplete or has an unknown type.

    Each metric requires `min_difficulty`, `max_difficulty`, `schedule_type` and `schedule_config`. In `schedule_config`, "fixed_linear"
    requires `total_curriculum_step` and `difficulty_step`, "fixed_root" also `root_degree`, and "fixed_discrete" the lists `difficulty` and
    `max_step`, where `max_step` has one entry fewer. DeepSpeed checks this when it builds the sampler for the training data that
    `deepspeed.initialize` receives.

    Complete the metric.
    """
    program = config.setup.program if config.setup else None
    passed = program.passed if program is not None else None
    if passed is not None and "training_data" not in passed:
        return
    for finding in _incomplete_schedules(config):
        yield finding._replace(certain=passed is not None)


def _incomplete_schedules(config: Config) -> Iterator[Finding]:
    """A finding for each metric whose schedule DeepSpeed rejects."""
    for metric in _metrics(config):
        missing = missing_settings(config, metric, ("min_difficulty", "max_difficulty", "schedule_type"))
        if missing:
            yield Finding(
                metric,
                f"The metric {metric.rpartition('.')[2]} has no {', '.join(missing)}: DeepSpeed raises AssertionError \"Curriculum learning requires the config '{missing[0]}'\" if deepspeed.initialize gets training_data.",
                help=f"Add {', '.join(missing)}.",
                on="key",
            )
        elif isinstance(config.literal(f"{metric}.schedule_type"), str):
            yield from _schedule_findings(config, metric)


def _schedule_findings(config: Config, metric: str) -> Iterator[Finding]:
    """Findings of a metric that has a schedule type."""
    key, section = f"{metric}.schedule_type", f"{metric}.schedule_config"
    schedule_type = config.literal(key)
    if schedule_type not in SETTINGS_OF_TYPE:
        close = spelling(schedule_type, SETTINGS_OF_TYPE)
        yield Finding(
            key,
            f'schedule_type {config.quote(key)} is not one of {", ".join(SETTINGS_OF_TYPE)}: DeepSpeed raises RuntimeError "Unsupported curriculum schedule type" if deepspeed.initialize gets training_data.',
            help='Write "fixed_linear", "fixed_root", "fixed_discrete" or "custom".',
            fix=write(config, key, f'"{close.word}"', Applicability.SAFE) if close and close.sure else None,
        )
        return
    required = SETTINGS_OF_TYPE[schedule_type]
    missing = missing_settings(config, section, required) if config.has(section) else list(required)
    if missing:
        yield Finding(
            section if config.has(section) else metric,
            f"The schedule {schedule_type} has no {', '.join(missing)}: DeepSpeed raises an error if deepspeed.initialize gets training_data.",
            help=f"Add {', '.join(missing)} to schedule_config.",
            on="key",
        )
    elif schedule_type == "fixed_discrete":
        yield from _list_findings(config, section)


def _list_findings(config: Config, section: str) -> Iterator[Finding]:
    """Findings of a schedule "fixed_discrete" with lists of lengths that do not match."""
    levels, ends = config.value(f"{section}.difficulty"), config.value(f"{section}.max_step")
    if not isinstance(levels, list) or not isinstance(ends, list) or (ends and len(levels) == len(ends) + 1):
        return
    same_length = len(ends) == len(levels)
    last: Path = (*section.split("."), "max_step", len(ends) - 1)
    yield Finding(
        section,
        f"difficulty has {len(levels)} entries and max_step {len(ends)}, but max_step must have one fewer, because the last difficulty lasts to the end: DeepSpeed raises AssertionError if deepspeed.initialize gets training_data.",
        help="Remove the last entry of max_step." if same_length else "Write one more entry in difficulty than in max_step.",
        on="key",
        fix=safe("remove the last entry of max_step", Remove(last)) if same_length and len(levels) > 1 else None,
    )


@rule(
    "DS818",
    effect=Effect.SLOW,
    watches=(METRICS,),
    references=(SOURCE,),
)
@bad(
    _with_metric(LINEAR.replace('"difficulty_step": 8', '"difficulty_step": 10')),
    at=f"{EXAMPLE_METRIC}.schedule_config.difficulty_step",
    message="difficulty_step 10 gives sequence lengths that are not multiples of 8, so 16-bit matrix products do not use the tensor cores.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "data_efficiency": {"enabled": true, "data_sampling": {"enabled": true, "curriculum_learning": {"enabled": true, "data_cluster_path": "c", "curriculum_metrics": {"seqlen": {"index_to_sample_path": "a", "index_to_metric_path": "b", "difficulty_type": "value", "clustering_type": "single_cluster", "min_difficulty": 64, "max_difficulty": 2048, "schedule_type": "fixed_linear", "schedule_config": {"total_curriculum_step": 9000, "difficulty_step": 8}}}}}}}',
)
@good(_with_metric(LINEAR))
def curriculum_off_the_tensor_cores(config: Config) -> Iterator[Finding]:
    """16-bit matrix products use tensor cores only if the sequence length is a multiple of 8.

    With the metric "seqlen" the difficulty is the sequence length, which is a multiple of `difficulty_step`. DeepSpeed logs a warning if
    that is not a multiple of 8.

    Write 8, or a multiple of 8.
    """
    for metric in _metrics(config):
        key = f"{metric}.schedule_config.difficulty_step"
        step = config.value(key) if config.has(key) else UNKNOWN
        if "seqlen" in metric.rpartition(".")[2] and isinstance(step, int) and step % 8:
            yield Finding(
                key,
                f"difficulty_step {config.quote(key)} gives sequence lengths that are not multiples of 8, so 16-bit matrix products do not use the tensor cores.",
                help="Write 8, or a multiple of 8." + misaligned_lengths(config),
                fix=write(config, key, str(max(8, 8 * round(step / 8)))),
            )
