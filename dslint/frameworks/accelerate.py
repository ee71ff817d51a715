"""Accelerate's config file: YAML with a block `deepspeed_config`, from which Accelerate builds a DeepSpeed config."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping as Table
from dataclasses import replace
from typing import Any

from dslint.evaluate.files import Linked
from dslint.frameworks.built import Built
from dslint.job.arguments import Arguments, SourcedValue, as_read, given_at
from dslint.job.events import Event
from dslint.job.model import AccelerateFile, Launch, Program
from dslint.schemas.recognition import ACCELERATE_KEYS
from dslint.source.read import ReadError, read
from dslint.source.tree import BuiltFrom, Document, Key, Mapping, Member, Node, Path, Scalar, Span, plain
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import parse_yaml

BLOCK = "deepspeed_config"

TOP_KEYS = frozenset(
    """
    compute_environment distributed_type mixed_precision use_cpu debug num_processes machine_rank num_machines gpu_ids main_process_ip
    main_process_port rdzv_backend same_network main_training_function enable_cpu_affinity parallelism_config fp8_config deepspeed_config
    fsdp_config fsdp_version megatron_lm_config ipex_config mpirun_config downcast_bf16 tpu_name tpu_zone tpu_use_cluster tpu_use_sudo
    command_file commands tpu_vm tpu_env dynamo_config fp16 dynamo_backend ipex ipex_fusion_enabled tp_config
    ec2_instance_type iam_role_name image_uri profile region sagemaker_inputs_file sagemaker_metrics_file additional_args base_job_name
    num_machines py_version pytorch_version transformers_version
    """.split()
)
"""The top-level keys that some release of Accelerate accepts."""

BLOCK_KEYS: dict[str, tuple[str, ...]] = {
    "deepspeed_config_file": ("str",),
    "zero_stage": ("int",),
    "gradient_accumulation_steps": ("int", "auto"),
    "gradient_clipping": ("float", "auto"),
    "offload_optimizer_device": ("device",),
    "offload_param_device": ("device",),
    "offload_optimizer_nvme_path": ("str",),
    "offload_param_nvme_path": ("str",),
    "zero3_save_16bit_model": ("bool",),
    "zero3_init_flag": ("bool",),
    "deepspeed_moe_layer_cls_names": ("str",),
    "deepspeed_multinode_launcher": ("str",),
    "deepspeed_hostfile": ("str",),
    "deepspeed_inclusion_filter": ("str",),
    "deepspeed_exclusion_filter": ("str",),
}
"""The keys of the block, each with the types it accepts."""

LAUNCH_FLAGS = frozenset(
    """
    cpu debug downcast_bf16 dynamo_backend dynamo_mode dynamo_use_dynamic dynamo_use_fullgraph dynamo_use_regional_compilation
    enable_cpu_affinity env gpu_ids log_dir machine_rank main_process_ip main_process_port main_training_function max_restarts
    mixed_precision module monitor_interval mpirun_hostfile no_python num_cpu_threads_per_process num_machines num_processes quiet
    rdzv_backend rdzv_conf role same_network tee use_deepspeed
    """.split()
)
"""Flags of `accelerate launch` that it also reads from the block: it copies every key of the block to the flag of that name."""

_FLAGS: dict[str, Path] = {
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "gradient_clipping": ("gradient_clipping",),
    "zero_stage": ("zero_optimization", "stage"),
    "offload_optimizer_device": ("zero_optimization", "offload_optimizer", "device"),
    "offload_param_device": ("zero_optimization", "offload_param", "device"),
    "zero3_save_16bit_model": ("zero_optimization", "stage3_gather_16bit_weights_on_model_save"),
}
"""Flags of `accelerate launch`, each with the DeepSpeed key that it sets."""

_VARIABLES = {
    "gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "zero_stage": "ACCELERATE_DEEPSPEED_ZERO_STAGE",
    "offload_optimizer_device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "zero3_save_16bit_model": "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "zero3_init_flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
}
"""The variables through which the launcher passes its flags on. One that is set beforehand holds where neither a flag nor the file says it.

