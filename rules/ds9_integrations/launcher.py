"""DS9, continued: the launcher against what the job has, the program's own words, and what old releases of the integrations fill in."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config, Origin
from dslint.config.fill import from_arguments, hidden_size
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import Integration, Release
from dslint.rule import Finding, bad, good, rule
from dslint.source.tree import Mapping

ZERO2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
WARMUP = "scheduler.params.warmup_num_steps"
PREFETCH = "zero_optimization.stage3_prefetch_bucket_size"
DECAY = '{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}, "zero_optimization": {"stage": 2}}'
STAGE3 = (
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": "auto", '
    '"stage3_gather_16bit_weights_on_model_save": true}}'
)
OLD = "it takes a release of the integration that the suite does not install; read in its source"


@rule(
    "DS929",
    "config-params-keyword",
    effect=Effect.ADVICE,
    watches=("setup",),
    references=("deepspeed/__init__.py, initialize",),
    setup=True,
)
@bad(
    ZERO2,
    at="",
    program="import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config_params=ds_config)\n",
    integration="deepspeed",
)
@good(ZERO2, program="import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config=ds_config)\n", integration="deepspeed")
def config_params_keyword(config: Config) -> Iterator[Finding]:
    """A program hands the config to `deepspeed.initialize` by the old name `config_params`.

    It means the same as `config`, and is kept for programs of old; where both are given, `config` counts.

    Write `config=`.
    """
    given = config.setup.program.legacy_keyword if config.setup and config.setup.program else None
    if given is not None:
        yield Finding(
            "",
            "config_params is the old name of the argument config of deepspeed.initialize, kept for programs of old.",
            help="Write config=.",
            elsewhere=given.related(""),
        )


@rule(
    "DS930",
    "ranks-and-gpus-differ",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("deepspeed/launcher/runner.py, parse_resource_filter", "https://pytorch.org/docs/stable/elastic/run.html"),
    setup=True,
)
@bad(
    ZERO2,
    at="",
    launch="#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\ntorchrun --nnodes 2 --nproc_per_node 8 train.py --deepspeed ds_config.json\n",
    integration="deepspeed",
)
@good(
    ZERO2,
    launch="#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\ntorchrun --nnodes 2 --nproc_per_node 8 train.py --deepspeed ds_config.json\n",
    integration="deepspeed",
)
def ranks_and_gpus_differ(config: Config) -> Iterator[Finding]:
    """The launcher starts another number of ranks than the job has GPUs.

    What the job has is read from the lines for Slurm (nodes times GPUs of each) or from the hostfile (the sum of its slots). With fewer ranks GPUs stand idle and are paid for;
    with more of them the ranks that have no GPU of their own end with "CUDA error: invalid device ordinal".

    Write the same number in both places.
    """
    setup = config.setup
    launch = setup.launch if setup else None
    if setup is None or launch is None or launch.gpus is None or launch.gpus_given is None:
        return
    ranks, given = launch.world_size, launch.given
    if ranks is None and setup.accelerate is not None:
        ranks, given = setup.accelerate.number("num_processes"), setup.accelerate.top.get("num_processes")
    if ranks is None or given is None or ranks == launch.gpus:
        return
    more = ranks > launch.gpus
    outcome = 'those without a GPU end with "CUDA error: invalid device ordinal"' if more else f"{launch.gpus - ranks} GPUs stand idle"
    yield Finding(
        "",
        f"{given.shown} starts {ranks} ranks in all, and the job has {launch.gpus} GPUs ({launch.gpus_given.where}: {launch.gpus_given.raw}): {outcome}.",
        help="Write the same number in both places.",
        elsewhere=given.related(""),
        related=(launch.gpus_given.related(f"{launch.gpus} GPUs"),),
        effect=Effect.CRASH if more else None,
        phase=Phase.LOAD if more else None,
        severity=Severity.WARNING,
    )


@rule(
    "DS931",
    "warmup-of-no-steps",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=("transformers/training_args.py, get_warmup_steps", "deepspeed/runtime/lr_schedules.py"),
    untried=OLD,
)
@bad(DECAY, at=WARMUP, training="base_model: m\nmicro_batch_size: 2\n", integration="transformers", loader_release=Release(4, 57, 6))
@good(DECAY, training="base_model: m\nmicro_batch_size: 2\n", integration="transformers", loader_release=Release(5, 23, 0))
@good(ZERO2, training="base_model: m\nmicro_batch_size: 4\n", integration="transformers", loader_release=Release(4, 57, 6))
@good(
    DECAY, training="base_model: m\nmicro_batch_size: 2\nwarmup_steps: 10\n", integration="transformers", loader_release=Release(4, 57, 6)
)
def warmup_of_no_steps(config: Config) -> Iterator[Finding]:
    """An "auto" that an older transformers fills with 0, where DeepSpeed wants at least 1.

    Up to transformers 5.15 `warmup_num_steps` is filled with the warm-up of the arguments as it is, and 0 is the default; DeepSpeed from 0.19.3 on raises
    `ValueError: warmup_num_steps must be a positive integer, got 0`. Later releases fill in at least 1. It is asked where the release is given: `--integration transformers==4.57`.

    Set `warmup_steps` to 1 or more in the arguments, or take out the section `scheduler`.
    """
    release, arguments = config.facts.loader_release, config.arguments
    if release is None or arguments is None or config.facts.integration is not Integration.TRANSFORMERS or not config.has(WARMUP):
        return
    if release > Release(5, 15, 99) or config.release < Release(0, 19, 3) or config.origin(WARMUP) is not Origin.FILLED:
        return
    filled = from_arguments(WARMUP, arguments, config.facts)
    if filled.value == 0 and filled.sure:
        yield Finding(
            WARMUP,
            f'warmup_num_steps is "auto", and {arguments.path} warms up for 0 steps: transformers {release} fills in 0, and DeepSpeed raises "warmup_num_steps must be a positive integer, got 0".',
            help="Set warmup_steps to 1 or more in the arguments, or use transformers 5.19 or later.",
            on="value",
            related=tuple(given.related("no warm-up") for given in filled.givens),
        )


@rule(
    "DS932",
    "fractional-bucket-size",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=(PREFETCH,),
    references=("transformers/integrations/deepspeed.py, trainer_config_finalize", "accelerate/accelerator.py, _prepare_deepspeed"),
    untried=OLD,
)
@bad(STAGE3, at=PREFETCH, integration="transformers", loader_release=Release(4, 36, 2))
@bad(STAGE3, at=PREFETCH, integration="accelerate", loader_release=Release(0, 30, 0), model={"hidden_size": 4096})
@good(STAGE3, integration="transformers", loader_release=Release(4, 57, 6))
@good(STAGE3, integration="transformers", loader_release=Release(4, 36, 2), model={"hidden_size": 5120})
def fractional_bucket_size(config: Config) -> Iterator[Finding]:
    """An "auto" that an older integration fills with a number that is not whole.

    0.9 times the hidden size squared is 15,099,494.4 for 4096. transformers up to 4.40 and Accelerate up to 0.30 do not round it, and DeepSpeed from 0.15 on raises
    "Input should be a valid integer, got a number with a fractional part". It is asked where the release is given: `--integration transformers==4.40`.

    Write a whole number.
    """
    release, integration = config.facts.loader_release, config.facts.integration
    last = (
        {Integration.TRANSFORMERS: Release(4, 40, 99), Integration.ACCELERATE: Release(0, 30, 99)}.get(integration) if integration else None
    )
    if release is None or last is None or release > last or config.release < Release(0, 15, 0):
        return
    if config.origin(PREFETCH) is not Origin.FILLED or not config.value("zero_optimization.stage") >= 3:
        return
    size = hidden_size(config.facts)
    if size is not None and (0.9 * size * size).is_integer():
        return
    number = f"{0.9 * size * size:,}" if size is not None else "a number that is hardly ever whole"
    assert integration is not None
    yield Finding(
        PREFETCH,
        f'{PREFETCH} is "auto", and {integration.value} {release} fills in 0.9 x the hidden size squared, {number}: DeepSpeed raises "Input should be a valid integer, got a number with a fractional part".',
        help="Write a whole number, such as 15000000.",
        on="value",
        severity=None if size is not None else Severity.WARNING,
    )


@rule(
    "DS933",
    "precision-under-lightning",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("lightning/fabric/strategies/deepspeed.py, _format_precision_config",),
)
@bad(
    '{"bf16": {"enabled": false}, "zero_optimization": {"stage": 2}}',
    at="bf16.enabled",
    program="from lightning.pytorch import Trainer\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\n"
    "trainer = Trainer(strategy=DeepSpeedStrategy(config='ds_config.json'), precision='bf16-mixed')\n",
)
@good(
    '{"zero_optimization": {"stage": 2}}',
    program="from lightning.pytorch import Trainer\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\n"
    "trainer = Trainer(strategy=DeepSpeedStrategy(config='ds_config.json'), precision='bf16-mixed')\n",
)
def precision_under_lightning(config: Config) -> Iterator[Finding]:
    """Lightning is told a precision, and the config has its section, which is not on.

    Lightning writes the section `bf16` or `fp16` where the config has none. One that is there it leaves as it is: DeepSpeed then trains in fp32, and the model's
    inputs are cast to the precision of the argument.

    Take the section out, or set `"enabled": true`.
    """
    program = config.setup.program if config.setup else None
    given = program.trainer.get("precision") if program else None
    if given is None or config.facts.integration is not Integration.LIGHTNING or not isinstance(config.document.root, Mapping):
        return
    kind = next((kind for word, kind in (("bf16", "bf16"), ("16", "fp16")) if str(given.value).startswith(word)), None)
    if kind is None or not config.has(kind) or config.enabled(kind) is UNKNOWN or config.enabled(kind) is True:
        return
    if config.has(f"{kind}.enabled") and config.quote(f"{kind}.enabled") == '"auto"':
        return  # has a rule of its own
    yield Finding(
        f"{kind}.enabled",
        f"{given.where} asks for {given.raw}, and the config has a section {kind} that is not on: Lightning leaves it as it is, and DeepSpeed trains in fp32.",
        help=f'Take the section {kind} out, which Lightning then writes, or set "enabled": true.',
        related=(given.related(f"asks for {kind}"),),
    )
