"""Runs jobs in the real framework as far as `deepspeed.initialize`; runs in the environment of the framework, without dslint.

    PYTHON run_jobs.py FRAMEWORK FIXTURES        jobs as JSON lines on standard input, answers as JSON lines on standard output

The framework is imported once, and each job runs in a fork; what a job imports is imported here before the next one, because that takes
most of its time. Everything is real, from the entry of the console script on, except:

* The process group is the "fake" one of torch: this process is rank 0 of any world size.
* `torch.distributed.run.run` sets the variables of rank 0 and runs the script in this process.
* A job is one on GPUs: Accelerate finds MULTI_GPU, bf16 is supported, and tensors stay on the CPU.
* Compiled operations of DeepSpeed load at once and do nothing.
* Data are prepared in this process.
* `deepspeed.initialize` notes the config and ends the job.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import importlib
import importlib.machinery
import json
import os
import runpy
import select
import signal
import sys
import time
import types
from pathlib import Path
from typing import Any, ClassVar

PATIENCE = 120
"""The seconds that a job may take."""

_ENVIRONMENT = {
    "ACCELERATE_TORCH_DEVICE": "cpu",
    "AXOLOTL_DO_NOT_TRACK": "1",
    "DISABLE_VERSION_CHECK": "1",
    "DO_NOT_TRACK": "1",
    "DS_ACCELERATOR": "cpu",
    "DS_BUILD_OPS": "0",
    "DS_IGNORE_CUDA_DETECTION": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_OFFLINE": "1",
    "MODELSCOPE_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "USE_HF": "1",
    "WANDB_DISABLED": "true",
}

_IMPORTS = {
    "accelerate": ("transformers", "accelerate.commands.launch"),
    "axolotl": ("axolotl.cli.train", "axolotl.train", "axolotl.cli.config", "axolotl.common.datasets", "axolotl.core.trainers"),
    "lightning": ("lightning.pytorch.strategies", "transformers"),
    "llamafactory": ("llamafactory.train.tuner", "llamafactory.train.sft.workflow"),
    "ms-swift": ("swift.pipelines",),
    "transformers": ("transformers.trainer", "transformers.models.llama.modeling_llama", "accelerate.commands.launch"),
    "trl": ("trl.cli", "trl.trainer.sft_trainer", "trl.trainer.dpo_trainer", "accelerate.commands.launch"),
}


class _Run:
    """The job that this process runs, and where its answer goes."""

    job: ClassVar[dict[str, Any]] = {}
    known: ClassVar[frozenset[str]] = frozenset()
    """The modules that were imported before the job."""
    answers = -1


def _rank_zero(ranks: int, nodes: int = 1) -> None:
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(max(1, ranks // nodes))}
    os.environ |= {"GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555"}
    os.environ.setdefault("NODE_RANK", "0")


def _replace_torch() -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.run as launcher
    from torch.testing._internal.distributed.fake_pg import FakeStore

    real = dist.init_process_group

    def init_process_group(*_: Any, **__: Any) -> None:
        if not dist.is_initialized():
            real("fake", store=FakeStore(), rank=0, world_size=int(os.environ.get("WORLD_SIZE", "1")))

    def run(arguments: Any) -> None:
        nodes, each = int(str(arguments.nnodes).rpartition(":")[2]), str(arguments.nproc_per_node)
        _rank_zero(nodes * (int(each) if each.isdigit() else _Run.job["gpus"]), nodes)
        sys.argv = [arguments.training_script, *arguments.training_script_args]
        if arguments.module:
            runpy.run_module(arguments.training_script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(arguments.training_script, run_name="__main__")

    def without_deepspeed(*_: Any, **__: Any) -> None:
        _answer({"outcome": "finished", "error": "trains with DistributedDataParallel, without DeepSpeed"})

    dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group
    launcher.run = run
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.get_device_capability = lambda *_, **__: (9, 0)
    torch.cuda.device_count = lambda: _Run.job.get("gpus", 1)
    torch.cuda.set_device = lambda *_, **__: None
    torch.nn.parallel.DistributedDataParallel.__init__ = without_deepspeed


def _replace_launcher() -> None:
    """`accelerate launch` starts a single process by itself; here it is this one. It starts several because it sees GPUs."""
    import torch

    launch = importlib.import_module("accelerate.commands.launch")
    validate = launch._validate_launch_command

    def validate_launch_command(arguments: Any) -> Any:
        available, torch.cuda.is_available = torch.cuda.is_available, lambda: True
        try:
            return validate(arguments)
        finally:
            torch.cuda.is_available = available

    def simple_launcher(arguments: Any) -> None:
        command, environment = launch.prepare_simple_launcher_cmd_env(arguments)
        os.environ.update(environment)
        sys.argv = command[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")

    launch._validate_launch_command = validate_launch_command
    launch.simple_launcher = simple_launcher


def _replace_libraries() -> None:
    import transformers.utils
    import transformers.utils.import_utils as checks
    from accelerate.state import DistributedType, PartialState
    from transformers.integrations import is_deepspeed_zero3_enabled
    from transformers.modeling_utils import PreTrainedModel

    prepare = PartialState._prepare_backend
    load = PreTrainedModel.from_pretrained.__func__

    def prepare_backend(self: Any, cpu: bool = False, *given: Any, **more: Any) -> Any:
        on_cpu = cpu or "LOCAL_RANK" not in os.environ
        return prepare(self, cpu, *given, **more) if on_cpu else ("nccl", DistributedType.MULTI_GPU)

    def from_pretrained(cls: Any, *given: Any, device_map: Any = None, **more: Any) -> Any:
        """Without ZeRO-3 the GPU that a job loads its model to is the CPU."""
        device_map = "cpu" if device_map is not None and not is_deepspeed_zero3_enabled() else device_map
        return load(cls, *given, **({} if device_map is None else {"device_map": device_map}), **more)

    PartialState._prepare_backend = prepare_backend
    PreTrainedModel.from_pretrained = classmethod(from_pretrained)
    for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
        if hasattr(checks, name):
            setattr(checks, name, lambda *_, **__: True)
            setattr(transformers.utils, name, getattr(checks, name))


def _replace_lightning() -> None:
    """A job with Lightning's DeepSpeed strategy is one on GPUs; of the ranks that its launcher would start, this process is the first."""
    with contextlib.suppress(ImportError):
        strategies = importlib.import_module("lightning.pytorch.strategies")
        launchers = importlib.import_module("lightning.pytorch.strategies.launchers.subprocess_script")
        cuda = importlib.import_module("lightning.pytorch.accelerators.cuda").CUDAAccelerator
        import torch

        def setup_distributed(self: Any) -> None:
            _rank_zero(self.num_nodes * self.num_processes, self.num_nodes)
            real(self)

        real = strategies.DeepSpeedStrategy.setup_distributed
        strategies.DeepSpeedStrategy.setup_distributed = setup_distributed
        strategies.DeepSpeedStrategy.root_device = property(lambda self: torch.device("cpu"))
        launchers._SubprocessScriptLauncher._call_children_scripts = lambda self: None
        cuda.is_available = staticmethod(lambda: True)
        cuda.setup_device = cuda.teardown = lambda *_: None


