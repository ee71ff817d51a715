"""What the mutations start from: the examples of the rules, the examples of the documentation, and inputs on which dslint once failed."""

from __future__ import annotations

import json
import sysconfig
from functools import cache
from pathlib import Path

from dslint.registry.rules import loaded_rules

ROOT = Path(__file__).resolve().parent.parent.parent
BATCH = '"train_micro_batch_size_per_gpu": 4'
DIGITS = "9" * 5_000
LARGEST_MODULE = 16_000
"""Bytes. A larger one may take longer than a case of the fuzzer is given."""


@cache
def configs() -> list[str]:
    """Configs: those of the rules, and hostile ones."""
    of_rules = [example.text for rule in loaded_rules() for example in (*rule.bad, *rule.good)]
    return [*of_rules, *HOSTILE]


HOSTILE = [
    '{"": 1, "train_batch_size": 1}',
    '{"aio": {"block_size": 1}}',
    '{"torch_autocast": {"enabled": true}}',
    f'{{{BATCH}, "zero_optimization": {{"stage": 3, "offload_optimizer": {{"device": "nvme"}}}}, "aio": {{"block_size": "x"}}}}',
    f"{{// dslint: ignore[DS102] a{' ' * 1_500}b\n{BATCH}}}",
    f'{{{BATCH}, "x": "{"{{" * 1_000}"}}',
    f"{{{BATCH}{', ' + BATCH * 1}{', ' + BATCH}}}",
    f'{{{BATCH}, "a\\n::error::b": 1, "\\u001b[31m": 2}}',
    f"{{{BATCH}" + ', "zero_optimization": {"stage": 2}' * 30 + "}",
    f"{{{BATCH}" + "".join(f', "zero_optimisation{n}": 1' for n in range(30)) + "}",
    f"{{{BATCH}" + "".join(f'\n, "a{n}": 1 // dslint: ignore[DS103] r' for n in range(30)) + "}",
    f'{{"train_batch_size": {DIGITS}}}',
    f'{{"train_micro_batch_size_per_gpu": 1{"0" * 300}}}',
    '{"a": ' * 300,
    "# a comment\ntrain_batch_size: 8 # another\nfp16: {\n  enabled: true\n  /* and\n a third */ loss_scale: 0\n}\n",
]

POLICIES = [
    '{"$schema": []}',
    '{"$ref": "#"}',
    '{"$id": "http://[bad", "$ref": "a"}',
    '{"not": ' * 400 + "{}" + "}" * 400,
    '{"required": ["bf16"], "properties": {"bf16": {"const": {"enabled": true}}, "zero_optimization": {"properties": {"stage": {"enum": [2, 3]}}}}}',
    '{"additionalProperties": false, "patternProperties": {"^train_": {"minimum": 1}}, "description": "why"}',
    '{"$schema": "https://json-schema.org/draft/2020-12/schema", "anyOf": [{"required": ["fp16"]}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"maxProperties": 3}}}',
    '{"propertyNames": {"pattern": "^[a-z_]+$"}, "dependentRequired": {"fp16": ["optimizer"]}}',
]

BASELINES = [
    '{"version": 1, "findings": {"ds_config.json": [{"code": "DS102", "place": "/zero_optimisation", "count": 2}]}}',
    '{"version": 1, "findings": {"a": [{"code": "DS1", "place": "", "count": Infinity}]}}',
    '{"version": 1, "findings": {"../a\\u0000": [{"code": null, "place": {}}]}}',
    '{"version": Infinity}',
    "[" * 500,
]

SETTINGS = [
    'select = ["DS1", "DS102"]\nignore = ["DS103"]\nworld-size = 8\nintegration = "transformers"\ndeepspeed = "0.16.9"\nfail-on = "error"\n',
    'gpu = "a100-80gb"\ngpu-memory = "80GiB"\nhost-memory = "1TiB"\nnodes = 2\ntensor-parallel = 2\nexclude = ["*.bak", "x/**"]\n',
    '[per-file-ignores]\n"tests/*" = ["DS1"]\n[severity]\nDS102 = "error"\n[env]\nA = "b"\n[[ignores]]\nrules = ["DS102"]\npaths = ["*.json"]\nreason = "r"\n',
    'checkpoint = "run"\nmodel = "config.json"\npolicy = "policy.json"\nbaseline = "known.json"\nplugins = []\npedantic = true\nstrict = true\n',
    '"\\u001b[31mred" = 1\n',
    'checkpoint = "a\\u0000b"\n',
    f'gpu = "{"-" * 2_000}"\n',
    "a." * 500 + "b = 1\n",
    'deepspeed = "0.14.0 -> 0.19.8"\noutput-format = "json"\nunsafe-fixes = true\n',
]

