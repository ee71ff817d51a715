"""The cause is found by reasoning over ranks, attempts and time, and no sentence contradicts the facts next to it."""

from __future__ import annotations

import re

import pytest

from dslint.diagnose.causes.hang import NETWORK, SAME_ORDER, SLOW_START
from dslint.diagnose.diagnosis import End
from dslint.diagnose.texts import match
from dslint.diagnose.typed_facts import typed
from dslint.facts import NEWEST
from tests.diagnose.logs import CHILD_FAILED, CONFIG, FINISHED, OOM, RETURNED, STARTED, all_diagnosed, diagnosed, steps, traceback


def waits(rank: int, number: int, operation: str = "ALLREDUCE", elements: int = 4096) -> str:
    return (
        f"[rank{rank}]:[E328 00:21:12.9 ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL("
        f"SeqNum={number}, OpType={operation}, NumelIn={elements}, NumelOut={elements}, Timeout(ms)=600000) ran for 600031 milliseconds."
    )


def test_all_ranks_in_the_same_operation_means_the_network() -> None:
    (cause,) = diagnosed(STARTED, *(waits(rank, 512) for rank in range(4))).causes
    assert (cause.kind, cause.advice[0]) == ("hang", NETWORK)
    assert SAME_ORDER not in cause.advice


def test_a_rank_that_is_behind_is_named() -> None:
    (cause,) = diagnosed(STARTED, *(waits(rank, 511 if rank == 2 else 512) for rank in range(4))).causes
    assert cause.rank == 2
    assert cause.title.startswith("Rank 2 is behind")


def test_a_rank_in_another_operation_is_named() -> None:
    (cause,) = diagnosed(STARTED, *(waits(rank, 512, "BROADCAST" if rank == 3 else "ALLREDUCE") for rank in range(4))).causes
    assert cause.rank == 3
    assert "BROADCAST" in cause.why[0]


def test_two_ranks_in_different_operations_are_told_apart() -> None:
    (cause,) = diagnosed(STARTED, waits(1, 80, "ALLGATHER"), waits(0, 80, "BROADCAST")).causes
    assert cause.why[0] == "The ranks wait in different operations: rank 0 BROADCAST (number 80), rank 1 ALLGATHER (number 80)."
    assert cause.advice[0] == SAME_ORDER


def test_a_rank_whose_blocking_wait_ends_has_reported() -> None:
    blocked = (
        waits(3, 80)
        .replace("Watchdog caught collective operation timeout:", "Work")
        .replace("ran for", "timed out in blocking wait; ran for")
    )
    (cause,) = diagnosed(blocked, waits(2, 80)).causes
    assert "These do not: 0, 1." in cause.why[0]


def test_a_rank_of_which_the_log_holds_only_later_lines_of_the_watchdog_has_reported() -> None:
    later = (
        "[rank0]:[E328 00:21:12.8 ProcessGroupNCCL.cpp:2268] [PG ID 1 PG GUID 1 Rank 0]  failure detected by watchdog at work sequence id: 80"
        " PG status: last enqueued work: 84, last completed work: 79"
    )
    one = waits(2, 80).replace("[Rank 2]", "[PG ID 1 PG GUID 1 Rank 2]")
    (cause,) = diagnosed(later, one).causes
    assert "2 of at least 3 ranks report that they waited. These do not: 1." in cause.why[0]
    (cause,) = diagnosed(later.replace("PG ID 1", "PG ID 7"), one).causes  # of another process group
    assert "These do not: 0, 1." in cause.why[0]


def test_a_slow_first_step_is_considered() -> None:
    (cause,) = diagnosed(STARTED, *(waits(rank, 3) for rank in (1, 2, 3))).causes
    assert SLOW_START in cause.advice
    assert "report that they waited. These do not: 0." in cause.why[0]


def test_an_error_that_the_job_survived_is_not_the_cause() -> None:
    retried = traceback("ConnectionError: the hub is away, retrying in 5 s")
    found = diagnosed(STARTED, steps([3.0]), retried, steps([2.9, 2.8, 2.7, 2.6]), traceback("ValueError: no"), RETURNED.format(code=1))
    assert [cause.title for cause in found.causes] == ["ValueError: no"]
    assert diagnosed(STARTED, retried, steps([2.9, 2.8, 2.7, 2.6]), FINISHED).outcome.end is End.FINISHED
    assert diagnosed(STARTED, retried, steps([2.9, 2.8, 2.7, 2.6])).outcome.end is End.UNFINISHED


@pytest.mark.parametrize("error", ["OSError: [Errno 28] No space left on device", "ValueError: cannot save"])
def test_a_failure_after_the_last_step_is_a_failure(error: str) -> None:
    found = diagnosed(STARTED, "Iteration 10/10: loss=2.0", "{'train_runtime': 12.3}", traceback(error))
    assert found.outcome.end is End.FAILED
    assert "finished" in found.outcome.sentence
    ended = diagnosed(STARTED, "Iteration 10/10: loss=2.0", "{'train_runtime': 12.3}", traceback(error), RETURNED.format(code=1))
    assert "finished" in ended.outcome.sentence
    assert found.causes[0].title == error


LSF = """
Sender: LSF System <lsf@batch1>
Subject: Job 4711: <train> in cluster <summer> {how}

{reason}
Read file <logs/train.4711.err> for stderr output of this job."""


