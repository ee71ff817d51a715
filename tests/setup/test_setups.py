"""Setups from end to end: what leads to what, and where each finding stands."""

from __future__ import annotations

import json

import pytest

from dslint.config.detect import FileKind
from dslint.diagnostics import Severity
from dslint.facts import Facts, Integration, Release
from dslint.facts.gpus import GPUS
from dslint.facts.model_config import describe
from dslint.registry.rules import loaded_rules
from dslint.rules.ds9_integrations.accelerate_keys import UNKNOWN_TO_ACCELERATE
from tests.setup.folder import Folder

MISMATCHED = (
    '{"train_batch_size": "auto", "gradient_accumulation_steps": 4, "gradient_clipping": "auto",\n"zero_optimization": {"stage": 2}}'
)
AGREEING = MISMATCHED.replace(" 4,", ' "auto",')
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n"
TRAINERS = {
    "axolotl": "base_model: m\nmicro_batch_size: 2\ngradient_accumulation_steps: 2\ndeepspeed: ds.json\n",
    "LLaMA-Factory": "stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 2\ndeepspeed: ds.json\n",
    "ms-swift": "model: m\ntrain_type: lora\noutput_dir: o\nlearning_rate: 1e-4\ngradient_accumulation_steps: 2\ndeepspeed: ds.json\n",
    "TRL": "dataset_text_field: d\nlearning_rate: 1e-4\noutput_dir: o\ngradient_accumulation_steps: 2\ndeepspeed: ds.json\n",
}


@pytest.mark.parametrize("framework", TRAINERS)
def test_a_training_and_its_config(folder: Folder, framework: str) -> None:
    folder.write({"train.yaml": TRAINERS[framework], "ds.json": MISMATCHED})
    results = folder.results("train.yaml")
    (found,) = (d for d in results["ds.json"].diagnostics if d.code == "DS904")
    assert found.range is not None
    assert found.range.start.line == 1
    (other,) = found.related
    assert other.path == "train.yaml"
    assert other.range is not None
    line = TRAINERS[framework].splitlines()[other.range.start.line - 1]
    assert line == "gradient_accumulation_steps: 2"
    assert framework in (results["train.yaml"].note or "")
    assert dict(results["ds.json"].context.evidence)["integration"].startswith("train.yaml")
    folder.write({"ds.json": AGREEING})
    assert [d for d in folder.diagnostics("train.yaml") if d.code == "DS904"] == []


def test_keys_that_others_share_with_trl_name_it_only_where_the_project_uses_it(folder: Folder) -> None:
    shared = "max_length: 512\nlearning_rate: 1e-4\noutput_dir: o\ngradient_accumulation_steps: 2\ndeepspeed: ds.json\n"
    folder.write({"train.yaml": shared, "ds.json": AGREEING, "train.py": "from transformers import Trainer\n"})
    assert "TRL" not in (folder.results("train.yaml")["train.yaml"].note or "")
    folder.write({"train.py": "from trl import SFTTrainer\n"})
    assert "TRL" in (folder.results("train.yaml")["train.yaml"].note or "")


def test_a_finding_about_a_filled_value_names_the_argument(folder: Folder) -> None:
    config = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": BF16}, "zero_optimization": {"stage": 2}}'
    folder.write({"train.yaml": TRAINERS["axolotl"] + "bf16: true\n", "ds.json": config.replace("BF16", '"auto"')})
    (found,) = (d for d in folder.diagnostics("train.yaml", facts=Facts(gpu=GPUS["v100"])) if d.code == "DS323")
    assert [(one.path, one.pointer) for one in found.related] == [("train.yaml", "/bf16")]
    assert found.fix is None  # axolotl's Trainer refuses a config that says other than its arguments
    folder.write({"ds.json": config.replace("BF16", "true")})
    (found,) = (d for d in folder.diagnostics("train.yaml", facts=Facts(gpu=GPUS["v100"])) if d.code == "DS323")
    assert found.related == ()
    assert found.fix is not None


def test_both_precisions_in_the_arguments_are_one_finding(folder: Folder) -> None:
    config = '{"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}'
    folder.write({"train.yaml": TRAINERS["TRL"] + "fp16: true\nbf16: true\n", "ds.json": config})
    assert [code for code, *_ in folder.found("train.yaml") if code in ("DS301", "DS960")] == ["DS960"]


