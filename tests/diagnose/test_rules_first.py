"""What the rules find certainly in the config of a job comes before texts that hold for any program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli.diagnose import command
from tests.diagnose.logs import OOM, diagnosed, traceback

ERROR = "ZeroDivisionError: float floor division by zero"
INFO = "[2026-11-01 10:00:00,000] [INFO] [logging.py:107:log_dist] [Rank 0] DeepSpeed info: version=0.19.5, git-hash=unknown, git-branch=unknown"


def _diagnosed(folder: Path, log: str, bucket: float) -> str:
    zero = {"stage": 2, "reduce_bucket_size": bucket}
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": zero}
    (folder / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "job.log").write_text(f"{log}\n", encoding="utf-8")
    result = CliRunner().invoke(command, [str(folder / "job.log"), "--config", str(folder / "ds.json")])
    return " ".join(result.stdout.split())


@pytest.mark.parametrize("log", [ERROR, f"{INFO}\n{ERROR}"])
def test_a_crash_of_the_config_takes_the_place_of_a_general_text(tmp_path: Path, log: str) -> None:
    """Without a release in the log, it is the newest one that raises the error: later ones refuse the value."""
    found = _diagnosed(tmp_path, log, 0)
    assert "reduce_bucket_size is 0: the first backward pass of DeepSpeed 0.19.5 raises" in found.partition("What to do")[0]
    assert "data loader" not in found
    assert "DS106" not in found


def test_the_check_of_the_config_is_not_advised_where_it_has_run(tmp_path: Path) -> None:
    found = _diagnosed(tmp_path, ERROR, 5e8)
    assert "data loader" in found
    assert "Run `dslint check .` in the project: in the config alone, rules about this error find nothing (DS443)." in found


def test_a_cause_is_proved_by_its_place_in_the_config(tmp_path: Path) -> None:
    found = _diagnosed(tmp_path, ERROR, 0)
    assert "DS443 finds this in line 1 of ds.json." in found.partition("What to do")[0]


def test_an_error_of_a_config_that_the_given_one_does_not_show_is_hedged(tmp_path: Path) -> None:
    error = "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * 1 * 8"
    assert _diagnosed(tmp_path, error, 5e8).startswith("Most likely: AssertionError: Check batch related parameters.")
    (tmp_path / "train.py").write_text(
        'import deepspeed\nengine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds.json")\n',
        encoding="utf-8",
    )
    found = CliRunner().invoke(command, [str(tmp_path / "job.log"), "--program", str(tmp_path / "train.py")])
    assert "In the given files, rules about this error find nothing (DS201, DS202)." in " ".join(found.stdout.split())


def test_a_mismatch_names_both_sides(tmp_path: Path) -> None:
    text = "ValueError: - ds gradient_accumulation_steps=4 vs hf gradient_accumulation_steps=2"
    assert "gradient_accumulation_steps is 4 in the config, and gradient_accumulation_steps of the arguments is 2" in _diagnosed(
        tmp_path, text, 5e8
    )


def test_a_host_without_ssh_may_be_the_own_machine(tmp_path: Path) -> None:
    text = "Command 'ssh -o PasswordAuthentication=no 10.0.0.1 hostname' returned non-zero exit status 255."
    assert "log in to a machine of the hostfile, 10.0.0.1, through ssh" in _diagnosed(tmp_path, text, 5e8)


RUN = "deepspeed --num_gpus 2 \\ \n    train.py --deepspeed ds.json\n"


def test_what_is_found_in_the_launch_script_is_the_cause(tmp_path: Path) -> None:
    """A blank behind a backslash: the launcher gets no program."""
    (tmp_path / "run.sh").write_text(RUN, encoding="utf-8")
    (tmp_path / "train.py").write_text("import deepspeed\n", encoding="utf-8")
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    (tmp_path / "job.log").write_text("launch.py: error: the following arguments are required: training_script\n", encoding="utf-8")
    found = CliRunner().invoke(command, [str(tmp_path / "job.log"), "--program", str(tmp_path / "run.sh")]).stdout
    words = " ".join(found.split())
    assert "bash starts deepspeed without" in words.partition("What to do")[0]  # though the script leads to no config
    assert "Remove the blank." in words.partition("What to do")[2]


def test_a_release_that_dslint_does_not_know_has_no_defects_of_another(tmp_path: Path) -> None:
    """DeepSpeed 0.8.3 is judged as 0.9.0, whose own defect is not its."""
    (tmp_path / "train.py").write_text(
        "from transformers import Trainer, TrainingArguments\n"
        'Trainer(model, TrainingArguments("out", deepspeed="ds.json", per_device_train_batch_size=1)).train()\n',
        encoding="utf-8",
    )
    (tmp_path / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', encoding="utf-8")
    (tmp_path / "job.log").write_text("ValueError: no\n", encoding="utf-8")
    said = {}
    for pin in ("0.9.0", "0.8.3"):
        (tmp_path / "requirements.txt").write_text(f"deepspeed=={pin}\n", encoding="utf-8")
        options = [str(tmp_path / "job.log"), "--program", str(tmp_path / "train.py"), "--world-size", "8"]
        said[pin] = "DS952" in CliRunner().invoke(command, options).stdout
    assert said == {"0.9.0": True, "0.8.3": False}


def test_a_release_that_dslint_does_not_know_is_told_once(tmp_path: Path) -> None:
    """Each finding said so. What only the release does that stands in is not said of the other."""
    config = {"train_batch_size": 8, "communication_data_type": "x", "zero_optimization": {"stage": 2, "leaf_module": {"classes": ["a"]}}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    log = f"{INFO.replace('0.19.5', '0.8.3')}\n{traceback('ValueError: no')}"
    said = _with(tmp_path, log, "--config", "ds.json")
    assert said.count("0.8.3, which may differ") == 1
    assert "0.8.3 may not do so" not in said
    assert "communication_data_type" in said


FULL_HOST = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000 bytes"
)
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}


@pytest.mark.parametrize(
    ("program", "divided"),
    [
        ("import deepspeed\nwith deepspeed.zero.Init({}):\n    model = Model()\n", True),
        ("import deepspeed\nmodel = Model()\n", False),
    ],
)
def test_a_program_that_divides_its_model_is_not_told_to(tmp_path: Path, program: str, divided: bool) -> None:
    """It does not load the whole model in each rank."""
    (tmp_path / "train.py").write_text(
        program.format('config_dict_or_path="ds.json"') + 'deepspeed.initialize(model=model, config="ds.json")\n'
    )
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
        "optimizer": {"type": "AdamW"},
    }
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    (tmp_path / "job.log").write_text(f"{traceback(FULL_HOST)}\n", encoding="utf-8")
    options = ["--program", str(tmp_path / "train.py"), "--model", str(tmp_path / "model"), "--world-size", "8"]
    said = " ".join(CliRunner().invoke(command, [str(tmp_path / "job.log"), *options]).stdout.split())
    assert "host memory between steps" in said
    assert ("Load the model only once" not in said) is divided
    assert ("while they load the model (where each loads it whole" not in said) is divided


def _with(folder: Path, log: str, option: str, name: str, *further: str) -> str:
    (folder / "job.log").write_text(f"{log}\n", encoding="utf-8")
    return " ".join(CliRunner().invoke(command, [str(folder / "job.log"), option, str(folder / name), *further]).stdout.split())


def test_an_error_about_a_key_is_not_explained_by_another_key(tmp_path: Path) -> None:
    raised = "pydantic.error_wrappers.ValidationError: 1 validation error for DeepSpeedZeroConfig\nzero_quantized_weights\n  extra fields not permitted (type=value_error.extra)"
    config = {"train_batch_size": 8, "zero_optimization": {"stage": 3, "zero_quantized_weights": True, "stage3_other": 1}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    cause = _with(tmp_path, traceback(raised), "--config", "ds.json").partition("Rules on")[0]
    assert "zero_quantized_weights was added in DeepSpeed 0.10.0" in cause
    assert "stage3_other" not in cause


MISMATCH = """ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:
- ds gradient_clipping=0.5 vs hf max_grad_norm=1.0
- ds train_micro_batch_size_per_gpu=4 vs hf per_device_train_batch_size=1
The easiest method is to set these DeepSpeed config values to 'auto'."""


@pytest.mark.parametrize("form", [traceback(MISMATCH), MISMATCH, MISMATCH.removeprefix("ValueError: ")], ids=["traceback", "error", "text"])
def test_assumed_arguments_do_not_contradict_those_of_the_log(tmp_path: Path, form: str) -> None:
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0.5, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    program = 'from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments(output_dir="o", deepspeed="ds.json")).train()\n'
    (tmp_path / "p.py").write_text(program, encoding="utf-8")
    found = _with(tmp_path, form, "--program", "p.py")
    assert "gradient_clipping is 0.5 here but 1" in found
    assert "They differ: ds train_micro_batch_size_per_gpu=4 vs hf per_device_train_batch_size=1." in found
    assert "hf per_device_train_batch_size=8" not in found
    assert "learning_rate" not in found
    began = "[INFO|trainer.py:1587] 2026-03-09 03:37:20,261 >> ***** Running training *****\n"
    assert "vs hf" not in _with(tmp_path, began + traceback("RuntimeError: no"), "--program", "p.py")
    assert "vs hf" in _with(tmp_path, traceback("RuntimeError: no"), "--program", "p.py")


def test_a_mismatch_whose_values_the_log_prints_needs_no_rule(tmp_path: Path) -> None:
    """The ranks are known to the job alone, so no rule finds the mismatch in the config."""
    error = (
        "ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n"
        "- ds train_batch_size=32 vs hf train_batch_size (calculated)=4\n"
        "The easiest method is to set these DeepSpeed config values to 'auto'."
    )
    found = _diagnosed(tmp_path, error, 5e8)
    assert found.startswith("ValueError: Please correct")
    assert "They differ: ds train_batch_size=32 vs hf train_batch_size (calculated)=4." in found


def test_a_general_message_of_a_load_leads_to_no_rule_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text("{}", encoding="utf-8")
    frame = ("/x/deepspeed/runtime/engine.py", 1374, "load_module_state_dict", "if key in state_dict:")
    found = _with(tmp_path, traceback("TypeError: argument of type 'NoneType' is not iterable", frame), "--config", "ds.json")
    assert "rules about this error" not in found


def test_advice_about_inputs_is_not_given_where_deepspeed_reduces_gradients(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text("{}", encoding="utf-8")
    frame = ("/x/site-packages/deepspeed/runtime/zero/stage_1_and_2.py", 1155, "average_tensor", "self.allreduce_and_scatter(")
    found = _with(tmp_path, traceback("RuntimeError: expected scalar type Float but found BFloat16", frame), "--config", "ds.json")
    assert "different types: Float and BFloat16. ZeRO reduces" in found
    assert "Cast the floating-point inputs" not in found


def test_the_rule_of_an_error_that_no_table_explains_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("stage: sft\n", encoding="utf-8")
    frame = ("/x/llamafactory/hparams/parser.py", 230, "get_train_args", "raise ValueError(")
    raised = "ValueError: Unsloth is incompatible with DeepSpeed ZeRO-3."
    found = _with(tmp_path, traceback(raised, frame), "--program", "t.yaml")
    assert "DS948 is about this error. LLaMA-Factory refuses an argument together with ZeRO stage 3." in found


UNPACKED = "ValueError: not enough values to unpack (expected 4, got 1)"


def test_the_end_of_a_recorded_message_is_not_that_error(tmp_path: Path) -> None:
    """DeepSpeed says "Failed to import lower precision safe module Linear: not enough values to unpack": a layer that unpacks its inputs
    says only the end of it.
    """
    (tmp_path / "ds.json").write_text("{}", encoding="utf-8")
    for log in (UNPACKED, UNPACKED.partition(" ")[2], traceback(UNPACKED)):
        assert "DS320" not in _with(tmp_path, log, "--config", "ds.json")
    whole = UNPACKED.replace(": ", ": Failed to import lower precision safe module Linear: ")
    assert "DS320" in _with(tmp_path, whole, "--config", "ds.json")


@pytest.mark.parametrize(("file", "is_found"), [("/home/me/train.py", False), ("/x/site-packages/deepspeed/runtime/config.py", True)])
def test_what_python_says_of_a_line_of_the_program_is_not_a_mistake_of_the_config(tmp_path: Path, file: str, is_found: bool) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": "stage3"}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    log = traceback("AttributeError: 'str' object has no attribute 'get'", (file, 3, "f", "x = y.get(1)"))
    cause = _with(tmp_path, log, "--config", "ds.json").partition("Rules on")[0]
    assert ("zero_optimization" in cause) is is_found


OF_LIBRARIES = {
    "OverflowError: int too big to convert": "DS306",
    "TypeError: 'DataLoader' object is not an iterator": "DS874",
    "RuntimeError: Trying to create tensor with negative dimension -686245457367107674: [-686245457367107674]": "DS864",
    "ValueError: invalid literal for int() with base 10: '8 '": "DS104",
    "TypeError: int() argument must be a string, a bytes-like object or a real number, not 'NoneType'": "DS108",
}


@pytest.mark.parametrize("error", OF_LIBRARIES)
def test_what_python_and_torch_say_is_about_deepspeed_only_where_it_raises(error: str) -> None:
    code = OF_LIBRARIES[error]
    (alone,) = diagnosed(error).causes
    assert not any("is about this error" in one for one in alone.why)
    (elsewhere,) = diagnosed(traceback(error, ("/x/site-packages/transformers/tokenization_utils_fast.py", 414, "f", "x"))).causes
    assert code not in f"{elsewhere.why} {elsewhere.all_advice}"
    (there,) = diagnosed(traceback(error, ("/x/site-packages/deepspeed/runtime/x.py", 30, "f", "x"))).causes
    assert code in there.rules


@pytest.mark.parametrize(("folder", "is_named"), [("swap_tensor/partitioned_param_swapper.py", True), ("zero/stage3.py", False)])
def test_a_list_that_is_too_short_is_about_a_rule_only_where_its_code_reads_it(folder: str, is_named: bool) -> None:
    frame = (f"/x/site-packages/deepspeed/runtime/{folder}", 30, "f", "x = y[0]")
    (cause,) = diagnosed(traceback("IndexError: list index out of range", frame)).causes
    assert ("DS507" in cause.rules) is is_named


def test_torch_outside_of_site_packages_is_not_the_program() -> None:
    """A torch that was built by a cluster lies in a folder of its own."""
    torch = ("/share/pytorch/2.7.1/torch/utils/_contextlib.py", 116, "decorate_context", "return func(*args, **kwargs)")
    step = (
        "/x/site-packages/deepspeed/runtime/utils.py",
        892,
        "get_global_norm_of_tensors",
        "device_total_norm = compute_buffer[0].float()",
    )
    (cause,) = diagnosed(traceback("IndexError: list index out of range", ("/me/train.py", 9, "main", "engine.step()"), torch, step)).causes
    assert "none of this rank counts" in cause.why[0]
    assert "called by me/train.py:9" in cause.why[1]


def test_a_traceback_that_is_cut_at_initialize_leads_to_no_rule_by_itself(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8}', encoding="utf-8")
    frame = ("/x/site-packages/deepspeed/__init__.py", 156, "initialize", "engine = DeepSpeedEngine(args=args,")
    cause = _with(tmp_path, traceback("ValueError: max() arg is an empty sequence", frame), "--config", "ds.json")
    assert "DS991 is about this error" not in cause
    assert "has no parameters" in cause


MEGATRON = """cat <<EOT > ds.json
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1},
 "wall_clock_breakdown": "yes please", "optimizer": {"type": "Adam", "params": {"lr": "3e-4", "betas": "auto"}}}
