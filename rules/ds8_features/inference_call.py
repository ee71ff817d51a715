"""DS8: calls of `deepspeed.init_inference`, and of the engine that it makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.config.read_value import PYDANTIC_2
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.facts.gpus import GIB
from dslint.job.events import INFERENCE, LOADS, Event, Events
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import names_its_release
from dslint.rules.helpers.model import counted, gpu_has, may_load_part
from dslint.rules.helpers.named_size import ROUNDED_UP, billions_in
from dslint.source.similar import similar
from dslint.source.unknown import UNKNOWN

_KEYS = """
    args base_dir checkpoint checkpoint_config ckpt_config config dtype enable_cuda_graph ep_group ep_mp_group ep_size expert_group expert_mp_group
    injection_dict injection_policy injection_policy_tuple keep_module_on_host kernel_inject max_out_tokens max_tokens min_out_tokens min_tokens moe
    moe_experts moe_type mp_size mpu quant replace_method replace_with_kernel_inject return_tuple save_mp_checkpoint_path set_empty_params
    tensor_parallel tm tp training_mp_size transposed_mode triangular_masking triton_autotune use_triton zero
"""

KEYS = frozenset(_KEYS.split())
"""The keys of DeepSpeedInferenceConfig in 0.9.0 to 0.19.8, with their other names; no release removed one."""

SINCE = {
    "use_triton": Release(0, 10, 0),
    "triton_autotune": Release(0, 10, 0),
    "keep_module_on_host": Release(0, 16, 3),
}
"""The first release of the keys that 0.9.0 lacks."""

TENSOR_PARALLEL = frozenset(("enabled", "tp_size", "tp_grain_size", "mpu", "tp_group"))
"""The keys of DeepSpeedTPConfig; tp_grain_size since 0.16.2."""

_DTYPES = "torch.float16 fp16 float16 half torch.float32 fp32 float32 float torch.bfloat16 bf16 bfloat16 bfloat torch.int8 int8"

DTYPES = frozenset(_DTYPES.split())
"""The texts that DtypeEnum knows."""

_NAMES_DTYPE = Release(0, 15, 0)
"""The first release with an error of its own for an unknown dtype, and with bf16."""

_TP_CLASS = r"deepspeed\.(\w+\.)*DeepSpeedTPConfig"
_CONFIG_CLASS = re.compile(r"deepspeed\.(\w+\.)*DeepSpeedInferenceConfig")

_HELP_BEAMS = "Generate with num_beams=1, or with the model itself: model.module.generate(...)."

_CALL = "import deepspeed\nfrom transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"


_TP_IMPORT = "from deepspeed.inference.config import DeepSpeedTPConfig\n"


def _example(call: str, after: str = "", imports: str = "") -> str:
    return f"{imports}{_CALL}engine = deepspeed.init_inference(model, {call})\n{after}"


_CONFIG = '{"train_micro_batch_size_per_gpu": 4}'


@rule(
    "DS871",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "deepspeed/__init__.py, init_inference",
        "deepspeed/inference/config.py, DeepSpeedInferenceConfig",
        "deepspeed/inference/engine.py, InferenceEngine",
    ),
    untried="is about a program",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_example("replace_with_kernel_injection=True"),
    message='train.py:4 calls init_inference with the unknown argument "replace_with_kernel_injection": DeepSpeed raises ValidationError "DeepSpeedInferenceConfig: Extra inputs are not permitted".',
)
@bad(
    _CONFIG,
    at="",
    program=_example("config={'tensor_parallel': {'mp_size': 2}}"),
    message='train.py:4 calls init_inference with the unknown argument "mp_size": DeepSpeed raises ValidationError "DeepSpeedInferenceConfig: Extra inputs are not permitted".',
)
@bad(
    _CONFIG,
    at="",
    program=_example("config={'dtype': 'fp16'}, dtype='bf16'"),
    message="train.py:4 calls init_inference with dtype 'bf16' and 'fp16' in config: DeepSpeed raises ValueError \"Conflicting argument 'dtype' in 'config':fp16 and kwargs:bf16\".",
)
@bad(
    _CONFIG,
    at="",
    program=_example("dtype='int4'"),
    message='train.py:4 calls init_inference with dtype "int4": DeepSpeed raises "\'int4\' is not a valid DtypeEnum".',
)
@bad(
    _CONFIG,
    at="",
    program=_example("dtype='int4'"),
    deepspeed="0.14.0",
    message='train.py:4 calls init_inference with dtype "int4": DeepSpeed raises ValidationError for dtype.',
)
@bad(
    _CONFIG,
    at="",
    program=_example("tensor_parallel={'tp_size': 2}, enable_cuda_graph=True"),
    message='train.py:4 calls init_inference with tp_size 2 and enable_cuda_graph: DeepSpeed raises AssertionError "Cuda graph is not supported for model parallelism".',
)
@bad(
    _CONFIG,
    at="",
    program=_example("injection_policy={Block: ('o_proj',)}, replace_with_kernel_inject=True"),
    message='train.py:4 calls init_inference with injection_policy and replace_with_kernel_inject: DeepSpeed raises AssertionError "Cannot use both user specified injection policy and kernel injection".',
)
@bad(
    _CONFIG,
    at="",
    program=_example("mp_size=4"),
    launch="torchrun --nproc_per_node 2 train.py\n",
    integration="deepspeed",
    message='train.py:4 calls init_inference with mp_size 4, but run.sh:1 starts 2 ranks: the tensor parallel group needs 4, and torch raises ValueError "the new group\'s world size should be less or equal to the world size set by init_process_group".',
)
@bad(
    _CONFIG,
    at="",
    program=_example("dtype='fp16'", "engine.generate(ids, num_beams=4)\n"),
    message='train.py:5 generates with num_beams=4: DeepSpeed raises NotImplementedError "DeepSpeed does not support `num_beams` > 1".',
)
@bad(
    _CONFIG,
    at="",
    program=_example("tp=DeepSpeedTPConfig({'tp_size': 4})", imports=_TP_IMPORT),
    message="train.py:5 calls DeepSpeedTPConfig with a positional argument: that is strict, DeepSpeed ignores {'tp_size': 4}, tp_size stays 1, and every rank holds the whole model.",
)
@bad(
    _CONFIG,
    at="",
    program=_example("tp=DeepSpeedTPConfig(tensor_parallel_size=4)", imports=_TP_IMPORT),
    message='train.py:5 calls DeepSpeedTPConfig with the unknown argument "tensor_parallel_size": DeepSpeed raises ValidationError "DeepSpeedTPConfig: Extra inputs are not permitted".',
)
@bad(
    _CONFIG,
    at="",
    program=_example(
        "config=DeepSpeedInferenceConfig(mp_size=2)", imports="from deepspeed.inference.config import DeepSpeedInferenceConfig\n"
    ),
    message="train.py:5 calls init_inference with a DeepSpeedInferenceConfig as config: DeepSpeed raises ValueError \"'config' argument expected string or dictionary\".",
)
@bad(
    _CONFIG,
    at="",
    program=_example("keep_module_on_host=True"),
    deepspeed="0.16.2",
    message='train.py:4 calls init_inference with the argument "keep_module_on_host", which 0.16.3 added: DeepSpeed 0.16.2 raises ValidationError "DeepSpeedInferenceConfig: Extra inputs are not permitted".',
)
@good(_CONFIG, program=_example("replace_with_kernel_inject=True, mp_size=2, dtype=torch.half, max_tokens=2048, tp={'tp_size': 2}"))
@good(
    _CONFIG,
    program=_example(
        "config={'dtype': 'fp16'}, dtype='fp16'", "engine.generate(ids, num_beams=1)\nengine.module.generate(ids, num_beams=4)\n"
    ),
)
@good(
    _CONFIG,
    program=_example("tensor_parallel={'tp_size': 1}, enable_cuda_graph=True, injection_policy=None, replace_with_kernel_inject=True"),
)
@good(_CONFIG, program=_example("injection_policy={}, replace_with_kernel_inject=True"))
@good(_CONFIG, program=_example("mp_size=2"), launch="torchrun --nproc_per_node 2 train.py\n", integration="deepspeed")
@good(_CONFIG, program=_example("keep_module_on_host=True"), deepspeed="0.16.3")
@good(_CONFIG, program=_example("tp=DeepSpeedTPConfig(tp_size=4)", imports=_TP_IMPORT))
def inference_refused(config: Config) -> Iterator[Finding]:
    """A program calls `deepspeed.init_inference` with arguments that it, or the engine it makes, refuses.

    All arguments besides the model are keys of a config of its own, and an unknown one raises `ValidationError`. A key that stands in `config`
    and among the arguments must have the same value. CUDA graphs exclude tensor parallelism, an `injection_policy` excludes
    `replace_with_kernel_inject`, and a tensor parallel group cannot have more ranks than there are. `generate` of the engine refuses beam search.

    `config` is a dict or the path of a file, not a `DeepSpeedInferenceConfig`. `DeepSpeedTPConfig` takes its keys by name: a dict as its first
    argument is the value of `strict`, and its keys are lost.

    Correct the argument.
    """
    program = config.setup.program if config.setup else None
    if (
        program is None or config.context.outside is not None
    ):  # releases before 0.9.0 have other arguments, and some no error for beam search
        return
    yield from _refused_objects(program.events, config)
    for event in program.events.of(re.escape(INFERENCE)):
        for error, advice, certain in _refused(event, config):
            yield _finding(event, f"calls init_inference with {error}", advice, certain=certain)
    for event in program.events.of(re.escape(f"{INFERENCE}.generate")):
        beams = event.argument("num_beams")
        if beams is not None and isinstance(beams.value, int) and beams.value > 1:
            error = (
                f'generates with num_beams={beams.value}: DeepSpeed raises NotImplementedError "DeepSpeed does not support `num_beams` > 1"'
            )
            yield _finding(event, error, _HELP_BEAMS, certain=True)


def _refused_objects(events: Events, config: Config) -> Iterator[Finding]:
    """Objects of DeepSpeed's classes that hold less than the program writes, or that `init_inference` refuses."""
    calls = list(events.of(re.escape(INFERENCE)))
    for event in events.of(_TP_CLASS) if calls else ():
        strict = event.arguments.get("0")
        if strict is not None and strict.value not in (True, False):
            yield Finding(
                "",
                f"{event.at.where} calls DeepSpeedTPConfig with a positional argument: that is strict, DeepSpeed ignores {strict.raw}, tp_size "
                "stays 1, and every rank holds the whole model.",
                help='Write tensor_parallel={"tp_size": ...} in init_inference.',
                elsewhere=event.at.related(""),
                effect=Effect.SILENT,
                phase=None,
                certain=event.certain and not event.conditions and "tp_size" not in event.arguments and event.complete,
            )
        names = (one for one in event.arguments if not one.isdecimal())
        name = next((one for one in names if one not in TENSOR_PARALLEL and one != "strict"), None)
        if name is not None:
            error = f'ValidationError "DeepSpeedTPConfig: {_extra(config)}"'
            advice = 'Write tensor_parallel={"tp_size": ...} in init_inference.'
            yield _finding(
                event, f'calls DeepSpeedTPConfig with the unknown argument "{name}": DeepSpeed raises {error}', advice, certain=True
            )
    for event in calls:
        given = event.argument("config", 1)
        if given is not None and _CONFIG_CLASS.fullmatch(given.made):
            error = "calls init_inference with a DeepSpeedInferenceConfig as config: DeepSpeed raises ValueError \"'config' argument expected string or dictionary\""
            yield _finding(event, error, "Pass a dict with the same keys.", certain=True)


