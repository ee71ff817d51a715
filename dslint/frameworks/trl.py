"""TRL: flags or a YAML file, started with `trl sft`; keys of the file that TRL hands on to Accelerate's launcher, and its own presets."""

from __future__ import annotations

from dslint.evaluate.files import Linked
from dslint.facts import Integration
from dslint.frameworks.base import Framework, Uses, Workload
from dslint.frameworks.huggingface import has_arguments
from dslint.job.accelerate import AccelerateFile, is_accelerate, read_accelerate
from dslint.job.arguments import DEFAULTS, SourcedValue, given_at
from dslint.source.read import ReadError, read
from dslint.source.tree import Document, Member, Scalar, plain
from dslint.source.yaml_tree import parse_yaml

_KEYS = ("accelerate_config", "num_processes", "num_machines", "mixed_precision")


def keys_for_launcher(document: Document, shown: str) -> dict[str, SourcedValue]:
    """The keys of a training file that Accelerate's launcher gets as flags."""
    members = {name: document.lookup((name,)) for name in _KEYS}
    found = {
        name: given_at(document, shown, (name,), "", plain(member.value))
        for name, member in members.items()
        if isinstance(member, Member) and isinstance(member.value, Scalar)
    }
    return {name: given for name, given in found.items() if given is not None}


def accelerate_config(name: str, linked: Linked | None) -> tuple[Document, AccelerateFile] | None:
    """The Accelerate config for DeepSpeed that `accelerate_config` names: `linked`, otherwise one that ships with TRL.

    Source: trl/cli.py, main.
    """
    if linked is None:
        document, shown = built_in_accelerate(name), f"<{name} of TRL>"
    else:
        try:
            document, shown = parse_yaml(read(linked.path)), linked.shown
        except ReadError:
            return None
    return (document, read_accelerate(document, shown)) if document is not None and is_accelerate(document) else None


_PRESETS = {
    "zero1": {"zero_stage": "1", "zero3_init_flag": "false"},
    "zero2": {"zero_stage": "2", "offload_optimizer_device": "none", "offload_param_device": "none", "zero3_init_flag": "false"},
    "zero3": {
        "zero_stage": "3",
        "offload_optimizer_device": "none",
        "offload_param_device": "none",
        "zero3_init_flag": "true",
        "zero3_save_16bit_model": "true",
    },
}
"""By name: the block `deepspeed_config`. The accumulation steps of zero1, 1 or "auto" by the release of TRL, are left out."""

_OF_ALL_PRESETS = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"


def built_in_accelerate(name: str) -> Document | None:
    """The Accelerate config that `trl sft --accelerate_config NAME` uses if there is no file of that name; None for any other name.

    Source: the folder `accelerate_configs` of TRL, release 0.24.0. A launch uses it as `accelerate launch --config_file` does.
    """
    block = _PRESETS.get(name)
    if block is None:
        return None
    lines = "".join(f"  {key}: {value}\n" for key, value in block.items())
    return parse_yaml(f"{_OF_ALL_PRESETS}deepspeed_config:\n{lines}")


_KEYS_OF_TRL = frozenset("dataset_mixer dataset_mixture dataset_text_field accelerate_config".split())
_SHARED_KEYS = frozenset("dataset_name max_seq_length max_length torch_dtype use_peft beta".split())
"""Keys of TRL that other programs with the Hugging Face Trainer have, too: they count where the project uses TRL."""


def _recognises(names: frozenset[str], uses: Uses) -> bool:
    return has_arguments(names) and bool(names & _KEYS_OF_TRL or (names & _SHARED_KEYS and uses("trl")))


FRAMEWORK = Framework(
    "TRL",
    Integration.TRANSFORMERS,
    packages=("trl",),
    commands=("trl",),
    recognises=_recognises,
    rank=1,
    # By its release, TRL turns `bf16` on unless `fp16` is on.
    defaults={name: value for name, value in DEFAULTS.items() if name != "bf16"},
    has_own_loop=False,
    workload=Workload(
        checkpoints="TRL since its release 0.20",
        length=1024,
        not_with_length=("block_size", "max_source_length", "do_train"),
        lora_dropout=0.05,
        vllm_share=0.3,
    ),
)