def _replace_data() -> None:
    """Workers that prepare two dozen rows would import the framework again, for longer than the rest of a job takes."""
    with contextlib.suppress(ImportError):
        from datasets import Dataset

        for name in ("map", "filter", "save_to_disk"):
            setattr(Dataset, name, functools.partialmethod(_in_this_process, getattr(Dataset, name)))


def _in_this_process(self: Any, real: Any, *given: Any, num_proc: Any = None, **more: Any) -> Any:
    return real(self, *given, **more)


class _Operation:
    """A compiled operation that does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def _replace_deepspeed() -> None:
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator

    accelerator = type(get_accelerator())
    accelerator.is_fp16_supported = accelerator.is_bf16_supported = lambda self: True
    accelerator.supported_dtypes = lambda self: [torch.float, torch.half, torch.bfloat16]
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    importlib.import_module("deepspeed.ops.op_builder.builder").OpBuilder.load = lambda self, verbose=True: _Operation()
    with contextlib.suppress(ImportError):
        name = "deepspeed.ops.op_builder.cpu.no_impl"
        importlib.import_module(name).NotImplementedBuilder.load = lambda self, verbose=True: _Operation()

    def initialize(
        args: Any = None,
        model: Any = None,
        optimizer: Any = None,
        model_parameters: Any = None,
        *_: Any,
        mpu: Any = None,
        config: Any = None,
        config_params: Any = None,
        **__: Any,
    ) -> Any:
        config = next(one for one in (config, config_params, getattr(args, "deepspeed_config", None)) if one is not None)
        if isinstance(config, str | os.PathLike):
            config = json.loads(Path(config).read_text(encoding="utf-8"))
        config = getattr(config, "config", config)
        if optimizer is None and model_parameters is None and "optimizer" not in config:  # a reference model
            return model, None, None, None
        deepspeed.init_distributed("nccl")  # as the real one does: DeepSpeed has its ranks from here, whatever Accelerate made of them
        world_size = int(os.environ.get("WORLD_SIZE", "1"))
        told = {"refused": _refused(config, mpu, optimizer), "engine": None}
        if told["refused"] is None:
            told["engine"] = _plain(_engine(config, mpu))
        _answer({"outcome": "initialize", "config": _plain(config), "world_size": world_size, **told})
        return None

    deepspeed.initialize = initialize


_GETTERS = {
    "train_batch_size": "train_batch_size",
    "train_micro_batch_size_per_gpu": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "gradient_clipping",
    "steps_per_print": "steps_per_print",
    "wall_clock_breakdown": "wall_clock_breakdown",
    "zero_allow_untested_optimizer": "zero_allow_untested_optimizer",
    "fp16.enabled": "fp16_enabled",
    "fp16.auto_cast": "fp16_auto_cast",
    "bf16.enabled": "bfloat16_enabled",
    "optimizer.params": "optimizer_params",
    "scheduler.type": "scheduler_name",
    "scheduler.params": "scheduler_params",
    "zero_optimization.stage": "zero_optimization_stage",
    "zero_optimization.overlap_comm": "zero_overlap_comm",
    "zero_optimization.contiguous_gradients": "zero_contiguous_gradients",
    "zero_optimization.reduce_scatter": "zero_reduce_scatter",
    "zero_optimization.reduce_bucket_size": "zero_reduce_bucket_size",
    "zero_optimization.allgather_bucket_size": "zero_allgather_bucket_size",
    "zero_optimization.sub_group_size": "zero_sub_group_size",
    "zero_optimization.round_robin_gradients": "zero_round_robin_gradients",
    "zero_optimization.stage3_prefetch_bucket_size": "zero_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold": "zero_param_persistence_threshold",
    "zero_optimization.stage3_max_live_parameters": "zero_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance": "zero_max_reuse_distance",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": "zero_gather_16bit_weights_on_model_save",
    "zero_optimization.zero_hpz_partition_size": "zero_hpz_partition_size",
}
"""Keys of a config, each with the method of the engine that says what it uses."""


def _engine(config: Any, mpu: Any) -> dict[str, Any]:
    """What the engine's own getters say of a config, by the dotted key; a section that the engine has none of is left out."""
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime.engine import DeepSpeedEngine

    engine = object.__new__(DeepSpeedEngine)
    engine.__dict__ |= {"_config": DeepSpeedConfig(copy.deepcopy(config), mpu), "client_optimizer": None}
    values: dict[str, Any] = {}
    for key, getter in _GETTERS.items():
        value = getattr(engine, getter)()
        values |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
    return {key: value for key, value in values.items() if value is not None}


