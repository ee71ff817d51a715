"""What frameworks refuse with DeepSpeed: rows of their modules, and how their commands start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.diagnostics import Phase
from dslint.facts import Facts, Integration, Release
from tests.command import dslint
from tests.setup.folder import Folder

STAGE_3 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
AXOLOTL = "base_model: m\ndatasets: [{path: d, type: alpaca}]\nmicro_batch_size: 2\nlearning_rate: 1e-4\ndeepspeed: ds.json\n"
LLAMA_FACTORY = "stage: sft\nmodel_name_or_path: m\ndataset: d\nfinetuning_type: lora\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\ndeepspeed: ds.json\n"
LLAMAPRO = (
    "model: m\ntuner_type: llamapro\nrlhf_type: grpo\nuse_vllm: true\ndeepspeed: ds.json\nper_device_train_batch_size: 2\n"
    "learning_rate: 1e-4\noutput_dir: o\n"
)
AUTOTP = (
    "model: m\ntuner_type: full\ndeepspeed: {}\ndeepspeed_autotp_size: 2\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\n"
    "output_dir: o\nattn_impl: sdpa\n"
)
MUON = "model: m\ntuner_type: full\noptimizer: muon\ndeepspeed: {}\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\noutput_dir: o\n"
SWIFT = "swift sft --model m --dataset d --per_device_train_batch_size 2 --deepspeed ds.json\n"


@pytest.mark.parametrize(
    ("file", "error"),
    [
        (AXOLOTL + "optimizer: polora\n", "polora is not compatible with DeepSpeed"),
        (AXOLOTL + "optimizer: q_galore_adamw8bit\n", "q_galore_adamw8bit is not yet validated with DeepSpeed."),
        (AXOLOTL + "optimizer: adamw_torch\nple_cpu_offload: true\n", "ple_cpu_offload is not compatible with DeepSpeed"),
        (AXOLOTL + "optimizer: adamw_torch\nple_cpu_offload: false\n", ""),
        (AXOLOTL + "optimizer: adamw_torch\nadapter: qlora\n", "Require cfg.load_in_4bit to be True for qlora"),
        (AXOLOTL + "optimizer: adamw_torch\nadapter: qlora\nload_in_4bit: false\n", "Require cfg.load_in_4bit to be True for qlora"),
        (AXOLOTL + "optimizer: adamw_torch\nadapter: qlora\nload_in_4bit: true\n", ""),
        (LLAMA_FACTORY + "adapter_name_or_path: first,second\n", "Cannot use multiple adapters in DeepSpeed ZeRO-3."),
        (LLAMA_FACTORY + "adapter_name_or_path: first\n", ""),
        (LLAMA_FACTORY + "quantization_bit: 4\nquantization_method: hqq\n", "HQQ quantization is incompatible with DeepSpeed ZeRO-3"),
        (LLAMAPRO + "vllm_mode: colocate\n", "DeepSpeed ZeRO3 not supported for LLaMAPro&GRPO currently."),
        (LLAMAPRO + "vllm_mode: server\n", ""),
        (AUTOTP.format("zero3"), "gather_16bit_weights_on_model_save Extra inputs are not permitted"),
        (AUTOTP.format("zero2"), ""),
        (MUON.format("zero2"), "KeyError: 'use_muon'"),
        (MUON.format("ds.json"), "KeyError: 'use_muon'"),
        (MUON.format("zero3_offload"), ""),
        (MUON.format("zero0"), ""),
    ],
)
def test_rows_of_frameworks(folder: Folder, file: str, error: str) -> None:
    folder.write({"train.yaml": file, "ds.json": STAGE_3})
    found = [one.message for one in folder.diagnostics("train.yaml") if one.code == "DS975"]
    assert [error in message for message in found] == ([True] if error else [])


@pytest.mark.parametrize(
    ("program", "release", "says"),
    [("src/train_bash.py", "", "may raise"), ("src/train.py", "", ""), ("src/train.py", "0.7.1", "raises"), ("src/train.py", "0.8.0", "")],
)
def test_what_only_older_releases_refuse(folder: Folder, program: str, release: str, says: str) -> None:
    """PPO at stage 3 of LLaMA-Factory before 0.8: the release is pinned, or its program is one that 0.7.1 does not have any more."""
    flags = "--stage ppo --do_train --model_name_or_path m --dataset d --template t --finetuning_type lora --lora_target q --reward_model r --output_dir o --bf16"
    folder.write({"run.sh": f"torchrun --nproc_per_node 8 {program} {flags} --deepspeed ds.json\n", "ds.json": STAGE_3})
    folder.write({"requirements.txt": f"llamafactory=={release}\n" if release else ""})
    said = json.loads(CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).stdout)["diagnostics"]
    found = [one["message"] for one in said if "'weight' must be 2-D" in one["message"]]
    assert [f"LLaMA-Factory {says} " in message for message in found] == ([True] if says else [])


@pytest.mark.parametrize(
    ("release", "severity"),
    [("0.4.0", ""), ("0.5.0", "error"), ("0.12.2", "error"), ("0.13.0", ""), ("", "")],
)
def test_what_only_some_releases_of_axolotl_refuse(folder: Folder, release: str, severity: str) -> None:
    pinned = {"requirements.txt": f"axolotl[deepspeed]=={release}\n"} if release else {}
    training = AXOLOTL + "optimizer: adamw_torch\ntorch_compile: true\n"
    found = _refused(folder, {"train.yaml": training, "run.sh": "axolotl train train.yaml\n", "ds.json": STAGE_3, **pinned})
    assert [one["severity"] for one in found] == ([severity] if severity else [])
    assert all("torch_compile should be set within your deepspeed config file" in one["message"] for one in found)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ("--dataset d --do_train", ""),
        ("--eval_dataset d --do_train --do_eval", ""),
        ("--do_train", "Please specify dataset for training."),
        ("--dataset d --do_eval", "Please make sure eval_dataset be provided or val_size >1e-6"),
        ("--dataset d --finetuning_type full --use_dora True", "`use_dora` is only valid for LoRA training."),
    ],
)
def test_rows_of_frameworks_in_flags(folder: Folder, flags: str, error: str) -> None:
    command = f"llamafactory-cli train --stage sft --model_name_or_path m --deepspeed ds.json {flags}\n"
    folder.write({"run.sh": command, "ds.json": STAGE_3})
    found = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS975"]
    assert [error in message for message in found] == ([True] if error else [])


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        ("CUDA_VISIBLE_DEVICES=0 llamafactory-cli train train.yaml\n", "FORCE_TORCHRUN=1"),
        ("CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train train.yaml\n", ""),
        ("FORCE_TORCHRUN=1 CUDA_VISIBLE_DEVICES=0 llamafactory-cli train train.yaml\n", ""),
        ("llamafactory-cli train train.yaml\n", ""),
        (f"CUDA_VISIBLE_DEVICES=0,1,2,3 {SWIFT}", "NPROC_PER_NODE=4"),
        (f"CUDA_VISIBLE_DEVICES=0 {SWIFT}", ""),
        (f"export NPROC_PER_NODE=2\nCUDA_VISIBLE_DEVICES=0,1 {SWIFT}", ""),
    ],
)
def test_a_command_that_starts_one_process(folder: Folder, command: str, variable: str) -> None:
    folder.write({"train.yaml": LLAMA_FACTORY, "ds.json": STAGE_3, "run.sh": command})
    helps = [one.help for one in folder.diagnostics("run.sh") if one.code == "DS982"]
    assert helps == ([f"Write {variable} before the command."] if variable else [])


@pytest.mark.parametrize(
    ("command", "ranks", "found"),
    [
        ("llamafactory-cli train train.yaml\n", 1, True),
        ("llamafactory-cli train train.yaml\n", 2, False),
        ("FORCE_TORCHRUN=1 llamafactory-cli train train.yaml\n", 1, False),
        (SWIFT, 1, False),
    ],
)
def test_one_rank_is_one_process_of_llama_factory(folder: Folder, command: str, ranks: int, found: bool) -> None:
    folder.write({"train.yaml": LLAMA_FACTORY, "ds.json": STAGE_3, "run.sh": command})
    assert any(one.code == "DS982" for one in folder.diagnostics("run.sh", facts=Facts(world_size=ranks))) is found


LIGHTNING = """import lightning as L
from lightning.pytorch.callbacks import BackboneFinetuning, EarlyStopping, StochasticWeightAveraging
from lightning.pytorch.strategies import DeepSpeedStrategy
L.Trainer(strategy=DeepSpeedStrategy(config="ds.json"), callbacks=[CALLBACK])
"""


@pytest.mark.parametrize(
    ("callback", "codes"),
    [("StochasticWeightAveraging(swa_lrs=1e-2)", ["DS983"]), ("BackboneFinetuning()", ["DS983"]), ("EarlyStopping('loss')", [])],
)
def test_callbacks_of_lightning(folder: Folder, callback: str, codes: list[str]) -> None:
    folder.write({"train.py": LIGHTNING.replace("CALLBACK", callback), "ds.json": '{"zero_optimization": {"stage": 2}}'})
    assert [code for code, _, _ in folder.found("train.py") if code == "DS983"] == codes


SCHEDULED = '{"train_batch_size": "auto", "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}, "zero_optimization": {"stage": 2}}'


@pytest.mark.parametrize(
    ("rest", "release", "codes"),
    [
        ("max_steps: 33\n", "5.16.1", ["DS931"]),
        ("max_steps: 34\n", "5.16.1", []),  # one step, which axolotl makes two
        ("max_steps: 20\nwarmup_ratio: 0.1\n", "5.16.1", []),
        ("max_steps: 20\n", "5.19.0", []),
        ("", "5.16.1", []),
    ],
)
def test_the_warm_up_of_axolotl_is_a_part_of_the_steps(folder: Folder, rest: str, release: str, codes: list[str]) -> None:
    folder.write({"train.yaml": f"{AXOLOTL}optimizer: adamw_torch\n{rest}", "ds.json": SCHEDULED})
    facts = Facts(integration=Integration.TRANSFORMERS, loader_release=Release.parse(release))
    assert [one.code for one in folder.diagnostics("train.yaml", facts=facts) if one.code == "DS931"] == codes


@pytest.mark.parametrize("command", ["trl sft --config train.yaml\n", "trl dpo --config train.yaml\n"])
def test_a_warm_up_that_transformers_removed(folder: Folder, command: str) -> None:
    file = "model_name_or_path: m\ndataset_name: d\noutput_dir: o\nwarmup_ratio: 0.03\naccelerate_config: zero3\n"
    folder.write({"run.sh": command, "train.yaml": file})
    facts = Facts(integration=Integration.TRANSFORMERS, loader_release=Release(5, 23, 0))
    (found,) = [one for one in folder.diagnostics("run.sh", facts=facts) if one.code == "DS974"]
    assert 'TRL raises "unrecognized arguments: --warmup_ratio"' in found.message
    assert found.help == 'Write "warmup_steps".'


def test_a_batch_that_the_trainer_changes_is_not_compared(folder: Folder) -> None:
    program = "from transformers import Trainer, TrainingArguments\n"
    program += (
        "args = TrainingArguments(output_dir='o', per_device_train_batch_size=4, {rest}deepspeed='ds.json')\nTrainer(args=args).train()\n"
    )
    config = '{{"train_batch_size": {train}, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1, "zero_optimization": {{"stage": 2}}}}'
    for rest, train, error in (
        ("auto_find_batch_size=True, ", '"auto"', 'DeepSpeed raises AssertionError "Check batch related parameters'),
        ("auto_find_batch_size=True, ", "16", ""),
        ("", '"auto"', "the Hugging Face Trainer raises"),
    ):
        folder.write({"train.py": program.format(rest=rest), "ds.json": config.format(train=train)})
        found = [one.message for one in folder.diagnostics("train.py", facts=Facts(world_size=2)) if one.code == "DS904"]
        assert [error in message for message in found] == [True] * bool(error)


SWIFT_FILE = "model: m\ndataset: d\nmax_length: 512\noutput_dir: o\nper_device_train_batch_size: 2\ndeepspeed: ds.json\n"


def test_a_command_decides_of_which_framework_its_file_is(folder: Folder) -> None:
    """The keys are those of TRL as well, and the project uses TRL."""
    files = {"ds.json": STAGE_3, "other.py": "import trl\n", "run.sh": "NPROC_PER_NODE=2 swift sft train.yaml\n"}
    folder.write({**files, "train.yaml": SWIFT_FILE + "learning_rate: 1.0e-4\npacking: true\n"})
    assert ["flash attention" in one.message for one in folder.diagnostics("run.sh") if one.code == "DS975"] == [True]


@pytest.mark.parametrize(
    ("key", "codes"),
    [
        ("learning_rat", []),  # argparse takes it for --learning_rate
        ("learnin", ["DS974"]),  # of --learning_rate and --learning-rate
        ("lr_sched", ["DS974"]),  # of two arguments
        ("learning_rats", ["DS974"]),
    ],
)
def test_a_key_that_becomes_a_flag_may_be_its_beginning(folder: Folder, key: str, codes: list[str]) -> None:
    folder.write({"ds.json": STAGE_3, "run.sh": "NPROC_PER_NODE=2 swift sft train.yaml\n", "train.yaml": f"{SWIFT_FILE}{key}: 0.1\n"})
    assert [one.code for one in folder.diagnostics("run.sh") if one.code == "DS974"] == codes


OWN_ARGUMENTS = (
    "from dataclasses import dataclass\nfrom transformers import Trainer, TrainingArguments\n\n"
    "@dataclass\nclass Mine(TrainingArguments):\n    gamma_beta_ratio: float = 0.5\n\n"
    'arguments = Mine("out", gamma_beta_ratio=1.0%s)\n%strainer = Trainer(model, arguments)\n'
)


@pytest.mark.parametrize(
    ("given", "later", "codes"),
    [
        (', deepspeed="ds.json"', "", []),
        (', deepspeed="ds.json", no_such_argument=1', "", ["DS974"]),
        ("", 'arguments.deepspeed = "ds.json"\n', ["DS998"]),
        ("", 'if sys.argv[1:]:\n    arguments.deepspeed = sys.argv[1]\nelse:\n    arguments.deepspeed = "ds.json"\n', ["DS998"]),
        ("", 'arguments.deepspeed = "ds.json"\narguments.__post_init__()\n', []),
    ],
)
def test_arguments_of_a_class_of_the_project(folder: Folder, given: str, later: str, codes: list[str]) -> None:
    """Its own fields are known arguments, and a config that is set afterwards is read by nobody."""
    folder.write({"train.py": "import sys\n" + OWN_ARGUMENTS % (given, later), "ds.json": STAGE_3})
    assert [code for code, _, _ in folder.found("train.py") if code in ("DS974", "DS998")] == codes


MMENGINE = """strategy = dict(type="DeepSpeedStrategy", config=dict(train_micro_batch_size_per_gpu=1), zero_optimization=dict(stage=2))
optim_wrapper = dict(type="DeepSpeedOptimWrapper", optimizer=dict(type="AdamW", lr=1e-3))
train_dataloader = dict(batch_size=4)
"""


@pytest.mark.parametrize(
    ("pins", "severities"),
    [
        ("deepspeed==0.19.8\nmmengine==0.10.7\n", ["error"]),
        ("deepspeed==0.19.8\n", ["warning"]),
        ("deepspeed==0.19.6\nmmengine==0.10.7\n", []),
        ("mmengine==0.10.7\n", []),
    ],
)
@pytest.mark.parametrize("start", ["config.py", "run.sh"])
def test_mmengine_imports_optimizers_that_deepspeed_removed(folder: Folder, start: str, pins: str, severities: list[str]) -> None:
    files = {"config.py": MMENGINE, "train.py": "optim_type = None\n", "requirements.txt": pins}
    folder.write(
        {
            **files,
            "ds.json": '{"train_micro_batch_size_per_gpu": 1}',
            "run.sh": "NPROC_PER_NODE=2 xtuner train train.py --deepspeed ds.json\n",
        }
    )
    found = json.loads(CliRunner().invoke(cli, ["check", start, "--output-format", "json"]).output)["diagnostics"]
    assert [one["severity"] for one in found if one["code"] == "DS993"] == severities


def test_an_attribute_of_the_arguments_is_no_argument(tmp_path: Path) -> None:
    program = (
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "%sTrainer(model, arguments).train()\n"
    )
    command = "deepspeed --num_gpus 4 train.py --output_dir out --learning_rate 1e-5 --bf16 true --deepspeed ds_config.json"
    (tmp_path / "ds_config.json").write_text('{"zero_optimization": {"stage": 2}, "gradient_clipping": "auto"}', encoding="utf-8")
    codes = {}
    for kind, more, flag in (
        ("attribute", 'arguments.half_precision_backend = "cuda_amp"\n', ""),
        ("flag", "", " --half_precision_backend auto"),
    ):
        (tmp_path / "train.py").write_text(program % more, encoding="utf-8")
        (tmp_path / "run.sh").write_text(command + flag + "\n", encoding="utf-8")
        found = json.loads(dslint("check", ".", "--isolated", "--output-format", "json", cwd=tmp_path).stdout)["diagnostics"]
        codes[kind] = "DS924" in [one["code"] for one in found]
    assert codes == {"attribute": False, "flag": True}


_GRPO = "from trl import {kind}Config, {kind}Trainer\nargs = {kind}Config(output_dir='o', deepspeed='ds.json', {more})\n{kind}Trainer('m', args=args).train()\n"


@pytest.mark.parametrize(
    ("trl", "kind", "more", "error"),
    [
        ("0.14.0", "GRPO", "num_generations=8, per_device_train_batch_size=1", ""),
        (
            "0.16.1",
            "GRPO",
            "num_generations=8, per_device_train_batch_size=1",
            "The global train batch size (4 x 1) must be evenly divisible",
        ),
        ("0.16.1", "GRPO", "num_generations=8, per_device_train_batch_size=1, gradient_accumulation_steps=2", "(4 x 1) must be evenly"),
        ("0.17.0", "GRPO", "num_generations=8, per_device_train_batch_size=1, gradient_accumulation_steps=2", ""),
        ("0.17.0", "GRPO", "num_generations=8, per_device_train_batch_size=1", "The effective train batch size (4 x 1 x 1) must be"),
        (
            "0.19.0",
            "GRPO",
            "num_generations=8, per_device_train_batch_size=1, steps_per_generation=3",
            "(4 x 1 x 3) must be evenly divisible",
        ),
        ("1.0.0", "GRPO", "per_device_train_batch_size=1", "generation_batch_size (4) must be divisible by num_generations (8)"),
        ("1.0.0", "GRPO", "per_device_train_batch_size=1, generation_batch_size=16", ""),
        ("1.0.0", "GRPO", "per_device_train_batch_size=1, generation_batch_size=12", "generation_batch_size (12) must be divisible"),
        ("1.0.0", "GRPO", "per_device_train_batch_size=1, num_generations=N", ""),
        (
            "1.0.0",
            "RLOO",
            "per_device_train_batch_size=1, num_generations=3",
            "generation_batch_size (4) must be divisible by num_generations (3)",
        ),
        ("0.21.0", "RLOO", "per_device_train_batch_size=1, num_generations=3", ""),
        ("1.0.0", "SFT", "per_device_train_batch_size=1, num_generations=3", ""),
    ],
)
def test_groups_of_generations(folder: Folder, trl: str, kind: str, more: str, error: str) -> None:
    launch = "torchrun --nproc_per_node 4 train.py\n"
    files = {"train.py": _GRPO.format(kind=kind, more=more), "run.sh": launch, "ds.json": STAGE_3, "requirements.txt": f"trl=={trl}\n"}
    assert [error in one["message"] for one in _refused(folder, files)] == ([True] if error else [])


def _refused(folder: Folder, files: dict[str, str]) -> list[dict[str, str]]:
    folder.write(files)
    output = CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output
    return [one for one in json.loads(output)["diagnostics"] if one["code"] == "DS975"]


def test_groups_of_generations_in_a_file(folder: Folder) -> None:
    training = "model_name_or_path: m\ndataset_name: d\noutput_dir: o\nper_device_train_batch_size: 2\nnum_generations: 16\nbf16: true\n"
    script = "accelerate launch --num_processes 3 --config_file a.yaml train.py --config train.yaml\n"
    program = (
        "from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser\nparser = TrlParser((GRPOConfig, ModelConfig))\n"
        "args, model = parser.parse_args_and_config()\nGRPOTrainer(model.model_name_or_path, args=args).train()\n"
    )
    accelerate = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\nnum_processes: 8\n"
    files = {"train.py": program, "run.sh": script, "a.yaml": accelerate, "train.yaml": training}
    words = "3 ranks have no whole groups of 16 generations"
    assert [(words in one["message"], one["severity"]) for one in _refused(folder, files)] == [(True, "warning")]
    own = "import trl\nclass GRPOConfig(trl.GRPOConfig):\n    more: str = ''\n" + program.replace("GRPOConfig, ", "", 1)
    files = {**files, "train.py": own, "train.yaml": training + "gradient_accumulation_steps: 2\n", "requirements.txt": "trl==1.0.0\n"}
    assert [(words in one["message"], one["severity"]) for one in _refused(folder, files)] == [(True, "error")]
    by_default = {
        **files,
        "train.yaml": training.replace("num_generations: 16\n", "more: x\n"),
    }  # 6 samples, and the class says 8 generations
    assert ["3 ranks have no whole groups of 8 generations" in one["message"] for one in _refused(folder, by_default)] == [True]
    for unlike in ("    num_generations: int = 3\n", "    def __post_init__(self):\n        self.num_generations = 3\n"):
        changed = own.replace("    more: str = ''\n", f"    more: str = ''\n{unlike}")
        assert _refused(folder, {**by_default, "train.py": changed}) == []
    other = own.replace("GRPO", "SFT")
    assert _refused(folder, {**files, "train.py": other}) == []


@pytest.mark.parametrize(
    ("more", "trl", "says"),
    [
        ("vllm_device: auto\n", "", "TRL up to 0.16 may raise"),
        ("vllm_device: auto\n", "trl==0.15.2\n", "TRL raises"),
        ("vllm_device: auto\n", "trl==0.17.0\n", ""),
        ("vllm_device: auto\nnum_generations: 3\n", "", ""),
        ("", "", ""),
        ("", "trl>=0.14\n", ""),
    ],
)
def test_an_argument_of_old_releases_tells_how_trl_counts_a_batch(folder: Folder, more: str, trl: str, says: str) -> None:
    """Since 0.17 the sixteen steps of accumulation count, too: three ranks then have whole groups of the default of eight."""
    program = (
        "from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser\nparser = TrlParser((GRPOConfig, ModelConfig))\n"
        "args, model = parser.parse_args_and_config()\nGRPOTrainer(model.model_name_or_path, args=args).train()\n"
    )
    training = "model_name_or_path: m\noutput_dir: o\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 16\nuse_vllm: true\n"
    files = {
        "train.py": program,
        "run.sh": "accelerate launch --num_processes 3 --config_file a.yaml train.py --config train.yaml\n",
        "a.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\nnum_processes: 8\n",
        "train.yaml": training + more,
        **({"requirements.txt": trl} if trl else {}),
    }
    found = [(says in one["message"], one["severity"]) for one in _refused(folder, files)]
    assert found == ([(True, "error" if "==" in trl else "warning")] if says else [])


def test_weights_that_are_loaded_too_late_stop_the_run_at_that_call(folder: Folder) -> None:
    folder.write(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}',
            "train.py": "import deepspeed, torch\nmodel = torch.nn.Linear(4, 4)\n"
            "engine, *_ = deepspeed.initialize(model=model, config='ds.json', model_parameters=model.parameters())\n"
            "engine.module.load_state_dict(torch.load('x.pt'))\n",
        }
    )
    (found,) = (one for one in folder.diagnostics("train.py") if one.code == "DS968")
    assert found.phase is Phase.LATER


def test_fields_of_a_parsed_class_are_not_its_defaults(folder: Folder) -> None:
    """A class of arguments checks its fields in `__post_init__`, after the parser has set them: all copies of run_clm.py do."""
    program = (
        "from dataclasses import dataclass, field\nfrom typing import Optional\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "@dataclass\nclass Data:\n    dataset: Optional[str] = field(default=None)\n    validation_file: Optional[str] = field(default=None)\n"
        "    def __post_init__(self):\n        if self.dataset is None and self.validation_file is None:\n            raise ValueError('no data')\n"
        "data, arguments = HfArgumentParser((Data, TrainingArguments)).parse_args_into_dataclasses()\nTrainer(model=model, args=arguments).train()\n"
    )
    launch = "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out --validation_file v.txt\n"
    folder.write({"train.py": program, "run.sh": launch, "ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'})
    assert "DS975" not in [code for code, _, _ in folder.found("run.sh")]


FORMER_SWIFT = "swift rlhf --rlhf_type dpo --model_type qwen-7b-chat --sft_type full --dataset d --deepspeed ds.json --output_dir o\n"


@pytest.mark.parametrize(
    ("command", "pin", "said"),
    [
        (FORMER_SWIFT, "", ["ms-swift before 2.4.2 may raise"]),
        (FORMER_SWIFT.replace("dpo", "kto"), "", ["ms-swift before 2.4.2 may raise"]),
        (FORMER_SWIFT.replace("rlhf --rlhf_type dpo", "dpo"), "", ["ms-swift before 2.4.2 may raise"]),
        (FORMER_SWIFT.replace("swift rlhf", "torchrun --nproc_per_node 8 swift/cli/rlhf.py"), "", ["ms-swift before 2.4.2 may raise"]),
        (FORMER_SWIFT, "ms-swift==2.3.0\n", ["ms-swift raises"]),
        (FORMER_SWIFT, "ms-swift==2.5.2\n", []),
        (FORMER_SWIFT.replace("dpo", "orpo"), "", []),
        (FORMER_SWIFT.replace("full", "lora"), "", []),
        (FORMER_SWIFT.replace("--sft_type", "--ref_model_type qwen-7b-chat --sft_type"), "", []),
        (FORMER_SWIFT.replace("--sft_type", "--train_type"), "", []),  # of a release that loads the model twice
        (FORMER_SWIFT.replace("rlhf --rlhf_type dpo", "sft"), "", []),
    ],
)
def test_an_argument_of_former_releases_tells_of_them(folder: Folder, command: str, pin: str, said: list[str]) -> None:
    """A reference model that they leave to TRL, which copies no model that is divided."""
    folder.write({"ds.json": STAGE_3, "run.sh": f"NPROC_PER_NODE=8 {command}", "requirements.txt": pin})
    given = json.loads(CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).stdout)["diagnostics"]
    found = [one["message"] for one in given if "create_reference_model" in one["message"]]
    assert [text in one for text, one in zip(said, found, strict=True)] == [True] * len(said)


FULL = LLAMA_FACTORY.replace("lora", "full") + "template: qwen\ndo_train: true\n"
LORA = FULL.replace("full", "lora")


@pytest.mark.parametrize(
    ("file", "pin", "said"),
    [
        (FULL + "use_galore: true\n", "", 'raises "GaLore and APOLLO are'),
        (FULL + "use_galore: true\n", "0.9.1", 'raises "GaLore is incompatible with DeepSpeed yet.'),
        (FULL + "use_galore: true\n", "0.7.1", 'raises "GaLore and BAdam are'),
        (FULL + "use_galore: true\n", "0.6.2", 'raises "GaLore is incompatible with DeepSpeed.'),
        (FULL + "use_badam: true\n", "0.7.1", 'raises "GaLore and BAdam are'),
        (FULL.replace("sft", "ppo") + "reward_model: r\n", "", 'raises "`reward_model_type` cannot be lora'),
        (FULL.replace("sft", "ppo") + "reward_model: r\nreward_model_type: full\n", "", ""),
        (LORA.replace("sft", "ppo") + "reward_model: r\n", "", ""),
        (FULL.replace("sft", "dpo") + "pref_loss: simpo\ndpo_label_smoothing: 0.1\n", "", 'raises "`dpo_label_smoothing`'),
        (FULL.replace("sft", "dpo") + "dpo_label_smoothing: 0.1\n", "", ""),
        (FULL + "do_predict: true\nval_size: 0.1\n", "", 'raises "Please enable `predict_with_generate`'),
        (FULL.replace("sft", "dpo") + "mask_history: true\n", "0.9.3", 'raises "`train_on_prompt` or `mask_history`'),
        (FULL + "mask_history: true\n", "0.9.3", ""),
        (FULL + "infer_backend: vllm\n", "", 'raises "backend is only available'),
        (FULL + "infer_backend: huggingface\n", "", ""),
        (FULL + "interleave_probs: 0.5,0.5\n", "0.9.3", 'raises "`interleave_probs`'),
        (FULL + "interleave_probs: 0.5,0.5\nmix_strategy: interleave_over\n", "0.9.3", ""),
        (FULL + "pure_bf16: true\nbf16: true\n", "0.7.1", 'raises "Turn off mixed precision'),
        (FULL.replace("template: qwen\n", ""), "0.9.1", 'raises "Please specify which `template`'),
        (FULL.replace("template: qwen\n", ""), "0.9.3", ""),
        (LORA, "0.5.3", 'raises "Please specify `lora_target`'),
        (LORA, "0.6.0", ""),
        (FULL.replace("sft", "dpo"), "0.2.0", 'raises "zero stage 2 requires an optimizer'),
        (FULL.replace("sft", "dpo"), "0.2.1", ""),
        (LORA.replace("sft", "ppo") + "lora_target: q\nreward_model: r\n", "0.2.0", 'raises "incompatible with DeepSpeed'),
        (LORA.replace("sft", "ppo") + "reward_model: r\nreport_to: swanlab\n", "", 'raises "PPO only accepts wandb'),
        (LORA.replace("sft", "ppo") + "reward_model: r\nreport_to: none\n", "", ""),
    ],
)
def test_what_releases_of_llamafactory_refuse(folder: Folder, file: str, pin: str, said: str) -> None:
    stage_2 = STAGE_3.replace('"stage": 3', '"stage": 2')
    folder.write({"ds.json": stage_2, "train.yaml": file, "requirements.txt": f"llamafactory=={pin}\n" if pin else ""})
    given = json.loads(CliRunner().invoke(cli, ["check", "train.yaml", "--output-format", "json"]).stdout)["diagnostics"]
    found = [one["message"] for one in given if one["code"] == "DS975"]
    assert [said in one for one in found] == ([True] if said else []), found


_BEST = "deepspeed train.py --deepspeed ds.json --output_dir o --load_best_model_at_end true\n"
_PARSED = "parser = HfArgumentParser((Mine,))\n{}(args,) = parser.parse_args_into_dataclasses()\n"
_MADE = 'args = Mine(output_dir="o", deepspeed="ds.json", load_best_model_at_end=True)\n'
_MINE = "@dataclass\nclass Mine(TrainingArguments):\n"
_STRATEGIES = '    eval_strategy: str = field(default="steps")\n    save_strategy: str = "steps"\n'


@pytest.mark.parametrize(
    ("kind", "made", "codes"),
    [
        (_MINE + _STRATEGIES, _PARSED.format(""), []),
        (_MINE + _STRATEGIES, _MADE, []),
        (_MINE + "    def __post_init__(self):\n        self.eval_strategy = 'steps'\n        super().__post_init__()\n", _MADE, []),
        ("Mine = TrainingArguments\n", _PARSED.format("parser.set_defaults(eval_strategy='steps')\n"), []),
        (_MINE + "    cutoff: int = 2\n", _PARSED.format(""), ["DS975"]),
        (_MINE + "    cutoff: int = 2\n", _MADE, ["DS975"]),
    ],
)
def test_a_class_of_arguments_may_have_defaults_of_its_own(folder: Folder, kind: str, made: str, codes: list[str]) -> None:
    """The Trainer requires the same strategy to save and to evaluate: what neither a flag nor a file sets, the program's class may."""
    head = "from dataclasses import dataclass, field\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    program = f"{head}{kind}{made}Trainer(model=model, args=args, train_dataset=data).train()\n"
    command = _BEST if "parser" in made else "deepspeed train.py\n"
    folder.write({"ds.json": STAGE_3, "train.py": program, "run.sh": command})
    assert [code for code, *_ in folder.found("run.sh") if code == "DS975"] == codes