Sources: accelerate/utils/launch.py, prepare_deepspeed_cmd_env; accelerate/utils/dataclasses.py, DeepSpeedPlugin.
"""

CLASHING = (
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "offload_param_nvme_path",
    "offload_optimizer_nvme_path",
    "zero3_save_16bit_model",
    "mixed_precision",
)
"""Fields that Accelerate refuses together with `deepspeed_config_file`, in the order of its error message."""


def is_accelerate(document: Document) -> bool:
    """Whether a YAML tree is an Accelerate config that uses DeepSpeed."""
    root = document.root
    if not isinstance(root, Mapping):
        return False
    names = {member.key.value for member in root.members}
    kind = root.get("distributed_type")
    deepspeed = kind is not None and isinstance(kind.value, Scalar) and kind.value.value == "DEEPSPEED"
    block = root.get(BLOCK)
    meant = block is not None and isinstance(block.value, Mapping) and bool(block.value.members)
    return (deepspeed or (meant and kind is None)) and len(names & TOP_KEYS) >= 2


def is_accelerates_own(document: Document) -> bool:
    """Whether a YAML tree is an Accelerate config, for whatever way to train."""
    names = {member.key.value for member in document.root.members} if isinstance(document.root, Mapping) else set()
    return len(names & ACCELERATE_KEYS) >= 2 and len(names & TOP_KEYS) >= 4


def opened(linked: Linked, *, selected: bool = False) -> tuple[Document, AccelerateFile] | None:
    """The Accelerate config for DeepSpeed in a file; None for any other file. With `selected` a flag selects DeepSpeed."""
    try:
        document = parse_yaml(read(linked.path))
    except ReadError:
        return None
    is_meant = is_accelerate(document) or (selected and is_accelerates_own(document))
    return (document, read_accelerate(document, linked.shown)) if is_meant else None


def opened_without_deepspeed(linked: Linked) -> AccelerateFile | None:
    """The Accelerate config of a file that starts a rank on each GPU without DeepSpeed; None for any other file."""
    try:
        document = parse_yaml(read(linked.path))
    except ReadError:
        return None
    file = read_accelerate(document, linked.shown) if is_accelerates_own(document) else None
    kind = file.top.get("distributed_type") if file is not None else None
    return file if kind is not None and str(kind.value).startswith("MULTI_") and str(kind.value) != "MULTI_CPU" else None


def read_accelerate(document: Document, shown: str) -> AccelerateFile:
    """Read the tree of an Accelerate config."""
    block = document.lookup((BLOCK,))
    inside = block.value if isinstance(block, Member) else None
    return AccelerateFile(
        shown,
        _givens(document, shown, document.root, ()),
        _givens(document, shown, inside, (BLOCK,)),
        isinstance(inside, Mapping) and bool(inside.members),
    )


def _givens(document: Document, shown: str, node: Node | None, path: Path) -> dict[str, SourcedValue]:
    if not isinstance(node, Mapping):
        return {}
    found = {}
    for member in node.members:
        value: Any = plain(member.value) if isinstance(member.value, Scalar) else UNKNOWN
        given = given_at(document, shown, (*path, member.key.value), "", value)
        if given is not None:
            found[member.key.value] = given
    return found


def _is_zero(given: SourcedValue | None) -> bool:
    """Whether a gradient clipping is 0, which Accelerate does not write into the config."""
    return given is not None and re.fullmatch(r"0*(\.0*)?", str(given.value)) is not None and str(given.value) != ""


def made_by(document: Document, file: AccelerateFile, arguments: Arguments | None) -> Document:
    """The DeepSpeed config that Accelerate builds from the block; its nodes keep their places in the YAML.

    `arguments` are those of the Trainer if it is launched with the file: a precision that they set overrides the file's.
    """
    found = document.lookup((BLOCK,)) or document.lookup(("distributed_type",))
    made = _Made(document, found.key.span if isinstance(found, Member) else Span(0, 0), file.flags)
    said = {**file.block, **file.flags}
    made.put(("train_batch_size",), "auto")
    made.put(("train_micro_batch_size_per_gpu",), "auto")
    steps = said.get("gradient_accumulation_steps")
    if steps is None or str(steps.value).isdigit():  # DS916 reports anything else
        made.take(("gradient_accumulation_steps",), "gradient_accumulation_steps", "auto")
    else:
        made.put(("gradient_accumulation_steps",), "auto")
    if not _is_zero(said.get("gradient_clipping")):
        made.take(("gradient_clipping",), "gradient_clipping", "auto")
    made.take(("zero_optimization", "stage"), "zero_stage", 2)
    # Defaults are left out, because rules report only what is written.
    for kind in ("optimizer", "param"):
        device = said.get(f"offload_{kind}_device")
        if device is not None and device.value not in ("none", None):
            section = ("zero_optimization", f"offload_{kind}")
            name = f"offload_{kind}_device"
            made.take((*section, "device"), name, "none")
            if name not in file.flags:
                made.sources[section] = BuiltFrom((BLOCK, name), optional=True)
            if device.value == "nvme":
                made.put(("zero_optimization", f"offload_{kind}", "nvme_path"), "none")  # Accelerate does not pass the path on
    made.take(("zero_optimization", "stage3_gather_16bit_weights_on_model_save"), "zero3_save_16bit_model", None)
    asked = _asked(arguments) if arguments else None
    if asked in ("fp16", "bf16"):
        made.put((asked, "enabled"), value=True)
    elif file.precision in ("fp16", "bf16") and (asked is None or (file.precision == "bf16" and arguments and _may_ask_bf16(arguments))):
        made.put((file.precision, "enabled"), value=True, of=("mixed_precision",))
    return Document(
        document.text,
        made.root,
        comments=document.comments,
        problems=document.problems,
        language="yaml",
        places={(): (BLOCK,), **made.places},
        whole=document,
        sources=made.sources,
    )


def _asked(arguments: Arguments) -> str | None:
    """The precision that the Trainer's arguments set; None for fp32, "" if it is unknown: TRL and axolotl compute bf16 of the others."""
    values = {kind: UNKNOWN if arguments.has_own_default(kind) else arguments.said(kind).value for kind in ("fp16", "bf16")}
    return next((kind for kind, value in values.items() if value is True), "" if UNKNOWN in values.values() else None)


