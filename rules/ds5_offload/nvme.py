"""DS5: offload to NVMe: the path of the swap files, and settings that only NVMe uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, SharedCause
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.keys import in_file_order, is_set
from dslint.rules.helpers.offload import OFFLOAD_DOCS, OFFLOAD_OPTIMIZER, OFFLOAD_PARAM, OFFLOAD_SECTIONS, to_nvme, when_of

TENSOR_SWAPPING = "deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3._configure_tensor_swapping"

MEMORY_DIRECTORY = "/dev/shm/"  # noqa: S108 - compared, never opened
"""The directory on Linux with files in host memory."""


@rule(
    "DS505",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"),
    references=(TENSOR_SWAPPING, "deepspeed/runtime/zero/partition_parameters.py, Init._validate_remote_device"),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}'),
    at="zero_optimization.offload_optimizer.device",
    message='offload_optimizer to "nvme" has no nvme_path: DeepSpeed raises TypeError "expected str, bytes or os.PathLike object, not NoneType" in deepspeed.initialize.',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": null}}'),
    at="zero_optimization.offload_param.device",
    message='offload_param to "nvme" has no nvme_path: DeepSpeed raises AssertionError ""nvme_path" in DeepSpeed Config cannot be None" in deepspeed.initialize, or in deepspeed.zero.Init if that builds the model.',
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "nvme"}}'))
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'))
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}',
    program="import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n",
    integration="deepspeed",
)
@good(
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true, "offload_optimizer": {"device": "nvme"}}}',
    program="from transformers import Trainer, TrainingArguments\nargs = TrainingArguments(output_dir='o', deepspeed='ds_config.json')\n"
    "print(Trainer(model=model, args=args).evaluate())\n",
    integration="transformers",
)
@bad(
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true, "offload_optimizer": {"device": "nvme"}}}',
    at="zero_optimization.offload_optimizer.device",
    program="from transformers import Trainer, TrainingArguments\nargs = TrainingArguments(output_dir='o', deepspeed='ds_config.json')\n"
    "trainer = Trainer(model=model, args=args)\nprint(trainer.evaluate())\ntrainer.train()\n",
    integration="transformers",
    message='offload_optimizer to "nvme" has no nvme_path: DeepSpeed raises TypeError "expected str, bytes or os.PathLike object, not NoneType" in deepspeed.initialize.',
)
@good(
    '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}',
    program='from accelerate import Accelerator, DeepSpeedPlugin\naccelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds_config.json"))\n'
    "model = accelerator.prepare(model)\nprint(model(batch))\n",
    integration="accelerate",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}',
    at="zero_optimization.offload_optimizer.device",
    program='from accelerate import Accelerator, DeepSpeedPlugin\naccelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds_config.json"))\n'
    "model, optimizer = accelerator.prepare(model, optimizer)\naccelerator.backward(model(batch))\n",
    integration="accelerate",
    message='offload_optimizer to "nvme" has no nvme_path: DeepSpeed raises TypeError "expected str, bytes or os.PathLike object, not NoneType" in deepspeed.initialize.',
)
def nvme_without_path(config: Config) -> Iterator[Finding]:
    """Offload to NVMe requires `nvme_path`, a directory on the disk.

    DeepSpeed creates its swap files under `nvme_path`. Without it `offload_param` raises an `AssertionError`, and `offload_optimizer` a `TypeError` that does
    not name the key.

    Write the path of a directory on a local NVMe disk.
    """
    for section in OFFLOAD_SECTIONS:
        if to_nvme(config, section) and config.value(f"{section}.nvme_path") is None:
            error = (
                'AssertionError ""nvme_path" in DeepSpeed Config cannot be None"'
                if section == OFFLOAD_PARAM
                else 'TypeError "expected str, bytes or os.PathLike object, not NoneType"'
            )
            when = when_of(config, section)
            yield Finding(
                f"{section}.device",
                f'{section.partition(".")[2]} to "nvme" has no nvme_path: DeepSpeed raises {error} {when.words}.',
                help='Add "nvme_path", a directory on a local NVMe disk.',
                phase=when.phase,
                step=when.step,
            )


@rule(
    "DS506",
    effect=Effect.MEMORY,
    watches=("zero_optimization.offload_optimizer.nvme_path", "zero_optimization.offload_param.nvme_path"),
    references=(TENSOR_SWAPPING,),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/dev/shm/swap"}}'),
    at="zero_optimization.offload_optimizer.nvme_path",
    message='nvme_path "/dev/shm/swap" is in memory: offloaded data stays in host memory, and passes through buffers and files on the way.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "nvme_path": "/dev/shm/swap"}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/dev/nvme0n1"}}'),
    at="zero_optimization.offload_param.nvme_path",
    message='nvme_path "/dev/nvme0n1" is a device, not a directory: DeepSpeed creates swap files under the path and raises an OSError in deepspeed.initialize. In a container without the device they use host memory.',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/dev/swap_files"}}'),
    at="zero_optimization.offload_param.nvme_path",
    message='nvme_path "/dev/swap_files" is in the directory of devices: DeepSpeed cannot create swap files under a device; in a directory there they use host memory.',
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}'))
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "nvme_path": "/dev/shm"}}'))
def nvme_path_not_on_disk(config: Config) -> Iterator[Finding]:
    """`nvme_path` must be a directory on the disk, and neither a device file nor a directory in memory.

    DeepSpeed creates directories under the path. Under `/dev/shm` they use host memory, in addition to the memory that offload to the CPU would use.
    `/dev/nvme0n1` is the disk device itself: DeepSpeed cannot create directories under it.

    Mount the disk, and write the directory of the mount.
    """
    for section in OFFLOAD_SECTIONS:
        key = f"{section}.nvme_path"
        path = config.value(key) if to_nvme(config, section) else None
        if not isinstance(path, str):
            continue
        directory = path.rstrip("/") + "/"
        if not path:
            yield Finding(
                key,
                'nvme_path "" is the working directory of the job: DeepSpeed writes the swap files to the disk of that directory.',
                help="Write a directory on a local NVMe disk.",
                effect=Effect.SILENT,
            )
        elif directory.startswith(MEMORY_DIRECTORY):
            yield Finding(
                key,
                f"nvme_path {config.quote(key)} is in memory: offloaded data stays in host memory, and passes through buffers and files on the way.",
                help='Write a directory on a disk, or "device": "cpu".',
                fix=write(config, f"{section}.device", '"cpu"'),
                cause=SharedCause(
                    f"nvme_path {path}",
                    f"nvme_path {config.quote(key)} is in memory: offloaded data stays in host memory, and passes through buffers and files on the way.",
                ),
            )
        elif directory.startswith("/dev/"):
            is_disk = _DISK.match(path) is not None
            message = (
                f"nvme_path {config.quote(key)} is a device, not a directory: DeepSpeed creates swap files under the path and raises an OSError "
                "in deepspeed.initialize. In a container without the device they use host memory."
                if is_disk
                else f"nvme_path {config.quote(key)} is in the directory of devices: DeepSpeed cannot create swap files under a device; in a "
                "directory there they use host memory."
            )
            yield Finding(
                key,
                message,
                help="Mount the disk, and write the directory of the mount.",
                effect=Effect.CRASH if is_disk else None,
                phase=Phase.INITIALIZE if is_disk else None,
                cause=SharedCause(f"nvme_path {path}", message),
                certain=is_disk,
            )


_DISK = re.compile(r"/dev/(nvme\d+(n\d+(p\d+)?)?|[sv]d[a-z]+\d*|xvd[a-z]+\d*|md\d+|dm-\d+)(/|$)")
"""A disk by its name on Linux."""


NVME_SETTINGS: dict[str, dict[str, Any]] = {
    OFFLOAD_PARAM: {"nvme_path": None, "buffer_count": 5, "buffer_size": 100_000_000, "max_in_cpu": 1_000_000_000},
    OFFLOAD_OPTIMIZER: {"nvme_path": None, "buffer_count": 4, "pipeline_read": False, "pipeline_write": False, "fast_init": False},
}
"""By offload section: the settings that DeepSpeed reads only with the device "nvme", with their defaults."""


@rule(
    "DS511",
    effect=Effect.ADVICE,
    watches=tuple(f"{section}.{name}" for section, settings in NVME_SETTINGS.items() for name in settings),
    references=(OFFLOAD_DOCS, "deepspeed/runtime/zero/offload_config.py"),
    pedantic=True,
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "nvme_path": "/local_nvme"}}'),
    at="zero_optimization.offload_param.nvme_path",
    message='offload_param uses "cpu": DeepSpeed reads nvme_path only with the device "nvme".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pipeline_read": true, "buffer_count": 5}}'),
    at="zero_optimization.offload_optimizer.pipeline_read",
    message='offload_optimizer uses "cpu": DeepSpeed reads pipeline_read, buffer_count only with the device "nvme".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "buffer_count": 5}}}',
)
@good(trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"}}'))
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "buffer_count": 4, "fast_init": false}}'))
def nvme_settings_without_nvme(config: Config) -> Iterator[Finding]:
    """DeepSpeed reads `nvme_path`, the swap buffers and `max_in_cpu` only with the device "nvme".

    These settings, and the pipelined reading and writing, belong to `"device": "nvme"`. With "cpu" DeepSpeed ignores them and writes nothing to the disk.

    Write `"device": "nvme"` at ZeRO stage 3, or remove them.
    """
    for section, settings in NVME_SETTINGS.items():
        device = config.value(f"{section}.device")
        if device not in ("cpu", "none") or not config.has(f"{section}.device"):
            continue
        unread = [
            key.rpartition(".")[2]
            for key in in_file_order(config, [f"{section}.{name}" for name in settings if _differs(config, section, name)])
        ]
        if not unread or (device == "none" and unread == ["nvme_path"]):
            continue
        yield Finding(
            f"{section}.{unread[0]}",
            f'{section.partition(".")[2]} uses "{device}": DeepSpeed reads {", ".join(unread)} only with the device "nvme".',
            help=f'Write "device": "nvme" (at ZeRO stage 3), or remove {"it" if len(unread) == 1 else "them"}.',
            fix=without(config, f"{section}.{unread[0]}"),
            related=((f"{section}.device", "the device is set here"),),
        )


def _differs(config: Config, section: str, name: str) -> bool:
    """Whether a setting of NVMe is written with something other than its default or a placeholder for no path."""
    key = f"{section}.{name}"
    placeholder = config.literal(key) in ("", "none", "None")
    return is_set(config, key) and not placeholder and bool(config.value(key) != NVME_SETTINGS[section][name])
