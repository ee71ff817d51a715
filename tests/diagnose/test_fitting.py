"""Every sentence of the tables meets the facts of the job: none advises what is in force, or contradicts what the log tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.diagnose.causes.host_memory import _advice, _when
from dslint.diagnose.causes.requests import MESSAGES, PLACES, _of_states
from dslint.diagnose.diagnosis import End, LikelyCause
from dslint.diagnose.fitting import ALTERNATIVES, CHECKS, SENTENCES, fitted
from dslint.diagnose.job import Known, LoggedJob
from dslint.diagnose.places import known_places
from dslint.diagnose.situation import Situation
from dslint.diagnose.texts import entries
from dslint.facts import Integration
from tests.diagnose.logs import OOM, RETURNED, STARTED, diagnosed, steps, traceback


def sentences() -> Iterator[tuple[str, str]]:
    """Every sentence that a cause may have, with where it is from."""
    for entry in entries():
        yield entry.id, entry.cause
        yield entry.id, entry.advice
    for known in known_places():
        yield known.id, known.cause
        yield known.id, known.advice
    for place in PLACES:
        yield place.what, place.advice
    yield "messages", MESSAGES


ALL = [(name, text) for name, text in sentences() if text]

WRONG = {
    "stage 3": (Situation(stage=3), r"\b[Uu]se (?:a |ZeRO )*stage 3\b|raise the (?:ZeRO )?stage|stage [123] or higher"),
    "stage 1": (Situation(stage=1), r"\b[Uu]se (?:a |ZeRO )*stage 1\b|stage 1 or (?:higher|lower|less)"),
    "pipeline": (Situation(pipeline=True), r"\b[Uu]se (?:a |ZeRO )*stage [23]\b"),
    "accelerate": (Situation(launcher="accelerate"), r"or `accelerate launch`|start with `accelerate launch`(?! --)|plain `python`"),
    "torchrun": (Situation(launcher="torchrun"), r"plain `python`"),
    "bf16": (Situation(dtype="bfloat16"), r"\b(?:[Tt]rain in|[Uu]se) bf16\b"),
    "V100": (Situation(gpu="Tesla V100-SXM2-32GB"), r"\b(?:[Tt]rain in|[Uu]se|[Ee]nable) bf16\b"),
    "P100": (Situation(gpu="p100"), r"\b(?:[Tt]rain in|[Uu]se|[Ee]nable|[Ss]et) (?:bf16|fp16)\b|On a newer GPU check"),
    "A100": (Situation(gpu="NVIDIA A100-SXM4-80GB"), r"V100, |refuse fp16 there|\b(?:[Tt]rain in|[Ss]et) fp16\b"),
    "bf16 trains": (Situation(dtype="bfloat16"), r"exceed the range of fp16|above 65504 overflow|auto_cast"),
    "before auto_cast": (Situation(release=(0, 6, 7)), r"auto_cast"),
    "arguments first": (Situation(arguments_first=True), r"create the training arguments before"),
    "one rank": (Situation(ranks=1), r"before the ranks were known|divides the (?:weights|states) among the ranks"),
    "several ranks": (Situation(ranks=4), r"program runs on one GPU|For several GPUs start one process"),
    "no Trainer": (Situation(loader=Integration.DEEPSPEED), r"\b[Ww]ith the Trainer\b"),
    "port of torchrun": (Situation(launcher="torchrun"), r"deepspeed --master_port|--main_process_port"),
    "started by a launcher": (Situation(launcher="deepspeed"), r"Start the program with a launcher\."),
    "several ranks named": (Situation(several=True), r"[Ss]tart with a launcher|one plain process|started without a launcher"),
    "config of an Accelerate file": (Situation(described=True), r"the key in the config: the Trainer fills it"),
    "clips": (Situation(clips=True), r"clip gradients"),
    "no overlap": (Situation(stage=1, overlaps=False), r"at stages 1 and 2, try false"),
    "checkpointing": (Situation(checkpointing=True), r"[Tt]urn on (?:activation|gradient) checkpointing"),
    "offload": (Situation(offloads_optimizer=True), r"[Oo]ffload the optimizer\b"),
    "no offload": (Situation(offloads_nothing=True), r"\b[Oo]ffload less\b"),
    "micro batch": (Situation(micro_batch=1), r"[Ll]ower the micro batch\b"),
    "inference": (Situation(inference=True), r"gradient_accumulation|learning rate|activation checkpointing|[Tt]rain in bf16"),
    "gathers": (
        Situation(switched_on=frozenset({"stage3_gather_16bit_weights_on_model_save"})),
        r"(?:save|again) with \"?stage3_gather_16bit|\"stage3_gather_16bit_weights_on_model_save\": true",
    ),
    "offline": (Situation(offline=True), r"and set HF_HUB_OFFLINE"),
    "without deepspeed": (Situation(without_deepspeed=True), r"\bhigher ZeRO stage|`dslint estimate`"),
    "automatic batch": (Situation(automatic_batch=True), r'write "auto" for all three|Leave train_batch_size out'),
}


@pytest.mark.parametrize("name", WRONG)
def test_no_sentence_contradicts_a_fact(name: str) -> None:
    situation, words = WRONG[name]
    meant = [text for _, text in ALL if re.search(words, text)]
    assert meant or name in ("stage 1", "checkpointing"), "no sentence is meant"
    for text in meant:
        held = fitted(LikelyCause("crash", "x", (text,), (text,)), situation)
        assert not [kept for kept in (*held.why, *held.advice) if re.search(words, kept)], text


@pytest.mark.slow
def test_without_facts_every_sentence_stays() -> None:
    for name, text in ALL:
        cause = LikelyCause("crash", name, (text,), (text,))
        assert fitted(cause, Situation()) == cause


@pytest.mark.slow
@pytest.mark.parametrize("situation", [situation for situation, _ in WRONG.values()], ids=list(WRONG))
def test_what_stays_is_a_whole_sentence(situation: Situation) -> None:
    for name, text in ALL:
        for kept in fitted(LikelyCause("crash", name, (text,), (text,)), situation).advice:
            assert kept.endswith((".", ":")), kept
            assert not re.search(r"  |[,;:]\.|^[,;. ]", kept), kept


def test_a_sentence_with_a_condition_goes_or_stays_as_a_whole() -> None:
    """One that is cut at ", or " would lose its condition, and keep the rest."""
    conditions = ("Where no weight is divided", "Below ZeRO stage 3")
    sentences = (sentence for _, text in ALL for sentence in re.split(r"(?<=[.!?]) ", text))
    assert not [sentence for sentence in sentences if sentence.startswith(conditions) and re.search(r"; |, or ", sentence)]


def test_every_check_concerns_a_sentence() -> None:
    own = [
        "Raise the ZeRO stage.",
        "Update DeepSpeed to 0.16.6 or later.",
        "Turn on activation checkpointing.",
        "Lower the micro batch size.",
        *_advice(LoggedJob(counts={"launch": 1})),
        *_advice(LoggedJob(facts={"data_parallel": Known(1)})),
        *_when(LoggedJob(counts={"launch": 1}), finished=False),
        "Lower the learning rate and clip gradients.",
        "clip gradients (gradient_clipping: 1.0).",
        "Use ZeRO stage 3, which divides the weights among the ranks.",
        *_of_states(LoggedJob()),
    ]
    parts = {part for _, text in ALL for sentence in SENTENCES.split(text) for part in (sentence, *ALTERNATIVES.split(sentence))}
    for check in CHECKS:
        assert any(check.words.search(text) for text in [*parts, *own]), check.words.pattern


def test_the_launcher_that_started_the_process_is_not_advised_again() -> None:
    error = traceback(
        "ModuleNotFoundError: No module named 'mpi4py'", ("/env/site-packages/deepspeed/comm/comm.py", 700, "mpi_discovery", "x")
    )
    launcher = traceback(
        "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
        ("/env/site-packages/accelerate/commands/launch.py", 1017, "simple_launcher", "raise x"),
    )
    assert "`deepspeed`, `torchrun`" in diagnosed(error).causes[0].advice[0]
    (cause,) = diagnosed(error, launcher).causes
    assert cause.advice[0].startswith("Start it with `accelerate launch --use_deepspeed`")
    assert "plain" not in " ".join(cause.why)


@pytest.mark.parametrize("way", ["torch/nn/parallel/distributed.py", "torch/distributed/fsdp/api.py"])
def test_a_model_in_another_wrapper_is_not_one_of_deepspeed(way: str) -> None:
    oom = traceback(OOM, ("train.py", 1, "go", "model(x)"), (f"/env/site-packages/{way}", 800, "forward", "x"))
    told = " ".join(diagnosed(oom).causes[0].advice)
    assert "no line of the log is one of DeepSpeed's engine" in told
    assert "dslint fit" not in told
    assert "no line of the log" not in " ".join(diagnosed("DeepSpeed info: version=0.16.4, git-hash=unknown", oom).causes[0].advice)


@pytest.mark.parametrize("device", ["<OffloadDeviceEnum.cpu: 'cpu'>", "'cpu'"])
def test_the_printed_section_tells_what_is_offloaded(device: str) -> None:
    section = "[2025-05-01 10:00:06,100] [INFO] [config.py:1:print]   zero_config ..... stage=2 offload_optimizer={} sub_group_size=1"
    step = traceback(OOM, ("/env/site-packages/deepspeed/runtime/zero/stage_1_and_2.py", 400, "step", "x"))
    told = {
        written: " ".join(diagnosed(STARTED, section.format(written), step).causes[0].advice)
        for written in (f"Config(device={device},", "None")
    }
    assert [("Offload the optimizer" in advice) for advice in told.values()] == [False, True]


def test_a_rank_of_a_launcher_is_not_told_to_start_with_one() -> None:
    error = traceback("KeyError: 'RANK'", ("/usr/lib/python3.10/os.py", 679, "__getitem__", "raise KeyError(key)"))
    assert "deepspeed train.py" in " ".join(diagnosed(error).causes[0].advice)
    (cause,) = diagnosed(error, RETURNED.format(code=1)).causes
    assert not cause.advice
    assert cause.why[0].startswith("The process that failed is not one that the launcher started")


def test_a_chain_of_exceptions_is_one_cause() -> None:
    first = traceback("OSError: We couldn't connect to 'https://huggingface.co' to load the files", ("a.py", 1, "a", "f()"))
    then = "\nDuring handling of the above exception, another exception occurred:\n"
    second = traceback("ValueError: the tokenizer is away", ("b.py", 2, "b", "g()"))
    (cause,) = diagnosed(STARTED, first, then, second, RETURNED.format(code=1)).causes
    assert cause.title.startswith("OSError")
    assert any("It led to ValueError: the tokenizer is away" in sentence for sentence in cause.why)


PATH_AS_TEXT = traceback(
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ("/env/site-packages/accelerate/utils/deepspeed.py", 148, "__init__", "config = json.loads(config_file_or_dict)"),
    ("/usr/lib/python3.12/json/decoder.py", 356, "raw_decode", "raise JSONDecodeError("),
)


@pytest.mark.parametrize("lines", ["\n", "\n" + "loading\n" * 3])
def test_the_second_exception_of_a_chain_counts_without_its_traceback(lines: str) -> None:
    """A missing config: its path is tried as JSON first. An error further below may be of something else."""
    then = "\nDuring handling of the above exception, another exception occurred:\n"
    raised = (
        "ValueError: Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string. Received: a.json"
    )
    first, *others = diagnosed(PATH_AS_TEXT, then.rstrip("\n") + "\n" + lines.removeprefix("\n") + raised).causes
    assert ("No config file has this path, a.json" in first.why[0]) is (lines == "\n")
    assert bool(others) is (lines != "\n")


def test_an_exception_raised_from_another_one_hides_it_not() -> None:
    first = traceback("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.", ("a.py", 1, "a", "f()"))
    then = "\nThe above exception was the direct cause of the following exception:\n"
    second = traceback("RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly", ("b.py", 2, "b", "g()"))
    (cause,) = diagnosed(STARTED, first, then, second, RETURNED.format(code=1)).causes
    assert "Bus error" in cause.title


def test_an_ignored_error_alone_is_no_end_without_an_error() -> None:
    ignored = "Exception ignored in: <function X.__del__ at 0x7f>\n" + traceback(
        "AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'"
    )
    assert diagnosed(ignored).outcome.end is End.UNFINISHED


def test_a_text_of_one_library_is_not_told_of_another() -> None:
    error = "TypeError: expected str, bytes or os.PathLike object, not NoneType"
    swapper = traceback(error, ("/env/site-packages/deepspeed/runtime/swap_tensor/utils.py", 3, "f", "x"))
    tokenizer = traceback(error, ("/env/site-packages/transformers/models/qwen2/tokenization_qwen2.py", 3, "f", "x"))
    assert "nvme_path" in str(diagnosed(swapper).causes[0].advice)
    (cause,) = diagnosed(tokenizer).causes
    assert "nvme" not in str((cause.why, cause.advice, cause.rules)).lower()
    assert not cause.rules


def test_memory_that_ran_out_before_a_cancellation_is_the_cause() -> None:
    cancelled = "slurmstepd: error: *** JOB 9176 ON node-1 CANCELLED AT 2026-05-04T09:13:00 ***"
    killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=9176.batch. Some of the step tasks have been OOM Killed."
    found = diagnosed(STARTED, cancelled, killed)
    assert [cause.kind for cause in found.causes] == ["host-memory"]
    assert found.outcome.sentence.startswith("The job was killed")


def test_the_trainer_gives_accelerate_one_micro_batch_by_itself() -> None:
    differs = "Gradient accumulation steps mismatch: GradientAccumulationPlugin has 1, DeepSpeed config has 8. Using DeepSpeed's value."
    assert diagnosed(STARTED, differs, RETURNED.format(code=1)).notices
    assert not diagnosed(STARTED, differs, "[INFO|trainer.py:1143] >> ***** Running training *****", RETURNED.format(code=1)).notices


def test_an_error_of_pydantic_names_the_keys() -> None:
    text = "1 validation error for DeepSpeedBF16Config\nloss_scale_window\n  Extra inputs are not permitted [type=extra_forbidden, input_value=100, input_type=int]"
    (cause,) = diagnosed(STARTED, traceback(f"pydantic_core._pydantic_core.ValidationError: {text}"), RETURNED.format(code=1)).causes
    assert cause.title == "ValidationError: 1 validation error for DeepSpeedBF16Config: loss_scale_window: Extra inputs are not permitted"
    assert cause.why[0].startswith("loss_scale_window is a key of fp16, and no release has it in bf16")


def test_what_else_is_told_fits_the_job() -> None:
    flushes = "1 pytorch allocator cache flushes since last step. this happens when there is high memory pressure"
    config = '[2026-05-04 09:12:09,530] [INFO] [config.py:1000:print_user_config]   json = {\n    "zero_optimization": {\n        "stage": 3\n    }\n}'
    (notice,) = diagnosed(STARTED, config, flushes, flushes, flushes, steps([2.0])).notices
    assert "ZeRO stage" not in notice.advice[0]
    assert notice.advice[0].startswith("Lower the micro batch size; turn on")


def test_pieces_of_an_oom_stay_one_cause() -> None:
    assert len(diagnosed(STARTED, traceback(OOM)).causes) == 1


def test_what_the_given_config_has_is_not_advised() -> None:
    """The file was saved without the function that gathers, although the config asks for it."""
    key = "stage3_gather_16bit_weights_on_model_save"
    error = (
        "size mismatch for lm_head.weight: copying a param with shape torch.Size([0]) from checkpoint, "
        "the shape in current model is torch.Size([32000, 4096])."
    )
    log = traceback(f"RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:\n\t{error}", ("a.py", 1, "f", "x"))
    without = diagnosed(log, config='{"zero_optimization": {"stage": 3}}')
    with_it = diagnosed(log, config=json.dumps({"zero_optimization": {"stage": 3, key: True}}))
    assert key in str(without.causes[0].advice)
    assert key not in str(with_it.causes[0].advice)
    assert "zero_to_fp32.py" in str(with_it.causes[0].advice)


EMPTY = {
    "weight": "RuntimeError: Error(s) in loading state_dict for Model:\n\tsize mismatch for a.weight: copying a param with shape torch.Size([8, 4]) "
    "from checkpoint, the shape in current model is torch.Size([0]).",
    "product": "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x0 and 16x4)",
    "tensor": "RuntimeError: The size of tensor a (0) must match the size of tensor b (512) at non-singleton dimension 1",
}


@pytest.mark.parametrize("error", EMPTY)
@pytest.mark.parametrize("where", ["log", "config"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_an_empty_tensor_is_explained_by_the_stage_of_the_job(stage: int, where: str, error: str) -> None:
    created = f"[2024-05-02 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] Creating torch.float16 ZeRO stage {stage} optimizer"
    config = json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}})
    found = diagnosed(*[created] * (where == "log"), traceback(EMPTY[error]), config=config if where == "config" else None)
    said = " ".join((*found.causes[0].why, *found.causes[0].advice))
    assert ("At ZeRO stage 3" in said) is (stage == 3)
    assert ("GatheredParameters" in said) is (stage == 3)
    assert any(words in said for words in ("Below ZeRO stage 3", "Where no weight is divided")) is (stage != 3)


def test_without_a_stage_an_empty_tensor_has_both_causes() -> None:
    for error in EMPTY.values():
        said = " ".join(diagnosed(traceback(error)).causes[0].why)
        assert "At ZeRO stage 3" in said
        assert "Below ZeRO stage 3" in said or "Where no weight is divided" in said


UPDATING = "Updating DeepSpeed's gradient accumulation steps to 1 from 16."


def test_an_accumulation_that_accelerate_replaced_is_told() -> None:
    """Accelerate before 0.23 overrides the value of the config, and says so in one line."""
    found = diagnosed(f"[2024-02-13 17:03:44,256][accelerate.accelerator][INFO] - {UPDATING}")
    assert found.outcome.end is End.UNFINISHED
    (notice,) = found.notices
    assert notice.title.startswith("gradient_accumulation_steps 16 of the DeepSpeed config is replaced by 1")
    assert "Accelerator(gradient_accumulation_steps=16)" in notice.advice[0]
    assert "`--gradient_accumulation_steps 16`" in notice.advice[0]
    assert not diagnosed(UPDATING.replace("16", "1")).notices


BATCH = "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * 8 * 4"


@pytest.mark.parametrize("automatic", [True, False])
def test_auto_is_not_advised_where_it_is_written(*, automatic: bool) -> None:
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    (cause,) = diagnosed(traceback(BATCH), config=json.dumps(dict.fromkeys(keys, "auto")) if automatic else None).causes
    assert ('write "auto"' in str(cause.advice)) is not automatic
    assert ("another number of ranks" in cause.why[0]) is automatic
    assert "64 is not 4 x 8 x 4" in str(cause.why)


def test_a_placeholder_may_have_two_reasons() -> None:
    (cause,) = diagnosed(traceback("AttributeError: 'DummyOptim' object has no attribute 'step'")).causes
    assert "may run without DeepSpeed" in cause.why[0]
    assert "Accelerator of its own" in cause.why[0]


SHARED = "RuntimeError: The weights trying to be saved contained shared tensors [{'lm_head.weight', 'embed.weight'}] that are mismatching"


@pytest.mark.parametrize("stage", [2, 3])
def test_weights_that_are_tied_are_not_empty_below_stage_3(stage: int) -> None:
    config = json.dumps({"train_batch_size": 8, "zero_optimization": {"stage": stage}})
    (cause,) = diagnosed(traceback(SHARED), config=config).causes
    assert ("stage 3" in " ".join((*cause.why, *cause.advice))) is (stage == 3)
    assert "For tied weights pass safe_serialization=False" in cause.advice[0]


@pytest.mark.parametrize(("scale", "advised"), [(2, True), (1, False)])
def test_a_log_with_a_loss_scale_is_of_fp16_whatever_the_config_says(tmp_path: Path, scale: int, advised: bool) -> None:
    config, log = tmp_path / "ds.json", tmp_path / "out.log"
    config.write_text('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}', encoding="utf-8")
    log.write_text(
        f"[2026-01-01 10:00:00,000] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
        f"Attempted loss scale: {scale}, reducing to 1\n"
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n",
        encoding="utf-8",
    )
    output = CliRunner().invoke(cli, ["diagnose", str(log), "--config", str(config)]).output
    assert ("Train in bf16" in output) == advised


def test_the_recomputation_is_changed_where_the_program_asks_for_it() -> None:
    """A program without the Trainer, as one of Lightning, has no argument gradient_checkpointing_kwargs."""
    error = traceback(
        "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation."
    )
    advice = " ".join(diagnosed(error).causes[0].advice)
    assert (
        "the Trainer and the method gradient_checkpointing_enable of a model of transformers take gradient_checkpointing_kwargs=" in advice
    )
    assert "a model that calls torch.utils.checkpoint.checkpoint itself passes use_reentrant=True there" in advice


def test_a_placeholder_that_the_program_uses_too_early_needs_no_other_launcher() -> None:
    """The schedule is made before accelerator.prepare, in a training that runs with DeepSpeed."""
    error = traceback(
        "AttributeError: 'DummyOptim' object has no attribute 'param_groups'", ("fit.py", 9, "fit", "plan = warmup(optimizer)")
    )
    (cause,) = diagnosed(error).causes
    advice = " ".join(cause.advice)
    assert "until accelerator.prepare" in " ".join(cause.why)
    assert advice.startswith("Use neither before accelerator.prepare: the schedule of a DummyOptim is a DummyScheduler")
    assert "Start it with" not in advice
    assert "If Accelerate runs without DeepSpeed, start a program of the Trainer with `deepspeed`" in advice


def test_log_counts_more_than_a_config_that_was_found() -> None:
    entry = next(one for one in entries() if one.id == "checkpoint-into-divided-model")
    cause = LikelyCause("checkpoint", "the shape in current model is torch.Size([0])", (entry.cause,), (entry.advice,))
    given = " ".join(fitted(cause, Situation(stage=2)).why)
    found = " ".join(fitted(cause, Situation(stage=2, config_found="two.json")).why)
    assert "At ZeRO stage 3" not in given
    assert "At ZeRO stage 3" in found
    assert "two.json has ZeRO stage 2" in found
    assert "Below ZeRO stage 3" not in found
