"""The texts of which `tests.judges.logs` makes logs: true causes, what else a job prints, and what follows from a failure."""

from __future__ import annotations

from typing import NamedTuple

SITE = "/opt/conda/lib/python3.10/site-packages/"


class Frame(NamedTuple):
    """A frame: file, line, function, code."""

    file: str
    line: int
    function: str
    code: str


class Truth(NamedTuple):
    """A true cause: its name, the lines that tell it, words of the line that must be named, and what kind the cause is.

    `frames` and `error` are those of a traceback; without frames the error stands alone. `others` follows from it on other ranks.
    `trained` says that the job had taken steps before.
    """

    name: str
    kinds: tuple[str, ...]
    words: str
    frames: tuple[Frame, ...]
    error: str
    trained: bool = True
    code: int = 1


MAIN = Frame("/workspace/proj/train.py", 312, "<module>", "main()")
STEP = Frame("/workspace/proj/train.py", 271, "main", "model_engine.step()")
FORWARD = Frame("/workspace/proj/train.py", 266, "main", "loss = model_engine(batch)")
INITIALIZE = Frame(
    "/workspace/proj/train.py",
    198,
    "main",
    "model_engine, optimizer, _, _ = deepspeed.initialize(args=args, model=model, config=ds_config)",
)
TRAINER = (
    Frame("/workspace/proj/finetune.py", 402, "<module>", "train()"),
    Frame("/workspace/proj/finetune.py", 377, "train", "trainer.train()"),
    Frame(SITE + "transformers/trainer.py", 2245, "train", "return inner_training_loop("),
    Frame(SITE + "transformers/trainer.py", 2560, "_inner_training_loop", "tr_loss_step = self.training_step(model, inputs, num_items_in_batch)"),
    Frame(SITE + "transformers/trainer.py", 3736, "training_step", "self.accelerator.backward(loss, **kwargs)"),
    Frame(SITE + "accelerate/accelerator.py", 2238, "backward", "self.deepspeed_engine_wrapped.backward(loss, **kwargs)"),
    Frame(SITE + "accelerate/utils/deepspeed.py", 261, "backward", "self.engine.backward(loss, **kwargs)"),
)  # fmt: skip
ENGINE_STEP = (
    Frame(SITE + "deepspeed/runtime/engine.py", 2213, "step", "self._take_model_step(lr_kwargs)"),
    Frame(SITE + "deepspeed/runtime/engine.py", 2119, "_take_model_step", "self.optimizer.step()"),
)
ENGINE_INIT = (
    Frame(SITE + "deepspeed/__init__.py", 181, "initialize", "engine = DeepSpeedEngine(args=args,"),
    Frame(SITE + "deepspeed/runtime/engine.py", 251, "__init__", "self._configure_with_arguments(args, mpu)"),
)
CALL = (
    Frame(SITE + "deepspeed/utils/nvtx.py", 18, "wrapped_fn", "ret_val = func(*args, **kwargs)"),
    Frame(SITE + "deepspeed/runtime/engine.py", 1899, "forward", "loss = self.module(*inputs, **kwargs)"),
    Frame(SITE + "torch/nn/modules/module.py", 1511, "_wrapped_call_impl", "return self._call_impl(*args, **kwargs)"),
    Frame(SITE + "torch/nn/modules/module.py", 1520, "_call_impl", "return forward_call(*args, **kwargs)"),
)