def test_a_config_written_in_the_training(folder: Folder) -> None:
    folder.write({"train.yaml": TRAINERS["axolotl"].replace("ds.json", MISMATCHED.replace("\n", " ")) + "max_grad_norm: 1\n"})
    (found,) = (d for d in folder.diagnostics("train.yaml") if d.code == "DS904")
    assert (found.path, found.pointer) == ("train.yaml", "/deepspeed/gradient_accumulation_steps")
    assert found.range is not None
    assert found.range.start.line == 4


@pytest.mark.parametrize("place", ["ds.json", "configs/ds.json"])
def test_links_count_from_the_file_the_working_directory_and_the_repository(folder: Folder, place: str) -> None:
    folder.write({"recipes/deep/train.yaml": TRAINERS["axolotl"].replace("ds.json", place), place: MISMATCHED})
    assert ("DS904", place, 1) in folder.found("recipes/deep/train.yaml")


def test_a_link_that_points_nowhere(folder: Folder) -> None:
    folder.write({"train.yaml": TRAINERS["axolotl"]})
    assert folder.found("train.yaml") == [("DS919", "train.yaml", 4)]
    for elsewhere in ("/home/me/ds.json", "$HOME/ds.json", "{{ ds }}/x.json"):
        folder.write({"train.yaml": TRAINERS["axolotl"].replace("ds.json", f'"{elsewhere}"')})
        assert folder.found("train.yaml") == []