def _refused(config: Any, mpu: Any, given: Any) -> str | None:
    """What DeepSpeed's own reader, schedule and optimizer raise for a config, and its engine for the optimizer that it is given."""
    import torch
    from deepspeed.runtime import lr_schedules
    from deepspeed.runtime.config import DeepSpeedConfig

    try:
        read = DeepSpeedConfig(copy.deepcopy(config), mpu)
        params = dict(read.optimizer_params or {})
        known = {name: params[name] for name in ("lr", "betas", "eps", "weight_decay") if name in params}
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], **known)
        if read.scheduler_name in lr_schedules.VALID_LR_SCHEDULES:
            getattr(lr_schedules, read.scheduler_name)(optimizer, **(read.scheduler_params or {}))
        if isinstance(given, torch.optim.Optimizer):
            _take_optimizer(read, given)
    except BaseException as error:  # noqa: BLE001 - whatever DeepSpeed says is the answer
        return f"{type(error).__name__}: {error}"[:600]
    return None


def _take_optimizer(config: Any, optimizer: Any) -> None:
    """The engine's own checks of an optimizer that it is given, without what it makes of it afterwards."""
    import torch
    from deepspeed.runtime.engine import DeepSpeedEngine

    engine = object.__new__(DeepSpeedEngine)
    torch.nn.Module.__init__(engine)
    made = ("_configure_zero_optimizer", "_configure_fp16_optimizer", "_configure_bf16_optimizer", "_check_for_duplicates")
    engine.__dict__ |= {"_config": config, "client_optimizer": optimizer, "global_rank": 0, "pipeline_parallelism": False}
    engine.__dict__ |= {name: lambda *_: None for name in made}
    engine._configure_optimizer(optimizer, None)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value if value is None or isinstance(value, str | int | float | bool) else f"<{type(value).__name__}>"