TRUTHS = (
    Truth("oom", ("oom",), "CUDA out of memory", (MAIN, FORWARD, *CALL),
          "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 2 has a total capacity of 79.15 GiB of which 1.32 GiB is free."
          " Including non-PyTorch memory, this process has 77.82 GiB memory in use. Of the allocated memory 71.45 GiB is allocated by PyTorch, and"
          " 4.88 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting"
          " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."),
    Truth("old-oom", ("oom",), "CUDA out of memory", TRAINER,
          "RuntimeError: CUDA out of memory. Tried to allocate 256.00 MiB (GPU 0; 39.59 GiB total capacity; 36.93 GiB already allocated; 64.19 MiB free;"
          " 37.60 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."),
    Truth("batch", ("batch", "config"), "Check batch related parameters", (MAIN, INITIALIZE, *ENGINE_INIT,
          Frame(SITE + "deepspeed/runtime/config.py", 951, "_batch_assertion", "assert train_batch == micro_batch * grad_acc * self.world_size, (")),
          "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 4 * 1 * 4",
          trained=False),
    Truth("dtype", ("training", "precision"), "expected scalar type", (MAIN, FORWARD, *CALL,
          Frame(SITE + "torch/nn/modules/linear.py", 114, "forward", "return F.linear(input, self.weight, self.bias)")),
          "RuntimeError: expected scalar type Half but found Float"),
    Truth("own", ("crash",), "batch 17 has no labels", (MAIN, Frame("/workspace/proj/data.py", 88, "collate", 'raise ValueError(f"batch {i} has no labels")')),
          "ValueError: batch 17 has no labels"),
    Truth("key", ("crash", "data", "general"), "KeyError: 'input_ids'", (MAIN, Frame("/workspace/proj/data.py", 41, "__getitem__", 'ids = row["input_ids"]')),
          "KeyError: 'input_ids'"),
    Truth("module", ("environment", "crash"), "No module named 'flash_attn_missing'", (Frame("/workspace/proj/train.py", 7, "<module>", "import flash_attn_missing"),),
          "ModuleNotFoundError: No module named 'flash_attn_missing'", trained=False),
    Truth("file", ("crash", "data", "checkpoint", "launcher", "environment"), "No such file or directory", (MAIN, Frame("/workspace/proj/data.py", 12, "load", "with open(path) as f:")),
          "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.jsonl'", trained=False),
    Truth("scale", ("precision",), "Current loss scale already at minimum", (MAIN, STEP, *ENGINE_STEP,
          Frame(SITE + "deepspeed/runtime/fp16/loss_scaler.py", 175, "update_scale", "raise Exception(")),
          "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."),
    Truth("shape", ("training", "data"), "mat1 and mat2 shapes cannot be multiplied", (MAIN, FORWARD, *CALL,
          Frame("/workspace/proj/model.py", 55, "forward", "return self.proj(x)")),
          "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x1024 and 768x3072)"),
    Truth("nvcc", ("build", "environment"), "CUDA_HOME does not exist", (MAIN, INITIALIZE,
          Frame(SITE + "deepspeed/ops/op_builder/builder.py", 50, "installed_cuda_version", 'raise MissingCUDAException("CUDA_HOME does not exist, unable to compile CUDA op(s)")')),
          "deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)", trained=False),
    Truth("checkpoint", ("checkpoint",), "Error(s) in loading state_dict", (MAIN, Frame("/workspace/proj/train.py", 205, "main", "model_engine.load_checkpoint(args.resume)"),
          Frame(SITE + "deepspeed/runtime/engine.py", 2724, "load_checkpoint", "load_path, client_states = self._load_checkpoint(load_dir,"),
          Frame(SITE + "torch/nn/modules/module.py", 2153, "load_state_dict", "raise RuntimeError('Error(s) in loading state_dict for {}:\\n\\t{}'.format(")),
          "RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:\n\tsize mismatch for lm_head.weight: copying a param with shape torch.Size([32000, 4096])"
          " from checkpoint, the shape in current model is torch.Size([32001, 4096]).", trained=False),
    Truth("pydantic", ("config", "crash"), "stage3_gather_fp16_weights", (MAIN, INITIALIZE, *ENGINE_INIT,
          Frame(SITE + "pydantic/main.py", 209, "__init__", "validated_self = self.__pydantic_validator__.validate_python(data, self_instance=self)")),
          "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig\nstage3_gather_fp16_weights\n"
          "  Extra inputs are not permitted [type=extra_forbidden, input_value=True, input_type=bool]\n"
          "    For further information visit https://errors.pydantic.dev/2.6/v/extra_forbidden", trained=False),
    Truth("assert", ("crash",), "AssertionError", (MAIN, Frame("/workspace/proj/model.py", 140, "forward", "assert x.shape[1] <= self.max_len")), "AssertionError"),
    Truth("address", ("communication", "launcher", "network", "environment"), "ddress already in use", (MAIN, Frame("/workspace/proj/train.py", 150, "main", "deepspeed.init_distributed()"),
          Frame(SITE + "deepspeed/comm/comm.py", 670, "init_distributed", "cdb = TorchBackend(dist_backend, timeout, init_method, rank, world_size)"),
          Frame(SITE + "torch/distributed/rendezvous.py", 185, "_create_c10d_store", "return TCPStore(")),
          "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The server socket has failed to bind to"
          " [::]:29500 (errno: 98 - Address already in use). The server socket has failed to bind to ?UNKNOWN? (errno: 98 - Address already in use).", trained=False),
    Truth("disk", ("disk", "crash", "checkpoint"), "No space left on device", (MAIN, Frame("/workspace/proj/train.py", 290, "main", "model_engine.save_checkpoint(args.output)"),
          Frame(SITE + "torch/serialization.py", 619, "save", "with _open_zipfile_writer(f) as opened_zipfile:")),
          "OSError: [Errno 28] No space left on device"),
    Truth("illegal", ("crash", "training", "hardware"), "illegal memory access", (MAIN, STEP, *ENGINE_STEP),
          "RuntimeError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n"
          "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"),
    Truth("gradient", ("training", "zero", "zero3", "crash"), "does not require grad", TRAINER, "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"),
)  # fmt: skip
"""True causes. The kinds are those that a reader would call right."""


