"""DS9: releases of DeepSpeed that train wrongly, or fail, with a setting of the config."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.defects_of_deepspeed import DEFECTS
from dslint.rules.helpers.examples import ADAMW, MINIMAL
from dslint.rules.helpers.releases import ReleaseDefect

_BF16 = f'{{{MINIMAL}, "bf16": {{"enabled": true}}, "data_types": {{"grad_accum_dtype": "fp32"}}, "zero_optimization": {{"stage": 1}}}}'
_MUON = f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02}}}}, "zero_optimization": {{"stage": 2}}}}'
_OVERLAP = f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "overlap_comm": true}}}}'
_QUANTIZING = f'{{{MINIMAL}, "bf16": {{"enabled": true}}, "zero_optimization": {{"stage": 3, "zero_quantized_weights": true}}}}'
_STAIRS = f'{{{MINIMAL}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4, "cycle_first_stair_count": 4}}}}}}'
_WARMING = f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": 1e-4, "warmup_num_steps": 100}}}}}}'
_OFFLOADING = (
    f'{{{ADAMW}, "gradient_accumulation_steps": 8, "bf16": {{"enabled": true}}, '
    '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
)
_SECONDARY = f'{{{ADAMW}, "zero_optimization": {{"stage": 3, "zero_hpz_partition_size": 8}}}}'


@rule(
    "DS977",
    effect=Effect.SILENT,
    watches=("zero_optimization", "optimizer.type", "scheduler.type", "fp16", "bf16", "gradient_clipping", "checkpoint.load_universal"),
    references=tuple(one.source for one in DEFECTS),
)
@bad(
    _BF16,
    at="data_types.grad_accum_dtype",
    deepspeed="0.18.8",
    world_size=8,
    message="DeepSpeed 0.18.8: ZeRO stage 1 in bf16 with fp32 accumulation adds the gradients of the last micro batch after it averages over the ranks, so each rank trains its part on its own gradients of that micro batch.",
)
@bad(
    _MUON,
    at="optimizer.type",
    deepspeed="0.18.9",
    world_size=8,
    message="DeepSpeed 0.18.9: with reduce_scatter, true by default, Muon at ZeRO stages 1 and 2 orthogonalizes matrices that are only partly averaged, and each rank applies another update.",
)
@bad(
    _OVERLAP,
    at="zero_optimization.overlap_comm",
    deepspeed="0.17.3",
    message="DeepSpeed 0.17.3: ZeRO stages 1 and 2 overwrite a bucket of gradients that overlap_comm is still reducing, which corrupts gradients.",
)
@bad(
    _STAIRS,
    at="scheduler.params.cycle_first_stair_count",
    deepspeed="0.16.0",
    message="DeepSpeed 0.16.0: OneCycle does not read cycle_first_stair_count and cycle_second_stair_count, and changes the learning rate at every step.",
)
@bad(
    _QUANTIZING,
    at="zero_optimization.zero_quantized_weights",
    deepspeed="0.16.9",
    message="DeepSpeed 0.16.9: the kernels of zero_quantized_weights know only fp16: they read the bits of other weights as fp16 and return fp16, so the forward pass raises for two data types, or computes with wrong weights.",
)
@bad(
    _QUANTIZING.replace("quantized_weights", "quantized_nontrainable_weights"),
    at="zero_optimization.zero_quantized_nontrainable_weights",
    deepspeed="0.16.9",
    message="DeepSpeed 0.16.9: the kernels of zero_quantized_nontrainable_weights know only fp16: they read the bits of other frozen weights as fp16 and return fp16, so the forward pass of a model with frozen parameters may raise for two data types, or compute with wrong weights.",
)
@bad(
    _QUANTIZING.replace('"bf16"', '"fp16"').replace("true}, ", "false}, "),
    at="zero_optimization.zero_quantized_weights",
    deepspeed="0.16.9",
    message="DeepSpeed 0.16.9: the kernels of zero_quantized_weights know only fp16: they read the bits of other weights as fp16 and return fp16, so the forward pass raises for two data types, or computes with wrong weights.",
)
@bad(
    _WARMING,
    at="scheduler.type",
    deepspeed="0.12.2",
    message="DeepSpeed 0.12.2: the warm-up schedules set the learning rate only after the first step, which runs at the whole learning rate of the optimizer.",
)
@bad(
    _OFFLOADING,
    at="gradient_accumulation_steps",
    deepspeed="0.16.9",
    message="DeepSpeed 0.16.9: ZeRO stages 1 and 2 with an offloaded optimizer add up only the first and the last micro batch of a step: the gradients of those between them are lost.",
)
@bad(
    f'{{{ADAMW}, "fp16": {{"enabled": true}}}}',
    at="fp16.enabled",
    deepspeed="0.18.0",
    message="DeepSpeed 0.18.0: in fp16 without ZeRO the step of DeepSpeed's Adam ends after it has looked for an overflow: no weight is ever updated.",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1}}}}, "bf16": {{"enabled": true}}}}',
    at="bf16.enabled",
    deepspeed="0.18.4",
    message="DeepSpeed 0.18.4: in bf16 without ZeRO, with an optimizer other than DeepSpeed's fused Adam, gradients are divided by a loss scale that the loss was not multiplied with, and are not set to zero after a step.",
)
@bad(
    f'{{{ADAMW}, "bf16": {{"enabled": true}}}}',
    at="bf16.enabled",
    deepspeed="0.12.6",
    world_size=8,
    message="DeepSpeed 0.12.6: in bf16 with fp32 accumulation, at ZeRO stage 1 or without ZeRO, the gradients are averaged over the ranks after they were added to those that the optimizer uses: each rank trains on its own.",
)
@bad(
    f'{{{ADAMW}, "gradient_clipping": 1.0}}',
    at="gradient_clipping",
    deepspeed="0.13.2",
    message="DeepSpeed 0.13.2: without ZeRO, fp16 and bf16 it does not clip large gradients, and scales small ones up to the norm of gradient_clipping.",
)
@bad(
    f'{{{ADAMW}, "gradient_accumulation_steps": 8, "gradient_clipping": 1.0, "zero_optimization": {{"stage": 2}}}}',
    at="gradient_accumulation_steps",
    integration="transformers",
    deepspeed="0.18.3",
    message="DeepSpeed 0.18.3: it divides the gradients by the gradient accumulation steps even if it is asked not to, and the Trainer of newer releases of transformers has divided them already: they may be too small, and gradient_clipping does not clip them.",
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"total_num_steps": 1000, "warmup_num_steps": 10}}}}, "zero_optimization": {{"stage": 2}}}}',
    at="scheduler.type",
    integration="transformers",
    deepspeed="0.12.3",
    message="DeepSpeed 0.12.3: its WarmupCosineLR has no get_last_lr, with which the Trainer logs the learning rate: the first log raises AttributeError \"'WarmupCosineLR' object has no attribute 'get_last_lr'\".",
)
@bad(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 3, "stage3_use_all_reduce_for_fetch_params": true}}}}',
    at="zero_optimization.stage3_use_all_reduce_for_fetch_params",
    deepspeed="0.16.9",
    world_size=8,
    message="DeepSpeed 0.16.9: with stage3_use_all_reduce_for_fetch_params, a parameter whose size is not a multiple of the number of ranks overlaps with the next one where they are gathered: weights may be wrong.",
)
@bad(
    _SECONDARY,
    at="zero_optimization.zero_hpz_partition_size",
    deepspeed="0.16.9",
    world_size=16,
    message="DeepSpeed 0.16.9: weights that are loaded into a partitioned model, from a pretrained model or a checkpoint, may not reach the secondary partition: the first steps compute with other weights.",
)
@bad(
    _SECONDARY,
    at="zero_optimization.zero_hpz_partition_size",
    deepspeed="0.19.2",
    world_size=16,
    message="DeepSpeed 0.19.2: a parameter that is smaller than the secondary partition of a rank may raise IndexError where it is divided.",
)
@bad(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 3, "reduce_scatter": false, "contiguous_gradients": true}}}}',
    at="zero_optimization.reduce_scatter",
    deepspeed="0.10.3",
    message="DeepSpeed 0.10.3: at ZeRO stage 3 with reduce_scatter false, a gradient that fills the bucket exactly may not be averaged over the ranks, as with a reduce_bucket_size that the Trainer computes from the hidden size.",
)
@bad(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 1, "elastic_checkpoint": true}}}}',
    at="zero_optimization.elastic_checkpoint",
    deepspeed="0.12.6",
    message="DeepSpeed 0.12.6: with elastic_checkpoint, the optimizer states of a checkpoint may be loaded into other positions than they were saved from.",
)
@bad(
    f'{{{ADAMW}, "bf16": {{"enabled": true}}, "communication_data_type": "fp32", "zero_optimization": {{"stage": 2}}}}',
    at="communication_data_type",
    deepspeed="0.17.6",
    message="DeepSpeed 0.17.6: with a communication_data_type other than the type of the parameters, a parameter that is larger than reduce_bucket_size may raise an error in the backward pass.",
)
@bad(
    f'{{{ADAMW}, "torch_autocast": {{"enabled": true, "dtype": "bfloat16"}}, "zero_optimization": {{"stage": 3}}}}',
    at="torch_autocast.enabled",
    deepspeed="0.17.4",
    message="DeepSpeed 0.17.4: torch_autocast at ZeRO stage 3 gathers parameters of several types twice, and may raise AssertionError.",
)
@bad(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 3, "offload_optimizer": {{"device": "nvme", "nvme_path": "/local_nvme"}}}}}}',
    at="zero_optimization.offload_optimizer.device",
    deepspeed="0.16.9",
    message="DeepSpeed 0.16.9: all ranks copy their optimizer states on NVMe into one folder of the checkpoint, where they may overwrite those of the others.",
)
@bad(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 3}}, "checkpoint": {{"load_universal": true}}}}',
    at="checkpoint.load_universal",
    deepspeed="0.16.9",
    message="DeepSpeed 0.16.9: a universal checkpoint of ZeRO stage 3 may raise FileNotFoundError on more ranks than wrote it, and a model of several sub groups cannot be converted.",
)
@bad(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 3}}}}',
    at="zero_optimization.stage",
    deepspeed="0.17.2",
    message="DeepSpeed 0.17.2: ZeRO stage 3 never empties the count of its gradient bucket, and soon reduces every gradient by itself.",
)
@bad(
    _OVERLAP,
    at="zero_optimization.overlap_comm",
    deepspeed="0.18.2",
    message="DeepSpeed 0.18.2: ZeRO stages 1 and 2 wait for each bucket of gradients, so overlap_comm overlaps nothing.",
)
@bad(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}',
    at="zero_optimization.stage",
    deepspeed="0.18.6",
    message="DeepSpeed 0.18.6: ZeRO counts all parameters again for each gradient, which slows down the backward pass of a model with many parameters.",
)
@good(_WARMING, deepspeed="0.15.3")
@good(_WARMING.replace('"warmup_num_steps"', '"warmup_min_lr": 1e-4, "warmup_num_steps"'), deepspeed="0.12.2")
@good(_OFFLOADING, deepspeed="0.19.0")
@good(_OFFLOADING, deepspeed="0.15.1")
@good(_OFFLOADING.replace('"gradient_accumulation_steps": 8', '"gradient_accumulation_steps": 2'), deepspeed="0.16.9")
@good(_OFFLOADING.replace('"stage": 2', '"stage": 3'), deepspeed="0.16.9")
@good(f'{{{ADAMW}, "fp16": {{"enabled": true}}}}', deepspeed="0.18.2")
@good(f'{{{ADAMW}, "fp16": {{"enabled": true}}, "zero_optimization": {{"stage": 1}}}}', deepspeed="0.18.0")
@good(f'{{{ADAMW}, "bf16": {{"enabled": true}}}}', deepspeed="0.18.4")
@good(f'{{{ADAMW}, "bf16": {{"enabled": true}}}}', deepspeed="0.13.3", world_size=8)
@good(f'{{{ADAMW}, "bf16": {{"enabled": true}}, "zero_optimization": {{"stage": 2}}}}', deepspeed="0.11.2", world_size=8)
@good(f'{{{ADAMW}, "gradient_clipping": 1.0, "bf16": {{"enabled": true}}}}', deepspeed="0.13.2", world_size=1)
@good(_QUANTIZING, deepspeed="0.19.6")
@good(_QUANTIZING.replace("bf16", "fp16"), deepspeed="0.16.9")
@good(_BF16, deepspeed="0.19.0", world_size=8)
@good(_BF16, deepspeed="0.18.2", world_size=8)
@good(_MUON, deepspeed="0.19.3")
@good(_OVERLAP, deepspeed="0.18.7")
@good(_STAIRS, deepspeed="0.19.4")
@good(_STAIRS.replace(', "cycle_first_stair_count": 4', ""), deepspeed="0.16.0")
@good(
    '{"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1}',
    program="import deepspeed\nengine, *_ = deepspeed.initialize(model=reference, config='ds_config.json')\nengine.eval()\n",
    deepspeed="0.12.6",
    world_size=8,
)
def defect_of_release(config: Config) -> Iterator[Finding]:
    """This release of DeepSpeed has a defect that this config runs into.

    Most of them train without an error, and wrongly: micro batches that are lost with an offloaded optimizer (0.15.2 to 0.18.9), fp16 without
    ZeRO that never updates a weight (0.17.6 to 0.18.1), bf16 without ZeRO whose ranks train apart (up to 0.13.2), gradients overwritten while
    they are reduced (0.17.2 to 0.17.4). Others raise, or are slow. Each entry was read in the releases before and after the change that fixed it.

    dslint reports it only for a release that the project pins, or that is given: `--deepspeed 0.18.6`.

    Use another release, or the setting that the message names.
    """
    found: set[str] = set()
    for defect in DEFECTS:
        release = defect.release(config)
        key = defect.shows(config) if release is not None else None
        if isinstance(key, str) and key not in found:
            found.add(key)
            yield Finding(
                key,
                f"DeepSpeed {release}: {defect.outcome}.",
                help=defect.advice,
                effect=defect.effect,
                phase=defect.phase,
                certain=_is_certain(defect, config),
            )


def _is_certain(defect: ReleaseDefect, config: Config) -> bool:
    if defect.effect in (Effect.IGNORED, Effect.SLOW):
        return True
    return not defect.depends and (defect.of_one_rank or config.facts.world_size is not None)
