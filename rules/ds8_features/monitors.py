"""DS8: monitors, profilers, timers and what they print."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.config.validate import is_habit
from dslint.diagnostics import Applicability, Effect
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import without, write
from dslint.source.tree import Mapping

CONFIG_DOCS = "https://www.deepspeed.ai/docs/config-json/"
MONITORS = ("tensorboard", "wandb", "csv_monitor", "comet")
SWITCHED = (*MONITORS, "flops_profiler", "comms_logger", "hybrid_engine", "expert_parallel", "torch_autocast", "autotuning")
"""Sections that do nothing unless `enabled` is true."""
OBSERVING = (*MONITORS, "flops_profiler", "comms_logger")
"""Those of them that watch the training, and do not change how it is done."""
HUGGING_FACE = (Integration.TRANSFORMERS, Integration.ACCELERATE)


@rule("DS802", "section-not-enabled", effect=Effect.IGNORED, references=(CONFIG_DOCS,))
@bad('{"train_micro_batch_size_per_gpu": 4, "wandb": {"project": "llama"}}', at="wandb")
@bad('{"train_micro_batch_size_per_gpu": 4, "flops_profiler": {"profile_step": 5, "detailed": true}}', at="flops_profiler")
@good('{"train_micro_batch_size_per_gpu": 4, "csv_monitor": {"enabled": true, "output_path": "logs", "job_name": "llama"}}')
@good('{"train_micro_batch_size_per_gpu": 4, "wandb": {"enabled": false, "project": "llama"}}')
@good('{"train_micro_batch_size_per_gpu": 4, "wandb": {}}')
def section_not_enabled(config: Config) -> Iterator[Finding]:
    """A section has settings, but not `enabled`, without which it does nothing.

    That a section is there does not switch it on: `enabled` is false where it is not written. No error, no warning.

    Add `"enabled": true`, or `"enabled": false` to say that it is meant to be off.
    """
    for section in SWITCHED:
        node = config.node(section)
        if not isinstance(node, Mapping) or config.has(f"{section}.enabled"):
            continue
        names = [member.key.value for member in node.members if not is_habit(member.key.value)]
        if not names or any(violation.meant == (section, "enabled") for violation in config.violations_of("unknown-key", "misplaced-key")):
            continue
        if config.value(section) is None or any(v.path == (section,) for v in config.violations):
            continue
        yield Finding(
            section,
            f'{section} has no "enabled", which makes it false: {"what is" if len(names) > 1 else f"{names[0]}, which is"} written in it does nothing.',
            help='Add "enabled": true.',
            on="key",
            fix=write(config, f"{section}.enabled", "true") if section in OBSERVING else None,
        )


@rule(
    "DS803",
    "monitor-without-job-name",
    effect=Effect.ADVICE,
    references=(CONFIG_DOCS + "#monitoring-module", "deepspeed/monitor/csv_monitor.py"),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "csv_monitor": {"enabled": true, "output_path": "logs"}}', at="csv_monitor")
@good('{"train_micro_batch_size_per_gpu": 4, "csv_monitor": {"enabled": true, "output_path": "logs", "job_name": "llama-1"}}')
def monitor_without_job_name(config: Config) -> Iterator[Finding]:
    """All runs without a `job_name` write into one folder.

    The name is "DeepSpeedJobName" unless it is written. The CSV monitor goes on writing at the end of the files it finds, and TensorBoard draws the runs as one.

    Add a `job_name` that differs from run to run.
    """
    for section in ("tensorboard", "csv_monitor"):
        if config.enabled(section) is True and not config.has(f"{section}.job_name"):
            path = config.value(f"{section}.output_path")
            folder = (
                f"{path.rstrip('/')}/DeepSpeedJobName" if isinstance(path, str) and path else "DeepSpeedJobName in the working directory"
            )
            yield Finding(
                section,
                f"{section} has no job_name: every run writes into {folder}, and their curves are mixed.",
                help='Add "job_name", a different one for each run.',
                on="key",
            )


@rule(
    "DS804",
    "monitor-beside-report-to",
    effect=Effect.ADVICE,
    references=("https://huggingface.co/docs/transformers/deepspeed",),
    pedantic=True,
)
@bad('{"train_batch_size": "auto", "wandb": {"enabled": true}}', at="wandb", integration="transformers")
@good('{"train_micro_batch_size_per_gpu": 4, "csv_monitor": {"enabled": true, "output_path": "logs", "job_name": "a"}}')
def monitor_beside_report_to(config: Config) -> Iterator[Finding]:
    """Under the Hugging Face Trainer a monitor of DeepSpeed's writes beside the Trainer's own.

    The Trainer reports to what `report_to` names, with its own steps; DeepSpeed counts samples. With Weights & Biases that may be two runs.

    Use `report_to`, and leave the monitor out.
    """
    if config.facts.integration is not Integration.TRANSFORMERS:
        return
    for section in MONITORS:
        if config.enabled(section) is True:
            yield Finding(
                section,
                f"{section} reports beside the Hugging Face Trainer's own report_to: the losses and the step counts of the two differ.",
                help="Use report_to of TrainingArguments, and leave the section out.",
                on="key",
                fix=write(config, f"{section}.enabled", "false"),
            )


MEASURES = (
    ("wall_clock_breakdown", "waits for the GPU before and after every forward pass, backward pass and step, and prints their times"),
    ("memory_breakdown", "reads and prints the memory at every step"),
    ("comms_logger.enabled", "waits for every collective to end, so that none overlaps with computing"),
    ("flops_profiler.enabled", "turns wall_clock_breakdown on for the whole run, and not for the profiled step alone"),
)


@rule(
    "DS805",
    "measuring-left-on",
    effect=Effect.SLOW,
    references=(CONFIG_DOCS + "#logging", "deepspeed/runtime/config.py, wall_clock_breakdown"),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "wall_clock_breakdown": true}', at="wall_clock_breakdown")
@bad('{"train_micro_batch_size_per_gpu": 4, "flops_profiler": {"enabled": true, "profile_step": 5}}', at="flops_profiler.enabled")
@good('{"train_micro_batch_size_per_gpu": 4, "wall_clock_breakdown": false, "flops_profiler": {"enabled": false}}')
def measuring_left_on(config: Config) -> Iterator[Finding]:
    """Timers and profilers slow every step down while they are on.

    A time is only right when the GPU has finished, so each measurement waits for it; the GPU then idles while the next work is launched. The flops profiler profiles
    one step, and leaves `wall_clock_breakdown` on in all others.

    Switch them off once the numbers are known.
    """
    if config.enabled("autotuning") is True:
        return
    for key, cost in MEASURES:
        if config.has(key) and config.value(key) is True:
            yield Finding(
                key, f"{key.removesuffix('.enabled')} {cost}.", help="Switch it off for the real run.", fix=write(config, key, "false")
            )


@rule("DS806", "profile-step-never-comes", effect=Effect.IGNORED, references=("deepspeed/runtime/engine.py, DeepSpeedEngine.forward",))
@bad('{"train_micro_batch_size_per_gpu": 4, "flops_profiler": {"enabled": true, "profile_step": -1}}', at="flops_profiler.profile_step")
@good('{"train_micro_batch_size_per_gpu": 4, "flops_profiler": {"enabled": true, "profile_step": 5}}')
def profile_step_never_comes(config: Config) -> Iterator[Finding]:
    """The flops profiler profiles the one step that `profile_step` names; a negative one never comes.

    Steps are counted from 0. The profiler still turns `wall_clock_breakdown` on.

    Write a step after the first few, such as 5.
    """
    key = "flops_profiler.profile_step"
    if config.enabled("flops_profiler") is True and config.has(key) and config.value(key) < 0:
        yield Finding(
            key,
            f"profile_step {config.quote(key)} is no step of the run, which counts from 0: nothing is profiled.",
            help="Write a step after the first few, such as 5.",
            fix=write(config, key, "5"),
        )


@rule(
    "DS807",
    "comms-logger-selection",
    effect=Effect.IGNORED,
    references=("https://www.deepspeed.ai/docs/config-json/#communication-logging", "deepspeed/comm/comm.py"),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true, "prof_all": false}}', at="comms_logger.prof_all")
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true, "prof_ops": ["all_reduce"]}}',
    at="comms_logger.prof_ops",
)
@good('{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true, "prof_all": false, "prof_ops": ["all_reduce"]}}')
@good('{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true, "prof_ops": []}}')
def comms_logger_selection(config: Config) -> Iterator[Finding]:
    """The communication logger logs everything, or what `prof_ops` names, never both.

    `prof_all` is true unless it is written, and then `prof_ops` is not looked at. With `prof_all` false and no `prof_ops` nothing is logged, but for calls that
    the program marks.

    To log some operations, write `"prof_all": false` and their names in `prof_ops`.
    """
    if config.enabled("comms_logger") is not True:
        return
    everything, names = config.value("comms_logger.prof_all"), config.value("comms_logger.prof_ops")
    if everything is False and names == []:
        yield Finding(
            "comms_logger.prof_all",
            "comms_logger logs nothing: prof_all is false, and prof_ops names no operation.",
            help='Add "prof_ops": ["all_reduce", ...], or remove "prof_all".',
            fix=without(config, "comms_logger.prof_all", Applicability.UNSAFE),
        )
    elif everything is True and isinstance(names, list) and names:
        yield Finding(
            "comms_logger.prof_ops",
            "prof_ops does nothing while prof_all is true"
            + ("" if config.has("comms_logger.prof_all") else ", as it is unless it is written")
            + ": every operation is logged.",
            help='Add "prof_all": false.',
            fix=without(config, "comms_logger.prof_ops")
            if config.has("comms_logger.prof_all")
            else write(config, "comms_logger.prof_all", "false"),
        )


@rule(
    "DS808",
    "steps-per-print-overwritten",
    effect=Effect.ADVICE,
    references=("accelerate/utils/dataclasses.py, DeepSpeedPlugin",),
    pedantic=True,
)
@bad('{"train_batch_size": "auto", "steps_per_print": 2000}', at="steps_per_print", integration="transformers")
@good('{"train_micro_batch_size_per_gpu": 4, "steps_per_print": 2000}')
def steps_per_print_overwritten(config: Config) -> Iterator[Finding]:
    """Accelerate, and the Trainer with it, writes infinity into `steps_per_print`.

    DeepSpeed then prints nothing, whatever the file says.

    Leave it out, and use the loader's own logging.
    """
    key = "steps_per_print"
    if config.facts.integration in HUGGING_FACE and config.has(key) and config.quote(key) not in ("null", '"auto"', "Infinity"):
        assert config.facts.integration is not None
        yield Finding(
            key,
            f"steps_per_print {config.quote(key)} does nothing under {config.facts.integration.label}, which writes infinity in its place: DeepSpeed prints nothing.",
            help="Remove it, and use the loader's own logging.",
            fix=without(config, key),
        )


@rule(
    "DS809",
    "secret-in-the-file",
    effect=Effect.ADVICE,
    references=("https://www.comet.com/docs/v2/guides/experiment-management/configure-sdk/",),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "comet": {"enabled": false, "api_key": "abcdefghijklmnop"}}', at="comet.api_key")
@good('{"train_micro_batch_size_per_gpu": 4, "comet": {"enabled": false, "project": "llama"}}')
def secret_in_the_file(config: Config) -> Iterator[Finding]:
    """A key of an account stands in the file, and goes wherever the file goes.

    Configs are committed, copied into checkpoints and printed into logs: DeepSpeed prints the whole config at the start of a run.

    Set the environment variable `COMET_API_KEY` instead, and renew a key that was shared.
    """
    key = "comet.api_key"
    value = config.value(key) if config.has(key) else None
    if isinstance(value, str) and value and not value.startswith(("$", "<", "YOUR", "your")):
        yield Finding(
            key,
            "comet.api_key is a secret, and DeepSpeed prints the whole config into the log.",
            help="Set the environment variable COMET_API_KEY instead.",
            on="key",
        )
