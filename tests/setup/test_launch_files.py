"""Launches that get their config from flags, from several files, or from a file of the launcher."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.diagnostics import Severity
from tests.setup.folder import Folder
from tests.setup.test_scripts import configs, reasons

OPENRLHF = "--zero_stage 3 --bf16 --adam_offload --micro_train_batch_size 2 --train_batch_size 64"
SECTIONS = "--ds.zero_stage 3 --ds.param_dtype bf16 --ds.adam_offload --train.micro_batch_size 2 --train.batch_size 64"
BUILT = {
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    "train_micro_batch_size_per_gpu": 2,
    "train_batch_size": 64,
    "gradient_accumulation_steps": None,
    "bf16": {"enabled": True},
}


@pytest.mark.parametrize("flags", [OPENRLHF, SECTIONS])
@pytest.mark.parametrize(
    "launcher", ["ray job submit -- python3 -m openrlhf.cli.train_ppo_ray", "torchrun ../train_dpo.py", "deepspeed --module a.b"]
)
def test_flags_of_openrlhf(folder: Folder, launcher: str, flags: str) -> None:
    ((name, data),) = configs(folder, f"{launcher} {flags}\n")
    assert (name, data) == ("run.sh", BUILT)
    assert folder.found("run.sh") == []  # the program builds DeepSpeedCPUAdam


def test_ranks_that_share_a_batch(folder: Folder) -> None:
    ((_, data),) = configs(folder, f"deepspeed train.py {OPENRLHF} --ring_attn_size 8\n")
    assert data["train_batch_size"] == 512
    ((_, data),) = configs(folder, f"deepspeed train.py {OPENRLHF} --use_dynamic_batch\n")
    assert "train_batch_size" not in data


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("--zero_stage 2 --micro_train_batch_size 2 --train_batch_size 256", True),
        ("--zero_stage 2 --micro_train_batch_size 2 --train_batch_size 252", False),
        ("--zero_stage 2 --micro_train_batch_size 2 --train_batch_size 36 --ring_attn_size 7", False),
        ("--zero_stage 2 --micro_train_batch_size 2 --train_batch_size 256 --use_dynamic_batch", False),
        ("--zero_stage 2 --micro_train_batch_size 2 --train_batch_size 256 --rollout_batch_size 512", False),
        ("--ds.zero_stage 2 --train.micro_batch_size 2 --train.batch_size 256", True),
        ("--zero_stage 2 --train_batch_size 256", False),
    ],
)
def test_the_accumulation_steps_of_openrlhf_follow_from_its_flags(folder: Folder, flags: str, found: bool) -> None:
    folder.write({"run.sh": f"deepspeed --include localhost:0,1,2,3,4,5,6 --module openrlhf.cli.train_sft {flags}\n"})
    assert [one.certain for one in folder.diagnostics("run.sh") if one.code == "DS201"] == ([False] if found else [])


def test_a_finding_in_a_program_names_the_launch_whose_flags_fill_its_config(folder: Folder) -> None:
    program = (
        "import argparse, deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--batch', type=int)\n"
        "parser.add_argument('--local_rank', type=int)\nargs = parser.parse_args()\n"
        "deepspeed.initialize(model=model, optimizer=optimizer, config={'train_batch_size': args.batch, 'gradient_accumulation_steps': 2})\n"
    )
    folder.write(
        {"train.py": program, "run.sh": "deepspeed --num_gpus 4 train.py --batch 12\ndeepspeed --num_gpus 4 train.py --batch 20\n"}
    )
    found = [one for one in folder.diagnostics("run.sh") if one.code == "DS201"]
    assert [(one.path, one.related[-1].path, one.related[-1].range.start.line) for one in found if one.related[-1].range] == [
        ("train.py", "run.sh", 1),
        ("train.py", "run.sh", 2),
    ]


MODEL = """{
  "pipe_parallel_size": 1,
  "model_parallel_size": 2,
  "num_layers": 2,
  "zero_optimization": {"stage": 1},
  "train_micro_batch_size_per_gpu": 4,
  "fp16": {"enabled": true}
}
"""


def test_the_files_of_gpt_neox_are_one_config(folder: Folder) -> None:
    cluster = '{\n  "hostfile": "hosts",\n  "bf16": {"enabled": true}\n}\n'
    folder.write({"configs/small.yml": MODEL, "configs/cluster.yml": cluster, "hosts": "worker-1 slots=8\n"})
    ((name, data),) = configs(folder, "python ./deepy.py train.py -d configs small cluster.yml --hostfile hosts\n")
    assert name == "configs/small.yml"
    assert data["zero_optimization"] == {"stage": 1}
    assert ("DS301", "configs/cluster.yml", 3) in folder.found("run.sh")
    context = folder.results("run.sh")["configs/small.yml"].context
    assert (context.facts.world_size, context.get("tensor_parallel")) == (8, 2)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("-d configs small.yml again.yml", "zero_optimization"),
        ("-d configs small.yml gone.yml", "gone.yml is not a file"),
        ("-d configs $SIZE.yml", "--env SIZE=VALUE"),
    ],
)
def test_files_of_gpt_neox_that_are_no_config(folder: Folder, words: str, reason: str) -> None:
    folder.write({"configs/small.yml": MODEL, "configs/again.yml": '{"zero_optimization": {"stage": 0}}'})
    assert configs(folder, f"python deepy.py train.py {words}\n") == []
    assert reason in reasons(folder, f"python deepy.py train.py {words}\n")[0]


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        ("accelerate launch --config_file conf/$KIND.yaml train.py", "--env KIND=VALUE"),
        ("accelerate launch --config_file conf/gone.yaml train.py", "conf/gone.yaml, which is not a file in this project"),
        ("trl sft --accelerate_config zero9 --output_dir x", "nor a config of TRL"),
        ("llamafactory-cli train $1", "--env 1=VALUE"),
        ("axolotl train gone.yml", "gone.yml, which is not a file"),
    ],
)
def test_a_launch_with_a_file_that_is_not_there(folder: Folder, launch: str, reason: str) -> None:
    assert [reason in one for one in reasons(folder, launch + "\n")] == [True]


@pytest.mark.parametrize("launch", ["trl vllm-serve --model m", "llamafactory-cli webui", "accelerate launch --multi_gpu train.py"])
def test_a_launch_without_deepspeed(folder: Folder, launch: str) -> None:
    assert "no command in this file launches" in reasons(folder, launch + "\n")[0]


@pytest.mark.parametrize("flags", ["", "--num_processes 4 --mixed_precision bf16 "])
def test_a_file_of_the_machine_may_make_a_launch_one_of_deepspeed(folder: Folder, flags: str) -> None:
    (reason,) = reasons(folder, f"accelerate launch {flags}train.py\n")
    assert "the file that accelerate config wrote on that machine" in reason


@pytest.mark.parametrize(
    ("variables", "command", "ranks"),
    [
        ("NPROC_PER_NODE=2 NNODES=2", "swift sft", 4),
        ("NPROC_PER_NODE=2", "llamafactory-cli train", 2),
        ("CUDA_VISIBLE_DEVICES=0,3,5", "llamafactory-cli train", 3),
        ("CUDA_VISIBLE_DEVICES=0,3,5", "swift sft", None),
        ("NPROC_PER_NODE=2 NNODES=$N", "swift sft", None),
    ],
)
def test_the_ranks_of_a_framework(folder: Folder, variables: str, command: str, ranks: int | None) -> None:
    folder.write(
        {"run.sh": f"{variables} {command} --deepspeed ds.json --output_dir x\n", "ds.json": '{"zero_optimization": {"stage": 2}}'}
    )
    assert folder.results("run.sh")["ds.json"].context.facts.world_size == ranks


def test_a_config_that_a_variable_names(folder: Folder) -> None:
    both = '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "bf16": {"enabled": true}}'
    folder.write({"both.json": both})
    accelerate = "export ACCELERATE_USE_DEEPSPEED=true\nexport ACCELERATE_DEEPSPEED_CONFIG_FILE=both.json\ntorchrun train.py\n"
    assert [name for name, _ in configs(folder, accelerate)] == ["both.json"]
    lightning = f"cat <<EOT > made.json\n{both}\nEOT\nexport PL_DEEPSPEED_CONFIG_PATH=made.json\npython t.py --strategy deepspeed_stage_2\n"
    assert [name for name, _ in configs(folder, lightning)] == ["run.sh"]
    assert ("DS301", "run.sh", 2) in folder.found("run.sh")
    assert configs(folder, lightning.replace("deepspeed_stage_2", "ddp")) == []
    assert configs(folder, accelerate.replace("=true", "=false")) == []


def test_a_line_in_a_loop_has_one_finding(folder: Folder) -> None:
    folder.write({"run.sh": "for s in a b c; do deepspeed t.py --deepspeed $s.json; done\n"})
    result = folder.results("run.sh")["run.sh"]
    assert ["2 more times" in d.message for d in result.diagnostics if d.code == "DS919"] == [True]
    assert ["2 more times" in one.reason for one in result.not_judged] == [True]


def test_lines_have_findings_of_their_own(folder: Folder) -> None:
    folder.write({"run.sh": "deepspeed t.py --deepspeed a.json\ndeepspeed t.py --deepspeed b.json\n"})
    assert [code for code, *_ in folder.found("run.sh")] == ["DS919", "DS919"]


def test_an_empty_hostfile_is_none(folder: Folder) -> None:
    folder.write(
        {"ds.json": '{"train_batch_size": 8}', "run.sh": 'deepspeed --hostfile="" --include localhost:0 t.py --deepspeed ds.json\n'}
    )
    assert [code for code, *_ in folder.found("run.sh") if code == "DS919"] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("deepspeed train.py --deepspeed_config ds.json\n", "with DeepSpeed config ds.json"),
        ("deepspeed own.py\n", "with the DeepSpeed config of own.py"),
        (f"deepspeed gone.py {OPENRLHF}\n", "with a DeepSpeed config that the program may build, in part from its flags"),
        (
            "deepspeed gone.py --deepspeed --zero_stage 3 --data_split 2,4,4 --offload\n",
            "with a DeepSpeed config that the program builds as DeepSpeed-Chat does, in part from its flags",
        ),
        (
            "accelerate launch --use_deepspeed --zero_stage 3 gone.py\n",
            "with the DeepSpeed config that its flags describe and, if there is one, the file that accelerate config wrote on that machine",
        ),
        ("echo '{\"train_batch_size\": 8}' > new.json\ndeepspeed gone.py --deepspeed_config new.json\n", "config that the script writes"),
    ],
)
def test_what_is_said_of_a_launch(folder: Folder, text: str, said: str) -> None:
    own = "import deepspeed\ndeepspeed.initialize(config={'train_batch_size': 8})\n"
    folder.write({"ds.json": '{"train_batch_size": 8}', "own.py": own, "run.sh": text})
    assert said in (folder.results("run.sh")["run.sh"].note or "")


def test_a_comment_behind_an_option_of_slurm(folder: Folder) -> None:
    head = "#SBATCH --nodes=2      # machines\n#SBATCH --gres=gpu:4 # GPUs\n"
    folder.write(
        {
            "ds.json": '{"train_batch_size": 8}',
            "run.sh": head + "torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 t.py --deepspeed ds.json\n",
        }
    )
    assert folder.results("run.sh")["ds.json"].context.facts.world_size == 8


def test_the_home_directory_is_an_unknown_part(folder: Folder) -> None:
    assert "is ~/configs/ds.json," in reasons(folder, "R=~/configs\ndeepspeed t.py --deepspeed_config $R/ds.json\n")[0]


def test_flags_of_an_own_loop_are_not_those_of_the_trainer(folder: Folder) -> None:
    launch = "accelerate launch --use_deepspeed --deepspeed_config_file ds.json train.py --per_device_train_batch_size 2"
    folder.write({"ds.json": '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', "run.sh": f"{launch}\n"})
    assert "DS904" in [code for code, *_ in folder.found("run.sh")]
    folder.write({"run.sh": f"{launch} --num_warmup_steps 5\n"})
    assert "DS904" not in [code for code, *_ in folder.found("run.sh")]


@pytest.mark.parametrize(
    ("launcher", "precise"),
    [
        ("torchrun", True),
        ("accelerate launch --num_processes 8", False),
        ("accelerate launch --num_processes 8 --mixed_precision bf16", True),
    ],
)
def test_accelerate_launch_sets_the_variable_of_the_precision_anew(folder: Folder, launcher: str, *, precise: bool) -> None:
    program = "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel = accelerator.prepare(model)\n"
    exported = "export ACCELERATE_USE_DEEPSPEED=true ACCELERATE_MIXED_PRECISION=bf16\n"
    folder.write({"run.sh": f"{exported}{launcher} train.py\n", "train.py": program})
    shown = json.loads(CliRunner().invoke(cli, ["show", "run.sh", "--output-format", "json"]).stdout)
    assert {key["value"] for key in shown["keys"] if key["path"] == ["bf16", "enabled"]} == {precise}


@pytest.mark.parametrize(
    ("plugin", "exported", "keys"),
    [
        ("", "", {"stage": 2, "stage3_gather_16bit_weights_on_model_save": False}),
        ("", "ACCELERATE_DEEPSPEED_ZERO_STAGE=3", {"stage": 3}),
        ("zero_stage=1", "ACCELERATE_DEEPSPEED_ZERO_STAGE=3", {"stage": 1}),
        ("gradient_clipping=0.5", "ACCELERATE_DEEPSPEED_ZERO_STAGE=3", {"stage": 3, "gradient_clipping": 0.5}),
        ("zero_stage=2", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL=true", {"stage3_gather_16bit_weights_on_model_save": True}),
        ("gradient_clipping=1.0", "ACCELERATE_GRADIENT_CLIPPING=0.5", {"gradient_clipping": 1.0}),
    ],
)
def test_variables_say_what_the_plugin_of_a_program_does_not(folder: Folder, plugin: str, exported: str, keys: dict[str, object]) -> None:
    program = (
        f"from accelerate import Accelerator, DeepSpeedPlugin\naccelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin({plugin}))\n"
    )
    folder.write({"run.sh": f"export X=1 {exported}\ntorchrun --nproc_per_node 2 train.py\n", "train.py": program})
    shown = json.loads(CliRunner().invoke(cli, ["show", "run.sh", "--output-format", "json"]).stdout)
    values = {key["path"][-1]: key["value"] for key in shown["keys"] if key["known"]}
    assert {name: values.get(name) for name in keys} == keys


ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 2\ndeepspeed_config:\n"


@pytest.mark.parametrize(
    ("before", "link"),
    [
        ('REPO="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"\n', "$REPO/recipes/configs/a.yaml"),
        ("", "/home/me/train/recipes/configs/a.yaml"),
        ("", "checkout/recipes/configs/a.yaml"),
        ("", "scripts/recipes/configs/a.yaml"),
    ],
)
def test_a_file_of_this_project_by_a_path_of_another_place(before: str, link: str, folder: Folder) -> None:
    block = "  deepspeed_config_file: /home/me/train/recipes/configs/ds.json\n"
    folder.write({"recipes/configs/a.yaml": ACCELERATE + block, "recipes/configs/ds.json": '{"zero_optimization": {"stage": 7}}'})
    folder.write({"scripts/run.sh": f"{before}accelerate launch --config_file {link} train.py\n"})
    is_missing = link.startswith("scripts/")  # that folder is here, and the path does not lead on
    assert ("DS107" in [code for code, _, _ in folder.found("scripts/run.sh")]) is not is_missing
    if is_missing:
        (left,) = folder.results("scripts/run.sh")["scripts/run.sh"].not_judged
        assert f"its Accelerate config is {link}, which is not a file" in left.reason


_FOR_DEEPSPEED = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 3\n"
_PROGRAM = (
    "from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\naccelerator = Accelerator()\n"
    "model = AutoModelForCausalLM.from_pretrained('m', device_map='auto')\nmodel, loader = accelerator.prepare(model, loader)\n"
)
_TAKEN = "conf/zero.yaml, the only candidate that dslint sees, is taken for that of train.py."


@pytest.mark.parametrize(
    ("flags", "more", "judged"),
    [
        ("", {}, True),
        ("--multi_gpu ", {}, False),
        ("", {"conf/zero.yaml": _FOR_DEEPSPEED.replace("DEEPSPEED", "MULTI_GPU").replace("deepspeed_config", "fsdp_config")}, False),
        ("", {"conf/other.yaml": _FOR_DEEPSPEED}, False),
        ("", {"conf/other.py": _PROGRAM}, False),
        ("", {"zero.sh": "accelerate launch --config_file conf/zero.yaml train.py\n"}, False),
    ],
)
def test_a_launch_without_a_file_beside_the_only_one_for_deepspeed(folder: Folder, flags: str, more: dict[str, str], judged: bool) -> None:
    """It may be the file that the launcher takes by default. One that a script names is meant there."""
    folder.write({"conf/zero.yaml": _FOR_DEEPSPEED, "run.sh": f"accelerate launch {flags}train.py\n", "train.py": _PROGRAM, **more})
    found = [d for result in folder.results("run.sh", named=False).values() for d in result.diagnostics]
    assert ("DS946" in {d.code for d in found}) is judged
    assert not any(d.severity is Severity.ERROR for d in found)
    assert all(d.message.endswith(_TAKEN) for d in found if d.code == "DS946")


def test_a_launch_beside_a_file_that_another_script_names(folder: Folder) -> None:
    folder.write({"conf/zero.yaml": _FOR_DEEPSPEED, "run.sh": "accelerate launch train.py\n", "train.py": _PROGRAM})
    folder.write({"zero.sh": "accelerate launch --config_file conf/zero.yaml train.py\n"})
    (reason,) = folder.results("run.sh", named=False)["run.sh"].not_judged
    assert "If conf/zero.yaml is that file, write accelerate launch --config_file conf/zero.yaml." in reason.reason


def test_the_command_of_a_framework_beside_the_only_file_for_deepspeed(folder: Folder) -> None:
    flags = "--stage sft --do_train --template llama2 --output_dir o --bf16 --gradient_accumulation_steps 8"
    folder.write({"conf/zero.yaml": _FOR_DEEPSPEED + "  gradient_accumulation_steps: 4\nmixed_precision: bf16\n"})
    folder.write({"run.sh": f"accelerate launch src/train_bash.py {flags}\n"})
    found = [d for result in folder.results("run.sh").values() for d in result.diagnostics if d.code == "DS904"]
    assert [(d.severity, d.message.endswith(_TAKEN.replace("train.py", "run.sh:1"))) for d in found] == [(Severity.WARNING, True)]


@pytest.mark.parametrize(
    ("release", "asked", "flag", "config", "severity", "says"),
    [
        ("0.22.0", "gradient_accumulation_steps=2", "", "", "error", "replaces the value of the config by 2."),
        ("0.22.0", "gradient_accumulation_steps=8", "", "", "", ""),
        ("0.22.0", "", "--gradient_accumulation_steps 8", "", "", ""),
        ("0.22.0", "gradient_accumulation_steps=N", "", "", "", ""),
        ("0.22.0", "gradient_accumulation_plugin=plugin", "", "", "", ""),
        ("0.22.0", "", "", '"train_batch_size": 64, ', "error", 'DeepSpeed raises "Check batch related parameters"'),
        ("0.23.0", "gradient_accumulation_steps=8", "", "", "", ""),
        ("0.23.0", "gradient_accumulation_steps=2", "", "", "error", "Accelerate lets DeepSpeed use the value of the config."),
        ("1.8.0", "gradient_accumulation_steps=2", "", "", "error", "but the config has 8"),
        ("1.8.0", "gradient_accumulation_steps=2", "--gradient_accumulation_steps 8", "", "", ""),
        ("1.8.0", "gradient_accumulation_steps=N", "", "", "", ""),
        ("1.8.0", "", "", "", "", ""),
    ],
)
def test_accelerate_replaces_accumulation(
    folder: Folder, release: str, asked: str, flag: str, config: str, severity: str, says: str
) -> None:
    folder.write(
        {
            "train.py": f"from accelerate import Accelerator\naccelerator = Accelerator({asked})\nmodel = accelerator.prepare(model)\n",
            "ds.json": f'{{{config}"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8, "zero_optimization": {{"stage": 2}}}}',
            "run.sh": f"accelerate launch --use_deepspeed --num_processes 4 --deepspeed_config_file ds.json {flag} train.py\n",
            "requirements.txt": f"accelerate=={release}\ndeepspeed==0.16.3\n",
        }
    )
    output = CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output
    found = [one for one in json.loads(output)["diagnostics"] if one["code"] == "DS906"]
    assert [(one["severity"], says in one["message"]) for one in found] == ([(severity, True)] if severity else [])


@pytest.mark.parametrize(
    ("steps", "program", "flag", "says"),
    [
        (1, 4, "", "acc.yaml:5 sets 1 (gradient_accumulation_steps: 1)"),
        (4, 4, "", ""),
        (1, 4, "--gradient_accumulation_steps 4 ", ""),
        (4, 4, "--gradient_accumulation_steps 2 ", "run.sh:1 sets 2 (--gradient_accumulation_steps 2)"),
    ],
)
def test_the_launch_exports_other_accumulation_steps(folder: Folder, steps: int, program: int, flag: str, says: str) -> None:
    folder.write(
        {
            "train.py": "import argparse\nfrom accelerate import Accelerator\nparser = argparse.ArgumentParser()\n"
            'parser.add_argument("--steps", type=int, default=1)\nargs = parser.parse_args()\n'
            "accelerator = Accelerator(gradient_accumulation_steps=args.steps)\nmodel = accelerator.prepare(model)\n",
            "acc.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n"
            f"  gradient_accumulation_steps: {steps}\n  zero_stage: 2\n",
            "run.sh": f"accelerate launch --config_file acc.yaml {flag}train.py --steps {program}\n",
        }
    )
    output = CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output
    found = [one["message"] for one in json.loads(output)["diagnostics"] if one["code"] == "DS906"]
    assert [says in one for one in found] == ([True] if says else [])


@pytest.mark.parametrize(
    "program",
    [
        "accelerator = Accelerator(gradient_accumulation_steps=4, deepspeed_plugin=DeepSpeedPlugin(gradient_accumulation_steps=4))\n",
        'os.environ["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = "4"\naccelerator = Accelerator(gradient_accumulation_steps=4)\n',
    ],
)
def test_a_program_counts_more_than_the_steps_of_the_launch(folder: Folder, program: str) -> None:
    head = "import os\nfrom accelerate import Accelerator, DeepSpeedPlugin\n"
    folder.write(
        {
            "train.py": f"{head}{program}model = accelerator.prepare(model)\n",
            "acc.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n"
            "  gradient_accumulation_steps: 1\n  zero_stage: 2\n",
            "run.sh": "accelerate launch --config_file acc.yaml train.py\n",
        }
    )
    output = CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output
    assert [one["code"] for one in json.loads(output)["diagnostics"] if one["code"] == "DS906"] == []


@pytest.mark.parametrize(("flag", "codes"), [("", {"DS966"}), ("--multi_gpu ", {"DS950"})])
def test_a_flag_selects_another_training_than_the_program_is_judged_for(folder: Folder, flag: str, codes: set[str]) -> None:
    folder.write(
        {
            "train.py": "from accelerate import Accelerator\nfrom transformers import AutoModel\naccelerator = Accelerator()\n"
            "model = accelerator.prepare(AutoModel.from_pretrained('m'))\n",
            "acc.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n",
            "run.sh": f"accelerate launch --config_file acc.yaml {flag}train.py\n",
        }
    )
    assert {code for code, _, _ in folder.found("run.sh")} == codes


@pytest.mark.parametrize(
    ("required", "says"), [("~=4.27.0", "DeepSpeed uses 1"), (">=4.27", "Accelerate adds it"), ("==4.27.1", "DeepSpeed uses 1")]
)
def test_who_adds_a_missing_accumulation(folder: Folder, required: str, says: str) -> None:
    folder.write(
        {
            "train.py": "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
            "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer(model, args).train()\n",
            "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}',
            "run.sh": "deepspeed --num_gpus 2 train.py --output_dir o --deepspeed ds.json --gradient_accumulation_steps 8\n",
            "requirements.txt": f"transformers{required}\n",
        }
    )
    output = CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output
    assert [says in one["message"] for one in json.loads(output)["diagnostics"] if one["code"] == "DS906"] == [True]


@pytest.mark.parametrize(
    ("plugin", "stage"),
    [
        ("DeepSpeedPlugin(hf_ds_config='two.json')", 2),
        ("DeepSpeedPlugin('two.json')", 2),
        ("DeepSpeedPlugin(hf_ds_config={'train_micro_batch_size_per_gpu': 1, 'zero_optimization': {'stage': 2}})", 2),
        ("DeepSpeedPlugin()", 3),
        ("DeepSpeedPlugin(hf_ds_config='two.json') if len(sys.argv) > 2 else None", 3),
    ],
)
def test_a_config_of_the_programs_plugin_counts_more_than_the_file_of_the_launcher(folder: Folder, plugin: str, stage: int) -> None:
    for name, number in (("two", 2), ("three", 3)):
        folder.write({f"{name}.json": f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": {number}}}}}'})
    block = "deepspeed_config:\n  deepspeed_config_file: three.json\nnum_processes: 4\nnum_machines: 1\n"
    folder.write({"acc.yaml": f"compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n{block}"})
    program = f"import sys\nfrom accelerate import Accelerator, DeepSpeedPlugin\nplugin = {plugin}\nAccelerator(deepspeed_plugin=plugin).prepare(model)\n"
    folder.write({"train.py": program})
    ((_, data),) = configs(folder, "accelerate launch --config_file acc.yaml train.py\n")
    assert data["zero_optimization"]["stage"] == stage


BLOCK = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\nnum_processes: 4\nnum_machines: 1\n"
TRAINS = (
    "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds.json')\n"
    "engine.backward(engine(x))\nengine.step()\n"
)
REFERS = (
    "import deepspeed\nimport torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
    "model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))\n"
    "reference, *_ = deepspeed.initialize(model=reference, config='ds.json')\nreference.eval()\n"
)


@pytest.mark.parametrize(
    ("program", "batch", "found"),
    [(TRAINS, 9, ["DS201"]), (TRAINS, 8, []), (REFERS, 8, [])],
    ids=["wrong batch", "config of the program", "reference model"],
)
def test_a_program_that_calls_deepspeed_itself_gives_it_another_config_than_accelerates(
    folder: Folder, program: str, batch: int, found: list[str]
) -> None:
    """Nothing that `deepspeed.initialize` refuses is said of the config that Accelerate builds; its file still says the ranks."""
    optimizer = '"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}'
    folder.write({"acc.yaml": BLOCK, "train.py": program, "run.sh": "accelerate launch --config_file acc.yaml train.py\n"})
    folder.write({"ds.json": f'{{"train_batch_size": {batch}, "train_micro_batch_size_per_gpu": 2, {optimizer}}}'})
    output = CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).output
    assert [one["code"] for one in json.loads(output)["diagnostics"] if one["severity"] == "error"] == found


def test_a_nested_flag_names_a_config(folder: Folder) -> None:
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
    folder.write({"conf/z2.json": json.dumps(config), "train.py": "from quinine import QuinineArgumentParser\n"})
    script = 'ZERO="--training_arguments.deepspeed conf/z2.json"\ndeepspeed --num_gpus 2 train.py --config c.yaml $ZERO\n'
    assert configs(folder, script) == [("conf/z2.json", config)]


def test_a_program_that_is_not_valid_python_is_in_the_project_all_the_same(folder: Folder) -> None:
    folder.write({"train.py": "def load(:\n" * 9})
    (reason,) = reasons(folder, "deepspeed --num_gpus 2 train.py --size 7\n")
    assert reason.endswith("names no config that is known; train.py is not valid Python.")


@pytest.mark.parametrize("word", ["...", "${config}"])
def test_what_an_example_leaves_to_its_reader_is_no_missing_file(folder: Folder, word: str) -> None:
    (reason,) = reasons(folder, f"config=...\ndeepspeed --num_gpus 2 train.py --deepspeed {word}\n")
    assert reason.startswith("the DeepSpeed config is ..., which is only known at run time")


@pytest.mark.parametrize(
    ("asked", "severity"),
    [("config['train_batch_size']", "warning"), ("args.torch_dtype", "error"), ("args.device_map", "error"), ("value", "warning")],
)
def test_a_type_that_may_be_auto_is_no_code_that_fills_a_config(folder: Folder, asked: str, severity: str) -> None:
    program = (
        "import argparse\nimport deepspeed\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\nargs = parser.parse_args()\n"
        f"if {asked} == 'auto':\n    prepare()\ndeepspeed.initialize(args=args, model=model, optimizer=optimizer)\n"
    )
    folder.write({"train.py": program, "run.sh": "deepspeed train.py --deepspeed --deepspeed_config ds.json\n"})
    folder.write({"ds.json": '{"train_batch_size": "auto"}'})
    output = CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).output
    assert [one["severity"] for one in json.loads(output)["diagnostics"] if one["code"] == "DS902"] == [severity]


@pytest.mark.parametrize(
    ("library", "severity"), [("def plugin(args):\n    return DeepSpeedPlugin(zero_stage=2)\n", "warning"), ("", "error")]
)
def test_a_project_that_makes_a_plugin_may_train_with_deepspeed_all_the_same(folder: Folder, library: str, severity: str) -> None:
    folder.write({"acc.yaml": BLOCK, "library.py": f"from accelerate import DeepSpeedPlugin\n{library}"})
    folder.write({"train.py": "from accelerate import Accelerator\nfrom other import own\nAccelerator(**own()).prepare(model)\n"})
    folder.write({"run.sh": "accelerate launch --config_file acc.yaml --multi_gpu train.py\n"})
    output = CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output
    assert [one["severity"] for one in json.loads(output)["diagnostics"] if one["code"] == "DS950"] == [severity]


@pytest.mark.parametrize("adds", ["", "+", "++"])
def test_a_nested_word_names_a_config(folder: Folder, adds: str) -> None:
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
    folder.write({"conf/z2.json": json.dumps(config), "train.py": "import hydra\n"})
    script = f'torchrun --nproc_per_node 2 train.py data=a {adds}training_args.deepspeed="conf/z2.json" seed=42\n'
    assert configs(folder, script) == [("conf/z2.json", config)]


@pytest.mark.parametrize(
    ("name", "mentioned"),
    [("stats_dreamzero.json", False), ("subzero_v2.json", False), ("zero.json", True), ("ds_zero2.json", True), ("myzero3.json", True)],
)
def test_a_name_that_only_ends_in_zero_is_none_of_a_config(folder: Folder, name: str, mentioned: bool) -> None:
    folder.write({"train.py": f'import deepspeed\nFILE = "meta/{name}"\n'})
    found = reasons(folder, "deepspeed --num_gpus 2 train.py --size 7\n")
    assert any("concerns DeepSpeed" in one for one in found) == mentioned


@pytest.mark.parametrize(
    ("launch", "more", "ranks"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 python deepy.py train.py a.yml\n", "", 4),
        ("export CUDA_VISIBLE_DEVICES=0,1\n./deepy.py train.py a.yml\n", "", 2),
        ("python deepy.py train.py a.yml\n", "", None),
        ("CUDA_VISIBLE_DEVICES=0,1 python deepy.py train.py a.yml\n", '"hostfile": "/job/hosts", ', None),
        ("CUDA_VISIBLE_DEVICES=0,1 python deepy.py train.py a.yml\n", '"num-gpus": 1, ', None),
    ],
)
def test_the_visible_gpus_are_the_ranks_of_gpt_neox(folder: Folder, launch: str, more: str, ranks: int | None) -> None:
    """It computes the batch from torch.cuda.device_count(), where no hostfile says more."""
    folder.write({"a.yml": MODEL.replace("{", "{" + more, 1), "run.sh": launch})
    assert folder.results("run.sh")["a.yml"].context.facts.world_size == ranks
