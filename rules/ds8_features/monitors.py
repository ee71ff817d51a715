"""DS8: monitors, which write losses and other numbers to TensorBoard, CSV files or services."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration, Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.project import is_set_by_program, is_taken_by_program

MONITORS = ("tensorboard", "wandb", "csv_monitor", "comet")
WITH_JOB_NAME = ("tensorboard", "csv_monitor")
API_KEY = "comet.api_key"
_PLACEHOLDER = re.compile(r"^[$<{\[]|^[x*.\-_]+$|key|token|secret|your|insert|replace|change|todo|none|null", re.IGNORECASE)
"""The mark of a value that is not a key: Comet's have 25 letters and digits."""
_COMPUTED = re.compile(r"[${<]")
"""The mark of a variable or a template in a path."""


@rule(
    "DS803",
    effect=Effect.ADVICE,
    watches=tuple(f"{section}.enabled" for section in WITH_JOB_NAME),
    references=("https://www.deepspeed.ai/docs/config-json/#monitoring-module", "deepspeed/monitor/csv_monitor.py"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "csv_monitor": {"enabled": true, "output_path": "logs"}}',
    at="csv_monitor",
    message="csv_monitor has no job_name: every run writes to logs/DeepSpeedJobName, which mixes their curves.",
)
@good('{"train_micro_batch_size_per_gpu": 4, "csv_monitor": {"enabled": true, "output_path": "logs", "job_name": "llama-1"}}')
@good('{"train_micro_batch_size_per_gpu": 4, "csv_monitor": {"enabled": true, "output_path": "${oc.env:RUN_DIR}/logs"}}')
@good(
    '{"train_micro_batch_size_per_gpu": 4, "csv_monitor": {"enabled": true}}',
    program="def train(config, args):\n    config['csv_monitor']['output_path'] = args.run_dir\n    deepspeed.initialize(model=model, config=config)\n",
)
def monitor_without_job_name(config: Config) -> Iterator[Finding]:
    """Without a `job_name`, every run writes to the same folder.

    The default name is "DeepSpeedJobName". The CSV monitor appends to the files that it finds there, and TensorBoard draws all runs as one.

    Add a `job_name` that differs from run to run. dslint reports nothing where a program of the project writes a
    `job_name`, or takes the section out of a config.
    """
    for section in WITH_JOB_NAME:
        if config.enabled(section) is True and config.lacks(f"{section}.job_name"):
            if is_set_by_program(config, "job_name") or is_taken_by_program(config, section):
                continue
            path = config.value(f"{section}.output_path")
            if config.has(f"{section}.output_path") and not (isinstance(path, str) and not _COMPUTED.search(path)):
                continue  # it may differ from run to run
            folder = (
                f"{path.rstrip('/')}/DeepSpeedJobName" if isinstance(path, str) and path else "DeepSpeedJobName in the working directory"
            )
            yield Finding(
                section,
                f"{section} has no job_name: every run writes to {folder}, which mixes their curves.",
                help='Add "job_name" with a different name for each run.',
                on="key",
            )


@rule(
    "DS804",
    effect=Effect.ADVICE,
    watches=tuple(f"{section}.enabled" for section in MONITORS),
    references=("https://huggingface.co/docs/transformers/deepspeed",),
    pedantic=True,
)
@bad(
    '{"train_batch_size": "auto", "wandb": {"enabled": true}}',
    at="wandb",
    integration="transformers",
    message="wandb reports in addition to the Hugging Face Trainer's report_to, and its losses and step counts differ from the Trainer's.",
)
@good('{"train_micro_batch_size_per_gpu": 4, "csv_monitor": {"enabled": true, "output_path": "logs", "job_name": "a"}}')
def monitor_with_report_to(config: Config) -> Iterator[Finding]:
    """Under the Hugging Face Trainer, a DeepSpeed monitor reports in addition to `report_to`.

    The Trainer reports to the services that `report_to` names and counts its own steps, while DeepSpeed counts samples. With Weights &
    Biases this can create two runs.

    Use `report_to`, and remove the monitor.
    """
    if config.facts.integration is not Integration.TRANSFORMERS:
        return
    for section in MONITORS:
        if config.enabled(section) is True:
            yield Finding(
                section,
                f"{section} reports in addition to the Hugging Face Trainer's report_to, and its losses and step counts differ from the Trainer's.",
                help="Use report_to of TrainingArguments, and remove the section.",
                on="key",
            )


@rule(
    "DS809",
    effect=Effect.ADVICE,
    watches=(API_KEY,),
    references=("https://www.comet.com/docs/v2/guides/experiment-management/configure-sdk/",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "comet": {"enabled": false, "api_key": "abcdefghijklmnop"}}',
    at="comet.api_key",
    message="comet.api_key is a secret, and DeepSpeed prints the whole config to the log.",
)
@good('{"train_micro_batch_size_per_gpu": 4, "comet": {"enabled": false, "project": "llama"}}')
@good('{"train_micro_batch_size_per_gpu": 4, "comet": {"enabled": false, "api_key": "COMET_API_KEY"}}')
@good('{"train_micro_batch_size_per_gpu": 4, "comet": {"enabled": false, "api_key": "xxxxxxxx"}}')
def secret_in_the_file(config: Config) -> Iterator[Finding]:
    """The config contains the API key of an account, which is then exposed wherever the file goes.

    Configs are committed and copied into checkpoints, and DeepSpeed prints the whole config to the log at the start of a run.

    Set the environment variable `COMET_API_KEY` instead, and renew a key that was shared.
    """
    value = config.value(API_KEY) if config.has(API_KEY) else None
    if isinstance(value, str) and value and not _PLACEHOLDER.search(value):
        yield Finding(
            API_KEY,
            "comet.api_key is a secret, and DeepSpeed prints the whole config to the log.",
            help="Set the environment variable COMET_API_KEY instead.",
            on="key",
        )


@rule(
    "DS859",
    effect=Effect.ADVICE,
    watches=("wandb.enabled",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/7381",),
)
@bad(
    f'{{{MINIMAL}, "wandb": {{"enabled": true}}}}',
    at="wandb.enabled",
    deepspeed="0.16.9",
    message="DeepSpeed 0.16.9 does not work with wandb 0.20 and later: the first call that logs something raises TypeError about the argument sync.",
)
@good(f'{{{MINIMAL}, "wandb": {{"enabled": true}}}}', deepspeed="0.18.9")
@good(f'{{{MINIMAL}, "wandb": {{"enabled": true}}}}', deepspeed="0.16.9", pins={"wandb": Release(0, 19, 11)})
def wandb_newer_than_deepspeed(config: Config) -> Iterator[Finding]:
    """DeepSpeed up to 0.17.1 passes wandb an argument that wandb 0.20 removed.

    With wandb 0.20 or later, the first call that logs something raises a `TypeError` about `sync`.

    Pin wandb below 0.20, or upgrade DeepSpeed.
    """
    pinned = config.context.pinned("wandb")
    if pinned is not None and pinned < Release(0, 20, 0):
        return
    if config.has("wandb.enabled") and config.enabled("wandb") is True and config.release <= Release(0, 17, 1):
        yield Finding(
            "wandb.enabled",
            f"DeepSpeed {config.release} does not work with wandb 0.20 and later: the first call that logs something raises TypeError about the argument sync.",
            help="Pin wandb below 0.20, or upgrade DeepSpeed to 0.17.2 or later.",
        )