def test_the_report_of_lsf_ends_a_job() -> None:
    running = (STARTED, "Iteration 29/90: loss=2.0")
    exited = diagnosed(*running, LSF.format(how="Exited", reason="Exited with exit code 1."))
    assert exited.outcome.end is End.FAILED
    assert [cause.kind for cause in exited.causes] == ["exit"]
    assert "logs/train.4711.err" in exited.causes[0].advice[0]
    limit = diagnosed(*running, LSF.format(how="Exited", reason="TERM_RUNLIMIT: job killed after reaching LSF run time limit."))
    assert limit.outcome.sentence == "LSF killed the job after step 29 of 90."
    assert limit.causes[0].title == "LSF killed the job after reaching LSF run time limit"
    assert diagnosed(STARTED, LSF.format(how="Done", reason="Successfully completed.")).outcome.end is End.FINISHED
    raised = diagnosed(*running, traceback("ValueError: no"), LSF.format(how="Exited", reason="Exited with exit code 1."))
    assert [cause.title for cause in raised.causes] == ["ValueError: no"]


def test_what_fails_after_the_training_is_said_to_be_so() -> None:
    total, bar = "  Total optimization steps = 16", " 94%|#########3| 15/16 [15:19<00:57, 57.0s/it]"
    script = "run_all.sh: error reading input file: Stale file handle"
    srun = "srun: error: node7: task 0: Exited with exit code 2"
    found = diagnosed(STARTED, total, bar, "{'train_runtime': 919.0}", script, srun)
    assert found.outcome.sentence == "The job failed after the training had finished."
    assert found.causes[0].title == script
    again = diagnosed(STARTED, "{'train_runtime': 9.0}", "Iteration 7/16: loss=2.0", srun)
    assert again.outcome.sentence == "The job failed after step 7 of 16."


def test_a_runtime_beside_the_loss_of_a_step_is_no_end() -> None:
    step = "{'loss': 1.8173, 'epoch': 0.0, 'num_input_tokens_seen': 65472, 'train_runtime': 27.8534, 'train_tokens_per_second': 2350.59}"
    assert diagnosed(STARTED, step, traceback("ValueError: no")).outcome.sentence == "The job failed."


def test_ctrl_c_did_not_lead_to_itself() -> None:
    (cause,) = diagnosed(STARTED, traceback("KeyboardInterrupt")).causes
    assert (cause.kind, cause.why) == ("interrupted", ())


def test_a_point_after_a_release_is_not_of_it() -> None:
    found = diagnosed(STARTED, "[rank2]: ImportError: deepspeed<=0.16.9 is required, but found deepspeed==0.17.2.")
    assert found.job.get("release") == "0.17.2"


def test_an_error_in_a_finalizer_ends_no_job() -> None:
    ignored = "Exception ignored in: <finalize object at 0x7f; dead>\n" + traceback("TimeoutError: too slow")
    running = (STARTED, "Iteration 29/90: loss=2.0")
    assert diagnosed(*running, ignored).outcome.end is End.UNFINISHED
    at_exit = ignored.replace("<finalize object at 0x7f; dead>", "<module 'threading' from 'threading.py'>")
    assert diagnosed(*running, at_exit).outcome.end is End.FINISHED


def test_what_finished_jobs_print_is_no_failure() -> None:
    noise = "Exception ignored in: <function X.__del__ at 0x7f>\n" + traceback("AttributeError: no")
    assert diagnosed(STARTED, "{'train_runtime': 12.3}", noise).outcome.end is End.FINISHED


def test_runs_under_one_launcher_are_told_apart() -> None:
    runs = [
        f"***** Running training *****\n  Instantaneous batch size per device = {micro}\n{steps([3.0, 2.0])}\n{{'train_runtime': 1.0}}"
        for micro in (1, 2, 4)
    ]
    found = all_diagnosed(STARTED, *runs)
    assert [one.job.get("micro_batch") for one in found] == [1, 2, 4]
    assert {one.job.get("ranks") for one in found} == {4}


def test_what_is_printed_before_the_first_step_begins_no_further_job() -> None:
    tokenizer = "Map:  37%|###7      | 37/100 [02:48<02:07,  2.02s/ examples]\rMap: 50%|##  | 5/10 [00:01<00:01,  3.1it/s]"
    initialized = "[2026-05-04 09:12:09,530] [INFO] [logging.py:107:log_dist] [Rank 0] step=0, skipped=0, lr=[0.0], mom=[(0.9, 0.999)]"
    found = all_diagnosed(STARTED, tokenizer, initialized, "***** Running training *****", traceback("ValueError: no"))
    assert [[cause.title for cause in one.causes] for one in found] == [["ValueError: no"]]


def test_a_job_that_another_one_follows_does_not_end_the_log() -> None:
    first, second = all_diagnosed(STARTED, steps([2.0]), STARTED, steps([2.0]))
    assert first.outcome.sentence.startswith("The next job of the log begins")
    assert second.outcome.sentence.startswith("The log ends")


