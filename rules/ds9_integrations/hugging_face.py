"""DS9, continued: what the Hugging Face loader itself reads of a config, before DeepSpeed does."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config, Origin
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import Integration, Release
from dslint.rule import Finding, bad, good, rule, safe, unsafe
from dslint.rules.helpers.loaders import ACCELERATE_SOURCE, HUGGING_FACE, RAISED_BY_LOADER
from dslint.source.change import Remove, Set
from dslint.source.tree import Mapping, Scalar

STAGE = "zero_optimization.stage"
SEQ2SEQ = "stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\ndeepspeed: ds_config.json\n"


@rule(
    "DS910",
    "no-zero-section",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("!zero_optimization",),
    references=(ACCELERATE_SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad('{"train_batch_size": "auto", "bf16": {"enabled": "auto"}}', at="zero_optimization", integration="transformers")
@bad('{"train_micro_batch_size_per_gpu": 4}', at="zero_optimization", integration="accelerate")
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 0}}', integration="transformers")
@good('{"train_micro_batch_size_per_gpu": 4}', integration="deepspeed")
def no_zero_section(config: Config) -> Iterator[Finding]:
    """The config has no section `zero_optimization`, without which the Hugging Face integrations do not start.

    Accelerate, which the Trainer uses, raises `ValueError: Please specify the ZeRO optimization config in the DeepSpeed config.` DeepSpeed alone would train without ZeRO.

    Add `"zero_optimization": {"stage": 0}` to train without ZeRO, or with the stage that is meant.
    """
    if config.facts.integration not in HUGGING_FACE or config.document.problems:
        return
    root = config.document.root
    if not isinstance(root, Mapping) or not root.members or config.has("zero_optimization"):
        return
    if config.resolved("zero_optimization.stage").note == "misspelt":
        return
    inferred = "integration" in config.evidence and config.setup is None
    yield Finding(
        "zero_optimization",
        f'The config has no zero_optimization: {config.facts.integration.label} raises "Please specify the ZeRO optimization config in the DeepSpeed config".',
        help='Add "zero_optimization": {"stage": 0}, or the stage that is meant.',
        severity=Severity.WARNING if inferred else None,
    )


GATHERED = '"stage3_gather_16bit_weights_on_model_save": true'


@rule(
    "DS934",
    "stage-in-quotes",
    effect=Effect.SILENT,
    watches=("fact:integration",),
    references=("accelerate/utils/deepspeed.py, HfDeepSpeedConfig.set_stage_and_offload",),
)
@bad(f'{{"train_batch_size": "auto", "zero_optimization": {{"stage": "3", {GATHERED}}}}}', at=STAGE, integration="transformers")
@bad(f'{{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {{"stage": "3", {GATHERED}}}}}', at=STAGE, integration="accelerate")
@good(f'{{"train_batch_size": "auto", "zero_optimization": {{"stage": 3, {GATHERED}}}}}', integration="transformers")
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": "3"}}', integration="deepspeed")
@good('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": "auto"}}', integration="transformers")
def stage_in_quotes(config: Config) -> Iterator[Finding]:
    """ZeRO stage 3 is written as a string, which DeepSpeed takes for 3 and the Hugging Face libraries do not.

    They compare the value with the number 3. `from_pretrained` then makes the whole model on every rank, as `zero.Init` is not used; "auto" is not filled in
    `stage3_prefetch_bucket_size` and `stage3_param_persistence_threshold`; and at the end `save_model` gathers nothing, and writes weights that are empty.

    Write the number, without quotes.
    """
    if config.facts.integration not in HUGGING_FACE or not config.value(STAGE) >= 3:
        return
    node = config.node(STAGE)
    if isinstance(node, Scalar) and isinstance(node.value, str):
        yield Finding(
            STAGE,
            f"The ZeRO stage is {config.quote(STAGE)}, a string. DeepSpeed takes it for 3, but {config.facts.integration.label} compares it with the number: every rank loads the "
            "whole model, and what is saved in the end is not gathered.",
            help='Write "stage": 3, without quotes.',
            on="value",
            fix=safe("write the number 3", Set(("zero_optimization", "stage"), "3")),
        )


@rule(
    "DS935",
    "auto-in-amp",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("amp",),
    references=(
        "transformers/integrations/deepspeed.py, trainer_config_process",
        "accelerate/utils/dataclasses.py, deepspeed_config_process",
    ),
    untried=RAISED_BY_LOADER,
)
@bad(
    '{"train_batch_size": "auto", "gradient_clipping": "auto", "amp": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
    at="amp.enabled",
    integration="transformers",
    loader_release=Release(5, 2, 0),
    deepspeed="0.18.9",
)
@good(
    '{"train_batch_size": "auto", "gradient_clipping": "auto", "amp": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
    integration="transformers",
    loader_release=Release(4, 57, 6),
    deepspeed="0.18.9",
)
def auto_in_amp(config: Config) -> Iterator[Finding]:
    """An "auto" in the section `amp`, which only transformers 4 fills.

    `amp` is NVIDIA's apex. transformers 5 knows it no more, Accelerate never filled it, and both raise `ValueError: ... not found in kwargs` for an "auto" that is left. DeepSpeed
    itself refuses the section from 0.19.8 on.

    Take the section out, and use `bf16` or `fp16`.
    """
    release, integration = config.facts.loader_release, config.facts.integration
    if integration not in HUGGING_FACE or not config.has("amp") or config.origin("amp") is Origin.REFUSED:
        return
    if integration is Integration.TRANSFORMERS and release is not None and release < Release(5, 0, 0):
        return
    key = next((key for key in ("amp.enabled", "amp.opt_level") if config.has(key) and config.quote(key) == '"auto"'), None)
    if key is None:
        return
    known = integration is Integration.ACCELERATE or release is not None
    who = f"transformers {release}" if release is not None else integration.label if known else "transformers from 5.0 on"
    yield Finding(
        key,
        f'{key} is "auto", and {who} has no value for it: once the model is loaded it raises ValueError "not found in kwargs".',
        help="Take the section amp out, and use bf16 or fp16.",
        on="value",
        fix=unsafe("remove the section amp", Remove(("amp",))),
        severity=None if known else Severity.WARNING,
    )


@rule(
    "DS939",
    "generation-at-stage-3",
    effect=Effect.SLOW,
    watches=("setup",),
    references=("https://github.com/huggingface/trl/issues/3858",),
    setup=True,
)
@bad(
    f'{{"train_batch_size": "auto", "zero_optimization": {{"stage": 3, {GATHERED}}}}}',
    at=("predict_with_generate",),
    training=SEQ2SEQ + "predict_with_generate: true\n",
)
@bad(
    f'{{"train_batch_size": "auto", "zero_optimization": {{"stage": 3, {GATHERED}}}}}',
    at=("ds3_gather_for_generation",),
    training=SEQ2SEQ + "ds3_gather_for_generation: false\n",
)
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', training=SEQ2SEQ + "predict_with_generate: true\n")
@good(
    f'{{"train_batch_size": "auto", "zero_optimization": {{"stage": 3, {GATHERED}}}}}',
    training=SEQ2SEQ + "ds3_gather_for_generation: true\n",
)
def generation_at_stage_3(config: Config) -> Iterator[Finding]:
    """The training generates text with parameters that ZeRO stage 3 keeps divided.

    `generate` runs the model once for each token, and stage 3 gathers every parameter anew each time. Evaluation with `predict_with_generate` takes many
    times as long as training; a trainer of TRL with `ds3_gather_for_generation: false` can seem to stand still at its first step.

    Evaluate by the loss, take stage 2, let another engine generate (vLLM), or gather the parameters first, where they fit on one GPU.
    """
    arguments = config.arguments
    if arguments is None or not config.value(STAGE) >= 3:
        return
    for name, slow in (("predict_with_generate", True), ("ds3_gather_for_generation", False)):
        given = arguments.get(name)
        if given is not None and given.value is slow:
            yield Finding(
                "",
                f"{given.shown} at ZeRO stage 3: generate gathers every parameter from all ranks again for each token.",
                help="Take stage 2, or let vLLM generate."
                if slow
                else "Leave it out, which gathers the parameters once, where they fit on one GPU; or let vLLM generate.",
                elsewhere=given.related(""),
                severity=Severity.WARNING,
            )