ALONE = (
    Truth("refused", ("launcher",), "unrecognized arguments", (),
          "usage: train.py [-h] [--stage STAGE]\ntrain.py: error: unrecognized arguments: --local_rank=0", trained=False, code=2),
    Truth("oom-killer", ("host-memory",), "", (), "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.", code=137),
    Truth("time-limit", ("time-limit",), "time limit", (), "slurmstepd: error: *** JOB 4711 ON gpu-3 CANCELLED AT 2026-05-04T21:12:07 DUE TO TIME LIMIT ***", code=143),
    Truth("no-program", ("launcher",), "can't open file", (), "/opt/conda/bin/python: can't open file '/workspace/train.py': [Errno 2] No such file or directory", trained=False, code=2),
    Truth("xid", ("crash", "hardware"), "fallen off the bus", (), "[71231.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=4121, GPU has fallen off the bus.", code=1),
    Truth("compiler", ("build",), "nvcc fatal", (), "nvcc fatal   : Unsupported gpu architecture 'compute_120'", trained=False),
)  # fmt: skip
"""Causes that no traceback tells."""

HANG = Truth(
    "hang", ("hang",), "ALLREDUCE", (),
    "[rank{r}]:[E504 09:43:12.920872216 ProcessGroupNCCL.cpp:683] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=211, OpType=ALLREDUCE, NumelIn=131072, NumelOut=131072, Timeout(ms)=1800000) ran for 1800042 milliseconds before timing out.",
    code=-6,
)  # fmt: skip
"""What every rank of a job prints that hung."""

SURVIVED = (
    ("Traceback (most recent call last):", '  File "/workspace/proj/report.py", line 9, in send', "    urllib.request.urlopen(url)", "ConnectionError: no route to the tracker"),
    ("ERROR: could not reach the metrics server, will retry", "RuntimeError: metrics server unavailable"),
    ("[rank0]: retrying after an exception: TimeoutError: read timed out",),
)  # fmt: skip
"""Errors after which a job trains on."""

WORKER = (
    "Traceback (most recent call last):",
    '  File "/workspace/proj/train.py", line 312, in <module>', "    main()",
    '  File "/workspace/proj/train.py", line 240, in main', "    for step, batch in enumerate(loader):",
    '  File "' + SITE + 'torch/utils/data/dataloader.py", line 1372, in _process_data', "    data.reraise()",
    '  File "' + SITE + 'torch/_utils.py", line 722, in reraise', "    raise exception",
    "{kind}: Caught {kind} in DataLoader worker process 0.", "Original Traceback (most recent call last):",
    '  File "' + SITE + 'torch/utils/data/_utils/worker.py", line 308, in _worker_loop', "    data = fetcher.fetch(index)  # type: ignore[possibly-undefined]",
)  # fmt: skip
"""How a process that loads data passes on its error, above the frames that it had."""