EOT
torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 1 --num-layers 2 --hidden-size 64 --num-attention-heads 4 \\
  --micro-batch-size 1 --global-batch-size 8 --seq-length 128 --max-position-embeddings 128 --train-iters 10 --optimizer adam --lr 3e-4 \\
  --bf16 --deepspeed --no-pipeline-parallel --deepspeed_config=ds.json --zero-stage=1
"""


def test_a_section_that_the_program_replaces_has_the_findings_of_the_check(tmp_path: Path) -> None:
    """Megatron passes its own optimizer: what is wrong in the section never reaches DeepSpeed. What is wrong elsewhere does."""
    (tmp_path / "run.sh").write_text(MEGATRON, encoding="utf-8")
    found = _with(tmp_path, traceback("RuntimeError: no"), "--program", "run.sh")
    assert "DeepSpeed ignores this section" in found
    assert "optimizer.params" not in found
    assert "wall_clock_breakdown" in found


TRAINS = "torchrun --nproc_per_node 8 train.py --output_dir out --per_device_train_batch_size 4 --bf16 True"


@pytest.mark.parametrize("further", ["", " --cache_dir $CACHE", ' "$@"', " $EXTRA", " --deepspeed_config_file x.json"])
def test_no_stage_of_zero_is_raised_where_the_command_names_no_config(tmp_path: Path, further: str) -> None:
    (tmp_path / "run.sh").write_text(f"{TRAINS}{further}\n", encoding="utf-8")
    full = "torch.OutOfMemoryError: CUDA out of memory."
    found = _with(tmp_path, full, "--program", "run.sh")
    bare = further in ("", " --cache_dir $CACHE")
    assert ("pass --deepspeed" in found) is bare
    assert ("higher ZeRO stage" in found) is not bare
    assert "pass --deepspeed" not in _with(tmp_path, f"{INFO}\n{full}", "--program", "run.sh")


BATCH = (
    "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size "
    "32 != 4 * 2 * 1"
)
PLAIN = 'import deepspeed\ndeepspeed.initialize(model=model, model_parameters=parameters, config="ds.json")\n'


def _job(folder: Path, config: dict[str, object], command: str, program: str = PLAIN) -> None:
    (folder / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "train.py").write_text(program, encoding="utf-8")
    (folder / "run.sh").write_text(f"{command}\n", encoding="utf-8")


def test_a_rule_takes_the_place_of_a_text_and_is_told_once(tmp_path: Path) -> None:
    _job(
        tmp_path,
        {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "optimizer": {"type": "Adam"}},
        "deepspeed --num_gpus 1 train.py",
    )
    said = _with(tmp_path, traceback(BATCH), "--program", "run.sh")
    assert said.count("4 x 2 x 1") == 1
    assert "DS201 is the cause above." in said
    assert "saw only 1 rank" not in said


@pytest.mark.parametrize(
    ("gpu", "kept", "gone"),
    [
        ("v100", "set fp16 instead of bf16", "fp32, because|newer GPU"),
        ("p100", "train in fp32", "set fp16|newer GPU"),
        ("a100", "On a newer GPU check", "set fp16|train in fp32"),
    ],
)
def test_the_gpu_decides_which_precision_is_advised(tmp_path: Path, gpu: str, kept: str, gone: str) -> None:
    _job(tmp_path, {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}}, "deepspeed train.py")
    said = _with(tmp_path, traceback("ValueError: Type bf16 is not supported on your device."), "--config", "ds.json", "--gpu", gpu)
    told = said.partition("What to do")[2].partition("Rules on")[0]
    assert kept in told
    assert not re.search(gone, told)


def test_a_job_that_reached_a_step_is_told_of_no_crash_before(tmp_path: Path) -> None:
    """It ran on another GPU than the given one."""
    _job(tmp_path, {"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": True}}, "deepspeed train.py")
    error = traceback("ValueError: no", ("/env/site-packages/deepspeed/runtime/engine.py", 2000, "backward", "x"))
    assert "DS324" not in _with(tmp_path, error, "--config", "ds.json", "--gpu", "p100")
    assert "DS324" in _with(tmp_path, traceback("ValueError: no"), "--config", "ds.json", "--gpu", "p100")


ACCELERATED = """
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
model, optimizer = accelerator.prepare(model, optimizer)
"""


@pytest.mark.parametrize("flag", ["true", "false"])
def test_accelerate_is_told_its_own_way_to_divide_a_model(tmp_path: Path, flag: str) -> None:
    (tmp_path / "acc.yaml").write_text(
        f"distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  zero_stage: 3\n  zero3_init_flag: {flag}\n", encoding="utf-8"
    )
    (tmp_path / "train.py").write_text(ACCELERATED, encoding="utf-8")
    (tmp_path / "run.sh").write_text("accelerate launch --config_file acc.yaml train.py\n", encoding="utf-8")
    said = _with(
        tmp_path, "E0501 10:01:06 9 api.py:869] failed (exitcode: -9) local_rank: 0 (pid: 7) of binary: python", "--program", "run.sh"
    )
    assert ("set zero3_init_flag: true" in said) is (flag == "false")
    assert "TrainingArguments" not in said


def test_a_weight_of_size_0_below_stage_3_is_not_one_of_stage_3(tmp_path: Path) -> None:
    """The launcher of the log takes out a part of the sentence before the stage of the config does."""
    _job(tmp_path, {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}, "torchrun --nproc_per_node 4 train.py")
    said = _with(tmp_path, f"{traceback(WEIGHT)}\ntorch.distributed.elastic", "--program", "run.sh").partition("What ran")[0]
    assert "At ZeRO stage 3" not in said
    assert "Below ZeRO stage 3 no weight is divided" in said


WEIGHT = "RuntimeError: 'weight' must be 2-D"


def test_a_key_that_a_rule_explains_is_told_once(tmp_path: Path) -> None:
    raised = "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig\noverlap_com\n  Extra inputs are not permitted [type=extra_forbidden, input_value=True, input_type=bool]"
    (tmp_path / "ds.json").write_text(
        json.dumps({"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_com": True}}), encoding="utf-8"
    )
    said = _with(tmp_path, f"{INFO}\n{traceback(raised)}", "--config", "ds.json")
    assert 'Did you mean "overlap_comm"?' in said
    assert "the key that the error names" not in said


ON_META = "NotImplementedError: Cannot copy out of meta tensor; no data!"


@pytest.mark.parametrize("quantized", [True, False])
def test_a_finding_that_may_be_the_cause_stands_with_the_error(tmp_path: Path, quantized: bool) -> None:
    """4-bit weights at stage 3: the error said to load the model under zero.Init, which is what the program did."""
    loading = "load_in_4bit=True, " if quantized else ""
    (tmp_path / "train.py").write_text(
        "from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments\n"
        'args = TrainingArguments("out", deepspeed="ds.json", per_device_train_batch_size=1)\n'
        f'model = AutoModelForCausalLM.from_pretrained("m", quantization_config=BitsAndBytesConfig({loading}))\n'
        "Trainer(model, args).train()\n",
        encoding="utf-8",
    )
    (tmp_path / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}', encoding="utf-8")
    said = _with(tmp_path, ON_META, "--program", "train.py").partition("Rules on the config")[0]
    assert ("DS947 finds in line 3 of train.py what may be the cause: load_in_4bit=True at ZeRO stage 3" in said) is quantized
    assert ("What to do 1. Use ZeRO stage 2, or load the model without quantization." in said) is quantized
    assert "from_pretrained under zero.Init" not in said


@pytest.mark.parametrize("bits", ["load_in_8bit=True", "load_in_4bit=True", ""])
def test_only_a_4_bit_model_is_given_a_type_of_its_weights(tmp_path: Path, bits: str) -> None:
    (tmp_path / "train.py").write_text(
        "from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments\n"
        'args = TrainingArguments("out", deepspeed="ds.json", per_device_train_batch_size=1)\n'
        f'model = AutoModelForCausalLM.from_pretrained("m", quantization_config=BitsAndBytesConfig({bits}))\n'
        "Trainer(model, args).train()\n",
        encoding="utf-8",
    )
    (tmp_path / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}', encoding="utf-8")
    raised = traceback("RuntimeError: expected there to be only one unique element in <generator object f.<locals>.<genexpr> at 0x7f00>")
    said = " ".join(_with(tmp_path, raised, "--program", "train.py").partition("Rules on the config")[0].split())
    assert ("DS947 finds in line 3 of train.py what may be the cause" in said) is bool(bits)
    assert ("What to do 1. Use ZeRO stage 2, or load the model without quantization." in said) is bool(bits)
    assert "If the model has 4 bits, set bnb_4bit_quant_storage to the type of the config" in said
    assert said.count("bnb_4bit_quant_storage") == said.count("4 bits, set bnb_4bit_quant_storage")


STARTS_ONE_RANK = (
    "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size"
    " 16 != 8 * 1 * 1"
)


@pytest.mark.parametrize("first", ["arguments", "model", "either"])
def test_a_program_that_makes_its_arguments_first_is_not_told_to(tmp_path: Path, first: str) -> None:
    """A model that is loaded first is one that a config with HfDeepSpeedConfig has told of stage 3."""
    made = 'arguments = TrainingArguments("out", deepspeed="ds.json", per_device_train_batch_size=8)'
    loaded = 'model = AutoModelForCausalLM.from_pretrained("m")'
    branch = f"import sys\nif len(sys.argv) > 1:\n    {made}\n{loaded}\n{made}\n"
    (tmp_path / "train.py").write_text(
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "from transformers.integrations import HfDeepSpeedConfig\n"
        'kept = HfDeepSpeedConfig("ds.json")\n'
        + {"arguments": f"{made}\n{loaded}\n", "model": f"{loaded}\n{made}\n", "either": branch}[first]
        + "Trainer(model, arguments).train()\n",
        encoding="utf-8",
    )
    (tmp_path / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}', encoding="utf-8")
    said = _with(tmp_path, STARTS_ONE_RANK, "--program", "train.py")
    assert "deepspeed.init_distributed before the config is read" in said
    assert ("create the training arguments before from_pretrained" in said) is (first != "arguments")


@pytest.mark.parametrize(("pin", "is_said"), [("==0.12.3", False), (">=0.9.0", True), ("==0.9.0", True)])
def test_the_pinned_release_contradicts_advice_about_another(tmp_path: Path, pin: str, is_said: bool) -> None:
    (tmp_path / "requirements.txt").write_text(f"deepspeed{pin}\n", encoding="utf-8")
    (tmp_path / "train.py").write_text('import deepspeed\ndeepspeed.initialize(model=m, config="ds.json")\n', encoding="utf-8")
    (tmp_path / "ds.json").write_text('{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 8}', encoding="utf-8")
    assert ("DeepSpeed 0.9.0 reads the config too early" in _with(tmp_path, STARTS_ONE_RANK, "--program", "train.py")) is is_said


def test_a_pinned_release_that_dslint_does_not_know_is_told_with_the_findings(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("deepspeed==0.6.5\n", encoding="utf-8")
    (tmp_path / "train.py").write_text('import deepspeed\ndeepspeed.initialize(model=m, config="ds.json")\n', encoding="utf-8")
    config = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'
    (tmp_path / "ds.json").write_text(config, encoding="utf-8")
    said = _with(tmp_path, traceback("ValueError: no"), "--program", "train.py")
    assert "as of DeepSpeed 0.9.0: dslint does not know 0.6.5, which may differ" in said


@pytest.mark.parametrize("pin", ["", "deepspeed==0.19.8\n"])
def test_a_release_that_nothing_names_has_no_defects(tmp_path: Path, pin: str) -> None:
    """As in `dslint check`: the release of a log is not the newest one."""
    (tmp_path / "requirements.txt").write_text(f"mmengine==0.10.7\n{pin}", encoding="utf-8")
    (tmp_path / "config.py").write_text(
        'strategy = dict(type="DeepSpeedStrategy", config="ds.json")\n'
        'optim_wrapper = dict(type="DeepSpeedOptimWrapper", optimizer=dict(type="AdamW", lr=1e-4))\n'
        "train_dataloader = dict(batch_size=4)\n",
        encoding="utf-8",
    )
    (tmp_path / "ds.json").write_text('{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}', encoding="utf-8")
    assert ("DS993" in _with(tmp_path, traceback("ValueError: no"), "--program", "config.py")) is bool(pin)


@pytest.mark.parametrize(("layers", "is_said"), [(32, False), (2, True)])
def test_memory_in_pieces_is_not_the_matter_where_the_estimate_does_not_fit(tmp_path: Path, layers: int, is_said: bool) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    (tmp_path / "ds.json").write_text(json.dumps({**config, "zero_optimization": {"stage": 1}}), encoding="utf-8")
    (tmp_path / "model.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": layers}), encoding="utf-8")
    given = ("--model", str(tmp_path / "model.json"), "--world-size", "1")
    assert ("most likely fragmentation" in _with(tmp_path, traceback(OOM), "--config", "ds.json", *given)) is is_said


@pytest.mark.parametrize(("layers", "is_too_large"), [(32, True), (2, False)])
def test_states_that_do_not_fit_are_said_before_activations(tmp_path: Path, layers: int, is_too_large: bool) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    (tmp_path / "ds.json").write_text(json.dumps({**config, "zero_optimization": {"stage": 1}}), encoding="utf-8")
    (tmp_path / "model.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": layers}), encoding="utf-8")
    given = ("--model", str(tmp_path / "model.json"), "--world-size", "1")
    frame = ("train.py", 12, "backward", "loss.backward()")
    found = " ".join(_with(tmp_path, traceback(OOM, frame), "--config", "ds.json", *given).split())
    assert ("optimizer states alone: more than it can have" in found) is is_too_large
    assert ("Turn on activation checkpointing" in found) is not is_too_large


def _of_llama_factory(folder: Path, launch: str, **options: object) -> None:
    """A project that trains with LLaMA-Factory at stage 3 from train.yaml."""
    lines = {"stage": "sft", "model_name_or_path": "m", "dataset": "d", "learning_rate": 1e-4, "deepspeed": "ds.json", **options}
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text("from llamafactory.train.tuner import run_exp\nrun_exp()\n", encoding="utf-8")
    (folder / "train.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()), encoding="utf-8")
    (folder / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}', encoding="utf-8")
    (folder / "run.sh").write_text(f"{launch}\n", encoding="utf-8")


def test_what_stops_a_loader_comes_before_a_table_about_its_error(tmp_path: Path) -> None:
    """The parser does not read a YAML file behind a flag of the launcher."""
    _of_llama_factory(tmp_path, "deepspeed --num_gpus 2 src/train.py train.yaml", output_dir="out")
    said = _with(tmp_path, "train.py: error: unrecognized arguments: train.yaml", "--program", "run.sh")
    said = " ".join(said.split())
    assert "DS973 finds in line 1 of run.sh what may be the cause" in said
    assert "1. Launch with --no_local_rank, or with torchrun." in said
    assert "DS973 may be the cause above." in said
    assert said.count("Launch with --no_local_rank") == 1
    assert "find nothing" not in said


def test_a_refused_argument_may_be_what_another_library_refuses(tmp_path: Path) -> None:
    _of_llama_factory(tmp_path, "FORCE_TORCHRUN=1 llamafactory-cli train train.yaml", output_dir="out", use_unsloth="true")
    log = traceback("ValueError: DeepSpeed Zero-3 is not compatible with passing a `device_map`.")
    said = " ".join(_with(tmp_path, log, "--program", "run.sh").split())
    assert said.startswith("Most likely: ValueError: DeepSpeed Zero-3")
    assert "what may be the cause: use_unsloth: true at ZeRO stage 3" in said
    assert "find nothing" not in said


def test_what_a_stage_makes_wrong_in_a_program_is_named_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse, deepspeed, torch\nargs = deepspeed.add_config_arguments(argparse.ArgumentParser()).parse_args()\n"
        "engine, *_ = deepspeed.initialize(args=args, model=net, model_parameters=net.parameters())\n"
        "engine.module.load_state_dict(torch.load('w.pt'))\n",
        encoding="utf-8",
    )
    log = traceback(
        "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for head.weight: copying a param with shape "
        "torch.Size([10, 10]) from checkpoint, the shape in current model is torch.Size([0])."
    )
    said = " ".join(_with(tmp_path, log, "--program", "train.py").split())
    assert "DS968 finds in line 4 of train.py what may be the cause" in said
    assert "That is so if the config, which is not known, sets ZeRO stage 3." in said
    other = " ".join(_with(tmp_path, traceback("ValueError: x"), "--program", "train.py").split())
    assert "DS968" not in other


def test_what_an_error_proves_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "model = AutoModelForCausalLM.from_pretrained('m', device_map='auto')\nTrainer(model=model, args=args).train()\n",
        encoding="utf-8",
    )
    (tmp_path / "run.sh").write_text('deepspeed train.py --output_dir o "$@"\n', encoding="utf-8")
    log = traceback("ValueError: DeepSpeed Zero-3 is not compatible with passing a `device_map`.")
    said = " ".join(_with(tmp_path, log, "--program", "train.py").split())
    assert said.count("DS946 finds in line 3 of train.py") == 1
    assert "That is so" not in said


def test_rules_that_find_nothing_do_not_deny_what_others_find(tmp_path: Path) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2, "stage3_x": 1}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "train.py").write_text(
        'import deepspeed\nengine, *_ = deepspeed.initialize(model=m, model_parameters=m.parameters(), config="ds.json")\n',
        encoding="utf-8",
    )
    error = "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * 1 * 8"
    said = " ".join(_with(tmp_path, error, "--program", "train.py").split())
    assert "(DS201, DS202) find nothing. Others find what raises another error: DS101." in said


@pytest.mark.parametrize(
    ("section", "key", "said", "rules"),
    [
        ("DeepSpeedZeroConfig", "zero_hpz_partition_size", "zero_hpz_partition_size was added in DeepSpeed 0.10.0: the installed", "DS112"),
        ("DeepSpeedZeroConfig", "mics_shard_size", "Only DeepSpeed 0.9.2 to 0.19.6 know zero_optimization.mics_shard_size", "DS109, DS112"),
        ("DeepSpeedZeroConfig", "cpu_offload_params", "up to 0.6.7: the installed release is newer", "DS109"),
        ("DeepSpeedZeroConfig", "memory_efficient_linear", "Each release from DeepSpeed 0.9.0 on knows zero_optimization.memory_eff", ""),
        ("DeepSpeedBF16Config", "bf16_optimizer_states", "bf16.bf16_optimizer_states was added in DeepSpeed 0.18.3", "DS112"),
        ("DeepSpeedZeroConfig", "stage3_max_live_parameters", "", ""),
        ("DeepSpeedZeroConfig", "reduce_bucket_sise", "", "DS101"),
        ("DeepSpeedFP16Config", "enabled", "", ""),
        ("ModelArguments", "mics_shard_size", "", ""),
    ],
)
@pytest.mark.parametrize(
    "fault",
    [
        "  Extra inputs are not permitted [type=extra_forbidden, input_value=1, input_type=int]",
        "  extra fields not permitted (type=value_error.extra)",
    ],
)
@pytest.mark.parametrize("is_traceback", [True, False])
def test_the_releases_that_know_a_refused_key(
    tmp_path: Path, section: str, key: str, said: str, rules: str, fault: str, is_traceback: bool
) -> None:
    error = f"1 validation error for {section}\n{key}\n{fault}"
    (tmp_path / "job.log").write_text(f"{traceback(f'pydantic.ValidationError: {error}') if is_traceback else error}\n", encoding="utf-8")
    found = " ".join(CliRunner().invoke(command, [str(tmp_path / "job.log")]).stdout.split())
    assert said in found
    if said:
        assert re.findall(r"\bDS\w\d\d\b", found) == re.findall(r"DS\w\d\d", rules)
        assert "Rules of dslint record" not in found
    else:
        assert not re.search(r"installed release is|DeepSpeed \d", found)
        assert rules in found


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("ValueError: not enough values to unpack (expected 3, got 2)", "A line takes 3 values apart, and gets 2."),
        ("ValueError: not enough values to unpack (expected 3, got 2)", "If it is the shape of a weight: at ZeRO stage 3"),
        (
            traceback(
                "ValueError: not enough values to unpack (expected 3, got 2)",
                ("/env/site-packages/deepspeed/runtime/pipe/engine.py", 700, "_exec_forward_pass", "outputs = super().forward(inputs)"),
                ("layers.py", 9, "forward", "a, b, c = inputs"),
            ),
            "Let the data loader return (inputs, labels), with tuples",
        ),
        (
            traceback(
                "AssertionError",
                ("train.py", 9, "main", "engine.train_batch()"),
                (
                    "/env/site-packages/deepspeed/runtime/pipe/engine.py",
                    798,
                    "_exec_load_micro_batch",
                    "assert isinstance(batch[0], tuple)",
                ),
            ),
            "The default collate_fn of PyTorch makes lists of tuples",
        ),
        (
            "[2026-11-01 10:00:00,000] [INFO] [comm.py:637:init_distributed] cdb=None\n" * 2,
            "Accelerate before 1.7 passes main_process_port 0 on",
        ),
    ],
)
def test_what_a_pipeline_and_a_rendezvous_expect(tmp_path: Path, log: str, said: str) -> None:
    (tmp_path / "job.log").write_text(f"{log}\n", encoding="utf-8")
    assert said in " ".join(CliRunner().invoke(command, [str(tmp_path / "job.log")]).stdout.split())


CONNECTING = "[2024-06-11 00:23:36,296] [INFO] [comm.py:637:init_distributed] cdb=None\n" * 2


@pytest.mark.parametrize(("port", "is_told"), [("0", True), ("29500", False)])
def test_a_port_of_0_in_the_launch_is_told_where_ranks_wait_for_each_other(tmp_path: Path, port: str, *, is_told: bool) -> None:
    (tmp_path / "zero2.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  zero_stage: 2\n  zero3_init_flag: false\ndistributed_type: DEEPSPEED\n"
        f"main_process_port: {port}\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n",
        encoding="utf-8",
    )
    (tmp_path / "run.sh").write_text("accelerate launch --config_file zero2.yaml train.py --output_dir out\n", encoding="utf-8")
    (tmp_path / "train.py").write_text("from accelerate import Accelerator\nAccelerator()\n", encoding="utf-8")
    (tmp_path / "job.log").write_text(CONNECTING, encoding="utf-8")
    found = CliRunner().invoke(command, [str(tmp_path / "job.log"), "--program", str(tmp_path / "run.sh")]).stdout
    assert ("The launch sets the port of the ranks to 0, main_process_port: 0" in " ".join(found.split())) is is_told


def test_a_key_of_another_section_is_told_where_it_belongs() -> None:
    text = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedBF16Config\nloss_scale_window\n"
        "  Extra inputs are not permitted [type=extra_forbidden, input_value=1000, input_type=int]"
    )
    assert diagnosed(text).causes[0].why[0].startswith("loss_scale_window is a key of fp16, and no release has it in bf16")


def test_a_row_about_another_error_of_another_release_does_not_explain_the_error(tmp_path: Path) -> None:
    """No release before 0.16 raises it; the rule that records it also knows what 0.9.0 does to the batch."""
    (tmp_path / "train.py").write_text(
        "from transformers import Trainer, TrainingArguments\n"
        'Trainer(model, TrainingArguments("out", deepspeed="ds.json", per_device_train_batch_size=1, gradient_accumulation_steps=8)).train()\n',
        encoding="utf-8",
    )
    (tmp_path / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}', encoding="utf-8")
    error = "AssertionError: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 3\n"
    (tmp_path / "job.log").write_text(error, encoding="utf-8")
    options = [str(tmp_path / "job.log"), "--program", str(tmp_path / "train.py"), "--world-size", "8"]
    said = " ".join(CliRunner().invoke(command, options).stdout.split())
    assert "0.9.0" not in said
    assert "DS952 is the cause" not in said
    assert "no_sync(), which ZeRO stage 3 does not allow" in said
