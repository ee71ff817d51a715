"""DS8: pipeline parallelism, as programs use its engine."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained

_CONFIG = trained('"zero_optimization": {"stage": 1}')
_PROGRAM = (
    "import deepspeed\nfrom deepspeed.pipe import PipelineModule\nmodel = PipelineModule(layers=layers, num_stages=2)\n"
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
    "for batch in loader:\n    %s\n"
)


@rule(
    "DS867",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=("deepspeed/runtime/pipe/engine.py, PipelineEngine.forward, backward and step",),
    untried="a pipeline requires several GPUs",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_PROGRAM % "loss = engine(batch)",
    integration="deepspeed",
    message='train.py:6 calls engine(batch) of a pipeline: DeepSpeed raises PipelineError "Only train_batch() is accessible in pipeline mode.".',
)
@good(_CONFIG, program=_PROGRAM % "loss = engine.train_batch(iterator)", integration="deepspeed")
def step_of_pipeline(config: Config) -> Iterator[Finding]:
    """The program calls the engine of a pipeline as that of another model.

    A `PipelineModule` gets a `PipelineEngine`, whose `train_batch` runs all micro batches of a step, with their backward passes and the step of
    the optimizer. Its `forward`, `backward` and `step` raise `PipelineError: Only train_batch() is accessible in pipeline mode.`

    Call `engine.train_batch(data_iterator)` once per step, and `engine.eval_batch(data_iterator)` to evaluate.
    """
    program = config.setup.program if config.setup else None
    if program is None or program.pipeline is None:
        return
    calls = program.events.of(r"deepspeed\.initialize\.(__call__|forward|backward|step)")
    call = next((one for one in calls if not one.conditions), None)
    if call is not None:
        yield Finding(
            "",
            f'{call.at.where} calls {call.at.raw} of a pipeline: DeepSpeed raises PipelineError "Only train_batch() is accessible in pipeline mode.".',
            help="Call engine.train_batch(data_iterator) once per step.",
            elsewhere=call.at.related(""),
            certain=call.certain,
        )
