"""DS7: a model whose weights alone are larger than a GPU, by its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts.gpus import in_words
from dslint.job.training import MODEL_ARGUMENTS
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.model import counted, gpu_has, holds_more_models, may_be_smaller, may_load_part, may_train_nothing
from dslint.rules.helpers.zero import STAGE, stage_place

if TYPE_CHECKING:
    from dslint.job.arguments import SourcedValue

ZERO_DOCS = "https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training"

LARGEST_GPU = 465e9
"""Bytes that no GPU has: the largest one that is announced, AMD's MI455X, has 432 GB."""

_ADAPTER_OF = (
    "stage: sft\nmodel_name_or_path: %s\nfinetuning_type: lora\n%sper_device_train_batch_size: 1\nbf16: true\nlearning_rate: 1e-5\n"
)
_STAGE = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": %s}}'
_GATHERED = '3, "stage3_gather_16bit_weights_on_model_save": true'


@rule(
    "DS710",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=(ZERO_DOCS, "https://huggingface.co/Qwen/Qwen3-235B-A22B"),
    untried="needs a model that no GPU holds",
)
@bad(
    _STAGE % 2,
    at="zero_optimization.stage",
    training=_ADAPTER_OF % ("Qwen/Qwen3-235B-A22B", ""),
    message="Below ZeRO stage 3 each GPU holds all weights of the model, also those that are not trained: it has 235 billion parameters, which need 438 GiB in 16 bits. No GPU has so much memory.",
)
@bad(
    _STAGE % 1,
    at="zero_optimization.stage",
    training=_ADAPTER_OF % ("zai-org/GLM-4.5-355B-A32B", ""),
    message="Below ZeRO stage 3 each GPU holds all weights of the model, also those that are not trained: by its name GLM-4.5-355B-A32B has 355 billion parameters, which need 661 GiB in 16 bits. No GPU has so much memory.",
)
@bad(
    _STAGE % 2,
    at="zero_optimization.stage",
    training=_ADAPTER_OF % ("meta-llama/Llama-3.3-70B-Instruct", ""),
    gpu="h100",
    message="Below ZeRO stage 3 each GPU holds all weights of the model, also those that are not trained: it has 70.6 billion parameters, which need 131 GiB in 16 bits. The h100 has 79.1 GiB.",
)
@good(_STAGE % _GATHERED, training=_ADAPTER_OF % ("Qwen/Qwen3-235B-A22B", ""))
@good(_STAGE % 2, training=_ADAPTER_OF % ("Qwen/Qwen3-235B-A22B-FP8", ""))
@good(_STAGE % 2, training=_ADAPTER_OF % ("Qwen/Qwen3-235B-A22B", "quantization_bit: 4\n"))
@good(_STAGE % 2, training=_ADAPTER_OF % ("meta-llama/Llama-3.3-70B-Instruct", ""))
@good(_STAGE % 2, training=_ADAPTER_OF % ("Qwen/Qwen3-32B", ""), gpu="h100")
@good(_STAGE % 2, training=_ADAPTER_OF % ("me/pythia-1b-300b-tokens", ""))
def exceeds_every_gpu(config: Config) -> Iterator[Finding]:
    """Below ZeRO stage 3 every GPU holds the whole model, and the weights of this one alone are larger than the GPU.

    Stages 1 and 2 partition optimizer states and gradients, and not the weights, also where only adapters are trained. The weights in 16
    bits alone exceed the memory of the GPU, or where that is not known the memory of the largest GPU that is sold (432 GB): "CUDA out of
    memory" while the model moves to the GPU. The size of the model comes from its name: `GLM-4.5-355B-A32B` has 355 billion parameters, of
    which 32 are active for a token; all of them are loaded. With a known model, DS706 says it. Models that may be quantized, or divided in
    another way, are left out.

    Use ZeRO stage 3, which partitions the weights, or load the model in 4 bits.
    """
    from dslint.rules.helpers.named_size import ROUNDED_UP, billions_in

    facts, memory = config.facts, config.facts.gpu_memory
    given = _named_model(config) if config.value(STAGE) in (0, 1, 2) else None
    if given is None or not isinstance(given.value, str):
        return
    if facts.model is None:
        count, said = billions_in(given.value), f"by its name {given.value.rstrip('/').rpartition('/')[2]}"
    elif memory is None or facts.world_size is None:
        count, said = counted(facts.model).size / 1e9, "it"
    else:
        return
    if count is None or 2e9 * count <= (LARGEST_GPU if memory is None else memory * ROUNDED_UP):
        return
    of_program = config.setup is not None and config.setup.program is not None
    if may_train_nothing(config) or may_be_smaller(config) or (of_program and holds_more_models(config)):
        return
    from dslint.memory.shapes import parameters_in_words

    limit = f"The {gpu_has(config, memory)}." if memory is not None else "No GPU has so much memory."
    yield Finding(
        stage_place(config),
        f"Below ZeRO stage 3 each GPU holds all weights of the model, also those that are not trained: {said} "
        f"has {parameters_in_words(count * 1e9)}, which need {in_words(int(2e9 * count))} in 16 bits. {limit}",
        help="Use ZeRO stage 3, which partitions the weights, or train adapters of a model in 4 bits (QLoRA).",
        related=(given.related("the model"),),
    )


def _named_model(config: Config) -> SourcedValue | None:
    """The name of the model that the job trains with all its layers, as its framework or its program loads it; None if that is not known."""
    program = config.setup.program if config.setup is not None else None
    if program is not None:
        return None if may_load_part(config) else program.model
    arguments = config.arguments
    if arguments is None or not arguments.sure or not arguments.complete or arguments.get("device_map") is not None:
        return None
    return next((found for name in MODEL_ARGUMENTS if (found := arguments.get(name)) is not None), None)