def _extra(config: Config) -> str:
    return "Extra inputs are not permitted" if config.release >= PYDANTIC_2 else "extra fields not permitted"


def _finding(event: Event, error: str, advice: str, *, certain: bool) -> Finding:
    certain = certain and event.always
    said = error if certain else error.replace(" raises ", " may raise ")
    return Finding("", f"{event.at.where} {said}.", help=advice, elsewhere=event.at.related(""), certain=certain)


def _refused(event: Event, config: Config) -> Iterator[tuple[str, str, bool]]:
    """The errors of a call, each with what to write, and whether it is certain."""
    first = event.argument("config", 1)
    written: dict[str, Any] = dict(first.value) if first is not None and isinstance(first.value, dict) else {}
    direct = {name: one.value for name, one in event.arguments.items() if not name.isdecimal() and name not in ("model", "config")}
    for name, value in direct.items():
        there = written.get(name, UNKNOWN)
        if (
            UNKNOWN not in (there, value)
            and isinstance(value, str | int | float)
            and isinstance(there, str | int | float)
            and there != value
        ):
            error = f"ValueError \"Conflicting argument '{name}' in 'config':{there} and kwargs:{value}\""
            yield f"{name} {value!r} and {there!r} in config: DeepSpeed raises {error}", "Write it once.", True
    given = written | direct
    yield from _unknown_keys(given, config)
    dtype = given.get("dtype")
    if isinstance(dtype, str) and dtype not in DTYPES:
        named = config.release >= _NAMES_DTYPE
        error = f"\"'{dtype}' is not a valid DtypeEnum\"" if named else "ValidationError for dtype"
        yield (
            f'dtype "{dtype}": DeepSpeed raises {error}',
            'Write "fp16", "bf16", "fp32" or "int8".' if named else 'Write "fp16", "fp32" or "int8".',
            True,
        )
    ranks, where = _tensor_parallel_size(given)
    if ranks is not None and ranks > 1 and given.get("enable_cuda_graph") is True:
        error = f'{where} and enable_cuda_graph: DeepSpeed raises AssertionError "Cuda graph is not supported for model parallelism"'
        yield error, "Remove enable_cuda_graph.", not given.get("mpu")
    policy = next((name for name in ("injection_policy", "injection_dict") if name in given and given[name] is not None), None)
    if policy is not None and policy in event.arguments and event.arguments[policy].raw in ("{}", "dict()"):
        policy = None
    if policy is not None and True in (given.get("replace_with_kernel_inject"), given.get("kernel_inject")):
        error = 'AssertionError "Cannot use both user specified injection policy and kernel injection"'
        certain = policy in event.arguments and re.match(r"\{\s*\w", event.arguments[policy].raw) is not None
        yield f"{policy} and replace_with_kernel_inject: DeepSpeed raises {error}", "Remove one of the two.", certain
    launch = config.setup.launch if config.setup is not None else None
    started = launch.world_size if launch is not None else None
    if ranks is not None and started is not None and ranks > started:
        starter = launch.given.where if launch is not None and launch.given is not None else "the launch"
        error = f'{where}, but {starter} starts {started} rank{"s" * (started > 1)}: the tensor parallel group needs {ranks}, and torch raises ValueError "the new group\'s world size should be less or equal to the world size set by init_process_group"'
        yield error, f"Start {ranks} ranks, or write {where.partition(' ')[0]} {started}.", not given.get("mpu")