def _answer(answer: dict[str, Any]) -> None:
    """Tell what became of the job, and end it."""
    sys.stdout.flush()
    sys.stderr.flush()
    folder = _Run.job["folder"]
    new = [name for name in sys.modules if name not in _Run.known and name != "__main__"]
    modules = [name for name in new if not str(getattr(sys.modules[name], "__file__", None) or folder).startswith(folder)]
    with os.fdopen(_Run.answers, "w") as stream:
        stream.write(json.dumps(answer | {"modules": modules}) + "\n")
    os._exit(0)


def _start(command: list[str]) -> None:
    """Run a command as its console script would."""
    program, rest = command[0], command[1:]
    if program == "accelerate":
        sys.argv = ["accelerate-launch", *rest[1:]]
        importlib.import_module("accelerate.commands.launch").main()
    elif program == "torchrun":
        importlib.import_module("torch.distributed.run").main(rest)
    elif program == "deepspeed":
        arguments = importlib.import_module("deepspeed.launcher.runner").parse_args(rest)
        nodes = max(1, arguments.num_nodes)
        _rank_zero((arguments.num_gpus if arguments.num_gpus > 0 else _Run.job["gpus"]) * nodes, nodes)
        rank = [] if arguments.no_local_rank else ["--local_rank=0"]
        sys.argv = [arguments.user_script, *rank, *arguments.user_args]
        runpy.run_path(arguments.user_script, run_name="__main__")
    elif program == "python":
        sys.argv = rest
        runpy.run_path(rest[0], run_name="__main__")
    elif program == "trl":
        sys.argv = command
        importlib.import_module("trl.cli").main()
    elif program == "llamafactory-cli":  # starts torchrun on its own file, which calls run_exp
        nodes = int(os.environ.get("NNODES", "1"))
        _rank_zero(nodes * int(os.environ.get("NPROC_PER_NODE", _Run.job["gpus"])), nodes)
        sys.argv = ["launcher.py", *rest[1:]]
        importlib.import_module("llamafactory.train.tuner").run_exp()
    elif program == "swift":  # starts torchrun on swift/cli/sft.py if NPROC_PER_NODE is set
        route, words = rest[0], rest[1:]
        importlib.import_module("swift.cli.main").parse_yaml_args(words)
        if "NPROC_PER_NODE" in os.environ:
            nodes = int(os.environ.get("NNODES", "1"))
            _rank_zero(nodes * int(os.environ["NPROC_PER_NODE"]), nodes)
        sys.argv = [f"{route}.py", *words]
        pipelines = importlib.import_module("swift.pipelines")
        {"sft": pipelines.sft_main, "rlhf": pipelines.rlhf_main}[route]()
    elif program == "axolotl":  # starts `accelerate launch -m axolotl.cli.train`
        _rank_zero(_Run.job["gpus"])
        options = {name.lstrip("-").replace("-", "_"): value for name, value in zip(rest[2::2], rest[3::2], strict=True)}
        sys.argv = ["train.py", rest[1]]
        importlib.import_module("axolotl.cli.train").do_cli(config=rest[1], **options)
    else:
        raise ValueError(f"no way to start {program}")