def test_attempts_of_an_elastic_agent_are_told_apart() -> None:
    restart = (
        "[2026-05-04 09:13:00,101] torch.distributed.elastic: [default] Worker group FAILED. 3/3 attempts left; will restart worker group"
    )
    first, second = all_diagnosed(STARTED, traceback("ValueError: one"), restart, STARTED, steps([2.0]), FINISHED)
    assert (first.outcome.end, second.outcome.end) == (End.FAILED, End.FINISHED)


IMPORTED = "[2026-05-04 09:12:09,530] [INFO] [real_accelerator.py:260:get_accelerator] Setting ds_accelerator to cuda (auto detect)"
RELEASE = "[2026-05-04 09:12:11,530] [INFO] [logging.py:107:log_dist] [Rank 0] DeepSpeed info: version=0.16.4, git-hash=unknown"
REFUSED = "usage: train.py [-h] [--local_rank LOCAL_RANK]\ntrain.py: error: unrecognized arguments: --stage 3"


@pytest.mark.parametrize("ended", [CHILD_FAILED, RETURNED.format(code=1)])
def test_a_start_that_fails_before_its_first_step_is_a_job_of_its_own(ended: str) -> None:
    attempts = [
        [IMPORTED, RELEASE, traceback("ValueError: one"), ended],
        [IMPORTED, traceback("ModuleNotFoundError: No module named 'peft'"), ended],
        [IMPORTED, RELEASE, steps([2.0, 1.9, 1.8]), "{'train_runtime': 12.3}"],
    ]
    found = all_diagnosed(*(line for attempt in attempts for line in attempt))
    assert [one.outcome.end for one in found] == [End.FAILED, End.FAILED, End.FINISHED]
    assert [one.causes[0].title for one in found[:2]] == ["ValueError: one", "ModuleNotFoundError: No module named 'peft'"]


def test_a_machine_that_starts_later_begins_no_further_job() -> None:
    machines = "[2026-05-04 09:12:09,530] [INFO] [launch.py:152:main] nnodes=2, num_local_procs=4, node_rank={}"
    first = [machines.format(0), IMPORTED, traceback("ValueError: one"), RETURNED.format(code=1)]
    found = all_diagnosed(*first, machines.format(1), STARTED, IMPORTED, traceback("ValueError: one"), RETURNED.format(code=1))
    assert len(found) == 1


def test_a_program_that_is_imported_after_the_end_and_does_not_fail_begins_no_further_job() -> None:
    assert diagnosed(STARTED, steps([2.0]), FINISHED, IMPORTED, "Saved fp32 state dict").outcome.end is End.FINISHED


@pytest.mark.parametrize("end", ["{'train_runtime': 12.3}", FINISHED, "Iteration 3/3: loss=1.0"])
def test_a_command_that_is_refused_after_a_job_is_not_part_of_it(end: str) -> None:
    first, second = all_diagnosed(STARTED, steps([2.0]), end, REFUSED)
    assert (first.outcome.end, second.outcome.end) == (End.FINISHED, End.FAILED)
    assert second.causes[0].kind == "launcher"
    assert "refused its command line" in second.outcome.sentence


def test_a_program_that_python_does_not_find_is_named() -> None:
    missing = "/usr/bin/python3: can't open file '/w/train.py': [Errno 2] No such file or directory"
    found = diagnosed(STARTED, missing, missing, RETURNED.format(code=2))
    assert [(cause.kind, cause.title) for cause in found.causes] == [("launcher", missing)]
    assert found.outcome.sentence == "Python did not find the program."


def test_a_launcher_whose_program_refuses_its_arguments_is_one_job() -> None:
    found = diagnosed(STARTED, REFUSED, REFUSED, RETURNED.format(code=2))
    assert [cause.title for cause in found.causes] == ["train.py: error: unrecognized arguments: --stage 3"]


def test_the_highest_rank_is_no_world_size() -> None:
    config = CONFIG.format(stage=1).replace(
        '"zero_optimization"', '"train_batch_size": 16,\n    "train_micro_batch_size_per_gpu": 1,\n    "zero_optimization"'
    )
    found = diagnosed(config, traceback("ValueError: no", prefix="[rank5]: "))
    assert "30" not in " ".join(finding.message + (finding.help or "") for finding in found.findings)


def test_a_traceback_that_cannot_be_read_is_said() -> None:
    lines = [f"?{'#' * (number % 7)} gibberish {number}" for number in range(60)]
    found = diagnosed(STARTED, "Traceback (most recent call last):", *lines, RETURNED.format(code=1))
    assert found.causes[0].kind == "unread"


BUILD = (("/env/lib/python3.11/site-packages/torch/utils/cpp_extension.py", 1533, "_run_ninja_build", "subprocess.run("),)


@pytest.mark.parametrize("error", ["subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.", ""])
def test_the_line_that_a_cut_or_later_error_follows_from_is_the_cause(error: str) -> None:
    first = "nvcc fatal   : Unsupported gpu architecture 'compute_86'"
    cause = diagnosed(STARTED, first, traceback(error, *BUILD), RETURNED.format(code=1)).causes[0]
    assert (cause.title, cause.kind) == (first, "build")


def test_a_launcher_that_fails_does_not_hide_the_process() -> None:
    launcher = traceback("", ("/env/lib/python3.11/site-packages/torch/distributed/run.py", 785, "run", "elastic_launch("))
    (cause,) = diagnosed(STARTED, "torch.distributed.elastic: failed (exitcode: -7) local_rank: 0 (pid: 3)", launcher).causes
    assert "SIGBUS" in cause.title
    assert "--shm-size" in cause.advice[0]


