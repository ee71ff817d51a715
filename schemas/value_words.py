"""What the values of a key mean, where the key has a fixed set: for completion and hover in editors. Plain data."""

from __future__ import annotations

from typing import Any

_DEVICES = {"none": "No offload.", "cpu": "Host memory.", "nvme": "A local NVMe drive, in the directory `nvme_path`."}
_DATA_TYPES = {
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "16 bits with a small range: needs a loss scale in training."),
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "16 bits with the range of fp32: needs no loss scale."),
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "32 bits: 4 bytes per element."),
    **dict.fromkeys(("int8", "torch.int8"), "8-bit integers. Accepted by the parser; not a type to train in."),
}
_SENT = {
    "fp16": "Half of the traffic of fp32. Sums may overflow.",
    "bf16": "Half of the traffic of fp32, with its range and fewer digits.",
    "fp32": "The most accurate sums, with twice the traffic of the 16-bit types.",
}
_BY_MODEL = "As the model or its architecture determines."

VALUE_WORDS: dict[str, dict[Any, str]] = {
    "torch_autocast.dtype": _DATA_TYPES,
    "data_types.grad_accum_dtype": _DATA_TYPES,
    "data_types.param_dtype": _DATA_TYPES,
    "data_types.buffer_dtype": _DATA_TYPES,
    "data_types.keep_in_fp32_modules": {"auto": "The model's own list of modules to keep in fp32, if it has one."},
    "zero_optimization.stage": {
        0: "ZeRO is off: every GPU holds parameters, gradients and optimizer states.",
        1: "Partitions optimizer states over the data-parallel ranks.",
        2: "Partitions optimizer states and gradients.",
        3: "Partitions optimizer states, gradients and parameters, which are gathered for each layer.",
    },
    "zero_optimization.offload_param.device": _DEVICES,
    "zero_optimization.offload_optimizer.device": {
        **_DEVICES,
        "nvme": "A local NVMe drive, in the directory `nvme_path`. ZeRO stage 3 only.",
    },
    "expert_parallel.expert_activation": {
        "swiglu": "`silu(gate) * up`.",
        "geglu_tanh": "`gelu_tanh(gate) * up`, as in Gemma 4.",
        "swiglu_clamped": "`silu(clamp(gate)) * clamp(up)`, as in DeepSeek-V4.",
        "swiglu_oai": "`(clamp(up) + 1) * clamp(gate) * sigmoid(alpha * clamp(gate))`, as in gpt-oss and MiniMax-M3.",
    },
    "zero_optimization.zenflow.select_strategy": {
        "auto": "After every epoch, whatever `select_interval` says.",
        "step": "After every `select_interval` steps.",
        "epoch": "After every `select_interval` epochs.",
    },
    "zero_optimization.zenflow.select_interval": {"auto": '1, with `select_strategy: "auto"`; any other strategy requires a number.'},
    "zero_optimization.zenflow.update_interval": {"auto": "By the share of the gradient norm that waits: `auto_ratio`."},
    "communication_data_type": _SENT,
    "seq_parallel_communication_data_type": _SENT,
    "seq_parallel_comm_data_type": _SENT,
    "gradient_allreduce_op": {"mean": "Average over the GPUs.", "sum": "Sum over the GPUs."},
    "tensor_parallel.dtype": {"auto": "The data type of the model."},
    "tensor_parallel.vocab_parallel_ce_backend": {
        "torch": "PyTorch's operations.",
        "liger": "The fused kernels of the package liger-kernel.",
    },
    "expert_parallel.top_k": {"auto": _BY_MODEL},
    "expert_parallel.score_func": {"auto": _BY_MODEL, "softmax": "Softmax over the experts.", "sigmoid": "A sigmoid for each expert."},
    "expert_parallel.score_apply": {
        "auto": _BY_MODEL,
        "pre": "Scores weigh an expert's input.",
        "post": "Scores weigh an expert's output.",
    },
    "expert_parallel.routed_scaling_factor": {"auto": _BY_MODEL},
    "expert_parallel.combine_impl": {
        "auto": "The same as weighted_sum.",
        "weighted_sum": "A weighted sum of PyTorch operations.",
        "fused_weighted_sum": "A weighted sum in one kernel.",
        "legacy_bmm": "A batched matrix product, as in older releases.",
    },
    "expert_parallel.row_weighting_impl": {"auto": "The same as eager.", "eager": "PyTorch operations.", "fused": "One kernel."},
    "expert_parallel.gate_up_impl": {"separate": "Two grouped matrix products.", "fused": "One grouped matrix product for both."},
    "expert_parallel.comm_backend": {"comm": "DeepSpeed's collectives.", "deepep": "The package DeepEP."},
    "checkpoint.tag_validation": {
        "WARN": "Log a warning if the ranks use different tags.",
        "IGNORE": "Do not compare the tags.",
        "FAIL": "Raise an error if the ranks use different tags.",
    },
    "checkpoint.writer.type": {
        "MOCK": "Write nothing: for measurements.",
        "PYTHON": "Write with Python's files.",
        "FAST": "Write with asynchronous I/O.",
    },
    "checkpoint.writer.data_parallel": {
        "REPLICA": "All data-parallel ranks share the writing.",
        "SOCKET": "One rank of each CPU socket writes, counted as two per machine.",
        "MACHINE": "One rank of each machine writes.",
    },
    "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_type": {
        "fixed_discrete": "Steps of difficulty at given training steps.",
        "fixed_root": "The difficulty rises with a root of the training step.",
        "fixed_linear": "The difficulty rises linearly.",
        "custom": "The program sets the difficulty.",
    },
    "data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_type": {"fixed_linear": "The number rises linearly."},
    "weight_quantization.q_type": {
        "asymmetric": "The range of a group has a zero point of its own.",
        "symmetric": "The range of a group is centred on zero.",
    },
    "log_level": {
        "debug": "Every message.",
        "info": "Progress and decisions.",
        "warning": "Only warnings and errors.",
        "error": "Only errors.",
        "critical": "Only errors that end the job.",
    },
    "compile.passes[]": {
        "z1": "DeepCompile for ZeRO stages 1 and 2.",
        "z3": "DeepCompile for ZeRO stage 3.",
        "autosp": "Sequence parallelism.",
        "autotp": "Tensor parallelism.",
    },
    "optimizer.params.ns_method": {
        "gram": "Iterates on the smaller product of the matrix with its transpose.",
        "standard": "Iterates on the matrix itself.",
    },
    "optimizer.params.line_search_fn": {"strong_wolfe": "A line search that satisfies the strong Wolfe conditions."},
    "scheduler.params.warmup_type": {"log": "Fast at first, then slower.", "linear": "By the same amount in every step."},
    "scheduler.params.mode": {
        "triangular": "Cycles of equal height.",
        "triangular2": "Each cycle has half the height of the one before.",
        "exp_range": "The height shrinks by `gamma` in every step.",
        "min": "The monitored value should fall.",
        "max": "The monitored value should rise.",
    },
    "scheduler.params.scale_mode": {"cycle": "Completed cycles.", "iterations": "Steps since the start."},
    "scheduler.params.anneal_strategy": {"cos": "Along a cosine.", "linear": "Along a line."},
    "scheduler.params.threshold_mode": {"rel": "`threshold` is a fraction of the best value.", "abs": "`threshold` is a difference."},
}
"""By dotted key and value. Keys are spelled as in the key table, with "[]" after the name of a list for its items."""