def _run(job: dict[str, Any], log: Path) -> None:
    """In a fork: run a job and tell what became of it."""
    _Run.job.update(job)
    _Run.known = frozenset(sys.modules)
    os.chdir(job["folder"])
    sys.path.insert(0, job["folder"])
    os.environ.update(job["env"])
    try:
        _start(list(job["command"]))
    except BaseException as error:  # noqa: BLE001 - whatever ends the job is its outcome
        if not isinstance(error, SystemExit) or error.code not in (0, None):
            sys.stderr.flush()
            usage = isinstance(error, SystemExit) and str(error.code).isdigit()  # argparse prints what is wrong
            text = log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2] if usage else str(error)
            _answer({"outcome": "raises", "type": type(error).__name__, "error": text[:1000]})
    _answer({"outcome": "finished"})


def _fixtures(folder: Path) -> None:
    """Write the model and its tokenizer that jobs train with; the data are there."""
    if (folder / "model" / "config.json").exists():
        return
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel()
    raw.train_from_iterator(
        ["hello world this is a tiny text "] * 20, trainers.BpeTrainer(special_tokens=["<unk>", "<s>", "</s>", "<pad>"])
    )
    words = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **words)
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    tokenizer.save_pretrained(folder / "model")
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128}
    LlamaForCausalLM(LlamaConfig(vocab_size=300, **shape)).save_pretrained(folder / "model")


def main() -> None:
    """Answer jobs until the input ends."""
    framework, fixtures = sys.argv[1], Path(sys.argv[2])
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is not an answer
    os.environ |= _ENVIRONMENT | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    if framework == "llamafactory":  # imports torchaudio, which has no build for every torch, and uses it only for sound
        sound = types.ModuleType("torchaudio")
        sound.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
        sys.modules["torchaudio"] = sound
    _replace_torch()
    _replace_libraries()
    _replace_launcher()
    _replace_deepspeed()
    _replace_lightning()
    _replace_data()
    for name in _IMPORTS[framework]:
        importlib.import_module(name)
    _fixtures(fixtures)
    os.write(answers, b"ready\n")
    for line in sys.stdin:
        job = json.loads(line)
        os.write(answers, (json.dumps({"id": job["id"], **_forked(job)}) + "\n").encode())


def _forked(job: dict[str, Any]) -> dict[str, Any]:
    gc.freeze()  # no collection in a fork touches, and so copies, what is here already
    near, far = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(near)
        _Run.answers = far
        log = Path(job["folder"] + ".log")
        output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        signal.alarm(PATIENCE)
        _run(job, log)
    os.close(far)
    text, end = b"", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if select.select([near], [], [], 1)[0]:
            piece = os.read(near, 1 << 20)
            if not piece:
                break
            text += piece
    os.close(near)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    answer = json.loads(text) if text else {"outcome": "died"}
    for name in answer.pop("modules", ()):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    return answer


if __name__ == "__main__":
    main()