def test_frames_above_an_error_belong_to_it_without_a_header() -> None:
    frame = ("/env/site-packages/deepspeed/module_inject/containers/opt.py", 21, "create_module", "self.module = DeepSpeedOPTInference(x)")
    (cause,) = diagnosed(traceback(OOM, frame).partition("\n")[2]).causes
    assert "init_inference" in cause.title
    assert "accumulation" not in " ".join(cause.advice)


@pytest.mark.parametrize(
    ("error", "title"),
    [
        ("Exception: bad sample", "Exception: bad sample"),
        ("socket.timeout: timed out", "timeout: timed out"),
        ("_queue.Empty", "Empty"),
    ],
)
def test_an_exception_is_one_whatever_its_name(error: str, title: str) -> None:
    (cause,) = diagnosed(STARTED, traceback(error, ("/home/a/train.py", 3, "main", "go()"))).causes
    assert (cause.title, cause.certain) == (title, True)


def test_an_exception_before_one_that_python_ignores_is_the_cause() -> None:
    frame = ("/env/site-packages/deepspeed/ops/op_builder/builder.py", 60, "assert_no_cuda_mismatch", "raise Exception(")
    mismatch = "Exception: Installed CUDA version 11.0 does not match the version torch was compiled with 10.1"
    ignored = "Exception ignored in: <function DeepSpeedCPUAdam.__del__ at 0x7f30>\n" + traceback(
        "AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'",
        ("/env/cpu_adam.py", 91, "__del__", "self.ds_opt_adam.destroy_adam(self.opt_id)"),
    )
    found = diagnosed(traceback(mismatch, frame).partition("\n")[2], ignored)
    assert found.outcome.end is End.FAILED
    assert found.causes[0].title == mismatch


def test_one_element_is_said_so() -> None:
    (cause,) = diagnosed(STARTED, waits(0, 512, elements=1)).causes
    assert "1 element did" in cause.title


def test_the_machine_that_a_line_about_hardware_names_is_left_out() -> None:
    error = "trainer-7: [rank2]: trainer-7:81:90 [2] NCCL WARN NET/IB : Got completion from peer 10.0.0.3 with status=12 vendor err 129"
    for line, host in ((error, "trainer-7"), ("slurmstepd: error: Node failure on node-12", "node-12")):
        found = diagnosed(STARTED, *(waits(rank, 512) for rank in range(4)), *[line] * 3)
        assert f"--exclude={host})" in found.causes[0].advice[-1]


def test_a_heartbeat_that_stops_follows_from_another_failure() -> None:
    monitor = (
        '[rank1]:[E1 10:00:00 ProcessGroupNCCL.cpp:1] [Rank 1] heartbeat monitor thread: Failed to check the "should dump" flag on TCPStore'
    )
    found = diagnosed(STARTED, monitor, traceback("ValueError: no"), RETURNED.format(code=1))
    assert [cause.title for cause in found.causes] == ["ValueError: no"]


def test_the_throughput_of_every_spelling_is_read() -> None:
    lines = (
        "step 10 | tokens_per_second: 12,345.5 | TFLOPs: 187.3",
        "step 11 | tokens/s/gpu: 3100",
        "INFO 01-02 metrics.py: Avg generation throughput: 980.0 tokens/s, Running: 3 reqs",
        "{'train_runtime': 12.3, 'train_samples_per_second': 3.214, 'train_steps_per_second': 0.1}",
    )
    told = {fact.name: fact.value for fact in typed(diagnosed(STARTED, *lines).job)}
    assert {name: told[name] for name in ("samples_per_second", "tokens_per_second", "tokens_per_second_of_gpu", "tflops")} == {
        "samples_per_second": 3.214,
        "tokens_per_second": 12345.5,
        "tokens_per_second_of_gpu": 3100,
        "tflops": 187.3,
    }
    assert told["ranks"] == 4
    assert "ranks_at_least" not in told


def test_ranks_below_the_highest_one_seen_exist() -> None:
    (cause,) = diagnosed(*(waits(rank, 880, "BROADCAST") for rank in (2, 4, 6, 3))).causes
    assert "at least 7 ranks" in cause.why[0]
    assert "0, 1, 5" in cause.why[0]
    (cause,) = diagnosed(*(waits(rank, 880, "BROADCAST") for rank in range(4))).causes
    assert "that the log names" in cause.why[0]


def test_the_signal_of_a_worker_is_named() -> None:
    (cause,) = diagnosed(STARTED, "  traceback : Signal 11 (SIGSEGV) received by PID 3304209").causes
    assert "SIGSEGV" in cause.title


def test_what_a_wrapping_error_names_on_its_next_line_is_the_cause() -> None:
    wrapped = "RuntimeError: Failed to import transformers.models.x because of the following error (look up to see its traceback):"
    assert "torch._six" in diagnosed(f"{wrapped}\nNo module named 'torch._six'").causes[0].title


