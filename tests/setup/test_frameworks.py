"""Files of frameworks: which config they hold or name, as the framework would build it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.config import Config, resolve
from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.diagnostics import Severity
from dslint.evaluate.interpolation import interpolated
from dslint.facts import Facts, Integration, Release
from dslint.frameworks.loader import with_loaders
from dslint.frameworks.workload import told_by
from dslint.not_judged import Why
from dslint.setups.gather import LoadedSetup
from dslint.setups.open import open_text
from dslint.setups.read import read_setups
from dslint.source.tree import plain
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import parse_yaml
from tests.setup.folder import Folder

DS_CONFIG = "train_micro_batch_size_per_gpu: 4\nzero_optimization:\n  stage: 2\n"


def setups(text: str, name: str = "train.yaml", **environment: str) -> list[LoadedSetup]:
    found = read_setups(text, name, name, Context(environment=environment), named=True)
    return found.setups if found else []


def config(text: str, name: str = "train.yaml", **environment: str) -> Any:
    """The only config of a file, as plain data."""
    (gathered,) = setups(text, name, **environment)
    assert gathered.config is not None
    assert gathered.config.root is not None
    return plain(gathered.config.root)


def test_a_config_in_yaml_is_judged_whether_named_or_found(folder: Folder) -> None:
    folder.write({"ds.yaml": DS_CONFIG.replace("2\n", "7\n")})
    for named in (True, False):
        result = folder.results("ds.yaml", named=named)["ds.yaml"]
        assert result.is_judged
        assert [d.code for d in result.diagnostics] == ["DS107"]


def test_training_arguments_in_json(folder: Folder) -> None:
    arguments = {
        "output_dir": "out",
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-5,
        "bf16": True,
        "gradient_accumulation_steps": 2,
        "deepspeed": "ds.json",
    }
    ds_config = {"train_batch_size": "auto", "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}
    folder.write({"args.json": json.dumps(arguments, indent=1), "ds.json": json.dumps(ds_config)})
    results = folder.results("args.json")
    assert results["args.json"].kind == FileKind.TRAINING
    assert results["args.json"].diagnostics == ()
    (found,) = (d for d in results["ds.json"].diagnostics if d.code == "DS904")
    assert found.related[0].path == "args.json"
    folder.write({"args.json": json.dumps({**arguments, "deepspeed": None})})
    result = folder.results("args.json")["args.json"]
    assert (result.not_judged, result.diagnostics, result.is_judged) == ((), (), False)
    assert result.note == "training arguments for the Hugging Face Trainer, which name no DeepSpeed config: only their launch can."


def test_a_file_of_a_program_with_words_of_deepspeed(folder: Folder) -> None:
    text = "type: sft\nmicro_batch_size: 1\ndeepspeed:\n  zero_optimization:\n    stage: 5\noptimizer:\n  type: cpu_adam\n"
    folder.write({"run.yaml": f"{text}data:\n  sources: [a]\nwandb:\n  enable: false\n"})
    result = folder.results("run.yaml", named=False)["run.yaml"]
    assert result.kind == FileKind.TRAINING
    assert [(d.code, d.range.start.line if d.range else 0) for d in result.diagnostics if d.severity is Severity.ERROR] == [("DS107", 5)]


def test_arguments_of_a_fork(folder: Folder) -> None:
    text = "stage: sft\nmodel_name_or_path: m\nfinetuning_type: lora\nlearning_rate: 1e-4\noutput_dir: o\neval_strategy: steps\ndeepspeed: ds.json\n"
    folder.write({"ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', "train.yaml": text})
    assert "DS975" in [code for code, _, _ in folder.found("train.yaml")]
    folder.write({"train.yaml": f"{text}wandb_run_name: a\neval_dataset_size: 0.1\nown_key: 1\n"})
    assert not {"DS974", "DS975"} & {code for code, _, _ in folder.found("train.yaml")}
    folder.write({"run.sh": "llamafactory-cli train train.yaml\n"})
    assert {"DS974", "DS975"} <= {code for code, _, _ in folder.found("train.yaml")}


def test_a_section_of_a_hydra_file_with_interpolations() -> None:
    text = (
        "hydra: {run: {dir: x}}\nbatch: 4\nlr: 1.0e-4\ntrainer:\n  gpus: 8\n  deepspeed:\n    train_micro_batch_size_per_gpu: ${batch}\n"
        "    gradient_clipping: ${oc.env:CLIP}\n    wall_clock_breakdown: ${oc.env:DEBUG,0}\n    optimizer:\n      type: AdamW\n"
        "      params: {lr: '${lr}', eps: '${now:%Y}'}\n    zero_optimization:\n      stage: ${...stage}\nstage: 2\n"
    )
    assert config(text) == {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": UNKNOWN,
        "wall_clock_breakdown": "0",  # oc.env gives strings
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "eps": UNKNOWN}},
        "zero_optimization": {"stage": UNKNOWN},
    }
    assert config(text.replace("${...stage}", "${stage}"), CLIP="1.0")["zero_optimization"] == {"stage": 2}
    assert config(text, CLIP="1.0")["gradient_clipping"] == "1.0"


def test_a_finding_in_a_section_is_at_its_line(folder: Folder) -> None:
    folder.write({"train.yaml": "model: x\ntrain:\n  ds_config:\n" + "".join(f"    {line}\n" for line in DS_CONFIG.splitlines())})
    assert folder.found("train.yaml") == []
    folder.write({"train.yaml": (folder.path / "train.yaml").read_text().replace("stage: 2", "stage: 9")})
    assert ("DS107", "train.yaml", 6) in folder.found("train.yaml")


def test_a_section_that_names_a_config(folder: Folder) -> None:
    folder.write({"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 9}}'})
    for text in (
        "train:\n  deepspeed: ds.json\n",
        "engine:\n  deepspeed:\n    enabled: true\n    config: ds.json\n",
        "ds_config: ds.json\n",
    ):
        folder.write({"train.yaml": text})
        assert [path for code, path, _ in folder.found("train.yaml") if code == "DS107"] == ["ds.json"]


def test_the_group_of_a_hydra_file(folder: Folder) -> None:
    folder.write({"conf/config.yaml": "defaults:\n  - deepspeed: zero9\n", "conf/deepspeed/zero9.yaml": DS_CONFIG.replace("2\n", "9\n")})
    assert [path for code, path, _ in folder.found("conf/config.yaml") if code == "DS107"] == ["conf/deepspeed/zero9.yaml"]


def test_interpolations_that_lead_to_themselves_are_unknown() -> None:
    document = parse_yaml("a: ${b}\nb: ${a}\nc: {d: '${c}'}\nmany: [" + ", ".join(["'${list}'"] * 500) + "]\nlist: [" + "x, " * 500 + "]\n")
    root = interpolated(document, {}).root
    assert root is not None
    data: Any = plain(root)
    assert (data["a"], data["b"], data["c"]) == (UNKNOWN, UNKNOWN, {"d": UNKNOWN})
    assert sum(one is UNKNOWN for one in data["many"]) > 100


def test_placeholders_of_axolotl_are_unknown(folder: Folder) -> None:
    folder.write({"ds.json": '{"gradient_accumulation_steps": 4, "train_batch_size": "auto", "zero_optimization": {"stage": 2}}'})
    text = "base_model: m\nmicro_batch_size: ${MICRO}\ngradient_accumulation_steps: ${STEPS}\ndeepspeed: ds.json\n"
    folder.write({"train.yaml": text})
    assert folder.found("train.yaml") == []


NEOX = (
    '{\n"pipe-parallel-size": 1, "model-parallel-size": 2, "num-layers": 12, "hidden-size": 768,\n"train_micro_batch_size_per_gpu": 4,\n'
    '"optimizer": {"type": "Adam", "params": {"lr": 0.0006}},\n"zero_optimization": {"stage": 1},\n"fp16": {"enabled": true}\n}\n'
)


def test_gpt_neox(folder: Folder) -> None:
    (gathered,) = setups(NEOX, "small.yml")
    assert gathered.config is not None
    assert gathered.config.root is not None
    assert list(plain(gathered.config.root)) == ["train_micro_batch_size_per_gpu", "zero_optimization", "fp16"]  # type: ignore[call-overload]
    assert gathered.facts.integration is Integration.DEEPSPEED
    assert (gathered.facts.tensor_parallel, gathered.facts.pipeline_parallel) == (2, 1)
    folder.write({"small.yml": NEOX.replace('"stage": 1', '"stage": 9')})
    assert ("DS107", "small.yml", 5) in folder.found("small.yml")


@pytest.mark.parametrize("field", ["fp32_allreduce", "fp32-allreduce"])
def test_a_field_that_gpt_neox_reads_itself(folder: Folder, field: str) -> None:
    """No release of DeepSpeed reads it now, but GPT-NeoX does."""
    folder.write({"small.yml": NEOX.replace("{", f'{{"{field}": true, ', 1)})
    assert "DS110" not in [code for code, *_ in folder.found("small.yml")]
    folder.write({"ds.json": '{"train_batch_size": 8, "fp32_allreduce": true}'})
    assert "DS110" in [code for code, *_ in folder.found("ds.json")]


def test_a_file_of_gpt_neox_in_json(folder: Folder) -> None:
    folder.write({"small.json": NEOX, "large.json": NEOX.replace('"stage": 1', '"stage": 9')})
    assert folder.found("small.json") == []
    assert folder.found("large.json") == [("DS107", "large.json", 5)]


def test_the_part_of_gpt_neox_that_has_the_training(folder: Folder) -> None:
    own = "train_iters: 100\npartition_activations: true\ncheckpoint_activations: true\ncheckpoint_num_layers: 1\n"
    folder.write({"training.yml": f"{own}train_micro_batch_size_per_gpu: 4\nzero_optimization: {{stage: 1}}\n"})
    assert folder.found("training.yml") == []


def test_accelerates_defaults_without_a_block(folder: Folder) -> None:
    head = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 4\nmixed_precision: bf16\n"
    launch = "accelerate launch --config_file acc.yaml train.py\n"
    folder.write({"acc.yaml": head, "train.py": ""})
    assert config(head)["zero_optimization"] == {"stage": 2}
    assert config(launch, "run.sh")["bf16"] == {"enabled": True}
    plugin = "from accelerate import Accelerator, DeepSpeedPlugin\nAccelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=3))\n"
    folder.write({"train.py": plugin})
    assert config(launch, "run.sh")["zero_optimization"] == {"stage": 3}


def test_the_size_of_a_model_next_to_a_config_makes_no_file_of_gpt_neox(folder: Folder) -> None:
    folder.write({"ds.yml": f"num_layers: 12\nhidden_size: 768\nnum_attention_heads: 12\n{DS_CONFIG}fp16:\n  enabled: true\n"})
    assert folder.results("ds.yml")["ds.yml"].kind is FileKind.DS_CONFIG


def test_a_section_of_numbers_is_no_config(folder: Folder) -> None:
    text = "hyperparameters:\n  values:\n    train_batch_size: 512\n    train_micro_batch_size_per_gpu: 2\n    model_parallel_size: 2\n"
    folder.write({"experiment.yaml": text})
    assert folder.found("experiment.yaml") == []
    folder.write({"experiment.yaml": text + "    zero_optimization: {stage: 9}\n"})
    assert ("DS107", "experiment.yaml", 6) in folder.found("experiment.yaml")


def test_a_strategy_of_lightning_as_a_whole_file(folder: Folder) -> None:
    text = "_target_: lightning.pytorch.strategies.DeepSpeedStrategy\nstage: 3\noffload_parameters: true\nreduce_bucket_size: 2e8\n"
    found = config(text)
    assert found["zero_optimization"] == {"stage": 3, "offload_param": {"device": "cpu"}, "reduce_bucket_size": 2e8}
    assert (found["bf16"], found["fp16"]) == ({"enabled": UNKNOWN}, {"enabled": UNKNOWN})
    assert setups(text)[0].facts.integration is Integration.LIGHTNING
    assert "zero_optimization" not in config(text + "zero_optimization: false\n")
    assert config("class_path: lightning.pytorch.strategies.DeepSpeedStrategy\n")["zero_optimization"] == {"stage": 2}
    assert config("class_path: DeepSpeedStrategy\ninit_args:\n  stage: 1\n")["zero_optimization"] == {"stage": 1}
    folder.write({"strategy.yaml": text})
    assert folder.found("strategy.yaml") == []


def test_numbers_as_omegaconf_and_as_pyyaml_read_them(folder: Folder) -> None:
    text = DS_CONFIG.replace("2\n", "3\n") + "  stage3_max_live_parameters: 1e9\n"
    folder.write({"ds.yaml": text, "hydra.yaml": text + "steps_per_print: ${trainer.steps}\n"})
    assert [code for code, _, _ in folder.found("ds.yaml")] == ["DS104"]
    assert folder.found("hydra.yaml") == []


@pytest.mark.parametrize("start", ["torchrun --nproc_per_node 8 examples/pytorch/llm/llm_rlhf.py", "swift sft"])
def test_the_flag_for_the_config_of_ms_swift_2(folder: Folder, start: str) -> None:
    """Releases before 3.0 have `--deepspeed_config_path`, which counts more than `--deepspeed`."""
    folder.write({"ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 4}}'})
    flags = "--model_type llama --sft_type lora --batch_size 2 --deepspeed zero2 --deepspeed_config_path ds.json"
    folder.write({"run.sh": f"NPROC_PER_NODE=8 {start} {flags}\n"})
    assert ("DS107", "ds.json", 1) in folder.found("run.sh")


@pytest.mark.parametrize("name", ["zero2", "zero3", "zero2_offload", "zero3_offload", "default-zero3", "zero3-offload"])
def test_the_configs_of_ms_swift(folder: Folder, name: str) -> None:
    text = f"model: m\ntrain_type: lora\noutput_dir: o\nlearning_rate: 1e-4\ngradient_accumulation_steps: 2\ndeepspeed: {name}\n"
    zero = config(text)["zero_optimization"]
    assert zero["stage"] == int(name.replace("default-", "")[4])
    assert (zero["offload_optimizer"]["device"] == "cpu") is ("offload" in name)
    folder.write({"train.yaml": text})
    assert folder.found("train.yaml") == []
    assert all(result.is_judged for result in folder.results("train.yaml").values())
    folder.write({"train.yaml": text + "auto_find_batch_size: true\n"})
    assert [code for code, *_ in folder.found("train.yaml")] == (["DS921"] if zero["stage"] == 3 else [])


def test_an_accelerate_file_for_something_else(folder: Folder) -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 8\ndeepspeed_config: {}\n"
    folder.write({"a.yaml": text})
    result = folder.results("a.yaml")["a.yaml"]
    assert (result.not_judged, result.is_judged) == ((), False)
    assert result.note == "an Accelerate config that does not use DeepSpeed."


LIGHTNING = {
    "trainer:\n  precision: bf16-mixed\n  strategy: deepspeed_stage_3_offload\n": {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
        "bf16": {"enabled": True},
    },
    "trainer:\n  strategy:\n    class_path: lightning.pytorch.strategies.DeepSpeedStrategy\n    init_args:\n      stage: 2\n"
    "      offload_optimizer: true\n      overlap_comm: false\n": {
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "overlap_comm": False},
    },
    "trainer:\n  strategy:\n    _target_: pytorch_lightning.strategies.DeepSpeedStrategy\n    stage: 1\n": {
        "zero_optimization": {"stage": 1}
    },
    "trainer:\n  strategy:\n    class_path: DeepSpeedStrategy\n    init_args:\n      config:\n        zero_optimization: {stage: 3}\n": {
        "zero_optimization": {"stage": 3}
    },
}


@pytest.mark.parametrize("text", LIGHTNING)
def test_lightning(text: str) -> None:
    (gathered,) = setups(text)
    assert gathered.facts.integration is Integration.LIGHTNING
    assert config(text) == LIGHTNING[text]


@pytest.mark.integrations
@pytest.mark.parametrize("text", list(LIGHTNING))
def test_lightning_builds_this_config(text: str) -> None:
    strategies = pytest.importorskip("lightning.pytorch.strategies")
    trainer: Any = plain(parse_yaml(text).root)  # type: ignore[arg-type]
    written = trainer["trainer"]["strategy"]
    registered = pytest.importorskip("lightning.pytorch.strategies").StrategyRegistry
    if isinstance(written, str):
        real = registered.get(written).config
    else:
        keywords = written.get("init_args") or {name: value for name, value in written.items() if name != "_target_"}
        real = strategies.DeepSpeedStrategy(**keywords).config
    ours = LIGHTNING[text]["zero_optimization"]
    theirs = real["zero_optimization"]
    assert {name: theirs[name]["device"] if isinstance(value, dict) else theirs[name] for name, value in ours.items()} == {  # type: ignore[attr-defined]
        name: value["device"] if isinstance(value, dict) else value
        for name, value in ours.items()  # type: ignore[attr-defined]
    }


def test_a_lightning_strategy_with_gradient_accumulation_in_its_config(folder: Folder) -> None:
    folder.write(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2}}',
            "cli.yaml": "trainer:\n  accumulate_grad_batches: 2\n  strategy:\n    class_path: DeepSpeedStrategy\n    init_args:\n      config: ds.json\n",
        }
    )
    assert ("DS927", "ds.json", 1) in folder.found("cli.yaml")


def test_values_that_are_given_stay(folder: Folder) -> None:
    folder.write({"small.yml": NEOX})
    assert folder.results("small.yml", facts=Facts(tensor_parallel=4))["small.yml"].facts.tensor_parallel == 4


def test_a_block_that_accelerate_ignores(folder: Folder) -> None:
    head = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 8\n"
    folder.write({"a.yaml": head + "deepspeed_config:\n  zero_stage: 3\n"})
    assert folder.found("a.yaml") == [("DS950", "a.yaml", 2)]
    assert [d.code for d in folder.results("a.yaml", named=False)["a.yaml"].diagnostics] == ["DS950"]
    for flag, expected in (("", {"DS950"}), (" --use_deepspeed", {"DS915"})):
        launch = f"accelerate launch --config_file a.yaml{flag} train.py\n"
        folder.write({"a.yaml": f"{head}deepspeed_config:\n  zero_stages: 3\n", "run.sh": launch})
        assert {code for code, _, _ in folder.found("a.yaml") if code in ("DS915", "DS950")} == expected
    assert [one.why for one in folder.results("run.sh")["run.sh"].not_judged] == [Why.PROGRAM_UNSEEN]


def test_a_file_of_another_format_is_not_a_config(folder: Folder) -> None:
    folder.write({"pyproject.toml": '[project]\ndependencies = ["deepspeed"]\n'})
    result = folder.results("pyproject.toml")["pyproject.toml"]
    assert (result.kind, result.diagnostics) == (FileKind.UNRELATED, ())
    assert result.not_judged


def test_flags_that_load_a_quantized_model(folder: Folder) -> None:
    folder.write({"ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}'})
    command = "deepspeed --num_gpus 2 train.py --deepspeed ds.json --finetuning_type lora --output_dir o --bf16 --quantization_bit 8"
    assert [code for code, path, _ in folder.found(command=command) if path == "<command>"] == ["DS947"]


TRL = "trl sft --model_name_or_path m --dataset_name d --output_dir o --per_device_train_batch_size 4"


@pytest.mark.parametrize(
    ("flags", "recipe", "stage", "ranks"),
    [
        (" --accelerate_config zero1", None, 1, 8),
        (" --accelerate_config zero3", None, 3, 8),
        (" --accelerate_config zero2 --num_processes 4", None, 2, 4),
        (" --config sft.yaml", "accelerate_config: zero2\nnum_processes: 2\n", 2, 2),
        (" --config sft.yaml --accelerate_config zero3", "accelerate_config: zero2\n", 3, 8),
        (" --accelerate_config multi_gpu", None, None, None),
        ("", None, None, None),
    ],
)
def test_the_accelerate_configs_of_trl(folder: Folder, flags: str, recipe: str | None, stage: int | None, ranks: int | None) -> None:
    if recipe is not None:
        folder.write({"sft.yaml": f"model_name_or_path: m\ndataset_name: d\noutput_dir: o\n{recipe}"})
    read = read_setups(f"{TRL}{flags}\n", "run.sh", "run.sh", Context(), named=True)
    setups = read.setups if read is not None else []
    found = [(plain(one.config.root)["zero_optimization"]["stage"], one.facts.world_size) for one in setups if one.config]
    assert found == ([(stage, ranks)] if stage is not None else [])


@pytest.mark.parametrize("more", ["", " --accelerate_config multi_gpu"])
def test_the_ranks_of_trl_beside_a_config_of_its_own(folder: Folder, more: str) -> None:
    folder.write({"ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'})
    results = folder.results(command=f"{TRL} --num_processes 4 --deepspeed ds.json{more}")
    assert results["ds.json"].facts.world_size == 4


def test_a_recipe_of_trl_names_an_accelerate_config(folder: Folder) -> None:
    recipe = "model_name_or_path: m\ndataset_name: d\noutput_dir: o\nper_device_train_batch_size: 4\nlearning_rate: 1e-4\n"
    for name, stages in (("zero3", [3]), ("multi_gpu", [])):
        read = read_setups(f"{recipe}accelerate_config: {name}\nnum_processes: 2\n", "sft.yaml", "sft.yaml", Context(), named=True)
        assert read is not None
        found = [(plain(one.config.root)["zero_optimization"]["stage"], one.facts.world_size) for one in read.setups if one.config]
        assert found == [(stage, 2) for stage in stages]


def test_what_trl_ships_has_no_findings(folder: Folder) -> None:
    recipe = "model_name_or_path: m\ndataset_name: d\noutput_dir: o\nper_device_train_batch_size: 4\nlearning_rate: 1e-4\n"
    for name in ("zero1", "zero2", "zero3"):
        text = f"{recipe}accelerate_config: {name}\n"
        folder.write({"sft.yaml": text})
        assert folder.found("sft.yaml") == []
        read = read_setups(text, "sft.yaml", "sft.yaml", Context(), named=True)
        assert read is not None
        assert [plain(one.config.root)["bf16"] for one in read.setups if one.config] == [{"enabled": True}]


def test_a_file_comes_before_the_accelerate_config_of_its_name(folder: Folder) -> None:
    own = "distributed_type: DEEPSPEED\nnum_processes: 2\nnum_machines: 1\ndeepspeed_config:\n  zero_stage: 1\n"
    folder.write({"run.sh": f"{TRL} --accelerate_config zero3\n", "zero3": own})
    assert folder.results("run.sh")["zero3"].facts.world_size == 2


QUANTIZING = """\
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
arguments = TrainingArguments(output_dir="o", deepspeed="ds.json")
bits = BitsAndBytesConfig(load_in_4bit=True%s)
model = AutoModelForCausalLM.from_pretrained("m"%s)
Trainer(model, arguments)
"""


@pytest.mark.parametrize(
    ("storage", "loading", "lines"),
    [
        ("", ", quantization_config=bits", [4]),
        (", bnb_4bit_quant_storage=torch.bfloat16", ", quantization_config=bits", []),
        ("", ", load_in_8bit=True", [5]),
        ("", ", load_in_4bit=flag", []),
        ("", ", quantization_config=bits if flag else None", []),
        ("", "", []),
    ],
)
def test_a_program_that_loads_a_quantized_model(folder: Folder, storage: str, loading: str, lines: list[int]) -> None:
    folder.write(
        {
            "ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}',
            "train.py": QUANTIZING % (storage, loading),
        }
    )
    found = folder.found("train.py", facts=Facts(deepspeed=Release(0, 12, 2)))
    assert [line for code, path, line in found if (code, path) == ("DS947", "train.py")] == lines


def test_a_recipe_of_a_program_that_sets_the_storage_of_4_bit_weights(folder: Folder) -> None:
    folder.write({"ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}'})
    command = (
        "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir o --learning_rate 1e-4 --bf16 --do_train --load_in_4bit True"
    )
    for more, codes in (("", ["DS947"]), (", bnb_4bit_quant_storage=torch.bfloat16", [])):
        program = f"import torch\nfrom transformers import BitsAndBytesConfig\nbits = BitsAndBytesConfig(load_in_4bit=True{more})\n"
        folder.write({"train.py": program, "run.sh": command + "\n"})
        found = folder.found("run.sh", facts=Facts(deepspeed=Release(0, 12, 2)))
        assert [code for code, _, _ in found if code == "DS947"] == codes


def test_a_key_of_gpt_neox_in_a_section_of_deepspeed(folder: Folder) -> None:
    text = (
        '{"num-layers": 2, "hidden-size": 64, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}, '
        '"fp16": {"fp16": true, "enabled": true, "loss_scle": 0}}\n'
    )
    folder.write({"13B.yml": text})
    (found,) = folder.diagnostics("13B.yml")
    assert (found.code, found.pointer) == ("DS101", "/fp16/loss_scle")


def test_keys_that_the_trainer_has_too_do_not_make_a_config_a_training_file(folder: Folder) -> None:
    text = (
        "gradient_accumulation_steps: 2\nbf16: {enabled: true}\nfp16: {enabled: true}\ntrain_batch_size: 8\nzero_optimization: {stage: 7}\n"
    )
    folder.write({"ds.yaml": text})
    assert {code for code, _, _ in folder.found("ds.yaml")} >= {"DS107", "DS301"}


@pytest.mark.parametrize(
    ("lines", "ranks"),
    [
        ("devices: 4\nnum_nodes: 2\n", 8),
        ("devices: [2, 5]\n", 2),
        ("gpus: 2\n", 2),
        ("devices: -1\nnum_nodes: 1\n", None),
        ("devices: 4\nnum_nodes: ${nodes}\n", None),
        ("defaults: [default]\ndevices: 4\n", None),
        ("defaults: [default]\ndevices: 4\nnum_nodes: 1\n", 4),
    ],
)
def test_the_ranks_of_lightnings_trainer(lines: str, ranks: int | None) -> None:
    (gathered,) = setups(f"accelerator: gpu\nstrategy: deepspeed_stage_2\n{lines}")
    assert gathered.facts.world_size == ranks


def test_a_strategy_named_deepspeed_is_lightnings_next_to_its_arguments() -> None:
    assert setups("strategy: deepspeed\nmax_epochs: 3\n")[0].facts.integration is Integration.LIGHTNING
    assert setups("trainer: {strategy: deepspeed}\n")[0].facts.integration is Integration.LIGHTNING
    assert setups("strategy: deepspeed\nlr: 1e-4\n") == ()


def test_a_group_of_a_hydra_file_that_is_elsewhere(folder: Folder) -> None:
    arguments = "output_dir: o\nlearning_rate: 1e-4\nbf16: true\nlogging_steps: 1\n"
    folder.write({"train.yaml": f"defaults:\n  - deepspeed: zero3\n{arguments}"})
    (reason,) = folder.results("train.yaml")["train.yaml"].not_judged
    assert "deepspeed/zero3.yaml" in reason.reason
    folder.write({"train.yaml": f"defaults:\n  - deepspeed: null\n{arguments}"})
    assert folder.results("train.yaml")["train.yaml"].not_judged == ()


def test_values_with_commas_in_yaml_are_one_finding(folder: Folder) -> None:
    text = "train_batch_size: 8\nzero_optimization:\n  stage: 2,\n  overlap_comm: true,\n  reduce_bucket_size: 5e8,\n"
    folder.write({"ds.yaml": text})
    found = folder.diagnostics("ds.yaml")
    assert {d.code for d in found} == {"DS104"}
    assert len({d.cause for d in found}) == 1


def test_a_config_for_hydra_with_one_known_word_is_no_config(folder: Folder) -> None:
    folder.write({"conf.yaml": "defaults: [model]\ncompile: true\nname: x\nrun: {dir: '${name}'}\nzero_stage: 0\n"})
    result = folder.results("conf.yaml")["conf.yaml"]
    assert (result.kind, result.diagnostics) == (FileKind.UNRELATED, ())


@pytest.mark.parametrize(
    ("head", "reader", "effect"),
    [("", "PyYAML keeps the last value", "silent"), ("seed: ${oc.env:SEED}\n", "OmegaConf raises", "crash")],
)
def test_duplicate_keys_in_yaml(folder: Folder, head: str, reader: str, effect: str) -> None:
    folder.write({"ds.yaml": head + "train_batch_size: 8\nzero_optimization:\n  stage: 2\n  stage: 3\n"})
    found = [d for d in folder.diagnostics("ds.yaml") if d.code == "DS003"]
    assert [(d.effect.value if d.effect else None, reader in d.message) for d in found] == [(effect, True)]


def test_a_file_that_a_program_reads_gets_each_finding_once(folder: Folder) -> None:
    """The file is judged as training arguments, and as what the program makes of it."""
    program = (
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "parser = HfArgumentParser(TrainingArguments)\nargs, = parser.parse_json_file('sft.json')\nTrainer(model, args=args).train()\n"
    )
    arguments = {"output_dir": "out", "per_device_train_batch_size": 2, "lr_scheduler_type": "cosine", "deepspeed": "ds.json"}
    scheduler = {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}
    ds_config = {"train_batch_size": "auto", "zero_optimization": {"stage": 2}, "scheduler": scheduler}
    folder.write({"train.py": program, "sft.json": json.dumps(arguments, indent=1), "ds.json": json.dumps(ds_config)})
    found = [d for d in folder.results("train.py", "sft.json")["sft.json"].diagnostics if d.code == "DS908"]
    assert [(d.message.partition(" has")[0], d.pointer) for d in found] == [('lr_scheduler_type: "cosine"', "/lr_scheduler_type")]


def test_a_file_of_data_that_a_program_reads_is_no_program(folder: Folder) -> None:
    program = (
        "import json, deepspeed\nwith open('ds.json') as file:\n    config = json.load(file)\nwith open('own.json') as file:\n    own = json.load(file)\n"
        "config['gradient_clipping'] = own['clip']\n"
        "deepspeed.initialize(model=m, model_parameters=m.parameters(), optimizer=o, config=config)\n"
    )
    ds_config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
    folder.write({"train.py": program, "ds.json": json.dumps(ds_config), "own.json": '{"clip": 1.0}'})
    kinds = {path: str(result.kind) for path, result in folder.results("train.py").items()}
    assert kinds == {"train.py": "python", "ds.json": "ds_config", "own.json": "training"}


def test_a_framework_that_is_started_by_a_file_of_its_package(folder: Folder) -> None:
    swift = " --model m --dataset d --tuner_type lora --load_best_model_at_end true --save_only_model true"
    source = "from swift.pipelines import sft_main\nsft_main()\n"
    for start in ("srun python swift/cli/sft.py", "deepspeed --num_gpus 8 swift/cli/sft.py", "torchrun -m swift.cli.sft"):
        for files in ({}, {"swift/cli/sft.py": source}):
            folder.write({"run.sh": f"{start}{swift} --deepspeed zero2\n", **files})
            assert "DS922" in [code for code, _, _ in folder.found("run.sh")]
            folder.write({"run.sh": f"{start}{swift} --deepspeed zero2 --learning_ratee 1\n"})
            assert "DS974" in [code for code, _, _ in folder.found("run.sh")]
    folder.write({"run.sh": f"deepspeed --num_gpus 8 swift/cli/sft.py{swift}\n"})
    (left,) = folder.results("run.sh")["run.sh"].not_judged
    assert "names no config, so ms-swift trains without DeepSpeed" in left.reason
    folder.write({"c.yaml": "base_model: m\ndatasets: [{path: d}]\nmicro_batch_size: 1\nrelora: true\n", "ds.json": "{}"})
    for program in ("-m axolotl.cli.train", "src/axolotl/cli/train.py"):
        folder.write({"run.sh": f"accelerate launch --num_processes 8 {program} c.yaml --deepspeed ds.json\n"})
        assert "DS975" in [code for code, _, _ in folder.found("run.sh")]


def test_a_file_like_that_of_llama_factory_for_a_program_of_the_project(folder: Folder) -> None:
    text = "stage: sft\nmodel_name_or_path: m\nfinetuning_type: lora\nlearning_rate: 1e-4\ngradient_accumulation_steps: 2\ndeepspeed: ds.json\n"
    folder.write({"train.yaml": text, "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 7}}'})
    for start, codes in (("--module own.cli -- --config train.yaml", {"DS107"}), ("src/train.py train.yaml", {"DS107", "DS906", "DS973"})):
        folder.write({"run.sh": f"deepspeed --num_gpus 2 {start}\n"})
        assert {code for code, _, _ in folder.found("run.sh") if code in ("DS107", "DS906", "DS973", "DS974")} == codes


RUNNER = (
    "import argparse\nfrom mmengine.runner import FlexibleRunner\n\n\ndef main():\n    parser = argparse.ArgumentParser()\n"
    "    parser.add_argument('--zero', action='store_true')\n    args = parser.parse_args()\n    if args.zero:\n"
    "        strategy = dict(type='{kind}', fp16=dict(enabled=True), bf16=dict(enabled=True), zero_optimization=dict(stage=3))\n"
    "    else:\n        strategy = None\n"
    "    runner = FlexibleRunner(model=model, strategy=strategy, train_dataloader=dict(batch_size=8))\n    runner.train()\n\n\nmain()\n"
)


@pytest.mark.parametrize(
    ("kind", "flag", "found"), [("DeepSpeedStrategy", "--zero", True), ("DeepSpeedStrategy", "", False), ("FSDPStrategy", "--zero", False)]
)
def test_a_program_that_gives_a_strategy_to_the_runner_of_mmengine(folder: Folder, kind: str, flag: str, found: bool) -> None:
    folder.write({"train.py": RUNNER.replace("{kind}", kind), "run.sh": f"torchrun --nproc-per-node 2 train.py {flag}\n"})
    assert ("DS301" in {code for code, _, _ in folder.found("run.sh")}) is found


DSCHAT = (
    "deepspeed --num_gpus 8 main.py --model_name_or_path {} --per_device_train_batch_size 4 --max_seq_len 512 --deepspeed --zero_stage 3"
)


@pytest.mark.parametrize(("flags", "enabled"), [("", "fp16"), (" --dtype bf16", "bf16")])
def test_a_script_of_deepspeed_chat_alone_has_what_its_function_writes(folder: Folder, flags: str, enabled: str) -> None:
    folder.write({"run.sh": f"{DSCHAT.format('m')} --data_split 2,4,4 --gradient_accumulation_steps 8{flags}\n"})
    (config,) = _configs(folder, "run.sh")
    assert [kind for kind in ("fp16", "bf16") if config.value(f"{kind}.enabled") is True] == [enabled]
    assert config.value("zero_optimization.stage3_param_persistence_threshold") == 1e4
    assert config.value("gradient_accumulation_steps") is UNKNOWN


def test_of_other_programs_only_the_flags_are_known(folder: Folder) -> None:
    """They may write a precision, an offload or a batch size of their own."""
    folder.write({"run.sh": f"{DSCHAT.format('m')}\n"})
    (config,) = _configs(folder, "run.sh")
    assert config.value("fp16.enabled") is UNKNOWN
    (reason,) = folder.results("run.sh")["run.sh"].not_judged
    assert reason.reason == "main.py may build the DeepSpeed config itself; only the keys that follow from its flags were checked."


def test_a_flag_of_one_of_several_models_switches_checkpointing_on(folder: Folder) -> None:
    launch = f"{DSCHAT.format('m').replace('--zero_stage', '--actor_zero_stage')} --data_split 2,4,4"
    folder.write({"run.sh": f"{launch}\n", "other.sh": f"{launch} --actor_gradient_checkpointing\n"})
    assert "DS446" in {code for code, _, _ in folder.found("run.sh")}
    assert "DS446" not in {code for code, _, _ in folder.found("other.sh")}


def test_flags_of_the_hybrid_engine_are_those_of_the_actor(folder: Folder) -> None:
    launch = f"{DSCHAT.format('m').replace('--zero_stage', '--actor_zero_stage')} --data_split 2,4,4 --critic_zero_stage 2"
    folder.write({"run.sh": f"{launch} --enable_hybrid_engine --inference_tp_size 3\n", "other.sh": f"{launch} --enable_hybrid_engine\n"})
    actor, critic = _configs(folder, "run.sh")
    assert (actor.value("hybrid_engine.enabled"), actor.value("hybrid_engine.inference_tp_size")) == (True, 3)
    assert not critic.has("hybrid_engine")
    assert "DS868" in {code for code, _, _ in folder.found("run.sh")}
    assert "DS868" not in {code for code, _, _ in folder.found("other.sh")}


def test_the_flags_of_an_own_loop_describe_its_training(folder: Folder) -> None:
    folder.write({"run.sh": f"{DSCHAT.format('m')} --data_split 2,4,4 --lora_dim 128 --gradient_checkpointing\n"})
    subject = open_text((folder.path / "run.sh").read_text(encoding="utf-8"), "run.sh", with_loaders(Facts()))
    assert subject is not None
    arguments = subject.configs[0].arguments
    assert arguments is not None
    options = {name: value for name, (value, _) in told_by(arguments).options.items()}
    assert {name: options[name] for name in ("model", "length", "lora_rank", "checkpoint_every")} == {
        "model": "m",
        "length": 512,
        "lora_rank": 128,
        "checkpoint_every": 1,
    }
    assert "micro_batch" not in options
    assert "DS446" not in {code for code, _, _ in folder.found("run.sh")}


def _configs(folder: Folder, name: str) -> list[Config]:
    subject = open_text((folder.path / name).read_text(encoding="utf-8"), name, with_loaders(Facts()))
    assert subject is not None
    return [resolve(used.loaded.document, used.loaded.context) for used in subject.configs]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("gradient_acumulation_steps", "gradient_accumulation_steps"),
        ("train-micro-batch-size-per-gpus", "train_micro_batch_size_per_gpu"),
        ("autotuning_run", ""),
        ("tensorboard_dir", ""),
        ("num_heads_of_a_fork", ""),
    ],
)
def test_gpt_neox_refuses_a_misspelt_field(folder: Folder, key: str, meant: str) -> None:
    sizes = '"num_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "seq_length": 8, "pipe_parallel_size": 1, "train_iters": 3'
    folder.write({"small.yml": f'{{{sizes}, "{key}": 1, "fp16": {{"enabled": true}}, "zero_optimization": {{"stage": 1}}}}\n'})
    found = [one for one in folder.diagnostics("small.yml") if one.code == "DS974"]
    assert [one.help for one in found] == ([f'Write "{meant}".'] if meant else [])


@pytest.mark.parametrize(
    ("copy", "found"), [("class Arguments:\n    inner_dropout: float = 0.1\n", False), ("inner_dropout = 0.1\n", True)]
)
def test_an_argument_that_the_projects_own_copy_of_a_framework_has(folder: Folder, copy: str, found: bool) -> None:
    folder.write({"ms-swift/swift/arguments.py": copy, "ds.json": '{"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}'})
    folder.write({"run.sh": "NPROC_PER_NODE=2 swift sft --model m --deepspeed ds.json --inner_dropout 0.4\n"})
    output = CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output
    assert ("DS974" in [one["code"] for one in json.loads(output)["diagnostics"]]) is found
