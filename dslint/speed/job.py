"""What decides how long a training step takes: the numbers that every part of the step-time model reads."""

from __future__ import annotations

from typing import Any

from dslint.record import Record
from dslint.speed.hardware import Hardware

MODULES = 9
"""Modules with weights of a layer like Llama's: four products of attention, three of the MLP, two norms."""

FULL = 6e7
"""Tokens x hidden size of a micro batch, per rank of tensor parallelism, from which matrix products of an A100 do not become faster. With
16,384, 32,768 and 65,536 tokens and a hidden size of 4096 speeds differ by 0.2 to 1.2 % (fms-acceleration's tables). On faster GPUs it is
larger in proportion to the peak; of slower ones no table was found."""

A100 = 312e12
"""The peak of an A100 in operations per second."""

EXPERT_MODULES = 5
"""Modules of an expert that is a module of its own: three products, the activation, and the expert itself."""


class Job(Record):
    """A training step on one kind of machine.

    `params` are the model's parameters, `active` those that a token passes (fewer for experts), `trained` those with gradients. `length` is
    the number of tokens of a sample, `attended` the mean number of tokens of a sample that attention sees (less than `length` if samples
    are packed). There are `gpus` on machines of `local` each; `network` is the bandwidth of a machine in bytes per second, `link` that of
    a GPU to the others of its machine, `pcie` that to the host, `nvme` that of a machine's disks. `recomputed` is the share of the blocks
    that is computed again in the backward. `flash`: attention never writes its scores; `kernel` is what computes it, "" if it is unknown,
    and `masked`: samples are padded, so that attention has a mask. `fused`: norms and gates are fused kernels.
    `copies` is the number of further, frozen models that compute a forward. `modules` is the number of modules of the model, 0 if it is
    unknown. `adapted` are the features of the inputs and outputs of the modules that have adapters.
    `optimizer_on` and `parameters_on` are "cpu" or "nvme" where they are offloaded, `offloaded` the share of the optimizer that is; with
    SuperOffload it runs `beside_backward`.
    `secondary` is the size of hpZ's groups. `optimizer_bytes` are moved for each parameter of the optimizer's step. `host_rate` is the CPU
    optimizer's rate in bytes per second of a machine, if it was measured. `given` names the bandwidths that were given or measured; of
    others only a share is reached.
    """

    hardware: Hardware
    precision: str
    params: float
    active: float
    trained: float
    layers: int
    hidden: int
    heads: int | None
    vocabulary: int
    length: int
    attended: float
    micro_batch: int
    accumulation: int
    gpus: int
    local: int
    link: float
    network: float
    pcie: float
    nvme: float = 6e9
    tensor: int = 1
    pipeline: int = 1
    sequence: int = 1
    stage: int = 0
    recomputed: float = 0.0
    flash: bool = True
    kernel: str = ""
    masked: bool = False
    fused: bool = False
    copies: int = 0
    modules: int = 0
    adapted: float = 0.0
    optimizer_on: str | None = None
    parameters_on: str | None = None
    activations_on_host: bool = False
    offloaded: float = 1.0
    beside_backward: bool = False
    pinned: bool = True
    overlap: bool = True
    secondary: int = 1
    quantized_weights: bool = False
    quantized_gradients: bool = False
    wire_bytes: float = 2.0
    optimizer_bytes: float = 28.0
    host_rate: float | None = None
    given: tuple[str, ...] = ()

    @property
    def data_parallel(self) -> int:
        """The ranks that hold the same weights before ZeRO: sequence-parallel ranks are among them."""
        return max(1, self.gpus // (self.tensor * self.pipeline))

    @property
    def tokens(self) -> float:
        """Tokens of a micro batch on one rank."""
        return self.micro_batch * self.length / self.sequence

    @property
    def product_size(self) -> float:
        """Tokens x hidden size of a micro batch on one rank, up to the size from which matrix products do not become faster. Each expert
        sees a part of the tokens.
        """
        return min(
            self.tokens * self.hidden / self.tensor * self.active / self.params, FULL * max(1.0, self.hardware.peak(self.precision) / A100)
        )

    @property
    def samples(self) -> float:
        """Samples of an optimizer step over all ranks."""
        return self.micro_batch * self.accumulation * self.data_parallel / self.sequence

    @property
    def machines(self) -> float:
        """The number of machines."""
        return max(1.0, self.gpus / self.local)

    @property
    def held(self) -> float:
        """Parameters of a rank before ZeRO."""
        return self.params / (self.tensor * self.pipeline)

    @property
    def trained_here(self) -> float:
        """Trained parameters of a rank before ZeRO."""
        return self.trained / (self.tensor * self.pipeline)

    @property
    def element(self) -> float:
        """Bytes of an element of the model's precision."""
        return 4.0 if self.precision == "fp32" else 2.0

    @property
    def trained_share(self) -> float:
        """The share of the parameters that is trained."""
        return min(1.0, self.trained / self.params)

    @property
    def layers_here(self) -> float:
        """Layers of a rank."""
        return self.layers / self.pipeline

    @property
    def modules_here(self) -> float:
        """Modules of a rank."""
        return (self.modules or MODULES * self.layers) / self.pipeline

    def but(self, **changes: Any) -> Job:
        """The job with other values."""
        return self._replace(**changes)