NOISE = (
    SITE + "torch/utils/cpp_extension.py:1967: UserWarning: TORCH_CUDA_ARCH_LIST is not set, all archs for visible cards are included for compilation. ",
    "`torch_dtype` is deprecated! Use `dtype` instead!",
    "[WARNING]  async_io requires the dev libaio .so object and headers but these were not found.",
    "[WARNING]  async_io: please install the libaio-dev package with apt",
    " [WARNING]  sparse_attn requires a torch version >= 1.5 and < 2.0 but detected 2.1",
    "wandb: WARNING Calling wandb.login() after wandb.init() has no effect.",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...",
    "2026-05-04 09:12:07.123456: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:485] Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered",
    "You are using a model of type llava to instantiate a model of type llava_llama. This is not supported for all configurations of models and can yield errors.",
    "Using pad_token, but it is not set yet.",
    "gpu-3:4121:4121 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
    "df: /home/u/.triton/autotune: No such file or directory",
    "[rank0]:[W504 09:12:07.101 ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 to perform barrier as devices used by this process are currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect.",
)  # fmt: skip
"""What jobs that finish print, too, in words of errors."""


FOLLOWS = (
    (),
    ("[rank{r}]:[E504 09:43:12.920872216 ProcessGroupNCCL.cpp:683] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=211, OpType=ALLREDUCE, NumelIn=131072, NumelOut=131072, Timeout(ms)=1800000) ran for 1800042 milliseconds before timing out.",
     "[rank{r}]:[E504 09:43:12.930872216 ProcessGroupNCCL.cpp:1733] [PG ID 0 PG GUID 0(default_pg) Rank {r}] Exception (either an error or timeout) detected by watchdog at work: 211, last enqueued NCCL work: 211, last completed NCCL work: 210.",
     "[rank{r}]:[E504 09:43:12.940872216 ProcessGroupNCCL.cpp:697] [Rank {r}] To avoid data inconsistency, we are taking the entire process down.",
     "terminate called after throwing an instance of 'c10::DistBackendError'",
     "  what():  [PG ID 0 PG GUID 0(default_pg) Rank {r}] Process group watchdog thread terminated with exception: [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=211, OpType=ALLREDUCE, NumelIn=131072, NumelOut=131072, Timeout(ms)=1800000) ran for 1800042 milliseconds before timing out."),
    ("Traceback (most recent call last):",
     '  File "/workspace/proj/train.py", line 312, in <module>',
     "    main()",
     '  File "/workspace/proj/train.py", line 275, in main',
     "    torch.distributed.barrier()",
     '  File "' + SITE + 'torch/distributed/distributed_c10d.py", line 3703, in barrier',
     "    work.wait()",
     "torch.distributed.DistBackendError: NCCL communicator was aborted on rank {r}."),
    ("[rank{r}]:[W504 09:13:12.920872216 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=67, addr=[localhost]:51234, remote=[localhost]:29500): Broken pipe",
     '[rank{r}]:[W504 09:13:12.930872216 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0 Rank {r}] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe'),
)  # fmt: skip
"""What other ranks print because one has failed."""

LATE = (
    "[rank0]:[W504 09:13:12.920872216 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources. For more info, please see https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())",
    "/opt/conda/lib/python3.10/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There appear to be 6 leaked semaphore objects to clean up at shutdown",
    "  warnings.warn('resource_tracker: There appear to be %d '",
    "wandb: You can sync this run to the cloud by running:",
    "wandb: Find logs at: ./wandb/offline-run-20260504_091207-abc/logs",
    'Exception ignored in: <function DeepSpeedCPUAdam.__del__ at 0x7f30b1d3>\nTraceback (most recent call last):\n  File "' + SITE + "deepspeed/ops/adam/cpu_adam.py\", line 97, in __del__\n    self.ds_opt_adam.destroy_adam(self.opt_id)\nAttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'",
)  # fmt: skip