def test_tokens_per_gpu_are_said_to_be_so() -> None:
    megatron = (
        " iteration {0}/ 3 | elapsed time per iteration (ms): 10.0 | lm loss: 2.0 | tokens per gpu per second (tgs): 143.4 | TFLOPs: 3.9 |"
    )
    facts = {fact.name: fact.value for fact in typed(diagnosed(STARTED, *(megatron.format(step) for step in (1, 2, 3))).job)}
    assert (facts.get("tokens_per_second_of_gpu"), facts.get("tokens_per_second")) == (143.4, None)


def test_a_good_end_before_the_last_step_that_is_read_names_no_step() -> None:
    total = "  Total optimization steps = 16"
    bar = " 94%|#########3| 15/16 [15:19<00:57, 57.0s/it]"
    assert diagnosed(STARTED, total, bar, "{'train_runtime': 919.0}").outcome.sentence == "The job finished."


def test_the_rules_of_another_release_are_said_to_be_so() -> None:
    release = "[2021-05-25 06:38:26,530] [INFO] [logging.py:68:log_dist] [Rank 0] DeepSpeed info: version={}, git-hash=unknown"
    assert diagnosed(release.format("0.3.17"), CONFIG.format(stage=3)).rules_title.endswith(
        ", as of DeepSpeed 0.9.0: dslint does not know 0.3.17, which may differ"
    )
    later = diagnosed(release.format("0.99.0"), CONFIG.format(stage=3)).rules_title
    assert later.endswith(f", as of DeepSpeed {NEWEST}: dslint does not know 0.99.0, which may differ")
    assert diagnosed(release.format("0.16.4"), CONFIG.format(stage=3)).rules_title == "Rules on the config of this job"


def test_a_statement_that_goes_on_is_not_cut() -> None:
    frames = [
        ("train.py", 12, "main", "engine, _, _, _ = deepspeed.initialize("),
        ("/x/site-packages/deepspeed/__init__.py", 9, "initialize", "no"),
    ]
    found = diagnosed(STARTED, traceback("ValueError: no", *frames))
    assert any("deepspeed.initialize(...)" in sentence for sentence in found.causes[0].why)


@pytest.mark.parametrize("others", [1, 7])
def test_a_process_that_crashes_while_others_exit_well_is_a_failure(others: int) -> None:
    plugin = "node:1:1 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file"
    found = diagnosed(STARTED, plugin, steps([3.0, 2.0, 1.0, 0.9]), FINISHED, RETURNED.format(code=-11), *[FINISHED] * (others - 1))
    assert found.outcome.end is End.FAILED
    assert "exited successfully" in found.outcome.sentence
    assert [cause.title for cause in found.causes] == ["A process ended with SIGSEGV"]


def test_what_a_program_copies_from_the_trainer_does_not_make_it_one() -> None:
    copied = "***** Running training *****\n  Instantaneous batch size per device = 4\n  Gradient Accumulation steps = 2"
    assert diagnosed(STARTED, copied, steps([3.0])).job.get("integration") is None
    assert diagnosed(STARTED, copied, "{'loss': 2.1, 'learning_rate': 1e-05, 'epoch': 0.1}").job.get("integration") == "transformers"


def test_a_traceback_behind_a_progress_bar_is_read() -> None:
    overflow = "[2026-05-04 09:13:00,101] [INFO] [loss_scaler.py:184:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4, reducing to 2"
    bar = "Steps:   0%|1 | {}/6000 [00:55<4:54:46,  2.96s/it, lr=0, loss=nan]"
    lines = traceback("ValueError: no", prefix="[rank0]: ")
    found = diagnosed(overflow, bar.format(16) + overflow, bar.format(17) + lines)
    assert [cause.title for cause in found.causes] == ["ValueError: no"]
    cut = diagnosed(overflow, bar.format(16) + overflow, bar.format(17) + lines.rpartition("\n")[0])
    assert cut.outcome.end is End.FAILED


def test_an_estimate_far_above_what_was_measured_is_not_told() -> None:
    measured = "After initializing ZeRO optimizer\nMA 11.21 GB         Max_MA 11.3 GB         CA 12.0 GB         Max_CA 12 GB "
    launch = "[2026-05-04 09:12:07,114] [INFO] [runner.py:610:main] cmd = python -m deepspeed.launcher.launch train.py --model_name_or_path llama-3-8b"
    found = diagnosed(
        launch, STARTED, CONFIG.format(stage=2).replace('{"zero', '{"train_micro_batch_size_per_gpu": 4, "zero'), measured, FINISHED
    )
    assert [one.estimated for one in found.measured] == [None]
    assert "LoRA" in found.not_estimated


def test_the_highest_peak_of_a_long_log_is_shown() -> None:
    line = "[2026-05-04 09:12:09,530] [INFO] [timer.py:198:stop] MemAllocated=1.0GB, MaxMemAllocated={0}GB"
    found = diagnosed(STARTED, *(line.format(peak) for peak in [5.0] * 600 + [7.5, 6.0]))
    assert found.measured[-1].moment.most == 7.5


def test_a_path_without_a_saved_dataset_is_no_fault_of_a_loader() -> None:
    frame = ("/env/site-packages/datasets/load.py", 2148, "load_from_disk", "raise FileNotFoundError(")
    error = "FileNotFoundError: Directory /data/x is neither a `Dataset` directory nor a `DatasetDict` directory."
    (cause,) = diagnosed(STARTED, traceback(error, ("train.py", 3, "main", "load_from_disk(x)"), frame)).causes
    assert "save_to_disk" in cause.why[0]