HOSTFILES = [
    "worker-1 slots=8\nworker-2 slots=8\n",
    f"a slots={DIGITS}\n",
    "# c\n\na slots=4 # d\nb slots=-1\n",
    "a slots=٣\n",
    "a slots=1_0\n",
]

SCRIPTS = [
    "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\nexport A=1\ndeepspeed --num_gpus 8 train.py --deepspeed ds_config.json --bf16 true\n",
    "torchrun --nproc_per_node $N \\\n  train.py --deepspeed ${CONFIG:-ds_config.json} --per_device_train_batch_size 4 | tee log\n",
    'for s in 2 3; do\n  accelerate launch --config_file accelerate.yaml train.py --lr "$LR" --x=$((2*N+1))\ndone\n',
    "if [ -f a ]; then CFG=ds_config.json; else CFG=b.json; fi\ncase $X in a|b) N=1;; *) N=2;; esac\ndeepspeed t.py --deepspeed_config $CFG\n",
    'cat > ds.json <<EOF\n{"train_batch_size": "auto", "fp16": {"enabled": $FP16}}\nEOF\ndeepspeed train.py --deepspeed ds.json\n',
    "".join(f"A{n}=$A{n - 1}$A{n - 1}\n" for n in range(1, 40)) + "deepspeed train.py --deepspeed $A39\n",
    "deepspeed train.py --deepspeed ds_config.json --gradient_accumulation_steps '4\x1f' --max_grad_norm '1\x1f'\n",
    f"#SBATCH --nodes={DIGITS}\n#SBATCH {'=' * 500}\ndeepspeed --hostfile hostfile train.py --deepspeed ds_config.json\n",
    'f() { deepspeed "$@" --deepspeed ds_config.json; }\nf --num_gpus 4 train.py\nARGS=(--a 1 --b 2)\ndeepspeed t.py ${ARGS[@]} --deepspeed ds.json\n',
    "OUT := x\ntrain:\n\tdeepspeed --num_gpus $(N) train.py --deepspeed ds_config.json\n",
]

YAMLS = [
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\nnum_machines: 2\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: cpu\n  gradient_accumulation_steps: 4\n  zero3_init_flag: true\n",
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero3_init_flag: false\n",
    "model_name_or_path: x\nper_device_train_batch_size: 4\ndeepspeed: ds_config.json\noutput_dir: out\nbf16: true # c\nlearning_rate: 1.0e-4\n",
    "base_model: x\nmicro_batch_size: 2\ndatasets:\n  - path: y\ndeepspeed:\n  zero_optimization: {stage: 2}\n  train_batch_size: auto\n",
    "train_batch_size: 8 # c\nzero_optimization:\n  stage: 3\n  offload_param: &a {device: cpu}\n  offload_optimizer: *a\nfp16:\n  enabled: yes\n",
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"
    + "".join(f"key{n}: 1\n" for n in range(50)),
    f"deepspeed: ds_config.json\nper_device_train_batch_size: {DIGITS[:400]}\nmax_grad_norm: {DIGITS[:400]}\noutput_dir: x\n",
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\ndeepspeed: ds_config.json\noutput_dir: x\n",
]

PROGRAMS = [
    "import deepspeed\nengine, *_ = deepspeed.initialize(model=m, config={'train_batch_size': 8, 'zero_optimization': {'stage': 2}})\n",
    "import json, deepspeed\nwith open('ds_config.json') as f:\n    c = json.load(f)\nc['fp16'] = {'enabled': not args.bf16}\ndeepspeed.initialize(config=c)\n",
    "from transformers import TrainingArguments, Trainer\nargs = TrainingArguments('out', deepspeed='ds_config.json', per_device_train_batch_size=4, bf16=True)\n",
    "from accelerate import Accelerator, DeepSpeedPlugin\nAccelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=2, gradient_accumulation_steps=4))\n",
    "from lightning import Trainer\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\nTrainer(devices=8, strategy=DeepSpeedStrategy(stage=3, config={'a': 1}))\n",
    "import deepspeed\ndef cfg(stage=2, **kw):\n    base = dict(train_batch_size=8, zero_optimization=dict(stage=stage))\n    base.update(kw)\n    return base\ndeepspeed.initialize(config=cfg(3, fp16={'enabled': True}))\n",
    "import deepspeed\na = {}\n" + "a = {'b': a, 'c': a}\n" * 30 + "deepspeed.initialize(config=a)\n",
    "import deepspeed\n"
    "x = " + "(" * 80 + "1" + ")" * 80 + "\ndeepspeed.initialize(config={'train_batch_size': 2 ** 9 ** 9, 'x': 'a' * 10 ** 9})\n",
]

