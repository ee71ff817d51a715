"""DS5: the optimizer of a program that Accelerate replaces, because its states are offloaded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration, Release
from dslint.job.events import Event, Events, GivenArgument
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, offloads_optimizer
from dslint.rules.helpers.prepare import PREPARE, may_have_model

REPLACES = Release(0, 18, 0)
"""The first Accelerate that makes a DeepSpeedCPUAdam of the program's optimizer."""

COUPLES_DECAY = Release(1, 2, 0)
"""The first Accelerate that makes Adam, and not AdamW, of an optimizer that is not AdamW in 32 bits."""

_OTHERS = re.compile(
    r"torch\.optim\.(\w+\.)*(SGD|ASGD|RMSprop|Rprop|Adadelta|Adafactor|Muon)|(transformers|timm\.optim)\.(\w+\.)*Adafactor"
    r"|bitsandbytes\.optim\.(\w+\.)*((SGD|RMSprop|LAMB|LARS|Lion|PagedLion)8bit|(Paged)?AdEMAMix\w*)"
    r"|prodigyopt\.(\w+\.)*Prodigy|prodigy_plus_schedule_free\.\w+|dadaptation\.\w+|came_pytorch\.(\w+\.)*CAME|lion_pytorch\.(\w+\.)*Lion"
    r"|schedulefree\.\w+|pytorch_optimizer\.(\w+\.)*(Prodigy|CAME|Lion|SophiaH|ScheduleFree\w+|AdaFactor|GaLore|Muon)"
)
"""Optimizers of which Accelerate makes a DeepSpeedCPUAdam in every release that replaces them."""

_IN_8_BITS = re.compile(r"bitsandbytes\.optim\.(\w+\.)*(Paged)?AdamW?8bit")
_CPU_ADAM = re.compile(r"deepspeed\.ops\.adam\.(\w+\.)*DeepSpeedCPUAdam")

_OFFLOADING = (
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, '
    '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
)
_PREPARES = (
    "import bitsandbytes as bnb\nimport torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n%s"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
)
_MAKES = "optimizer = %s(model.parameters(), lr=1e-4)\n"
_BY_FLAG = "if small:\n    kind = bnb.optim.AdamW8bit\nelse:\n    kind = %s\noptimizer = kind(model.parameters(), lr=1e-4)\n"


