"""DS8: autotuning."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import without
from dslint.schemas.key_table import KEYS

ENABLED = "autotuning.enabled"
OF_THE_TUNER = ("metric", "fast", "arg_mappings", "tuner_type", "tuner_num_trials", "max_train_batch_size", "num_tuning_micro_batch_sizes")
"""Settings of the search, which only the launcher with `--autotuning` reads."""

EXIT = "deepspeed/runtime/engine.py, DeepSpeedEngine._autotuning_exit"


@rule(
    "DS850",
    effect=Effect.SILENT,
    watches=(ENABLED,),
    references=(EXIT, "https://www.deepspeed.ai/tutorials/autotuning/"),
)
@bad(
    f'{{{MINIMAL}, "autotuning": {{"enabled": true}}}}',
    at=ENABLED,
    message="autotuning is enabled: unless deepspeed --autotuning started the run, training exits after step 6 with exit code 0 and saves nothing.",
)
@bad(
    f'{{{MINIMAL}, "autotuning": {{"enabled": true, "end_profile_step": 20}}}}',
    at=ENABLED,
    message="autotuning is enabled: unless deepspeed --autotuning started the run, training exits after step 21 with exit code 0 and saves nothing.",
)
@good(f'{{{MINIMAL}, "autotuning": {{"enabled": true, "fast": false}}}}')
@good(f'{{{MINIMAL}, "autotuning": {{"enabled": false}}}}')
@good(f'{{{MINIMAL}, "autotuning": {{"enabled": true}}}}', launch="deepspeed --autotuning run train.py --deepspeed_config ds_config.json\n")
def autotuning_ends_the_run(config: Config) -> Iterator[Finding]:
    """With autotuning enabled, a run measures a few steps and exits.

    One step after `end_profile_step` (default 5), the engine writes its measurements and calls `exit()`, which returns exit code 0. Nothing
    is saved. The flops profiler is on until then.

    Start this config with `deepspeed --autotuning`, then train with the config that the tuner writes to `autotuning_results`. For a normal
    run, write `"enabled": false`. A config with settings of the search is meant for the tuner, and has no finding; one that leaves the ZeRO
    stage to it may be, and the finding is an info.
    """
    launch = config.setup.launch if config.setup else None
    if launch is not None and "autotuning" in launch.flags:
        return
    last = config.value("autotuning.end_profile_step")
    if config.has(ENABLED) and config.value(ENABLED) is True and isinstance(last, int):
        if any(config.has(f"autotuning.{name}") for name in OF_THE_TUNER):
            return  # what only the tuner reads shows that the config is meant for it
        yield Finding(
            ENABLED,
            f"autotuning is enabled: unless deepspeed --autotuning started the run, training exits after step {last + 1} with exit code 0 and saves nothing.",
            help='Write "enabled": false for the real run.',
            effect=None if config.has("zero_optimization.stage") else Effect.ADVICE,
            certain=False,
        )


@rule(
    "DS851",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=(ENABLED,),
    references=(EXIT,),
)
@bad(
    f'{{{MINIMAL}, "autotuning": {{"enabled": true, "start_profile_step": 3, "end_profile_step": 0}}}}',
    at="autotuning.end_profile_step",
    message="autotuning exits after step 1, before it profiles step 3: DeepSpeed raises AttributeError \"'DeepSpeedEngine' object has no attribute 'flops'\".",
    fixed='{"train_micro_batch_size_per_gpu": 4, "autotuning": {"enabled": true, "start_profile_step": 3}}',
)
@good(f'{{{MINIMAL}, "autotuning": {{"enabled": false, "start_profile_step": 3, "end_profile_step": 1}}}}')
def profile_before_autotuning_ends(config: Config) -> Iterator[Finding]:
    """Autotuning exits before it profiles a step.

    The engine profiles step `start_profile_step` (default 3) and exits one step after `end_profile_step` (default 5). If it exits first,
    there is no measurement to write, and the engine raises an `AttributeError`.

    Write an `end_profile_step` above `start_profile_step`.
    """
    key = "autotuning.end_profile_step"
    start, end = config.value("autotuning.start_profile_step"), config.value(key)
    if config.enabled("autotuning") is True and isinstance(start, int) and isinstance(end, int) and end + 1 < start:
        yield Finding(
            key if config.has(key) else "autotuning.start_profile_step",
            f"autotuning exits after step {end + 1}, before it profiles step {start}: DeepSpeed raises AttributeError \"'DeepSpeedEngine' object has no attribute 'flops'\".",
            help='Write an "end_profile_step" above "start_profile_step".',
            fix=without(config, key, Applicability.UNSAFE) if config.has(key) and KEYS[key]["default"] > start else None,
            phase=None if end == 0 else Phase.LATER,
        )