@pytest.mark.parametrize(
    ("flags", "sets", "codes"),
    [
        ("--save_strategy epoch", "args.eval_strategy = 'steps'\nargs.load_best_model_at_end = True\n", []),
        ("--save_strategy epoch --eval_strategy steps", "args.load_best_model_at_end = True\n", []),
        ("--save_strategy epoch --eval_strategy steps --load_best_model_at_end true", "", ["DS975"]),
        ("--save_strategy epoch --eval_strategy steps --load_best_model_at_end true", "args.eval_strategy = 'epoch'\n", ["DS975"]),
    ],
)
def test_what_a_program_sets_in_arguments_is_not_checked_again(folder: Folder, flags: str, sets: str, codes: list[str]) -> None:
    """The Trainer compares the strategies when the object of arguments is made."""
    head = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    made = f"(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n{sets}"
    program = f"{head}{made}Trainer(model=model, args=args, train_dataset=data).train()\n"
    folder.write({"ds.json": STAGE_3, "train.py": program, "run.sh": f"deepspeed train.py --deepspeed ds.json --output_dir o {flags}\n"})
    assert [code for code, *_ in folder.found("run.sh") if code == "DS975"] == codes


@pytest.mark.parametrize(
    ("condition", "codes"), [("quantization_config is not None else None", []), ("options.by_rank else None", ["DS946"])]
)
def test_a_device_map_that_only_quantized_models_get(folder: Folder, condition: str, codes: list[str]) -> None:
    """The training arguments ask for no quantization."""
    program = (
        "import os\nfrom own import options\nfrom transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments\n"
        "def device_map():\n    return {'': int(os.environ['LOCAL_RANK'])}\n"
        "arguments = TrainingArguments(output_dir='out', deepspeed='ds.json')\n"
        "quantization_config = BitsAndBytesConfig(load_in_4bit=True) if options.load_in_4bit else None\n"
        f"kwargs = dict(device_map=device_map() if {condition}, quantization_config=quantization_config)\n"
        "model = AutoModelForCausalLM.from_pretrained('m', **kwargs)\n"
    )
    folder.write({"ds.json": STAGE_3, "train.py": program})
    assert [code for code, *_ in folder.found("train.py") if code == "DS946"] == codes