@rule(
    "DS532",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "accelerate/accelerator.py, Accelerator._prepare_deepspeed",
        "accelerate/utils/deepspeed.py, map_pytorch_optim_to_deepspeed",
    ),
)
@bad(
    _OFFLOADING,
    at="zero_optimization.offload_optimizer",
    program=_PREPARES % (_MAKES % "torch.optim.SGD"),
    integration="accelerate",
    message="train.py:6 prepares SGD, but the config offloads the optimizer: Accelerate replaces it by DeepSpeedCPUAdam, and the training uses Adam.",
)
@bad(
    _OFFLOADING,
    at="zero_optimization.offload_optimizer",
    program=_PREPARES % (_MAKES % "bnb.optim.AdamW8bit"),
    integration="accelerate",
    message="train.py:6 prepares AdamW8bit, but the config offloads the optimizer: Accelerate replaces it by DeepSpeedCPUAdam, whose states have 32 bits, and which adds weight_decay to the gradients, as Adam does and AdamW does not.",
)
@bad(
    _OFFLOADING,
    at="zero_optimization.offload_optimizer",
    program=_PREPARES % (_BY_FLAG % "torch.optim.SGD"),
    integration="accelerate",
    message="train.py:10 prepares AdamW8bit or SGD, but the config offloads the optimizer: Accelerate replaces it by DeepSpeedCPUAdam.",
)
@bad(
    _OFFLOADING,
    at="zero_optimization.offload_optimizer",
    program="from deepspeed.ops.adam import DeepSpeedCPUAdam\n"
    + _PREPARES % (_MAKES % "DeepSpeedCPUAdam").replace("lr=1e-4", "lr=1e-4, weight_decay=0.01"),
    integration="accelerate",
    pins={"accelerate": Release(1, 10, 0)},
    message="train.py:7 prepares a DeepSpeedCPUAdam, and Accelerate 1.10.0 makes another one of it, which adds weight_decay to the gradients, as Adam does and AdamW does not.",
)
@good(_OFFLOADING, program=_PREPARES % (_BY_FLAG % "torch.optim.AdamW"), integration="accelerate")
@good(_OFFLOADING, program=_PREPARES % (_MAKES % "torch.optim.AdamW"), integration="accelerate")
@good(
    _OFFLOADING,
    program=_PREPARES % (_MAKES % "torch.optim.SGD"),
    integration="accelerate",
    pins={"accelerate": Release(0, 17, 1)},
)
@good(
    _OFFLOADING.replace('"zero_opt', '"zero_force_ds_cpu_optimizer": false, "zero_opt'),
    program=_PREPARES % (_MAKES % "torch.optim.SGD"),
    integration="accelerate",
)
@good(_OFFLOADING.replace('"cpu"', '"none"'), program=_PREPARES % (_MAKES % "torch.optim.SGD"), integration="accelerate")
@good(_OFFLOADING, program=_PREPARES % (_MAKES % "build_optimizer"), integration="accelerate")
@good(
    _OFFLOADING,
    program="from deepspeed.ops.adam import DeepSpeedCPUAdam\n"
    + _PREPARES % (_MAKES % "DeepSpeedCPUAdam").replace("lr=1e-4", "lr=1e-4, weight_decay=0.0"),
    integration="accelerate",
    pins={"accelerate": Release(1, 10, 0)},
)
@good(
    _OFFLOADING,
    program=_PREPARES
    % (
        "if accelerator.distributed_type == 'DEEPSPEED':\n    kind = torch.optim.AdamW\nelse:\n    kind = torch.optim.SGD\n"
        + _MAKES % "kind"
    ),
    integration="accelerate",
)
def optimizer_replaced_with_offload(config: Config) -> Iterator[Finding]:
    """Accelerate replaces the optimizer that a program prepares, because its states are offloaded.

    DeepSpeed offloads only its own optimizers. Since its release 0.18.0 Accelerate therefore makes a `DeepSpeedCPUAdam` of the program's optimizer,
    with its learning rate and weight decay, and since 1.2.0 a `DeepSpeedCPUAdagrad` or `DeepSpeedCPULion` of torch's Adagrad and of the Lion of
    bitsandbytes in 32 bits. SGD, Adafactor or Prodigy silently become Adam, with a learning rate that was chosen for another optimizer. Since
    1.2.0 only AdamW in 32 bits, of torch or of bitsandbytes, stays AdamW: for all others, also for a `DeepSpeedCPUAdam`, the weight decay is
    added to the gradients.

    Prepare `torch.optim.AdamW`, remove `offload_optimizer`, or set `"zero_force_ds_cpu_optimizer": false`.
    """
    program, release = config.setup.program if config.setup else None, config.context.pinned("accelerate")
    if program is None or config.facts.integration is not Integration.ACCELERATE or (release is not None and release < REPLACES):
        return
    if not offloads_optimizer(config) or config.value("zero_force_ds_cpu_optimizer") is not True or not config.lacks("optimizer"):
        return
    for event in program.events.of(PREPARE):
        if event.unlikely or event.tells_setups_apart or not may_have_model(event):
            continue
        for given in event.arguments.values():
            found = _outcome(given, program.events, release)
            if found is None:
                continue
            what, changes_rule = found
            yield Finding(
                OFFLOAD_OPTIMIZER,
                f"{event.at.where} prepares {what}.",
                help='Prepare torch.optim.AdamW, remove offload_optimizer, or set "zero_force_ds_cpu_optimizer" to false.'
                if changes_rule
                else "Prepare torch.optim.AdamW, which stays AdamW.",
                on="key",
                related=(event.at.related("prepared here"),),
                effect=Effect.SILENT if changes_rule else Effect.IGNORED,
                certain=event.certain and event.flow == 0,
            )
            return


def _outcome(given: GivenArgument, events: Events, release: Release | None) -> tuple[str, bool] | None:
    """What Accelerate makes of an optimizer, and whether the training uses another rule of updates; None if it stays what it is."""
    makers = given.made_by_one_of
    names = " or ".join(one.rpartition(".")[2] for one in makers)
    replaced = f"{names}, but the config offloads the optimizer: Accelerate replaces it by DeepSpeedCPUAdam"
    made = events.maker_of(given)
    if not makers or any(not (_OTHERS.fullmatch(one) or _IN_8_BITS.fullmatch(one) or _CPU_ADAM.fullmatch(one)) for one in makers):
        return None
    if all(_OTHERS.fullmatch(one) for one in makers):
        return f"{replaced}, and the training uses Adam", True
    if all(_CPU_ADAM.fullmatch(one) for one in makers):
        is_plain = made is not None and made.complete and made.argument("adamw_mode", 7) is None and _decays(made, default=False)
        if release is None or release < COUPLES_DECAY or not is_plain:
            return None
        return (
            f"a DeepSpeedCPUAdam, and Accelerate {release} makes another one of it, which adds weight_decay to the gradients, as Adam does and AdamW does not",
            True,
        )
    if not all(_IN_8_BITS.fullmatch(one) for one in makers):
        return replaced, True
    couples = all("AdamW" in one for one in makers) and (release is None or release >= COUPLES_DECAY)
    if couples and (made is None or _decays(made, default=True)):
        return f"{replaced}, whose states have 32 bits, and which adds weight_decay to the gradients, as Adam does and AdamW does not", True
    return f"{replaced}, whose states have 32 bits", False


def _decays(made: Event, *, default: bool) -> bool:
    """Whether an optimizer gets a weight decay other than 0; `default` is what it has without the argument."""
    given = made.argument("weight_decay", 5 if _CPU_ADAM.fullmatch(made.name) else 4)
    return default if given is None else given.value not in (0, None)