def _unknown_keys(given: dict[str, Any], config: Config) -> Iterator[tuple[str, str, bool]]:
    raised = _extra(config)
    parallel = next((one for name in ("tensor_parallel", "tp") if isinstance(one := given.get(name), dict)), {})
    for names, known in ((given, KEYS), (parallel, TENSOR_PARALLEL)):
        for name in names:
            since = SINCE.get(name)
            if name in known and since is not None and config.release < since and names_its_release(config):
                error = f'the argument "{name}", which {since} added: DeepSpeed {config.release} raises ValidationError "DeepSpeedInferenceConfig: {raised}"'
                yield error, f"Remove it, or use DeepSpeed {since} or newer.", True
            elif name not in known:
                close = next(iter(similar(name, known)), None)
                advice = f'Did you mean "{close}"?' if close else _where_it_belongs(name)
                yield f'the unknown argument "{name}": DeepSpeed raises ValidationError "DeepSpeedInferenceConfig: {raised}"', advice, True


def _where_it_belongs(name: str) -> str:
    if name in ("train_batch_size", "train_micro_batch_size_per_gpu", "fp16", "bf16", "zero_optimization", "optimizer", "scheduler"):
        return "init_inference takes a config of its own, not one of a training: pass dtype and tensor_parallel."
    return "Remove it." if name != "tp_size" else 'Write tensor_parallel={"tp_size": ...}.'