CHECKPOINTS = [
    "latest\nglobal_step1/mp_rank_00_model_states.pt\nglobal_step1/zero_pp_rank_0_mp_rank_00_optim_states.pt\nglobal_step1/zero_pp_rank_1_mp_rank_00_optim_states.pt",
    "latest\nglobal_step2/zero_pp_rank_0_mp_rank_00_model_states.pt\nglobal_step2/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt\nzero_to_fp32.py",
    f"global_step1/bf16_zero_pp_rank_{10**15}_mp_rank_{10**15}_optim_states.pt\nglobal_step1/mp_rank_00_model_states.pt",
    "latest_universal\nuniversal/zero/1/fp32.pt\nuniversal/mp_rank_00_model_states.pt\nglobal_step9/layer_05-model_00-model_states.pt",
    "checkpoint-9/model.safetensors\ncheckpoint-10/model.safetensors",
]

RELEASES = [
    "deepspeed==0.16.9\ntorch>=2\n", "deepspeed[ops]>=0.14,<0.16 ; python_version > '3.8' --hash=sha256:0\n", "deepspeed @ git+https://x/deepspeed.git@v0.15.4\n",
    "deepspeed" + " " * 200 + "(x@", f'[tool.poetry.dependencies]\ndeepspeed = "^{DIGITS}"\n', '[project]\ndependencies = ["deepspeed~=0.14.2"]\n',
    "dependencies:\n  - conda-forge::deepspeed=0.14.*=x\n  - pip:\n    - deepspeed>0.15\n", '[[package]]\nname = "deepspeed"\nversion = "0.16.9"\n',
]  # fmt: skip

MODELS = [
    '{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000}',
    '{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}',
    '{"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 100, "tie_word_embeddings": true}',
    '{"model_type": "qwen2_vl", "text_config": {"hidden_size": 64, "num_hidden_layers": 1e400}, "quantization_config": {"quant_method": "gptq"}}',
    f'{{"hidden_size": {DIGITS[:4_000]}, "model_type": []}}',
]

LOGS = [
    'Traceback (most recent call last):\n  File "a.py", line 1, in f\npydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig\nstage\n  Input should be less than or equal to 3 [type=less_than_equal, input_value=5, input_type=int]\n',
    "[rank0]: AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 7 != 4 * 1 * 2\n",
    "worker-1: [2024-01-01 10:00:00,000] [ERROR] [launch.py:1:f] RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total)\n",
    "\x1b[31mValueError: ZeRO-Offload requires {'a': [1, 2]}\x1b[0m\n",
]  # fmt: skip


@cache
def setups() -> dict[str, str]:
    """The files of the documentation's setups, by name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples" / "setups").iterdir()) if path.is_file()}


@cache
def modules() -> list[str]:
    """Modules that others wrote, the standard library's, each as a program that passes DeepSpeed a config at its end."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = (file for file in sorted(folder.rglob("*.py")) if "site-packages" not in file.parts and file.stat().st_size < LARGEST_MODULE)
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    return [f"{text}\nimport deepspeed\ndeepspeed.initialize(model=None, config={{{BATCH}}})\n" for text in texts]


def written_around() -> dict[str, str]:
    """Files that scripts, programs and settings of the seeds name."""
    return {
        "ds_config.json": f'{{{BATCH}, "zero_optimization": {{"stage": 2}}, "fp16": {{"enabled": "auto"}}}}',
        "accelerate.yaml": YAMLS[0],
        "hostfile": HOSTFILES[0],
        "config.json": MODELS[0],
        "policy.json": POLICIES[4],
        "known.json": BASELINES[0],
        "train.py": PROGRAMS[2],
        "args.json": json.dumps({"deepspeed": "ds_config.json", "output_dir": "x"}),
    }