@pytest.mark.parametrize(
    ("words", "said", "of"),
    [
        ("extra fields not permitted (type=value_error.extra)", "extra fields not permitted", ", as of DeepSpeed 0.14.5"),
        ("Extra inputs are not permitted [type=extra_forbidden, input_value={}, input_type=dict]", "Extra inputs are not permitted", ""),
    ],
)
def test_a_refused_key_is_explained_in_the_words_of_the_log(words: str, said: str, of: str) -> None:
    config = '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "aio": {}}}'
    log = f"Traceback (most recent call last):\nValidationError: 1 validation error for DeepSpeedZeroConfig\naio\n  {words}"
    found = diagnosed(log, config=config)
    assert found.rules_title == f"Rules on the config of this job{of}"
    (why,) = (one for one in found.causes[0].why if "Unknown key" in one)
    assert why.endswith(f'raises "{said}".')


@pytest.mark.parametrize(
    ("owner", "entries"),
    [
        ("DeepSpeedZeroConfig", ["pydantic-validation", "pydantic-extra-key"]),
        ("WandbConfig", ["pydantic-validation", "pydantic-extra-key"]),
        ("AxolotlConfigWCapabilities", ["validation-elsewhere"]),
        ("VllmConfig", ["validation-elsewhere"]),
    ],
)
def test_a_class_of_another_library_is_not_one_of_deepspeed(owner: str, entries: list[str]) -> None:
    log = f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {owner}\nx\n  Extra inputs are not permitted [type=extra_forbidden, input_value=1, input_type=int]"
    assert [one.entry.id for one in match(log.splitlines())] == entries
    frame = 'Traceback (most recent call last):\n  File "/opt/lib/python3.11/site-packages/some/args.py", line 5, in create\n    return Args(**values)\n'
    (cause,) = diagnosed(frame + log).causes
    assert (cause.why[0].startswith("Another library")) == (entries == ["validation-elsewhere"])
    assert ("DS101" in cause.rules) == (entries != ["validation-elsewhere"])


RUNNER = "[2023-08-01 10:00:00,123] [INFO] [runner.py:550:main] cmd = python3 -u -m deepspeed.launcher.launch --world_info=x --master_port=29500 {} --deepspeed"
LAUNCHED = (
    "[2023-08-01 10:00:03,123] [ERROR] [launch.py:321:sigkill_handler] ['python3', '-u', {}, '--deepspeed'] exits with return code = 1"
)
NOT_PYTHON = '  File "/job/hostfile", line 1\n    worker-1 slots=8\n             ^\nSyntaxError: invalid syntax'


@pytest.mark.parametrize(
    ("command", "error", "said"),
    [
        (RUNNER.format("/job/hostfile train.py"), NOT_PYTHON, "--hostfile=/job/hostfile"),
        (
            RUNNER.format("hostfile train.py"),
            traceback("NameError: name 'worker' is not defined", ("hostfile", 1, "<module>", "")),
            "hostfile",
        ),
        (LAUNCHED.format("'/job/hostfile', '--local_rank=1', 'train.py'"), NOT_PYTHON, "--hostfile=/job/hostfile"),
        (
            RUNNER.format("python train.py"),
            "/usr/bin/python3: can't open file '/u/python': [Errno 2] No such file or directory",
            "Remove python",
        ),
        (RUNNER.format("train.py other.py"), NOT_PYTHON, None),
        (RUNNER.format("--module /job/hostfile train.py"), NOT_PYTHON, None),
        (RUNNER.format("/job/hostfile train.py"), traceback("ValueError: no", ("/u/train.py", 1, "main", "")), None),
        (RUNNER.format("bin/run train.py"), traceback("ValueError: no", ("/u/bin/run", 9, "<module>", "main()")), None),
        (
            RUNNER.format("bin/run train.py"),
            traceback("NameError: name 'loss' is not defined", ("/u/bin/run", 9, "<module>", "main()"), ("/u/bin/run", 5, "main", "")),
            None,
        ),
    ],
)
def test_what_stands_in_the_place_of_the_program_is_named(command: str, error: str, said: str | None) -> None:
    cause = diagnosed(*((error, command) if "return code" in command else (command, error))).causes[0]
    told = " ".join((*cause.why, *cause.advice))
    assert ("passes train.py on as its first argument" in told) is (said is not None)
    assert (said or "") in told


@pytest.mark.parametrize(
    ("assertion", "said"),
    [
        (
            "Indexing.cu:1: indexSelectLargeIndex: block: [0,0,0], thread: [1,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
            "reads? an index",
        ),
        (
            "Loss.cu:94: operator(): block: [0,0,0], thread: [1,0,0] Assertion `input_val >= zero && input_val <= one` failed.",
            "cross_entropy",
        ),
        ("TensorCompare.cu:1: f: block: [0,0,0] Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.", "NaN"),
        ("X.cu:1: operator(): block: [0,0,0], thread: [1,0,0] Assertion `a < b` failed.", "often an index"),
    ],
)
def test_the_assertion_of_a_kernel_says_more_than_the_error(assertion: str, said: str) -> None:
    (cause,) = diagnosed(
        STARTED, f"../aten/src/ATen/native/cuda/{assertion}", traceback("RuntimeError: CUDA error: device-side assert triggered")
    ).causes
    assert re.search(said.replace("reads?", "read"), cause.why[0])
    assert cause.evidence[0].text.partition(":")[0] == "RuntimeError"
    assert "Assertion" in cause.evidence[1].text


