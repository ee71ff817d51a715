"""Jobs that a real framework refuses: dslint names the error first, and calls it certain."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import dslint
from tests.frameworks.jobs import Job, lay_out

PROGRAM = """
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("model")
Trainer(model=model, args=args).train()
"""

OWN_ARGUMENTS = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments("out", deepspeed="ds.json")
model = AutoModelForCausalLM.from_pretrained("model")
Trainer(model=model, args=args).train()
"""

IN_FILE = """
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_yaml_file("args.yaml")
model = AutoModelForCausalLM.from_pretrained("model")
Trainer(model=model, args=args).train()
"""

BY_POSITION = IN_FILE.replace('parse_yaml_file("args.yaml")', "parse_json_file(sys.argv[1])").replace("\n", "\nimport sys\n", 1)

IF_ALONE = """
import os
import sys
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
    (args,) = parser.parse_json_file(json_file=os.path.abspath(sys.argv[1]))
else:
    (args,) = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("model")
Trainer(model=model, args=args).train()
"""

OWN_CLASS = """
import dataclasses
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclasses.dataclass
class ModelArguments:
    lora_rank: int = 8

model_args, args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
Trainer(model=AutoModelForCausalLM.from_pretrained("model"), args=args).train()
"""

SFT = """
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", deepspeed="ds.json")
SFTTrainer(model="model", args=args).train()
"""

PARSED = """
from trl import SFTConfig, SFTTrainer, TrlParser

(args,) = TrlParser((SFTConfig,)).parse_args_and_config()
SFTTrainer(model="model", args=args).train()
"""

LOADS = """
import torch
from accelerate import Accelerator, DeepSpeedPlugin
from transformers import AutoModelForCausalLM

accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds.json"))
model = AutoModelForCausalLM.from_pretrained("model")
loader = torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
"""

CONFIG = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'
DIVIDED = CONFIG.replace('"stage": 2', '"stage": 3, "stage3_gather_16bit_weights_on_model_save": true').replace(
    '"auto"', '64, "gradient_accumulation_steps": "auto"', 1
)
BARE = "torchrun --nproc_per_node 4 train.py"
WITH_FILE = "deepspeed --num_gpus 4 train.py args.json"
ARGUMENTS = '{"output_dir": "out", "deepspeed": "ds.json"}'
LAUNCH = "torchrun --nproc_per_node 4 train.py --output_dir out --per_device_train_batch_size 2 --deepspeed ds.json"
BLOCK = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n"
OF_LAUNCHER = BLOCK + "  deepspeed_config_file: ds.json\n"
TRL = "model_name_or_path: model\ndataset_name: data\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\nbf16: true\ndeepspeed: ds.json\n"


PINS = "llamafactory==0.9.5\naxolotl==0.19.0\n"
"""Releases that have the refusals: without one an older release may lack them."""


def trainer(config: str | None = CONFIG, launch: str = LAUNCH, **files: str) -> dict[str, str]:
    """The files of a job with a program that uses the Trainer."""
    found = {"train.py": PROGRAM, "run.sh": f"#!/bin/bash\n{launch}\n", **{name.replace("_", "."): text for name, text in files.items()}}
    return found if config is None else {**found, "ds.json": config}


def llama_factory(more: str, stage: int = 2) -> dict[str, str]:
    """The files of a job of LLaMA-Factory."""
    keys = (
        "stage: sft\nmodel_name_or_path: model\nfinetuning_type: lora\ndataset: data\nper_device_train_batch_size: 2\ndeepspeed: ds.json\n"
    )
    script = "NPROC_PER_NODE=4 llamafactory-cli train train.yaml\n"
    return {"ds.json": CONFIG.replace("2}", f"{stage}}}"), "train.yaml": keys + more, "run.sh": script, "requirements.txt": PINS}


def axolotl(more: str) -> dict[str, str]:
    """The files of a job of axolotl."""
    keys = "base_model: model\nmicro_batch_size: 2\ndatasets:\n- path: data\ndeepspeed: ds.json\n"
    return {"ds.json": CONFIG, "train.yaml": keys + more, "run.sh": "axolotl train train.yaml\n", "requirements.txt": PINS}


def ms_swift(more: str) -> dict[str, str]:
    """The files of a job of ms-swift."""
    keys = "model: model\ntuner_type: full\nper_device_train_batch_size: 2\nlearning_rate: 1e-5\n"
    return {"ds.json": CONFIG, "train.yaml": keys + more, "run.sh": "NPROC_PER_NODE=4 swift sft train.yaml\n"}