def _may_ask_bf16(arguments: Arguments) -> bool:
    """Whether only bf16 can be what the arguments set, besides nothing: TRL's default of bf16, with fp16 off."""
    return arguments.has_own_default("bf16") and arguments.said("fp16").value is False


_SELECT_A_LAUNCHER = ("use_deepspeed", "multi_gpu", "use_fsdp", "use_megatron_lm", "tpu", "cpu", "config_file", "mpirun_hostfile")


def starts_one_process(flags: Table[str, SourcedValue]) -> bool:
    """Whether `accelerate launch` may start its program as one process without ranks in its environment, by its flags.

    It does so for one process that no flag and no file of settings gives to another launcher. Without `--num_processes` there are as many
    processes as GPUs. Source: accelerate/commands/launch.py, launch_command.
    """
    if any(flag in flags for flag in _SELECT_A_LAUNCHER):
        return False
    processes, machines = (str(flags[name].value) if name in flags else "1" for name in ("num_processes", "num_machines"))
    return processes == machines == "1"


def accelerate_flags(flags: Table[str, SourcedValue], document: Document, shown: str) -> tuple[AccelerateFile, Document] | None:
    """The settings and the config of `accelerate launch --use_deepspeed` without a file; None for any other launch."""
    if "use_deepspeed" not in flags and "zero_stage" not in flags:
        return None
    at = flags.get("use_deepspeed") or flags["zero_stage"]
    made = Built(document, shown, at)
    for key in (("train_batch_size",), ("train_micro_batch_size_per_gpu",)):
        made.put(key, at, value="auto")
    for name, path in _FLAGS.items():
        given = flags.get(name)
        if given is not None and given.value != "none":
            made.put(path, given, "max_steps" if name == "zero_stage" else "max_grad_norm" if name.startswith("gradient") else "")
        elif name in ("gradient_accumulation_steps", "gradient_clipping"):
            made.put(path, at, value="auto")
        elif name == "zero_stage":
            made.put(path, at, value=2, style="default")
    block = keys_of_flags(flags, _VARIABLES)
    top = keys_of_flags(flags, ("num_processes", "num_machines", "mixed_precision"))
    return AccelerateFile(shown, top, block, precision_flag=flags.get("mixed_precision")), made.document()


def keys_of_flags(flags: Table[str, SourcedValue], names: Iterable[str]) -> dict[str, SourcedValue]:
    """The flags of `accelerate launch` that are given, by the names of the keys of its file."""
    return {name: replace(flags[name], name=name) for name in names if name in flags}


def from_variables(variables: Table[str, SourcedValue]) -> dict[str, SourcedValue]:
    """What variables of the environment say, by the names of the flags."""
    return {name: variables[variable] for name, variable in _VARIABLES.items() if variable in variables}


def over_file(file: AccelerateFile, flags: Table[str, SourcedValue], variables: Table[str, SourcedValue]) -> dict[str, SourcedValue]:
    """What the launcher takes from its flags instead of the block of its file, and from variables where neither says it."""
    given = {name: found for name, found in from_variables(variables).items() if name not in file.block}
    return given | {name: flags[name] for name in _VARIABLES if name in flags}


def set_by_flags(file: AccelerateFile) -> dict[Path, tuple[Any, SourcedValue]]:
    """The keys of the config that `over_file` decides, each with the value and where it stands."""
    return _decided(file.flags)