def _tensor_parallel_size(given: dict[str, Any]) -> tuple[int | None, str]:
    """The ranks of a tensor parallel group, and the argument that sets them."""
    for name in ("tensor_parallel", "tp"):
        size = given[name].get("tp_size") if isinstance(given.get(name), dict) else None
        if isinstance(size, int):
            return size, f"tp_size {size}"
    size = given.get("mp_size")
    return (size, f"mp_size {size}") if isinstance(size, int) and "tensor_parallel" not in given and "tp" not in given else (None, "")


_ZERO = "{'stage': 3, 'offload_param': {'device': 'cpu'}}"
_ZERO_INFERENCE = (
    "For ZeRO-Inference pass the section as zero_optimization in the config of deepspeed.initialize, and generate with engine.module."
)


@rule(
    "DS875",
    effect=Effect.IGNORED,
    watches=("setup",),
    setup=True,
    references=("deepspeed/inference/engine.py, InferenceEngine", "https://github.com/deepspeedai/DeepSpeed/issues/2372"),
)
@bad(
    _CONFIG,
    at="",
    program=_example(f"config={{'dtype': 'fp16', 'zero': {_ZERO}}}"),
    message="train.py:4 passes ZeRO in its config to init_inference: DeepSpeed ignores it, and neither partitions nor offloads the weights.",
)
@bad(
    _CONFIG,
    at="",
    program=_example(f"args={{'zero_optimization': {_ZERO}}}, dtype=torch.half"),
    message='train.py:4 passes ZeRO in "args" to init_inference: DeepSpeed ignores it, and neither partitions nor offloads the weights.',
)
@good(_CONFIG, program=_example("config={'dtype': 'fp16', 'zero': {'stage': 0}}"))
@good(_CONFIG, program=_example("config={'dtype': 'fp16', 'zero': {}}"))
@good(_CONFIG, program=_example("config={'dtype': 'fp16', 'zero': {'stage': 0, 'offload_param': {'device': 'none'}}}"))
@good(_CONFIG, program=_example("args={'hidden_size': 64}"))
def zero_in_inference(config: Config) -> Iterator[Finding]:
    """`deepspeed.init_inference` gets ZeRO or offload, which it does not use.

    The inference engine accepts a section `zero` and never reads it: each GPU holds its whole share of the weights, and nothing is offloaded.
    `args` is another name for the key `config`, in which the engine keeps the config of the model. ZeRO-Inference, which keeps the weights on
    the host or on NVMe, is an engine of `deepspeed.initialize` with ZeRO stage 3 and `offload_param`.

    Use `deepspeed.initialize` for ZeRO-Inference, or remove the section.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.context.outside is not None:
        return
    for event in program.events.of(re.escape(INFERENCE)):
        given = _given(event)
        inner = next((one for name in ("args", "config") if isinstance(one := given.get(name), dict)), {})
        written = {"zero": given.get("zero"), "args": inner.get("zero_optimization", inner.get("zero"))}
        name = next((name for name, section in written.items() if isinstance(section, dict) and _partitions(section)), None)
        if name is not None:
            told = "in its config" if name == "zero" else f'in "{name}"'
            yield Finding(
                "",
                f"{event.at.where} passes ZeRO {told} to init_inference: DeepSpeed ignores it, and neither partitions nor offloads the weights.",
                help=_ZERO_INFERENCE,
                elsewhere=event.at.related(""),
                costly=True,
            )


def _given(event: Event) -> dict[str, Any]:
    """The keys that a call passes, in its config or by name, without `config` where it is the whole config."""
    first = event.argument("config", 1)
    written: dict[str, Any] = dict(first.value) if first is not None and isinstance(first.value, dict) else {}
    return written | {name: one.value for name, one in event.arguments.items() if not name.isdecimal() and name not in ("model", "config")}


def _partitions(section: dict[str, Any]) -> bool:
    stage = section.get("stage")
    offloads = [one for name in ("offload_param", "offload_optimizer") if isinstance(one := section.get(name), dict)]
    return (isinstance(stage, int) and stage > 0) or any(one.get("device") not in (None, "none") for one in offloads)


_BYTES = {"int8": 1, "half": 2, "float16": 2, "fp16": 2, "bfloat16": 2, "bf16": 2, "float": 4, "float32": 4, "fp32": 4}

_USABLE = 0.99
"""The share of a GPU that tensors may have at most: CUDA itself needs some hundred MiB."""


@rule(
    "DS876",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=("deepspeed/inference/engine.py, InferenceEngine", "https://github.com/deepspeedai/DeepSpeed/issues/3764"),
    untried="needs a model that a GPU does not hold",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_example("dtype=torch.half").replace("'m'", "'llama-13b'"),
    gpu="rtx4090",
    message='train.py:4 moves 13 billion parameters of 2 bytes to the GPU: 24.2 GiB. The rtx4090 has 23.5 GiB: PyTorch may raise "CUDA out of memory".',
)
@bad(
    _CONFIG,
    at="",
    program="import torch\n" + _example("dtype=torch.half, mp_size=world_size").replace("'m'", "'opt-66b'"),
    launch="deepspeed --num_gpus 2 train.py\n",
    gpu="a100-40gb",
    message='train.py:5 moves 65.7 billion parameters of 2 bytes, divided by 2 ranks, to the GPU: 61.2 GiB. The a100-40gb has 39.4 GiB: PyTorch raises "CUDA out of memory".',
)
@bad(
    _CONFIG,
    at="",
    program=_example("config={'dtype': 'fp32', 'tensor_parallel': {'tp_size': 1}}").replace("'m'", "'opt-6.7b'"),
    gpu="rtx4090",
    message='train.py:4 moves 6.66 billion parameters of 4 bytes to the GPU: 24.8 GiB. The rtx4090 has 23.5 GiB: PyTorch raises "CUDA out of memory".',
)
@good(_CONFIG, program=_example("dtype=torch.half, tensor_parallel={'tp_size': 2}").replace("'m'", "'llama-13b'"), gpu="rtx4090")
@good(_CONFIG, program=_example("dtype=torch.int8").replace("'m'", "'llama-13b'"), gpu="rtx4090")
@good(_CONFIG, program=_example("dtype=torch.int8 if short else torch.float").replace("'m'", "'llama-13b'"), gpu="rtx4090")
@good(_CONFIG, program=_example("dtype=torch.half").replace("'m'", "'llama-13b', num_hidden_layers=2"), gpu="rtx4090")
@good(_CONFIG, program=_example("dtype=torch.half, mp_size=world_size").replace("'m'", "'llama-13b'"), gpu="rtx4090")
@good(_CONFIG, program=_example("dtype=torch.half").replace("'m'", "'llama-13b', device_map='auto'"), gpu="rtx4090")
@good(_CONFIG, program=_example("dtype=torch.half").replace("'m'", "'llama-13b'"), gpu="h100")
def inference_exceeds_gpu(config: Config) -> Iterator[Finding]:
    """The weights of an inference engine alone are larger than the GPU.

    `deepspeed.init_inference` moves the model to the GPU, divided by the size of the tensor parallel group only; it does not offload. The
    parameters are those of a known model, or of the size in its name (`llama-13b`).

    Use more GPUs in the tensor parallel group, a smaller `dtype`, or ZeRO-Inference by `deepspeed.initialize`.
    """
    facts, program = config.facts, config.setup.program if config.setup else None
    memory = facts.gpu_memory
    if program is None or memory is None or config.context.outside is not None or program.quantized is not None:
        return
    loads = [*program.events.of(LOADS), *program.events.of(r"transformers\.pipeline")]
    calls = list(program.events.of(re.escape(INFERENCE)))
    if len(loads) != 1 or len(calls) != 1 or may_load_part(config):
        return
    (event,), (load,) = calls, loads
    if load.argument("quantization_config") is not None or load.argument("model_kwargs") is not None:
        return
    named = load.argument("model", 1) if load.name.endswith(".pipeline") else load.argument("pretrained_model_name_or_path", 0)
    count = _billions(named.value if named is not None else None, config)
    given, launch = _given(event), config.setup.launch if config.setup else None
    if count is None or not event.complete or not load.complete or not given.keys().isdisjoint(("quant", "keep_module_on_host")):
        return
    ranks, _ = _tensor_parallel_size(given)
    if ranks is None and not given.keys().isdisjoint(("tensor_parallel", "tp", "mp_size", "mpu")):
        ranks = launch.world_size if launch is not None else None
        if ranks is None:
            return
    each = _bytes_of_weight(event, given)
    needed = count * 1e9 * each / (ranks or 1)
    if needed <= memory * _USABLE:
        return
    from dslint.memory.shapes import parameters_in_words

    divided = f", divided by {ranks} ranks," if (ranks or 1) > 1 else ""
    said = (
        f"moves {parameters_in_words(count * 1e9)} of {each} byte{'s' * (each > 1)}{divided} to the GPU: {needed / GIB:,.1f} GiB. "
        f'The {gpu_has(config, memory)}: PyTorch raises "CUDA out of memory"'
    )
    advice = "Use a larger tensor parallel group (tp_size), a smaller dtype, or ZeRO-Inference: deepspeed.initialize with ZeRO stage 3 and offload_param."
    yield _finding(event, said, advice, certain=needed > memory * ROUNDED_UP)


def _bytes_of_weight(event: Event, given: dict[str, Any]) -> int:
    """The bytes of a weight by the `dtype` of a call; the least ones if only the run knows it."""
    argument = event.argument("dtype")
    written = argument.raw.strip("\"'") if argument is not None else given.get("dtype", "half")
    return _BYTES.get(written.removeprefix("torch."), 1) if isinstance(written, str) else 1


def _billions(name: object, config: Config) -> float | None:
    """The parameters of the model that a program loads, in billions, as they are known or as its name says."""
    if config.facts.model is not None:
        return None if config.facts.model.quantization else counted(config.facts.model).size / 1e9
    return billions_in(name) if isinstance(name, str) else None