def trl_by_launcher(config: str, more: str = "") -> dict[str, str]:
    """The files of a job of TRL whose config only Accelerate's launcher gets."""
    keys = TRL.replace("deepspeed: ds.json\n", "accelerate_config: a.yaml\n").replace("1e-4", "1.0e-4")
    return {"ds.json": config, "a.yaml": OF_LAUNCHER, "train.yaml": keys + more, "run.sh": "trl sft --config train.yaml\n"}


def accelerate(file: str) -> dict[str, str]:
    """The files of a job with a loop of its own under Accelerate."""
    program = "import torch\nfrom accelerate import Accelerator\n\naccelerator = Accelerator()\nmodel = torch.nn.Linear(2, 2)\n"
    program += "loader = torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=2)\n"
    program += "model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)\n"
    return {"train.py": program, "a.yaml": file, "run.sh": "accelerate launch --config_file a.yaml train.py\n"}


@pytest.fixture(autouse=True, scope="module")
def _no_variables_of_accelerate() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
            patch.delenv(name)
        yield


def errors(files: dict[str, str]) -> list[tuple[str, str]]:
    """The crashes that `check run.sh` calls errors, as the job meets them."""
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Job("job", "transformers", {}, files, [], {}, 4), Path(folder))
        found = json.loads(dslint("check", "run.sh", "--output-format", "json", cwd=folder).stdout)["diagnostics"]
    crashes = [one for one in found if one["effect"] == "crash" and one["severity"] == "error"]
    return [(one["code"], one["message"]) for one in sorted(crashes, key=lambda one: one["order"])]


