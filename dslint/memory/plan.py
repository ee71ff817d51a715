"""The values of a config that affect memory, and the workload: sample length, activation checkpointing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dslint.errors import UserError
from dslint.facts import Facts, Release
from dslint.facts.calibration import Calibration
from dslint.facts.gpus import Gpu
from dslint.frameworks.base import UNKNOWN_SHARE

HOST, NVME = "cpu", "nvme"

UNFUSED, ONE_BY_ONE = 4, 8
"""Bytes per element that the step of torch's AdamW allocates and frees, unless it is fused: the square root of the second moment; and a
quotient where it updates one weight after the other, as before torch 2 and without a GPU (torch 2.13, optim/adam.py). On an H100, 15
trainings with `torch_adam` took 4."""

FUSED_DEFAULT = Release(4, 54, 0)
"""The first release of transformers with a fused AdamW by default, if torch is 2.8 or newer (its pull request 37358)."""

STACKED_EXPERTS = Release(5, 0, 0)
"""The first release of transformers that keeps the experts of a layer in one weight; before, each is a module with weights of its own."""

PATCHED_LINEAR = Release(0, 19, 4)
"""The first release in which stage 3 replaces `torch.nn.functional.linear` for a model that was built without `zero.Init`, too (its pull
request 8189). In earlier ones only `zero.Init` replaces it."""

PLAIN_BF16 = Release(0, 17, 6)
"""The first release that runs bf16 without ZeRO like fp16. Earlier ones partition master weights and states, and keep fp32 gradients."""

SHORT = 1024
"""Tokens of a short sample. Where several samples make a micro batch, they are rarely all as long as their limit: two published trainings
with DPO, of 4 pairs of at most 4,096 and 8,192 tokens, have the memory of samples of about 1,100 and 900 tokens; nine trainings with 4 to
16 samples of at most 2,048 to 8,192 tokens all need less than samples at the limit would, five of them less than half."""

SHORTEST = 256
"""Tokens of each sample in the low figure. A limit says nothing of short samples: four published trainings of sentences and instructions,
with 1 to 16 samples of at most 1,024 to 8,192 tokens, have the memory of samples of about 100 to 300 tokens. Of a lower limit it is a
quarter: T5-3b with 20 samples of at most 128 tokens fitted in 24 GiB and with 30 did not, as samples of about 64 tokens do."""


IN_TOWERS = "the activations of the towers for images and sound"
"""What `unmodelled` calls what towers keep for their backward."""

TOWERS, FROZEN_TOWERS = 0.25, 0.1
"""The share by which the peak may be higher because of the activations of towers, which depend on images and sounds: guesses."""


class PlanError(UserError):
    """A config or facts for which no training step can be planned. The text is a sentence for the user."""


NO_SCORES = "attention that keeps no scores (SDPA or FlashAttention)"
"""What a plan may assume of attention."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Properties of the program that the config does not contain.

    `length` is the number of tokens per sample. Every `checkpoint_every`-th block is checkpointed, 0 for none. `eager`: attention keeps its
    scores; `attention` is the kernel that computes it, "" if it is unknown. `padded`: attention uses a mask; then it also copies grouped
    keys and values for every head, and with `repeated` without a mask.
    `full_loss`: logits are cast to fp32 before the loss. `loss_chunk` is the number of tokens with logits at a time, 0 for all.
    `zero_init`: a stage-3 model is partitioned while it is built; `assumed_zero_init`: this is not certain.
    `keeps_logits`: the program holds the model's output until the next one. `shifted_copy`: the loss copies the logits to shift them.
    `expandable`: PyTorch's allocator uses expandable segments. `evaluation` is the micro batch size of evaluations, None if it is unknown
    whether the program evaluates. `copies` is the number of frozen models of the same size on the device: reference and reward models;
    `teacher` is the number of parameters of a frozen model of another size. `value_model`: the trained model holds a value model of the
    same size. `generates`: the model itself generates between steps. `varying`: samples differ in length, up to `length`. `pairs`: a sample
    is a pair of answers, both of `length` tokens. `guessed_length`: nothing says how long samples are. `adapter_dropout`: adapters have
    dropout, None if this is unknown. `fused`: norms and gates are Liger's kernels.
    """

    length: int
    checkpoint_every: int = 0
    eager: bool = False
    attention: str = ""
    padded: bool = False
    repeated: bool = False
    full_loss: bool = True
    loss_chunk: int = 0
    zero_init: bool = True
    assumed_zero_init: bool = False
    keeps_logits: bool = False
    shifted_copy: bool = False
    expandable: bool = False
    evaluation: int | None = None
    copies: int = 0
    teacher: int = 0
    value_model: bool = False
    generates: bool = False
    varying: bool = False
    pairs: bool = False
    adapter_dropout: bool | None = None
    fused: bool = False
    guessed_length: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The choices that determine memory. Bucket sizes are in elements; names that end in `_bytes` are bytes per element.

    `replicas` is the number of data-parallel ranks; `local` the ranks of one machine. `batch_assumed`: the config leaves the micro batch
    size or the accumulation open. `optimizer_bytes` are the optimizer states per
    trained element (`torch_adam`: those of torch's Adam, as the config requests). A step allocates and frees `step_bytes` per element, and
    possibly `doubtful_step_bytes` more. `offload_ratio` is the share of an offloaded optimizer that runs on the host; with `super_offload`
    it runs beside the backward, unless the step `clips` gradients. `lists_experts`: each expert of the model is a module of its own.
    `plain_linear`: the config has `memory_efficient_linear` off. `leaves` are the classes whose weights stage 3 gathers as a whole.
    `zenflow` is the share of the gradients that ZenFlow updates on the device, with states that may be `zenflow_on_host`. `host_parameters`
    are the NVMe-offloaded elements that stay on the host. `host_memory` and `host_used` are the memory of a machine and what it uses before
    the job, `elsewhere` what another engine, such as vLLM, reserves on the GPU, in bytes; it `sleeps` while the model is trained. `guessed`
    are assumptions without which the run may need less, and `hoped` those without which it may need more, for a verdict that depends on
    them. `may_train_less`: the run may train a part of the
    weights, or none. `unmodelled` names features that the estimate leaves out, with the share by which the peak may be higher,
    `UNKNOWN_SHARE` if nothing is known of it. `resumes`: the run loads a checkpoint first. `assumed` lists assumptions as sentences.
    """

    workload: Workload
    world: int
    local: int
    replicas: int
    tensor: int = 1
    sequence: int = 1
    stage: int = 0
    micro_batch: int = 1
    accumulation: int = 1
    batch_assumed: bool = False
    model_bytes: int = 2
    fp16: bool = False
    master_bytes: int = 4
    optimizer_bytes: float = 8.0
    gradient_bytes: int = 2
    wire_bytes: int = 2
    optimizer: str = "adamw"
    torch_adam: bool = False
    step_bytes: int = 0
    doubtful_step_bytes: int = 0
    optimizer_device: str | None = None
    parameter_device: str | None = None
    offload_ratio: float = 1.0
    super_offload: bool = False
    clips: bool = False
    lists_experts: bool = False
    zenflow: float = 0.0
    zenflow_on_host: bool = False
    swap_buffers: int = 4
    parameter_buffers: int = 0
    host_parameters: int = 1_000_000_000
    pinned: bool = True
    contiguous: bool = True
    overlap: bool = False
    reduce_scatter: bool = True
    reduce_bucket: int = 500_000_000
    prefetch_bucket: int = 50_000_000
    plain_linear: bool = False
    leaves: tuple[str, ...] = ()
    persistence: int = 100_000
    persistence_limit: int = 2**63 - 1
    max_live: int = 1_000_000_000
    max_reuse: int = 1_000_000_000
    sub_group: int = 1_000_000_000
    secondary: int = 1
    quantized_weights: bool = False
    quantized_gradients: bool = False
    norm: bool = True
    partitions_activations: bool = False
    activations_on_host: bool = False
    gpu: Gpu | None = None
    calibration: Calibration | None = None
    host_memory: int | None = None
    host_used: int | None = None
    elsewhere: int = 0
    sleeps: bool = False
    may_train_less: bool = False
    guessed: tuple[str, ...] = ()
    hoped: tuple[str, ...] = ()
    release: Release = field(default_factory=lambda: Facts().deepspeed)
    unmodelled: tuple[tuple[str, float], ...] = ()
    resumes: bool = False
    assumed: tuple[str, ...] = ()

    @property
    def uncounted(self) -> tuple[str, ...]:
        """What the job needs besides, and no figure includes."""
        return tuple(name for name, share in self.unmodelled if share == UNKNOWN_SHARE)

    @property
    def images_decide(self) -> bool:
        """Whether gradients flow through towers, which keep activations by the size of images."""
        return (IN_TOWERS, TOWERS) in self.unmodelled

    @property
    def half(self) -> bool:
        """Whether the model is in 16 bits."""
        return self.model_bytes == 2

    @property
    def tokens(self) -> int:
        """Tokens of a micro batch on one rank."""
        return (2 if self.workload.pairs else 1) * self.micro_batch * self.workload.length // self.sequence

    @property
    def mixes_lengths(self) -> bool:
        """Whether samples may be shorter than what is estimated for them."""
        return self.workload.varying and self.workload.length > self.shortest

    @property
    def shortest(self) -> int:
        """Tokens of a sample in the low figure, where samples may be shorter than what is estimated for them."""
        tokens = min(SHORTEST, -(-self.workload.length // 4))
        return -(-tokens // self.sequence) * self.sequence

    @property
    def samples_at_once(self) -> int:
        """Samples of a micro batch on one rank; a pair counts as two."""
        return (2 if self.workload.pairs else 1) * self.micro_batch

    @property
    def samples(self) -> int:
        """Samples of an optimizer step over all ranks."""
        return self.micro_batch * self.accumulation * self.replicas // self.sequence

    @property
    def keeps_full_gradients(self) -> bool:
        """Whether stage 1 runs with DeepSpeed's BF16_Optimizer, which keeps fp32 gradients of the whole model."""
        return self.stage == 1 and self.compact and not self.fp16 and self.optimizer_device is None

    @property
    def keeps_accumulators(self) -> bool:
        """Whether stage 1 keeps an fp32 gradient for each weight until the micro batches of a step are over: `grad_accum`.

        Source: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py, `use_grad_accum_attribute`.
        """
        return self.stage == 1 and self.compact and not self.keeps_full_gradients

    @property
    def is_fused(self) -> bool:
        """Whether a 16-bit model without ZeRO has one flat buffer of master weights: DeepSpeed makes it for its own Adam only."""
        return self.optimizer in ("adam", "adamw", "onebitadam", "zerooneadam") and not self.torch_adam

    @property
    def keeps_linear_weights(self) -> bool:
        """Whether linear layers keep a view of their gathered weight until the backward: torch's do, unless DeepSpeed replaces them.

        Source: DeepSpeed 0.19.8, runtime/zero/partition_parameters.py, `_enable_mem_efficient_linear`.
        """
        return self.stage == 3 and (self.plain_linear or (not self.workload.zero_init and self.release < PATCHED_LINEAR))

    @property
    def always_elsewhere(self) -> int:
        """Bytes that another engine reserves all the time."""
        return 0 if self.sleeps else self.elsewhere

    @property
    def assumes_zero_init(self) -> bool:
        """Whether it is only assumed that the model is partitioned while it is built."""
        return self.stage == 3 and self.workload.zero_init and self.workload.assumed_zero_init

    @property
    def compact(self) -> bool:
        """Whether gradients are accumulated in fp32, in a buffer of the size of the rank's partition."""
        return self.stage in (1, 2) and self.half and self.gradient_bytes == 4

    def but(self, **changes: Any) -> Plan:
        """The plan with other values, including those of the workload."""
        inner = {key: value for key, value in changes.items() if key in Workload.__slots__}
        outer = {key: value for key, value in changes.items() if key not in Workload.__slots__}
        return replace(self, **outer, workload=replace(self.workload, **inner))


STATES = {
    "adam": 8.0,
    "adamw": 8.0,
    "torch_adamw": 8.0,
    "muadam": 8.0,
    "muadamw": 8.0,
    "lamb": 8.0,
    "onebitadam": 16.0,
    "onebitlamb": 16.0,
    "zerooneadam": 16.0,
    "adafactor": 4.0,
    "lion": 4.0,
    "adagrad": 4.0,
    "lion8bit": 1.0 + 4 / 256,
    "muon": 4.0,
    "sgd": 0.0,
    "musgd": 0.0,
    "adam8bit": 2.0 + 2 * 4 / 256,
}
"""Bytes of optimizer states per trained element in fp32. 8-bit Adam keeps one byte for each of two moments and a scale per 256 of them.
Adafactor factors only matrices; DeepSpeed passes it flat weights, so that it keeps its second moment whole. Muon keeps one momentum for
matrices; Adam's states for other weights are added from the model."""