def test_nothing_outside_of_the_named_folders_is_opened(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "ds.json"
    outside.write_text(MISMATCHED, encoding="utf-8")
    (folder.path / "link.json").symlink_to(outside)
    for link in (str(outside), f"../{outside.parent.name}/ds.json", "link.json"):
        folder.write({"train.yaml": TRAINERS["axolotl"].replace("ds.json", link)})
        assert "DS904" not in [code for code, *_ in folder.found("train.yaml")]


def test_nothing_is_executed(folder: Folder) -> None:
    evil = "__import__('pathlib').Path('gone').write_text('x')"
    folder.write(
        {
            "train.yaml": f"base_model: m\nmicro_batch_size: 2\ndeepspeed: !!python/object/apply:os.system ['touch gone']\nx: {evil}\n",
            "train.py": f"{evil}\nimport deepspeed\ndeepspeed.initialize(config={{'train_batch_size': {evil}}})\n",
            "run.sh": "touch gone\ndeepspeed $(touch gone) train.py --deepspeed `touch gone`\n",
        }
    )
    folder.diagnostics("train.yaml", "train.py", "run.sh")
    assert not (folder.path / "gone").exists()


def test_two_trainings_of_one_config_are_judged_each_and_once_where_they_agree(folder: Folder) -> None:
    folder.write(
        {
            "ds.json": MISMATCHED,
            "a.yaml": TRAINERS["axolotl"],
            "b.yaml": TRAINERS["LLaMA-Factory"].replace("steps: 2", "steps: 8") + "save_only_model: true\n",
            "c.yaml": TRAINERS["TRL"].replace("steps: 2", "steps: 4"),
        }
    )
    results = folder.results("a.yaml", "b.yaml", "c.yaml", "ds.json", named=False)
    found = [d for d in results["ds.json"].diagnostics if d.code == "DS904"]
    assert [d.related[0].path for d in found] == ["a.yaml", "b.yaml"]
    everything = [(d.code, d.message) for d in results["ds.json"].diagnostics]
    assert len(everything) == len(set(everything))


def test_an_accelerate_file_makes_a_config(folder: Folder) -> None:
    folder.write({"a.yaml": ACCELERATE + "deepspeed_config:\n  zero_stage: 5\n  zero_stagee: 3\n"})
    found = folder.found("a.yaml")
    assert ("DS915", "a.yaml", 7) in found
    assert [place for place in found if place[0] != "DS915"] == [(found[0][0], "a.yaml", 6)]  # stage 5 is no stage, found at its line


def test_a_path_in_place_of_the_block_of_accelerate(folder: Folder) -> None:
    head = "compute_environment: LOCAL_MACHINE\ndistributed_type: {}\nnum_machines: 1\nnum_processes: 4\ndeepspeed_config: ds.json\n"
    for kind, code, line in (("DEEPSPEED", "DS956", 5), ("MULTI_GPU", "DS950", 2)):
        folder.write({"acc.yaml": head.format(kind), "ds.json": "{}"})
        assert folder.found("acc.yaml") == [(code, "acc.yaml", line)]


def test_keys_that_accelerate_does_not_know_are_one_finding(folder: Folder) -> None:
    head = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 4\ndeepspeed_config:\n"
    keys = "  zero_stage: 3\n  zero3_save_16bit_model: true\n  offload_optimizer:\n    device: cpu\n  offload_optimizer_pin_memory: true\n"
    folder.write({"acc.yaml": head + keys + "  zero3_init_flg: true\n"})
    found = folder.diagnostics("acc.yaml")
    assert {d.cause for d in found if d.fix is None} == {UNKNOWN_TO_ACCELERATE}
    (misspelt,) = (d for d in found if d.fix is not None)
    assert "zero3_init_flag" in (misspelt.help or "")
    folder.write({"acc.yaml": head.replace("DEEPSPEED", "MULTI_GPU") + keys})
    assert [code for code, _, _ in folder.found("acc.yaml")] == ["DS950"]


def test_an_accelerate_file_names_a_config(folder: Folder) -> None:
    folder.write(
        {"a.yaml": ACCELERATE + "deepspeed_config:\n  deepspeed_config_file: ds.json\n  zero3_init_flag: true\n", "ds.json": AGREEING}
    )
    results = folder.results("a.yaml")
    assert not results["a.yaml"].diagnostics
    assert results["ds.json"].facts.world_size == 8
    assert results["ds.json"].facts.integration is Integration.ACCELERATE


def test_an_accelerate_file_without_deepspeed_is_left_alone(folder: Folder) -> None:
    folder.write({"a.yaml": ACCELERATE.replace("DEEPSPEED", "MULTI_GPU") + "deepspeed_config: {}\n"})
    assert folder.results("a.yaml", named=False) == {}
    result = folder.results("a.yaml")["a.yaml"]
    assert result.diagnostics == ()
    assert not result.is_judged
    assert result.note == "an Accelerate config that does not use DeepSpeed."


COMMANDS = {
    "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --gradient_accumulation_steps 2": 8,
    "torchrun --nproc_per_node=4 --nnodes=2 train.py --deepspeed=ds.json --gradient_accumulation_steps=2": 8,
    "python -m torch.distributed.run --nproc-per-node 4 train.py --deepspeed ds.json --gradient_accumulation_steps 2": 4,
    "torchrun --nproc_per_node gpu train.py --deepspeed ds.json --gradient_accumulation_steps 2": None,
    "torchrun --nproc_per_node 8 --nnodes 1:4 train.py --deepspeed ds.json --gradient_accumulation_steps 2": None,
    "deepspeed --num_gpus 4 train.py --deepspeed ds.json --gradient_accumulation_steps 2": 4,
    "deepspeed --num_gpus 4 --num_nodes 3 train.py --deepspeed ds.json --gradient_accumulation_steps 2": 12,
    "deepspeed --include a:0,1@b:0,2,3 train.py --deepspeed ds.json --gradient_accumulation_steps 2": 5,
    "deepspeed --hostfile hosts train.py --deepspeed ds.json --gradient_accumulation_steps 2": 6,
    "accelerate launch --num_processes 4 train.py --deepspeed ds.json --gradient_accumulation_steps 2": 4,
    "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py --deepspeed ds.json --gradient_accumulation_steps 2 > log 2>&1": 2,
    "accelerate launch --config_file a.yaml train.py --deepspeed ds.json --gradient_accumulation_steps 2": 8,
    "python train.py --deepspeed ds.json --gradient_accumulation_steps 2": None,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_launch_commands(folder: Folder, command: str) -> None:
    folder.write({"ds.json": MISMATCHED, "hosts": "a slots=2 # the small one\n\nb slots=4\n", "a.yaml": ACCELERATE})
    results = folder.results(command=command)
    (found,) = (d for d in results["ds.json"].diagnostics if d.code == "DS904")
    assert "- ds gradient_accumulation_steps=4 vs hf gradient_accumulation_steps=2" in found.message
    assert found.related[0].path == "<command>"
    assert results["ds.json"].facts.world_size == COMMANDS[command]


def test_a_command_with_a_training_file(folder: Folder) -> None:
    folder.write({"ds.json": MISMATCHED, "train.yaml": TRAINERS["LLaMA-Factory"]})
    for command in ("llamafactory-cli train train.yaml", "torchrun --nproc_per_node 8 train.py train.yaml"):
        assert ("DS904", "ds.json", 1) in folder.found(command=command)
    assert folder.found(command="llamafactory-cli train train.yaml --gradient_accumulation_steps 4") == []


def test_a_command_that_launches_nothing(folder: Folder) -> None:
    for command in ("ls -l", "", "'", "deepspeed", "torchrun --nproc_per_node", "python -c 'x'", "accelerate launch", '"\\'):
        (result,) = folder.results(command=command).values()
        assert result.kind == FileKind.UNRELATED


SLURM = """\
#!/bin/bash
#SBATCH --job-name=x
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
set -e
STEPS=${STEPS:-2}
ARGS="--gradient_accumulation_steps $STEPS"
srun torchrun --nnodes $SLURM_NNODES \\
    --nproc_per_node "$SLURM_GPUS_ON_NODE" \\
    train.py --deepspeed ds.json \\
    --gradient_accumulation_steps $STEPS  # twice
echo done
"""


def test_a_slurm_script(folder: Folder) -> None:
    folder.write({"run.slurm": SLURM, "ds.json": MISMATCHED})
    results = folder.results("run.slurm")
    assert results["ds.json"].facts.world_size == 8
    (found,) = (d for d in results["ds.json"].diagnostics if d.code == "DS904")
    assert found.related[0].range is not None
    assert found.related[0].range.start.line == 11
    folder.write({"run.slurm": SLURM.replace('"$SLURM_GPUS_ON_NODE"', "8")})
    assert ("DS930", "run.slurm", 9) in folder.found("run.slurm")


def test_a_makefile(folder: Folder) -> None:
    folder.write({"Makefile": "GPUS := 4\n\ntrain:\n\tdeepspeed --num_gpus $(GPUS) train.py --deepspeed ds.json\n", "ds.json": AGREEING})
    assert folder.results("Makefile")["ds.json"].facts.world_size == 4


def test_a_hostfile_that_is_not_there_and_one_that_is_too_small(folder: Folder) -> None:
    folder.write({"ds.json": AGREEING})
    run = "deepspeed --hostfile hosts train.py --deepspeed ds.json\n"
    folder.write({"run.sh": run})
    assert ("DS919", "run.sh", 1) in folder.found("run.sh")
    folder.write({"hosts": "a slots=2\n", "run.sh": run.replace("train.py", "--num_gpus 4 --num_nodes 2 train.py")})
    assert ("DS930", "run.sh", 1) in folder.found("run.sh")
    folder.write({"a.yaml": ACCELERATE + "deepspeed_config:\n  zero_stage: 2\n  deepspeed_hostfile: hosts\n"})
    assert ("DS930", "a.yaml", 4) in folder.found("a.yaml")
    folder.write({"hosts": "a slots=8\n"})
    assert folder.found("a.yaml") == []


PROGRAMS = {
    "import deepspeed\nds = {'bf16': {'enabled': 'auto'}}\ndeepspeed.initialize(model=m, config=ds)\n": ("DS901", 2),
    "import deepspeed as d\ndef f():\n    d.initialize(config={'bf16': {'enabled': 'auto'}})\n": ("DS901", 3),
    "from deepspeed import initialize\ninitialize(config={'bf16': {'enabled': 'auto'}})\n": ("DS901", 2),
    "import deepspeed\ndeepspeed.initialize(config_params={'bf16': {'enabled': 'auto'}})\n": ("DS901", 2),
    "from lightning.pytorch.strategies import DeepSpeedStrategy\nDeepSpeedStrategy(config={'gradient_accumulation_steps': 2})\n": (
        "DS927",
        2,
    ),
    "from accelerate import DeepSpeedPlugin\nDeepSpeedPlugin(hf_ds_config={'train_micro_batch_size_per_gpu': 2})\n": ("DS910", 2),
    "from transformers import TrainingArguments\nTrainingArguments('o', deepspeed={'zero_optimization': {'stage': 2},\n"
    "'gradient_clipping': 0.5}, **others)\n": None,
    "from transformers import TrainingArguments\nTrainingArguments(output_dir='o', deepspeed={'zero_optimization': {'stage': 2},\n"
    "'gradient_clipping': 0.5}, max_grad_norm=1.0)\n": ("DS904", 3),
    "import deepspeed\nds = {'bf16': {'enabled': 'auto'}}\nds['bf16'] = {}\ndeepspeed.initialize(model=m, config=ds)\n": None,
    "import deepspeed\ndeepspeed.initialize(config={'train_batch_size': n, 'zero_optimization': {'stage': stage}})\n": None,
    "import deepspeed\ndeepspeed.initialize(config={**base, 'bf16': {'enabled': 'auto'}})\n": ("DS901", 2),
    "def broken(:\n": None,
    "x = 1\n": None,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(folder: Folder, program: str) -> None:
    folder.write({"train.py": program})
    expected = PROGRAMS[program]
    loud = [place for place in folder.found("train.py") if place[0] not in ("DS204", "DS205", "DS819", "DS905")]
    if expected is None:
        assert [place for place in loud if place[0] in ("DS901", "DS904", "DS910")] == []
    else:
        assert (expected[0], "train.py", expected[1]) in loud


def test_comments_suppress_in_every_kind_of_file(folder: Folder) -> None:
    folder.write(
        {
            "train.yaml": TRAINERS["axolotl"].replace("ds.json", "nowhere.json  # dslint: ignore[DS919] made later"),
            "train.py": "import deepspeed\ndeepspeed.initialize(config={'bf16': {'enabled': 'auto'}})  # dslint: ignore[DS901] old\n",
        }
    )
    results = folder.results("train.yaml", "train.py")
    assert [s.diagnostic.code for s in results["train.yaml"].suppressed] == ["DS919"]
    assert "DS901" in [s.diagnostic.code for s in results["train.py"].suppressed]


TEMPLATE = "template.yaml"
OTHERS = {
    TEMPLATE: "train_batch_size: {{ batch }}\nzero_optimization:\n  stage: 2\n",
    "compose.yaml": "services:\n  web:\n    image: deepspeed\n",
    "list.yaml": "- deepspeed\n- other\n",
    "text.yaml": "deepspeed\n",
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_something_else_is_left_alone_with_a_word(folder: Folder, name: str) -> None:
    folder.write({name: OTHERS[name]})
    (result,) = folder.results(name).values()
    assert result.diagnostics == ()
    assert result.note or result.error
    assert list(folder.results(name, named=False)) == [TEMPLATE] * (name == TEMPLATE)  # which has a section of DeepSpeed


BROKEN = {
    "tab": "base_model: m\n\tmicro_batch_size: 2\n",
    "documents": "base_model: m\nmicro_batch_size: 2\ndeepspeed: ds.json\n---\na: 1\n",
    "tag": "base_model: m\nmicro_batch_size: 2\ndeepspeed: !mine ds.json\n",
    "empty": "",
    "alias": "a: &a [*a]\n",
    "nul": "a: \x00\n",
    "number": "base_model: 5\nmicro_batch_size: {}\ndeepspeed: [1]\n",
    "list": "base_model: m\nmicro_batch_size: [2]\nlearning_rate: {a: b}\ndeepspeed: ds.json\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_bad_yaml_is_normal_input(folder: Folder, name: str) -> None:
    folder.write({"train.yaml": BROKEN[name], "ds.json": AGREEING})
    for named in (True, False):
        for result in folder.results("train.yaml", named=named).values():
            assert [d for d in result.diagnostics if d.code == "DS000"] == []
            assert "Traceback" not in (result.error or "")


def test_a_bomb_costs_nothing(folder: Folder) -> None:
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40))
    folder.write({"bomb.yaml": f"base_model: deepspeed\nmicro_batch_size: 1\na0: &a0 [x]\n{levels}\ndeepspeed: *a39\n"})
    (result,) = folder.results("bomb.yaml").values()
    assert result.error is not None


def test_5e8_is_what_yaml_makes_of_it(folder: Folder) -> None:
    """A string to YAML 1.1, and a number to the frameworks that read an argument."""
    training = TRAINERS["axolotl"] + "learning_rate: 1e-5\n"
    config = {**json.loads(AGREEING), "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}
    folder.write({"train.yaml": training, "ds.json": json.dumps(config)})
    assert folder.found("train.yaml") == []


HIDDEN = (
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"}}'
)


CHECKS = {
    1: "DS901 DS902 DS903", 2: "DS903", 3: "DS903", 4: "DS904", 5: "DS201", 6: "DS906", 7: "DS907", 8: "DS911", 9: "DS912", 10: "DS905",
    11: "DS904", 12: "DS913", 13: "DS914", 14: "DS915", 15: "DS917 DS930", 16: "DS918", 17: "DS910", 18: "DS002 DS003", 19: "DS908",
    20: "DS926", 21: "DS909", 22: "DS931", 23: "DS932", 24: "DS928", 25: "DS903", 26: "DS927 DS933", 27: "DS920", 28: "DS921 DS922 DS923",
    29: "DS924", 30: "DS919", 31: "DS925", 32: "DS901", 33: "DS904",
}  # fmt: skip
"""The cross-file checks of the project's list, with the rules that make them."""


@pytest.mark.parametrize("check", CHECKS)
def test_every_cross_file_check_has_rules_with_bad_and_good_setups(check: int) -> None:
    rules = {rule.code: rule for rule in loaded_rules()}
    for code in CHECKS[check].split():
        assert rules[code].bad
        assert rules[code].good


def test_a_given_fact_counts_more_than_an_inferred_one(folder: Folder) -> None:
    folder.write({"train.yaml": TRAINERS["axolotl"], "ds.json": MISMATCHED})
    assert folder.found("train.yaml", facts=Facts(integration=Integration.DEEPSPEED))[0][0] != "DS904"


@pytest.mark.parametrize("stage", ["0", "2", "3", "7"])
@pytest.mark.parametrize("save", ["", "  zero3_save_16bit_model: true\n"])
def test_findings_in_a_config_that_accelerate_builds_use_the_names_of_its_fields(folder: Folder, stage: str, save: str) -> None:
    top = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
    folder.write({"accelerate.yaml": f"{top}deepspeed_config:\n  zero_stage: {stage}\n  offload_param_device: cpus\n{save}"})
    found = folder.diagnostics("accelerate.yaml")
    text = " ".join(f"{d.message} {d.help}" for d in found)
    assert "stage3_gather" not in text
    assert "zero_optimization" not in text
    assert "offload_param_device" in text


def test_slots_that_the_hostfile_does_not_have(folder: Folder) -> None:
    folder.write({"ds.json": AGREEING, "hosts": "work1 slots=2\nwork2 slots=2\n"})
    launch = "deepspeed --hostfile hosts --include=%s train.py --deepspeed ds.json"
    assert [d.message.split('"')[1] for d in folder.diagnostics(command=launch % "work1:2,3") if d.code == "DS951"] == [
        "No slot '2' specified on host 'work1'"
    ]
    assert [d.message.split('"')[1] for d in folder.diagnostics(command=launch % "work9:0") if d.code == "DS951"] == [
        "Hostname 'work9' not found in hostfile"
    ]
    for selected in ("work1:0,1", "work1@work2:1"):
        assert [code for code, *_ in folder.found(command=launch % selected) if code in ("DS951", "DS930")] == []


def test_a_flag_for_fp16_decides_whatever_the_other_flag_says(folder: Folder) -> None:
    model = {"model_type": "llama", "hidden_size": 64, "torch_dtype": "bfloat16"}
    folder.write({"ds.json": '{"train_batch_size": "auto", "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'})
    command = "deepspeed --num_gpus 8 train.py --deepspeed ds.json --output_dir o --learning_rate 2e-5 %s"
    facts = Facts(model=describe(model))
    assert "DS325" in [code for code, *_ in folder.found(command=command % "--fp16", facts=facts)]
    assert "DS325" not in [code for code, *_ in folder.found(command=command % "--bf16", facts=facts)]


def test_a_model_in_the_project_is_read(folder: Folder) -> None:
    config = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}
    model = {"model_type": "deepseek_v3", "hidden_size": 64, "n_routed_experts": 8}
    launch = "torchrun --nproc_per_node 8 t.py --do_train --model_name_or_path m --bf16 True --output_dir o --deepspeed ds.json\n"
    folder.write({"run.sh": launch, "ds.json": json.dumps(config), "m/config.json": json.dumps(model)})
    assert ("DS414", "ds.json", 1) in folder.found("run.sh")
    folder.write({"run.sh": launch.replace("_path m", "_path elsewhere/m")})
    assert "DS414" not in [code for code, _, _ in folder.found("run.sh")]


@pytest.mark.parametrize("name", ["meta-llama/Llama-2-7b-hf", "/data/models/Llama-2-7b-hf/"])
def test_a_model_is_known_by_its_name(folder: Folder, name: str) -> None:
    offload = '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
    launch = "torchrun --nproc_per_node 8 t.py --do_train --output_dir o --deepspeed ds.json --model_name_or_path "
    folder.write({"run.sh": f"{launch}{name}\n", "ds.json": offload})
    facts = Facts(host_memory=64 * 2**30, nodes=1)
    assert "DS523" in [code for code, *_ in folder.found("run.sh", facts=facts)]
    folder.write({"run.sh": f"{launch}{name}/checkpoint-500\n"})
    assert "DS523" not in [code for code, *_ in folder.found("run.sh", facts=facts)]


@pytest.mark.parametrize(("reentrant", "stage", "expected"), [("false", 3, True), ("true", 3, False), ("false", 2, False)])
def test_reentrant_checkpointing_of_an_adapter_is_read_from_a_training_file(
    folder: Folder,
    reentrant: str,
    stage: int,
    expected: bool,
) -> None:
    kwargs = f"gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: {reentrant}\n"
    folder.write({"a.yaml": f"{TRAINERS['axolotl']}adapter: qlora\nload_in_4bit: true\n{kwargs}"})
    folder.write({"ds.json": f'{{"train_batch_size": "auto", "zero_optimization": {{"stage": {stage}}}}}'})
    found = folder.found("a.yaml", facts=Facts(deepspeed=Release(0, 19, 2)))
    assert ("DS972" in [code for code, *_ in found]) is expected


def test_a_batch_size_that_a_program_may_set_is_no_certain_loss(folder: Folder) -> None:
    named = ACCELERATE + "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
    folder.write({"accelerate.yaml": named, "ds.json": '{"zero_optimization": {"stage": 2}}'})
    (found,) = (d for d in folder.diagnostics("accelerate.yaml") if d.code == "DS204")
    assert (found.severity, found.certain) == (Severity.WARNING, False)
    folder.write({"run.sh": "accelerate launch --config_file accelerate.yaml train.py\n"})
    folder.write({"train.py": "from accelerate import Accelerator\nAccelerator().prepare(model)\n"})
    assert "DS204" in {d.code for d in folder.diagnostics("run.sh") if d.severity is Severity.ERROR}


def test_json_behind_a_yaml_name_is_judged_as_json(folder: Folder) -> None:
    text = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}'
    folder.write({"json.yaml": text, "flow.yaml": text.replace('"stage"', "stage")})
    assert folder.found("json.yaml") == []
    assert [code for code, *_ in folder.found("flow.yaml")] == ["DS104"]


def test_yaml_for_a_json_loader_is_not_rewritten(folder: Folder) -> None:
    trains = "from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments(deepspeed='ds.yaml'))\n"
    folder.write({"ds.yaml": "zero_optimization:\n  stage: 2\nbf16:\n  enabled: true\n", "train.py": trains})
    (found,) = (d for d in folder.diagnostics("train.py") if d.code == "DS002")
    assert found.message.startswith("This file is YAML")
    assert found.fix is None