@pytest.mark.parametrize(
    ("files", "code", "error"),
    [
        (trainer(CONFIG[:-2] + ', "sub_group_size": "auto"}}'), "DS903", "not found in kwargs"),
        (trainer(CONFIG[:-1] + ', "gradient_cliping": "auto"}'), "DS102", "`gradient_cliping` not found in kwargs"),
        (trainer(CONFIG[:-1] + ', "my_own": {"deep": "auto"}}'), "DS103", "`my_own.deep` not found in kwargs"),
        (trainer(launch=WITH_FILE, train_py=BY_POSITION, args_json=ARGUMENTS), "DS973", "No such file or directory: '--local_rank=0'"),
        (trainer(launch=WITH_FILE, train_py=IF_ALONE, args_json=ARGUMENTS), "DS973", "are not used by the HfArgumentParser: ['args.json']"),
        (trainer(launch=LAUNCH + " --gradient_acumulation_steps 4", train_py=OWN_CLASS), "DS974", "['--gradient_acumulation_steps'"),
        (
            trainer(launch=BARE, train_py=SFT.replace('="ds.json"', '="ds.json", gradient_acumulation_steps=4'), requirements_txt="trl==1.16.0\n"),
            "DS974",
            "SFTConfig.__init__() got an unexpected keyword argument 'gradient_acumulation_steps'",
        ),
        (
            trainer('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', BARE, train_py=LOADS),
            "DS903",
            "`train_batch_size` not found in kwargs",
        ),
        (
            axolotl("") | {"ds.json": CONFIG.replace('_per_gpu": "auto"', '_per_gpu": 2'), "run.sh": "axolotl train train.yaml --micro-batch-size 4\n"},
            "DS904",
            "train_micro_batch_size_per_gpu=2 vs hf per_device_train_batch_size=4",
        ),
        (trainer(CONFIG.replace("zero_optimization", "zero_optimisation")), "DS102", "Please specify the ZeRO optimization config"),
        (trainer("{}"), "DS910", "Please specify the ZeRO optimization config"),
        (trainer(None), "DS919", "Expected a string path to an existing deepspeed config"),
        (
            trainer(launch=LAUNCH.replace("torchrun --nproc_per_node 4", "accelerate launch --config_file a.yaml"), a_yaml=BLOCK + "  zero_stage: 3\n"),
            "DS925",
            "the following accelerate config variables will be ignored",
        ),
        (
            {"ds.json": CONFIG[:-1] + ', "bf16": {"enabled": false}}', "train.yaml": TRL, "run.sh": "trl sft --config train.yaml\n"},
            "DS904",
            "- ds bf16.enabled=False vs hf bf16|bf16_full_eval=True",
        ),
        (trainer(launch=LAUNCH + " --gradient_acumulation_steps 4"), "DS974", "are not used by the HfArgumentParser: ['--gradient_acumulation_steps'"),
        (
            trainer(launch=LAUNCH + " --evaluation_strategy steps", requirements_txt="transformers==5.23.0\n"),
            "DS974",
            "are not used by the HfArgumentParser: ['--evaluation_strategy'",
        ),
        ({"ds.json": CONFIG, "train.yaml": TRL + "gradient_acumulation_steps: 4\n", "run.sh": "trl sft --config train.yaml\n"}, "DS974", "unrecognized"),
        (llama_factory("use_apollo: true\n"), "DS975", "Cannot use LoRA with GaLore, APOLLO or BAdam together."),
        (llama_factory("eval_strategy: steps\n"), "DS975", "Please make sure eval_dataset be provided or val_size >1e-6"),
        (trainer(launch=LAUNCH + " --load_best_model_at_end"), "DS975", "--load_best_model_at_end requires the save and eval strategy to match"),
        (trainer(launch=LAUNCH + " --lr_scheduler_type cosin"), "DS980", "argument --lr_scheduler_type/--lr-scheduler-type: invalid choice: 'cosin'"),
        (
            trainer(launch="accelerate launch --config_file a.yaml train.py", a_yaml=BLOCK + "  zero_stage: 3\n", train_py=OWN_ARGUMENTS),
            "DS925",
            "the following accelerate config variables will be ignored",
        ),
        (llama_factory("val_size: 0.1\npredict_with_generate: true\n", 3), "DS975", "`predict_with_generate` is incompatible with DeepSpeed ZeRO-3."),
        (axolotl("optimizer: muon\n"), "DS975", "Muon optimizer is currently incompatible with DeepSpeed"),
        (axolotl("saves_per_epoch: 1\nsave_steps: 10\n"), "DS975", "save_steps and saves_per_epoch are mutually exclusive"),
        (
            trainer(launch=BARE, train_py=IN_FILE, args_yaml="output_dir: out\ndeepspeed: ds.json\ngradient_acumulation_steps: 4\n"),
            "DS974",
            "Some keys are not used by the HfArgumentParser: ['gradient_acumulation_steps']",
        ),
        (
            trainer(launch=BARE, train_py=IN_FILE, args_yaml="output_dir: out\ndeepspeed: ds.json\nlearning_rate: 1e-4\n"),
            "DS980",
            "'<=' not supported between instances of 'float' and 'str'",
        ),
        (
            trainer(
                launch=BARE,
                train_py=OWN_ARGUMENTS.replace('"ds.json"', '"ds.json", no_cuda=True'),
                requirements_txt="transformers==5.23.0\n",
            ),
            "DS974",
            "TrainingArguments.__init__() got an unexpected keyword argument 'no_cuda'",
        ),
        (
            {"ds.json": CONFIG, "run.sh": "trl sft --model_name_or_path model --bf16 --deepspeed ds.json\n", "requirements.txt": "trl==1.16.0\n"},
            "DS974",
            "argument --bf16: expected one argument",
        ),
        (
            {"ds.json": CONFIG, "train.yaml": TRL + "datasets:\n- path: a\neval_strategy: steps\n", "run.sh": "trl sft --config train.yaml\n"},
            "DS975",
            "'test'",
        ),
        (trainer(CONFIG[:-1] + ', "gradient_clipping": 0.5}', BARE, train_py=SFT), "DS904", "- ds gradient_clipping=0.5 vs hf max_grad_norm=1.0"),
        (
            trainer(CONFIG[:-1] + ', "bf16": {"enabled": false}}', BARE, train_py=SFT, requirements_txt="trl==1.16.0\n"),
            "DS904",
            "- ds bf16.enabled=False vs hf bf16|bf16_full_eval=True",
        ),
        (trainer(DIVIDED), "DS904", 'While the model is loaded, DeepSpeed raises AssertionError "Check batch related parameters.'),
        (trainer(DIVIDED, BARE, train_py=LOADS), "DS201", "micro_batch_per_gpu * gradient_acc_step * world_size 64 != 1 * 1 * 4"),
        (axolotl("warmup_steps: 10\nwarmup_ratio: 0.1\nsave_strategy: epoch\nsave_steps: 5\n"), "DS975", "save_strategy and save_steps mismatch"),
        (trl_by_launcher(DIVIDED.replace("64", "8")), "DS201", "micro_batch_per_gpu * gradient_acc_step * world_size 8 != 1 * 1 * 4"),
        (
            axolotl("gradient_accumulation_steps: 4\n")
            | {"ds.json": DIVIDED.replace("64", '"auto"').replace('_per_gpu": "auto"', '_per_gpu": 4')},
            "DS904",
            "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size",
        ),
        (
            axolotl("gradient_accumulation_steps: 4\n") | {"ds.json": CONFIG.replace('"auto"', "8", 1)},
            "DS906",
            "- ds train_batch_size=8 vs hf train_batch_size (calculated)=",
        ),
        (axolotl("") | {"ds.json": CONFIG.replace("2}", '"auto"}')}, "DS903", "invalid literal for int() with base 10: 'auto'"),
        (ms_swift("bf16: true\nfp16: false\ndeepspeed: zero4\n"), "DS919", "Expecting value: line 1 column 1 (char 0)"),
        (
            ms_swift("fp16: true\nbf16: false\nbf16_full_eval: true\ndeepspeed: zero3\n"),
            "DS301",
            "bfloat16 and fp16 modes cannot be simultaneously enabled",
        ),
        (
            ms_swift("fp16: true\nbf16: false\nbf16_full_eval: true\ndeepspeed: zero2\n"),
            "DS905",
            "arg cannot be set to `fp16` when `bf16` is set in the DeepSpeed config file",
        ),
        (
            trl_by_launcher(CONFIG[:-1] + ', "gradient_clipping": 0.5}', "fsdp: full_shard\n"),
            "DS920",
            "Using --fsdp xxx together with --deepspeed is not possible",
        ),
        (
            trl_by_launcher(CONFIG) | {"run.sh": "trl sft --config train.yaml --accelerate_config zero4\n", "requirements.txt": "trl==1.16.0\n"},
            "DS919",
            "Accelerate config zero4 is neither a file nor a valid config in the `trl` package",
        ),
        (
            trainer(
                launch=BARE + " --config train.yaml",
                train_py=PARSED,
                train_yaml="output_dir: out\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-4\nwarmup_ratio: 0.1\ndeepspeed: ds.json\n",
                requirements_txt="trl==1.16.0\ntransformers==5.23.0\n",
            ),
            "DS974",
            "Unknown arguments from config file: ['--warmup_ratio'",
        ),
        (
            trl_by_launcher(CONFIG, "fp16: true\n") | {"a.yaml": "mixed_precision: no\n" + OF_LAUNCHER},
            "DS960",
            "At most one of fp16 and bf16 can be True, but not both",
        ),
        (
            trl_by_launcher(CONFIG, "datasets:\n- path: a\neval_strategy: steps\nno_cuda: true\n") | {"requirements.txt": "trl==1.16.0\ntransformers==5.23.0\n"},
            "DS974",
            "unrecognized arguments: --no_cuda",
        ),
        (accelerate(BLOCK + "  gradient_accumulation_steps: auto\n"), "DS916", "invalid literal for int() with base 10: 'auto'"),
        (accelerate(BLOCK.replace("num_processes: 4\n", "") + "  zero_stage: 2\n"), "DS976", "You need to manually pass in `--num_processes`"),
    ],
    ids=["auto", "misspelt auto", "unknown auto", "local rank as path", "words", "own class", "keyword of TRL", "no micro batch", "flag of axolotl", "misspelt", "empty", "missing", "block", "trl", "flag", "gone", "key", "apollo", "no data", "best", "choice", "block and program", "generate", "muon", "saves", "key of a file", "text", "keyword", "switch", "no test data", "class of TRL", "precision of TRL", "batch while loading", "batch of Accelerate", "order", "batch of the launcher", "batch on any ranks", "batch without ranks", "stage", "name as JSON", "precision while loading", "precision of the evaluation", "fsdp", "no preset", "parser of TRL", "launcher of TRL", "data of TRL", "steps", "processes"],
)  # fmt: skip
def test_raises(files: dict[str, str], code: str, error: str) -> None:
    found = errors(files)
    assert found
    assert found[0][0] == code
    assert error in found[0][1]