NCCL_WARNINGS = {
    "init.cc:521 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 40": "Two ranks (0 and 1) use the same GPU.",
    "misc/ibvwrap.cc:173 NCCL WARN lib wrapper not initialized.": "two ranks that use the same GPU are one reason",
}


@pytest.mark.parametrize("warning", NCCL_WARNINGS)
def test_a_warning_of_nccl_that_names_the_cause_says_more_than_its_error(warning: str) -> None:
    error = "RuntimeError: NCCL error in: /torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:957, invalid usage, NCCL version 21.0.3"
    (cause,) = diagnosed(STARTED, f"gpu-1:4005:4041 [0] {warning}", traceback(error)).causes
    assert NCCL_WARNINGS[warning] in cause.why[0]
    assert any("Duplicate GPU" in one.text for one in cause.evidence) is ("Duplicate" in warning)


def test_a_fault_that_a_program_made_is_none_of_the_gpu() -> None:
    xid = "[ 1234.5] NVRM: Xid (PCI:0000:3b:00): {}, pid=1, name=python"
    error = traceback("RuntimeError: CUDA error: an illegal memory access was encountered")
    assert "Xid" not in diagnosed(STARTED, xid.format(31), error).causes[0].title
    assert "Xid" in diagnosed(STARTED, xid.format(79), error).causes[0].title


def test_a_job_that_a_launcher_started_is_not_told_to_use_one() -> None:
    empty = traceback("RuntimeError: The size of tensor a (0) must match the size of tensor b (4096) at non-singleton dimension 1")
    (plain,) = diagnosed(empty).causes
    (started,) = diagnosed(empty, RETURNED.format(code=1)).causes
    assert "launcher" in " ".join(plain.advice)
    assert "plain process" in " ".join(plain.why)
    assert "launcher" not in " ".join(started.advice)
    assert "plain process" not in " ".join(started.why)


def test_one_process_of_accelerate_has_no_variables_of_ranks() -> None:
    frames = ("/env/site-packages/accelerate/commands/launch.py", 763, "simple_launcher", "raise subprocess.CalledProcessError(")
    ended = traceback("subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.", frames)
    cause = diagnosed(
        traceback("KeyError: 'LOCAL_RANK'", ("/usr/lib/python3.10/os.py", 679, "__getitem__", "raise KeyError(key)")), ended
    ).causes[0]
    assert cause.why[0].startswith("The command `accelerate launch` started the program as one plain process")
    assert "instead of" not in cause.advice[0]


def test_the_printed_attributes_tell_the_stage() -> None:
    error = traceback(
        "torch.utils.checkpoint.CheckpointError: A different number of tensors was saved during the original forward and recomputation."
    )
    attribute = "[2025-05-01 10:00:06,100] [INFO] [config.py:1001:print]   zero_optimization_stage ...... {}"
    told = {stage: " ".join(diagnosed(STARTED, attribute.format(stage), error).causes[0].why) for stage in (2, 3)}
    assert "stage 3" not in told[2]
    assert "no weight is divided" in told[2]
    assert "no weight is divided" not in told[3]


def test_a_traceback_that_was_copied_into_one_line_is_named_by_its_error() -> None:
    (cause,) = diagnosed(
        "╭── Traceback (most recent call last) ──╮ │ /a/t.py:3 in go │ ╰──╯ AttributeError: 'Trainer' object has no attribute 'x'"
    ).causes
    assert cause.title == "AttributeError: 'Trainer' object has no attribute 'x'"


def test_an_error_of_an_npu_at_the_end_ends_the_job() -> None:
    found = diagnosed(STARTED, "EZ9999: Inner Error!\nEZ9999  Kernel task happen error, retCode=0x26, [aicore exception].")
    assert found.outcome.end is End.FAILED
    assert "NPU" in found.causes[0].why[0]


def test_what_spawn_passes_on_is_not_the_cause() -> None:
    waits = ("/env/site-packages/torch/multiprocessing/spawn.py", 160, "join", "raise ProcessRaisedException(msg, error_index, pid)")
    passed = traceback("torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 0 terminated with the following error:", waits)
    first = diagnosed(passed, traceback("ValueError: bad sample", ("/u/data.py", 30, "load", "x = y"))).causes[0]
    assert first.title == "ValueError: bad sample"


def test_an_assertion_without_words_is_none_that_a_rule_records() -> None:
    (cause,) = diagnosed('stage3.py", line 435, in defragment\n    assert a == 1\nAssertionError').causes
    assert not cause.rules


@pytest.mark.parametrize("more", [0, 9])
def test_a_worker_of_ray_that_died_is_the_cause_at_the_end_of_a_log(more: int) -> None:
    """Ray starts a task again: what goes on after the line did not end there."""
    info = (
        "(Actor pid=9) [2025-03-12 10:58:02,123] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: version=0.16.3, git-hash=unknown"
    )
    died = "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs"
    found = diagnosed(info, died, *[f"(Actor pid=9) sample {number}" for number in range(more)])
    assert [cause.why[0].partition(" without")[0] for cause in found.causes] == ["A worker of Ray died"] * (not more)


