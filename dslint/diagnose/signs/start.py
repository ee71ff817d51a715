"""What libraries print when a job starts: releases, ranks, config, model, batch."""

from __future__ import annotations

from dslint.diagnose.signs.sign import DECIMAL, sign

NUMBER = r"[\d,_]+"

SIGNS = (
    # DeepSpeed: `log_dist` in runtime/engine.py (silent by default since 0.17.6); `ds_report` and `pip freeze`, which start no training
    sign("release", "DeepSpeed info: version=", r"DeepSpeed info: version=(?P<release>\d+\.\d+[\w.+-]*)"),
    sign("installed", "deepspeed info .", r"deepspeed info \.+ ?(?P<release>\d+\.\d+\.\d+[\w.+-]*)"),
    sign("installed", "deepspeed==", r"(?:^|\s)deepspeed==(?P<release>\d+\.\d+(?:[\w.+-]*\w)?)"),
    sign("torch", "torch version .", r"torch version \.+ ?(?P<torch>\d+\.\d+[\w.+-]*)"),
    sign("torch", "'torch==", r"'torch==(?P<torch>\d+\.\d+[\w.+-]*)'"),
    sign("gpu", "NVIDIA ", r"\|\s+\d+\s+NVIDIA (?P<gpu>[A-Z][\w -]{1,40}?)\s{2,}"),
    sign("gpu", ("Tesla ", "GeForce "), r"\|\s+\d+\s+(?P<gpu>(?:Tesla|GeForce|NVIDIA)[\w -]{1,40}?)\s{2,}"),
    sign("gpu_total", "MiB / ", r"MiB /\s*(?P<mib>\d{4,7})MiB"),
    # DeepSpeed: the config after "auto" was filled
    sign("config_begins", "json = {", r"json = \{"),
    sign("attribute", (":print]", "print_config]"), r":print(?:_config)?\]\s+(?P<name>\w+) ?\.{2,} *(?P<value>.*)"),
    sign("mesh", "mesh_device", r"world_size = (?P<ranks>\d+)"),
    sign("zero", "Creating ", r"Creating (?:torch\.)?(?P<dtype>\w+) ZeRO stage (?P<stage>\d)"),
    sign("optimizer", "Basic Optimizer = ", r"Basic Optimizer = (?P<optimizer>\w+)"),
    sign("bucket", " bucket size", r"(?P<what>Reduce|Allgather|Prefetch) bucket size:? (?P<elements>[\d,]+)"),
    sign("offload", "CPU Offload: ", r"CPU Offload: (?P<offload>True|False)"),
    sign("extensions", "PyTorch extensions root", r"Using (?P<folder>/\S+) as PyTorch extensions root"),
    sign("operation", "Time to load ", rf"Time to load (?P<operation>\w+) op: (?P<seconds>{DECIMAL})"),
    sign("fallback", "build failed", r"(?P<operation>\w+) CUDA build failed.*falling back"),
    sign(
        "zero_init",
        "finished initializing model",
        rf"finished initializing model.*?(?:num_params = (?P<tensors>\d+))?.*?(?:num_elems = |with )(?P<size>{DECIMAL}[BM])",
    ),
    sign("pipeline_stage", "STAGE_PARAMS=", r"STAGE_PARAMS=(?P<params>\d+).*?TOTAL_PARAMS=(?P<total>\d+)"),
    sign("mpi", "world_rank=", r"world_rank=\d+, local_rank=\d+, world_size=(?P<ranks>\d+)"),
    # the number of parameters, as programs print it
    sign("params", "Model parameters: ", rf"Model parameters: (?P<params>{NUMBER}) total, (?P<trained>{NUMBER}) trainable"),
    sign("params", "trainable params: ", rf"trainable params: (?P<trained>{NUMBER}) \|\| all params: (?P<params>{NUMBER})"),
    sign("params", "Number of trainable parameters", rf"Number of trainable parameters = (?P<trained>{NUMBER})"),
    sign(
        "params_of_rank", "number of parameters on", r"number of parameters on .*?rank \((?P<tensor>\d+), (?P<stage>\d+)\): (?P<params>\d+)"
    ),
    # dimensions
    sign(
        "dimensions",
        "hidden_dim",
        r"hidden_dim=(?P<hidden>\d+)(?:, num_layers=(?P<layers>\d+))?(?:, num_heads=(?P<heads>\d+))?(?:, vocab_size=(?P<vocabulary>\d+))?",
    ),
    sign("model_begins", "Model config ", r"Model config (?P<name>\w+)Config \{"),
    sign("model_overrides", "Overriding config: ", r"Overriding config: (?P<changes>\w+=\S.*)"),
    sign("argument", ".....", r"^ +(?P<name>\w+) \.{3,} (?P<value>\S.*)"),
    sign(
        "parallel",
        "using world size",
        r"using world size: (?P<ranks>\d+), data-parallel-size: (?P<data>\d+)(?:, sequence-parallel size: (?P<sequence>\d+))?, tensor-model-parallel size: (?P<tensor>\d+), pipeline-model-parallel size: (?P<pipeline>\d+)",
    ),
    sign("dtype", "using torch.", r"using torch\.(?P<dtype>\w+) for parameters"),
    sign("vocabulary", "padded vocab", r"padded vocab .*new size: (?P<vocabulary>\d+)"),
    # batch and sequence: transformers' Trainer, and what programs print
    sign("batch", "Instantaneous batch size per device", rf"Instantaneous batch size per device = (?P<micro>{NUMBER})"),
    sign("batch", "Gradient Accumulation steps", rf"Gradient Accumulation steps = (?P<accumulation>{NUMBER})"),
    sign("batch", "Total train batch size", rf"Total train batch size .*= (?P<total>{NUMBER})"),
    sign("steps", "Total optimization steps", rf"Total optimization steps = (?P<steps>{NUMBER})"),
    sign("length", ("Sequence Length: ", "seq_length="), r"(?:Sequence Length: |seq_length=)(?P<length>\d{2,8})\b"),
    sign("sequence_parallel", "Sequence parallel size: ", r"Sequence parallel size: (?P<sequence>\d+)"),
    sign(
        "checkpointing",
        ("checkpointing enabled", "incompatible with gradient checkpointing"),
        r"checkpointing enabled(?:: True)?\s*$|incompatible with gradient checkpointing",
    ),
    # the arguments of a program as Python prints them, in one line, or in one for each as transformers' TrainingArguments
    sign(
        "printed_arguments",
        ("Namespace(", "Arguments("),
        r"(?:^|(?<!return)[\w:-] +)(?:\w+\.)*(?:Namespace|\w*Arguments)\((?P<arguments>\w+=.*)\)$",
    ),
    sign(
        "printed_arguments",
        ("per_device_train_batch_size=", "gradient_accumulation_steps=", "gradient_checkpointing=", "bf16=", "fp16=", "deepspeed="),
        r"^(?P<arguments>(?:per_device_train_batch_size|gradient_accumulation_steps|gradient_checkpointing|bf16|fp16|deepspeed)=[\w./-]+,)$",
    ),
    # Lightning, also without DeepSpeed: lightning/pytorch/trainer/setup.py, lightning/fabric/utilities/distributed.py, and its warnings
    sign(
        "lightning",
        (
            "GPU available: ",
            "GLOBAL_RANK: ",
            " - CUDA_VISIBLE_DEVICES: [",
            "lightning/pytorch/",
            "pytorch_lightning/",
            "lightning/fabric/",
            "lightning_fabric/",
        ),
        r"^GPU available: (?:True|False)\b.*, used: (?:True|False)|nitializing (?:deepspeed )?distributed: GLOBAL_RANK: \d+, MEMBER: \d+/\d+"
        r"|^LOCAL_RANK: \d+ - CUDA_VISIBLE_DEVICES: \["
        r"|(?:lightning/pytorch|pytorch_lightning|lightning/fabric|lightning_fabric)/(?:trainer|strategies|loops|core|accelerators|fabric)\b",
    ),
    sign(
        "resumes",
        ("Attempting to resume from", " ZeRO state_dicts for rank "),
        r"\bAttempting to resume from \S|successfully read \d+ ZeRO state_dicts for rank \d+",
    ),
    sign("trainer", ("trainer.py:", "***** Running training *****"), r"\*\*\*\*\* Running training \*\*\*\*\*|\[INFO\|trainer\.py"),
)