@pytest.mark.parametrize(
    "files",
    [
        trainer(),
        trainer(None, launch=f"python write_config.py\n{LAUNCH}"),
        trainer(None, launch=f"cp ../configs/*.json .\n{LAUNCH}"),
        trainer(
            launch=LAUNCH.replace("torchrun --nproc_per_node 4", "accelerate launch --config_file a.yaml"),
            a_yaml=BLOCK + "  zero3_init_flag: false\n",
        ),
        trainer(
            CONFIG[:-1] + ', "bf16": {"enabled": true}}',
            "torchrun --nproc_per_node 4 train.py",
            train_py=IN_FILE,
            args_yaml="output_dir: out\nbf16: true\ndeepspeed: ds.json\n",
        ),
        trainer(launch=LAUNCH + " --evaluation_strategy steps"),
        trainer(launch=LAUNCH + " --lora_rank 4", train_py=OWN_CLASS),
        {
            "a.yaml": "mixed_precision: fp16\n" + BLOCK + "  zero_stage: 3\n",
            "train.yaml": TRL.replace("bf16: true\ndeepspeed: ds.json\n", "").replace("1e-4", "1.0e-4"),
            "run.sh": "trl sft --config train.yaml --accelerate_config a.yaml\n",
            "requirements.txt": "trl==1.16.0\n",
        },
        trainer(launch=WITH_FILE.replace("train.py", "--no_local_rank train.py"), train_py=IF_ALONE, args_json=ARGUMENTS),
        trainer(launch=WITH_FILE.replace("deepspeed --num_gpus 4", "torchrun"), train_py=BY_POSITION, args_json=ARGUMENTS),
        trainer(launch=BARE, train_py=SFT.replace('="ds.json"', '="ds.json", gradient_acumulation_steps=4')),
        trainer('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}', BARE, train_py=LOADS),
        trainer(launch=BARE, train_py=IN_FILE, args_yaml="output_dir: out\ndeepspeed: ds.json\nlearning_rate: 1.0e-4\n"),
        trainer(launch=BARE, train_py=OWN_ARGUMENTS.replace("model =", "args.own_setting = 1\nmodel =")),
        trainer(CONFIG[:-1] + ', "bf16": {"enabled": false}}', BARE, train_py=SFT),
        trainer(DIVIDED.replace("64", '"auto"'), BARE, train_py=LOADS),
        trainer(DIVIDED, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=2 " + BARE, train_py=LOADS),
        trl_by_launcher(CONFIG) | {"run.sh": "trl sft --config train.yaml --accelerate_config fsdp1\n", "requirements.txt": "trl==1.16.0\n"},
        trl_by_launcher(CONFIG) | {"run.sh": "trl sft --config train.yaml --accelerate_config zero4\n"},
        trainer(launch=LAUNCH + " --learning 1e-4 --no_bf16"),
        {**trainer(launch=LAUNCH + " --gradient_acumulation_steps 4"), "train.py": PROGRAM.replace("dataclasses()", "dataclasses(return_remaining_strings=True)")},
        llama_factory("val_size: 0.1\npredict_with_generate: true\n"),
        llama_factory("quantization_bit: 4\n"),
        axolotl("gradient_acumulation_steps: 4\n"),
        axolotl("optimizer: adamw_torch\nsaves_per_epoch: 1\n"),
        accelerate(BLOCK + "  gradient_accumulation_steps: 2\n"),
        accelerate("mixed_precision: no\n" + BLOCK + "  zero_stage: 2\n")
        | {"run.sh": "accelerate launch --config_file a.yaml --mixed_precision bf16 train.py\n"},
        accelerate("mixed_precision: bf16\n" + BLOCK + "  deepspeed_config_file: ds.json\n")
        | {"run.sh": "accelerate launch --config_file a.yaml --mixed_precision bf16 train.py\n"}
        | {"ds.json": '{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'},
    ],
    ids=["right", "written before", "copied before", "block without fields of a config", "arguments in a file", "gone perhaps", "own class", "precision of TRL in a block", "no local rank", "torchrun", "class of an unknown release", "micro batch alone", "number", "own attribute", "release of TRL not known", "batch filled", "steps in a variable", "preset without DeepSpeed", "preset of another release", "abbreviated", "remaining", "generate", "lora", "ignored", "saves", "steps", "precision in a flag", "precision in a flag beside a config"],
)  # fmt: skip
def test_runs(files: dict[str, str]) -> None:
    assert not errors(files)