def test_a_memory_fault_of_an_amd_gpu_at_the_end_ends_the_job() -> None:
    fault = "Memory access fault by GPU node-2 (Agent handle: 0x580db0) on address 0x18000. Reason: Page not present."
    found = diagnosed(STARTED, fault)
    assert found.outcome.end is End.FAILED
    assert "AMD" in found.causes[0].why[0]


def test_the_error_of_the_compiler_is_shown_with_the_command_that_failed() -> None:
    compiler = "/x/csrc/a_hip.h:352:46: error: no member named 'shfl_xor'"
    first = diagnosed(
        compiler, traceback("subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.")
    ).causes[0]
    assert first.evidence[-1].text == compiler


AGENT = ("/env/site-packages/torch/distributed/elastic/agent/server/api.py", 711, "run", "result = self._invoke_run(role)")
SIGNAL = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 3999 got signal: {}"


def test_a_launcher_that_got_the_signal_of_slurm_did_not_fail() -> None:
    cancelled = "slurmstepd: error: *** STEP 12345.0 ON node01 CANCELLED AT 2025-05-01T12:00:00 ***"
    found = diagnosed(STARTED, steps([2.0, 1.9]), cancelled, traceback(SIGNAL.format(15), AGENT))
    assert found.outcome.sentence == "Slurm cancelled the job after step 1."
    assert found.causes[0].kind == "cancelled"


def test_the_signal_decides_who_ended_the_job() -> None:
    said = {number: diagnosed(STARTED, traceback(SIGNAL.format(number), AGENT)).causes[0].why[0] for number in (1, 2, 15)}
    assert "terminal" in said[1]
    assert "Ctrl-C" in said[2]
    assert "(signal 15)" in said[15]


def test_json_of_the_program_is_not_the_config() -> None:
    error, decoder = (
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        ("/usr/lib/python3.10/json/decoder.py", 355, "raw_decode", "x"),
    )
    own = diagnosed(traceback(error, ("/w/data.py", 21, "read", "rows.append(json.loads(line))"), decoder)).causes[0]
    config = diagnosed(traceback(error, ("/env/site-packages/deepspeed/runtime/config.py", 700, "__init__", "x"), decoder)).causes[0]
    assert "dslint check" not in " ".join(own.advice)
    assert "dslint check --fix FILE" in " ".join(config.advice)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("ModuleNotFoundError: No module named 'flash_attn'", "The package flash-attn is not installed"),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "requires a GPU of the Ampere generation"),
        ("RuntimeError: FlashAttention only support fp16 and bf16 data type", "got tensors in fp32"),
        ("huggingface_hub.errors.GatedRepoError: 401 Client Error.", "is gated"),
        ("OSError: We couldn't connect to 'https://huggingface.co' to load this file", "have no internet"),
        ("NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000", "Two ranks (0 and 1) use the same GPU."),
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "finds no C compiler"),
    ],
)
def test_the_text_decides_between_the_causes(error: str, cause: str) -> None:
    (found,) = diagnosed(error).causes
    assert cause in found.why[0]
    assert ", or " not in found.why[0]


def test_a_traceback_that_follows_is_a_traceback() -> None:
    lost = "nccl.DistBackendError: NCCL error in: x.cpp:2027, remote process exited or there was a network error, NCCL version 2.20.5"
    error = traceback(lost.replace("nccl.", "torch.distributed."), ("/env/site-packages/deepspeed/comm/torch.py", 150, "all_reduce", "x"))
    said = {one: " ".join(cause.why[0] for cause in diagnosed(STARTED, one, RETURNED.format(code=1)).causes) for one in (error, "")}
    assert "holds no traceback" not in said[error]
    assert "holds no traceback" in said[""]


def test_the_name_of_an_optimizer_is_not_a_release_of_torch() -> None:
    """DeepSpeed looks for a name that it does not know in torch.optim."""
    error = "AttributeError: module 'torch.optim' has no attribute 'adamw_torch'"
    engine = ("/env/site-packages/deepspeed/runtime/engine.py", 1470, "_configure_basic_optimizer", "x")
    assert "DeepSpeed has no optimizer named adamw_torch" in diagnosed(traceback(error, engine)).causes[0].why[0]
    assert "another release" in diagnosed(traceback(error, ("train.py", 3, "main", "x"))).causes[0].why[0]


def test_ranks_with_other_errors_of_one_type_do_not_report_the_same() -> None:
    first = traceback("RuntimeError: DataLoader worker (pid(s) 4412) exited unexpectedly", prefix="[rank3]: ")
    other = traceback(
        "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1", prefix="[rank1]: "
    )
    assert "ranks report this error" not in " ".join(sentence for cause in diagnosed(first, other).causes for sentence in cause.why)
    again = traceback("RuntimeError: DataLoader worker (pid(s) 77) exited unexpectedly", prefix="[rank1]: ")
    assert "2 ranks report this error; rank 3 is the first in the log." in diagnosed(first, again).causes[0].why