def _decided(given: Table[str, SourcedValue]) -> dict[Path, tuple[Any, SourcedValue]]:
    """The keys of the config that flags or variables decide. "none" and "auto" leave them to others."""
    found = {path: (_read(name, given[name]), given[name]) for name, path in _FLAGS.items() if name in given}
    return {path: one for path, one in found.items() if one[0] not in ("none", "auto")}


_PLUGIN = r"accelerate\.(\w+\.)*DeepSpeedPlugin"


def _only_plugin(program: Program | None) -> Event | None:
    """The only `DeepSpeedPlugin` that a program makes, if all its arguments are seen."""
    made = list(program.events.of(_PLUGIN)) if program is not None else []
    return made[0] if len(made) == 1 and made[0].complete else None


def bare_plugin(program: Program | None) -> bool:
    """Whether a program makes one `DeepSpeedPlugin`, for certain and without arguments: the environment says all."""
    made = _only_plugin(program)
    return made is not None and made.certain and not made.arguments


def plugin_with_config(program: Program | None) -> bool:
    """Whether a program makes one `DeepSpeedPlugin`, for certain and with a config: Accelerate then reads no other."""
    made = _only_plugin(program)
    return made is not None and made.certain and made.argument("hf_ds_config", 0) is not None


def set_by_variables(launch: Launch | None, program: Program | None) -> dict[Path, tuple[Any, SourcedValue]]:
    """The keys of the config that variables of a launch decide, because the arguments of the program's only `DeepSpeedPlugin` do not."""
    made = _only_plugin(program)
    if launch is None or made is None or any(name.isdigit() for name in made.arguments):
        return {}
    return _decided({name: one for name, one in from_variables(launch.variables).items() if name not in made.arguments})


def _read(name: str, given: SourcedValue) -> Any:
    """The value of a flag or a variable as Accelerate reads it."""
    if name.startswith("zero3_"):
        return as_read("bf16", given.value)
    number = as_read("max_steps" if name == "zero_stage" else "max_grad_norm", given.value)
    return given.value if number is UNKNOWN else number


class _Made:
    """A tree under construction, with the place in the file of each part. `flags` count more than the file."""

    def __init__(self, document: Document, at: Span, flags: Table[str, SourcedValue]) -> None:
        self.document = document
        self.at = at
        self.flags = flags
        self.root = Mapping(at, [])
        self.places: dict[Path, Path] = {}
        self.sources: dict[Path, BuiltFrom] = {}

    def take(self, path: Path, name: str, default: Any) -> None:
        """Copy a key of the block to a path, or write Accelerate's default there (None: write nothing)."""
        found = self.document.lookup((BLOCK, name))
        node = found.value if isinstance(found, Member) else None
        if name in self.flags:
            value = _read(name, self.flags[name])
            self.put(path, default if value == "none" and default is not None else value)
        elif isinstance(node, Scalar) and node.value not in (None, "none", "None"):
            self._put(path, node if path[-1] == "device" else _converted(node), (BLOCK, name))
            self.sources[path] = BuiltFrom((BLOCK, name), optional=default is None)
        elif default is not None:
            self.put(path, default)

    def put(self, path: Path, value: Any, *, of: Path | None = None) -> None:
        """Write a value at a path; `of` is the key of the file that it comes from."""
        found = self.document.lookup(of) if of else None
        span = found.value.span if isinstance(found, Member) else self.at
        self._put(path, Scalar(span, value, str(value).lower() if isinstance(value, bool) else str(value), "yaml"), of)

    def _put(self, path: Path, node: Node, of: Path | None) -> None:
        found = self.document.lookup(of) if of else None
        span = found.key.span if isinstance(found, Member) else self.at
        here = self.root
        for length, step in enumerate(path[:-1], 1):
            inner = here.get(str(step))
            if inner is None:
                inner = Member(Key(span, str(step), str(step)), Mapping(span, []))
                here.members.append(inner)
            assert isinstance(inner.value, Mapping)
            here = inner.value
            if of:
                self.places.setdefault(path[:length], of)
        here.members.append(Member(Key(span, str(path[-1]), str(path[-1])), node))
        if of:
            self.places[path] = of


def _converted(node: Scalar) -> Scalar:
    """A value as Accelerate reads it back from the environment: a number in quotes is a number. DS916 reports what cannot be read."""
    if not isinstance(node.value, str) or node.value in ("auto", "cpu", "nvme", "none", "true", "false"):
        return node
    value = as_read("max_grad_norm", node.value)
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return Scalar(node.span, "auto" if value is UNKNOWN else int(value) if whole else value, node.raw, "yaml")
