"""Memory that ran out: what requested it, who held the rest, and advice about what the program did."""

from __future__ import annotations

import pytest

from tests.diagnose.logs import CONFIG, OOM, RETURNED, STARTED, diagnosed, steps, traceback


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_advice_fits_the_stage_and_the_phase(stage: int) -> None:
    frames = (("/env/site-packages/torch/optim/adamw.py", 380, "_multi_tensor_adamw", "exp_avg_sq_sqrt = torch._foreach_sqrt(x)"),)
    (cause,) = diagnosed(STARTED, CONFIG.format(stage=stage), traceback(OOM, *frames)).causes
    advice = " ".join(cause.advice)
    assert "checkpointing" not in advice
    assert ("ZeRO stage" in advice) is (stage == 0)


def test_generation_is_not_training() -> None:
    frames = (
        ("run.py", 3, "main", "model.generate(x)"),
        ("/env/site-packages/transformers/generation/utils.py", 9, "generate", "out = f()"),
    )
    (cause,) = diagnosed(STARTED, traceback(OOM, *frames)).causes
    assert "accumulation" not in " ".join(cause.advice)


def test_fragmentation_is_named_only_where_the_pieces_were_enough() -> None:
    (cause,) = diagnosed(STARTED, traceback(OOM)).causes
    assert any("fragmentation" in advice for advice in cause.advice)
    for other in (OOM.replace("4.88 GiB", "1.88 GiB"), OOM.replace("which 1.32 GiB", "which 9.32 GiB")):
        assert not any("fragmentation" in advice for advice in diagnosed(STARTED, traceback(other)).causes[0].advice)


def test_a_killed_process_without_a_start_is_not_placed() -> None:
    (cause,) = diagnosed("exits with return code = -9").causes
    assert not any("before" in sentence or "initialized" in sentence for sentence in cause.why)


READS = (
    "[2026-05-04 09:13:51,292] [INFO] [engine.py:2754:_get_all_zero_checkpoint_state_dicts] successfully read 4 ZeRO state_dicts for rank 2"
)
RESUMES = "[INFO|deepspeed.py:449] 2026-05-04 09:13:20,447 >> Attempting to resume from out/checkpoint-40"


@pytest.mark.parametrize(
    ("lines", "resumed"),
    [([READS], True), ([RESUMES], True), ([], False), ([READS, "{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': 0.1}"], False)],
)
def test_a_job_that_is_killed_as_it_resumes_reads_the_states_beside_its_own(lines: list[str], *, resumed: bool) -> None:
    (cause,) = diagnosed(STARTED, *lines, "exits with return code = -9").causes
    assert ("resumed from a checkpoint" in " ".join(cause.why)) is resumed
    assert ("Resume " in " ".join(cause.advice)) is resumed


@pytest.mark.parametrize(("ranks", "told"), [("1", "the only rank reads"), ("4", "Resume on more machines"), ("", "If several ranks run")])
def test_ranks_that_resume_are_spread_over_machines_only_where_there_are_several(ranks: str, told: str) -> None:
    started = (f"[2026-05-04 09:13:00,000] [INFO] [launch.py:256:main] dist_world_size={ranks}",) if ranks else ()
    (cause,) = diagnosed(*started, RESUMES, "exits with return code = -9").causes
    assert told in " ".join(cause.advice)


def test_a_process_in_a_container_is_not_taken_for_another_program() -> None:
    error = OOM.partition(" Including")[0].replace("1.32 GiB", "14.00 MiB") + (
        " Process 1234 has 79.08 GiB memory in use. Of the allocated memory 76.83 GiB is allocated by PyTorch, and 1.02 GiB is reserved by"
        " PyTorch but unallocated."
    )
    (cause,) = diagnosed(STARTED, traceback(error)).causes
    assert "Another process" not in " ".join(cause.advice)
    other = error.replace("Process 1234", "Process 7 has 30.00 GiB memory in use. Including non-PyTorch memory, this process")
    assert "Another process" in " ".join(diagnosed(STARTED, traceback(other)).causes[0].advice)


def test_an_error_in_the_code_of_stage_3_is_one_at_stage_3() -> None:
    frames = (
        ("/env/site-packages/deepspeed/runtime/zero/stage3.py", 371, "_setup_for_real_optimizer", "self.initialize_optimizer_states()"),
    )
    found = diagnosed(STARTED, traceback(OOM, *frames))
    assert found.job.get("stage") == 3
    assert "in deepspeed.initialize" in found.causes[0].title
    assert not any(word in " ".join(found.causes[0].advice) for word in ("ZeRO stage", "checkpointing", "accumulation"))


def test_log_probabilities_are_no_attention_scores() -> None:
    frame = ("/env/site-packages/torch/nn/functional.py", 2260, "log_softmax", "ret = input.log_softmax(dim)")
    (cause,) = diagnosed(STARTED, traceback(OOM, ("score.py", 3, "score", "F.log_softmax("), frame)).causes
    assert "3.91 GiB for log probabilities" in cause.title


def test_pinned_memory_that_runs_out_in_a_notebook_is_host_memory() -> None:
    frames = (
        "File /env/site-packages/deepspeed/runtime/zero/stage3.py:382, in DeepSpeedZeroOptimizer_Stage3._setup_for_real_optimizer(self)\n"
        "    381 def _setup_for_real_optimizer(self):\n"
        "--> 382     self._create_fp32_partitions()\n\n"
        "File /env/site-packages/deepspeed/accelerator/cuda_accelerator.py:217, in CUDA_Accelerator.pin_memory(self, tensor)\n"
        "    216 def pin_memory(self, tensor):\n"
        "--> 217     return tensor.pin_memory()\n\n"
    )
    (cause,) = diagnosed(frames + "RuntimeError: CUDA error: out of memory\n").causes
    assert "pin (lock) host memory" in cause.why[0]
    assert "in pin_memory" in cause.why[-1]


@pytest.mark.parametrize("label", ["Stage 3 initialize beginning", "After initializing optimizer states"])
def test_the_memory_of_the_machine_is_told_at_every_stage(label: str) -> None:
    log = (
        "[2024-01-22 16:50:42,012] [INFO] [logging.py:96:log_dist] [Rank 0] Creating torch.bfloat16 ZeRO stage 3 optimizer\n"
        f"[2024-01-22 16:50:42,049] [INFO] [utils.py:791:see_memory_usage] {label}\n"
        "[2024-01-22 16:50:42,049] [INFO] [utils.py:792:see_memory_usage] MA 0.0 GB         Max_MA 0.0 GB         CA 0.0 GB         Max_CA 0 GB \n"
        "[2024-01-22 16:50:42,050] [INFO] [utils.py:799:see_memory_usage] CPU Virtual Memory:  used = 55.31 GB, percent = 88.1%\n"
    )
    (cause,) = diagnosed(log, RETURNED.format(code=-9)).causes
    assert any("Of about 63 GiB of host memory 55 GiB were in use" in sentence for sentence in cause.why)


@pytest.mark.parametrize(("percent", "is_full"), [("32.0", False), ("88.1", True)])
def test_a_process_is_not_said_to_be_killed_for_memory_where_much_was_free(percent: str, is_full: bool) -> None:
    log = (
        "[2024-01-22 16:50:42,049] [INFO] [utils.py:791:see_memory_usage] Before initializing optimizer states\n"
        "[2024-01-22 16:50:42,049] [INFO] [utils.py:792:see_memory_usage] MA 0.0 GB         Max_MA 0.0 GB         CA 0.0 GB         Max_CA 0 GB \n"
        f"[2024-01-22 16:50:42,050] [INFO] [utils.py:799:see_memory_usage] CPU Virtual Memory:  used = 80.0 GB, percent = {percent}%\n"
    )
    (cause,) = diagnosed(log, RETURNED.format(code=-9)).causes
    assert ("host memory ran out" in cause.title) is is_full
    assert any("took the other 170 GiB after that line" in sentence for sentence in cause.why) is not is_full
    assert not cause.certain


@pytest.mark.parametrize(
    ("percent", "title", "had_room"),
    [
        ("31.9", "3.91 GiB of host memory could not be allocated", True),
        ("97.6", "Host memory ran out: 3.91 GiB could not be allocated", False),
    ],
)
def test_an_allocation_that_the_machine_had_room_for_meets_a_limit(percent: str, title: str, had_room: bool) -> None:
    error = "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4194304000 bytes. Error code 12"
    log = (
        "[2024-01-22 16:50:42,049] [INFO] [utils.py:791:see_memory_usage] Stage 3 initialize beginning\n"
        "[2024-01-22 16:50:42,049] [INFO] [utils.py:792:see_memory_usage] MA 0.0 GB         Max_MA 0.0 GB         CA 0.0 GB         Max_CA 0 GB \n"
        f"[2024-01-22 16:50:42,050] [INFO] [utils.py:799:see_memory_usage] CPU Virtual Memory:  used = 80.0 GB, percent = {percent}%\n"
    )
    (cause,) = diagnosed(STARTED, log, traceback(error)).causes
    assert cause.title == title
    assert any("The machine had room for it then" in sentence for sentence in cause.why) is had_room


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("memory allocation of 2097152 bytes failed", "Host memory ran out: 2 MiB could not be allocated"),
        ("memory allocation of 42949672960 bytes failed", "Host memory ran out: 40.00 GiB could not be allocated"),
    ],
)
def test_an_allocation_in_rust_fails(line: str, title: str) -> None:
    """Several processes write at once: a number that two of them print is none."""
    garbled = "memory allocation of memory allocation of 20971522097152 bytes failed\n bytes failed"
    (cause,) = diagnosed(garbled, line, RETURNED.format(code=-6)).causes
    assert (cause.kind, cause.title, cause.evidence[0].place.line) == ("host-memory", title, 3)


CONTAINER = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.39 GiB of which {free} GiB"
    " is free. Process 31337 has 38.02 GiB memory in use."
)


def test_the_only_process_that_holds_all_that_is_not_free_is_the_job() -> None:
    (cause,) = diagnosed(CONTAINER.format(free="1.36")).causes
    assert "This process held 38.02 GiB." in cause.why
    assert not any("nvidia-smi" in advice for advice in cause.advice)
    (cause,) = diagnosed(CONTAINER.format(free="0.36")).causes  # the failed process has the rest
    assert "Another process held 38.02 GiB." in cause.why
    assert "nvidia-smi" in cause.advice[0]


LISTED = " Process 7 has 21.06 GiB memory in use. Process 8 has {other} MiB memory in use."


def test_of_all_processes_that_are_listed_one_is_the_job() -> None:
    error = CONTAINER.partition(" Process")[0].replace("39.39", "23.65") + LISTED
    (cause,) = diagnosed(error.format(free="2.02", other="574.00")).causes
    assert "2 processes held 21.62 GiB, this one among them." in cause.why
    assert "who else uses this GPU" in cause.advice[0]
    (cause,) = diagnosed(error.format(free="0.02", other="574.00")).causes  # the failed process has the rest
    assert "2 other processes held 21.62 GiB." in cause.why


def test_the_message_is_read_with_a_line_per_sentence() -> None:
    error = (CONTAINER.partition(" Process")[0].replace("39.39", "23.65") + LISTED).format(free="2.02", other="574.00")
    pasted = error.replace(" GPU 0", "\nGPU 0").replace(" Process", " \nProcess")
    assert pasted.count("\n") == 3
    (cause,) = diagnosed(pasted).causes
    assert "2 processes held 21.62 GiB, this one among them." in cause.why
    apart = error.replace(" GPU 0", "\nGPU utilization is low\nGPU 0")
    (cause,) = diagnosed(apart).causes
    assert not any("among them" in sentence for sentence in cause.why)


def test_of_two_processes_in_a_container_the_larger_may_be_another() -> None:
    error = OOM.partition(" Including")[0] + (
        " Process 8 has 50.00 GiB memory in use. Process 9 has 27.80 GiB memory in use. Of the allocated memory 22.00 GiB is allocated by"
        " PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated."
    )
    (cause,) = diagnosed(STARTED, traceback(error)).causes
    assert "CUDA context, libraries and NCCL took 0.80 GiB; another process held 50.00 GiB" in cause.why[1]


@pytest.mark.parametrize(("allocated", "reserved", "is_named"), [("22.80", "23.10", False), ("20.00", "23.10", True)])
def test_the_ordinary_remainder_of_the_allocator_is_no_fragmentation(allocated: str, reserved: str, is_named: bool) -> None:
    error = (
        f"RuntimeError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 1; 23.69 GiB total capacity; {allocated} GiB already allocated;"
        f" 30.75 MiB free; {reserved} GiB reserved in total by PyTorch)"
    )
    (cause,) = diagnosed(STARTED, traceback(error)).causes
    assert any("fragmentation" in advice for advice in cause.advice) is is_named


@pytest.mark.parametrize("tensor", [1, 2])
def test_the_part_of_a_rank_is_known_by_its_size(tensor: int) -> None:
    """The ranks of the launcher share the parameters, unless the model is divided otherwise."""
    params = "[Rank 0] Model parameters: 2,000,000,000 total, 2,000,000,000 trainable"
    megatron = f"using world size: 4, data-parallel-size: 2, tensor-model-parallel size: {tensor}, pipeline-model-parallel size: 1"
    (cause,) = diagnosed(STARTED, *([megatron] * (tensor > 1)), params, traceback(OOM.replace("3.91 GiB", "1.86 GiB"))).causes
    assert any("the part of one of 4 ranks of 2,000,000,000 parameters x 4 bytes" in one for one in cause.why) is (tensor == 1)


TRAINED = "[INFO|trainer.py:2410] 2025-05-02 10:11:03,000 >>   Number of trainable parameters = {}"

CREATES = "[2025-05-02 10:11:02,123] [INFO] [logging.py:128:log_dist] [Rank 0] Creating torch.bfloat16 ZeRO stage {} optimizer"

BACKWARD = ("/env/lib/python3.10/site-packages/torch/_tensor.py", 626, "backward", "torch.autograd.backward(")


@pytest.mark.parametrize(
    ("trained", "stage", "needed"),
    [("13,015,864,320", 1, 121), ("7,000,000,000", 2, 0), ("40,000,000", 1, 0), ("30,000,000,000", 3, 224)],
)
def test_states_that_no_gpu_holds_come_before_activations(trained: str, stage: int, needed: int) -> None:
    lines = ("dist_world_size=2", TRAINED.format(trained), CREATES.format(stage))
    (cause,) = diagnosed(*lines, traceback(OOM, ("train.py", 9, "main", "trainer.train()"), BACKWARD)).causes
    said = [sentence for sentence in cause.why if "states of Adam" in sentence]
    if not needed:
        assert not said
        return
    assert f"Without offload, {trained} trained parameters at ZeRO stage {stage} on 2 ranks need {needed} GiB" in said[0]
    assert cause.advice[0].startswith("Offload the optimizer")
    assert ("Use ZeRO stage 3" in " ".join(cause.advice)) is (stage < 3)
    assert any("activation checkpointing" in advice for advice in cause.advice[1:])
    (cause,) = diagnosed(*lines, steps([2.9, 2.8, 2.7]), traceback(OOM, ("train.py", 9, "main", "trainer.train()"), BACKWARD)).causes
    assert not any("states of Adam" in sentence for sentence in cause.why)


@pytest.mark.parametrize(
    ("name", "is_adam"), [("AdamW", True), ("FusedAdam", True), ("SGD", False), ("AdamW8bit", False), ("OnebitAdam", False)]
)
def test_states_of_adam_are_none_of_another_optimizer(name: str, is_adam: bool) -> None:
    start = ("dist_world_size=2", TRAINED.format("13,015,864,320"), CREATES.format(1))
    printed = f"[2025-05-02 10:11:02,123] [INFO] [logging.py:128:log_dist] [Rank 0] DeepSpeed Basic Optimizer = {name}"
    written = (
        f'  json = {{\n    "optimizer": {{\n        "type": "{name}"\n    }},\n    "zero_optimization": {{\n        "stage": 1\n    }}\n}}'
    )
    for line in (printed, f"[2025-05-02 10:11:09,530] [INFO] [config.py:1000:print_user_config] {written}"):
        (cause,) = diagnosed(*start, line, traceback(OOM, ("train.py", 9, "main", "trainer.train()"), BACKWARD)).causes
        assert any("states of Adam" in sentence for sentence in cause.why) is is_adam


GENERATES = ("/env/lib/python3.11/site-packages/transformers/generation/utils.py", 2310, "generate", "result = self._sample(")
OFFLOADS = (
    '[2025-05-02 10:11:09,530] [INFO] [config.py:1000:print_user_config]   json = {\n    "zero_optimization": {\n        "stage": 1,\n'
    '        "offload_optimizer": {\n            "device": "cpu"\n        }\n    }\n}'
)
TRAINS = ("train.py", 9, "main", "trainer.train()")


@pytest.mark.parametrize(
    ("line", "frame", "is_said"),
    [
        ("[Rank 0] Model parameters: 13,015,864,320 total, 13,015,864,320 trainable", TRAINS, True),
        ("[Rank 0] Model parameters: 33,015,864,320 total, 13,015,864,320 trainable", TRAINS, False),
        (OFFLOADS, TRAINS, False),
        ("using world size: 2, data-parallel-size: 2, tensor-model-parallel size: 1, pipeline-model-parallel size: 1", TRAINS, False),
        ("", GENERATES, False),
    ],
)
def test_states_are_counted_only_where_all_of_them_are_on_the_gpu(line: str, frame: tuple[str, int, str, str], is_said: bool) -> None:
    lines = (line, "dist_world_size=2", TRAINED.format("13,015,864,320"), CREATES.format(1))
    (cause,) = diagnosed(*lines, traceback(OOM, frame)).causes
    assert any("states of Adam" in sentence for sentence in cause.why) is is_said


@pytest.mark.parametrize(("optim", "is_adam"), [("adamw_torch_fused", True), ("adamw_bnb_8bit", False), ("adafactor", False)])
def test_the_optimizer_of_the_command_counts_where_the_log_names_only_its_class(optim: str, is_adam: bool) -> None:
    command = f"[INFO] [runner.py:610:main] cmd = python -m deepspeed.launcher.launch --world_info=x train.py --optim {optim} --bf16"
    named = "[2025-05-02 10:11:02,123] [INFO] [logging.py:128:log_dist] [Rank 0] DeepSpeed Basic Optimizer = AdamW"
    start = (command, "dist_world_size=2", TRAINED.format("13,015,864,320"), CREATES.format(1), named)
    (cause,) = diagnosed(*start, traceback(OOM, TRAINS)).causes
    assert any("states of Adam" in sentence for sentence in cause.why) is is_adam


EVALUATES = (
    "/env/lib/python3.11/site-packages/transformers/trainer.py",
    4310,
    "evaluation_loop",
    "logits = self.gather_function((logits))",
)


GATHERS = (
    ("/env/lib/python3.11/site-packages/deepspeed/runtime/zero/partition_parameters.py", 2271, "__enter__", "self.params[0].all_gather("),
    ("/env/lib/python3.11/site-packages/deepspeed/runtime/zero/partition_parameters.py", 1170, "all_gather", "return self._all_gather("),
)


@pytest.mark.parametrize(
    ("frames", "said", "not_said"),
    [
        ([EVALUATES], "eval_accumulation_steps", "max_new_tokens"),
        ([GENERATES], "16 or 8 bits", "per_device_eval_batch_size"),
        ([("train.py", 4, "train", "x = model.generate(y)"), GENERATES], "max_new_tokens", "16 or 8 bits"),
        (GATHERS, "fewer weights at once", "stage3_max_live_parameters"),
        ([("/v/site-packages/vllm/worker/model_runner.py", 1200, "_dummy_run", "logits = self.model(x)")], "max_num_seqs", "checkpointing"),
        ([("train.py", 4, "main", "batch = batch.to(device)")], "micro batch size", "ZeRO stage 3"),
        ([("train.py", 4, "main", "probs = logits.softmax(-1)")], "micro batch size", "flash attention"),
        (
            [
                ("train.py", 4, "main", "model = GPT2LMHeadModel.from_pretrained(path)"),
                ("/env/lib/python3.11/site-packages/transformers/modeling_utils.py", 4400, "from_pretrained", "cls._load_pretrained_model("),
            ],
            "ZeRO stage 3",
            "loss in chunks",
        ),
        (
            [("eval.py", 4, "main", 'model = A.from_pretrained(path, device_map={"": 0})'), ("/e/site-packages/transformers/modeling_utils.py", 4, "from_pretrained", "")],
            "without device_map",
            "micro batch",
        ),
    ],
)  # fmt: skip
def test_memory_advice_is_about_what_the_program_did(frames: list[tuple[str, int, str, str]], said: str, not_said: str) -> None:
    advice = " ".join(diagnosed(traceback(OOM, *frames)).causes[0].advice)
    assert said in advice
    assert not_said not in advice


def test_a_line_of_slurm_alone_does_not_say_that_the_model_was_loaded() -> None:
    line = "slurmstepd: error: Detected 1 oom_kill event in StepId=88123.0. Some of the step tasks have been OOM Killed."
    assert not any("Load the model" in advice for advice in diagnosed(line).causes[0].advice)
    assert any("Load the model" in advice for advice in diagnosed("dist_world_size=4", line).causes[0].advice)


@pytest.mark.parametrize(("size", "is_wrong"), [(92_233_720_368_547, True), (12_000_000_000, False)])
def test_a_size_that_no_machine_has_is_not_memory_that_ran_out(size: int, is_wrong: bool) -> None:
    line = f"RuntimeError: [enforce fail at alloc_cpu.cpp:83] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate {size} bytes. Error code 12 (Cannot allocate memory)"
    (cause,) = diagnosed(line).causes
    assert cause.title.startswith("Host memory ran out") is not is_wrong
    assert any("dslint estimate" in advice for advice in cause.advice) is not is_wrong


def test_much_memory_that_the_message_counts_as_nobodys_is_looked_for() -> None:
    log = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.63 GiB. GPU 3 has a total capacity of 79.11 GiB of which 2.61 GiB is "
        "free. Including non-PyTorch memory, this process has 0 bytes memory in use. Of the allocated memory 48.16 GiB is allocated by PyTorch, "
        "and 3.48 GiB is reserved by PyTorch but unallocated."
    )
    assert "Look at nvidia-smi for who holds the other 24.86 GiB" in " ".join(diagnosed(log).causes[0].advice)
    little = log.replace("48.16 GiB", "70.00 GiB")  # what CUDA and NCCL take
    assert "nvidia-smi" not in " ".join(diagnosed(little).causes[0].advice)


FULL = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 has a total capacity of 23.60 GiB of which 60.00 MiB"
    " is free. Process 501 has 390.00 MiB memory in use. Process 500 has 22.30 GiB memory in use. Of the allocated memory {held} GiB is"
    " allocated by PyTorch, and 3.00 MiB is reserved by PyTorch but unallocated."
)
IN_TRAINER = (("run.py", 40, "main", "trainer = OwnTrainer("), ("own/trainer.py", 9, "__init__", "super().__init__(**kwargs)"))
ENDED = (
    "[2026-11-01 10:00:00,000] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', '-u', 'run.py', '--local_rank=0',"
    " '--output_dir', 'out', '--per_device_train_batch_size', '1'{further}] exits with return code = 1"
)


def _cut(*frames: tuple[str, int, str, str]) -> str:
    """A traceback without its error."""
    return traceback("", *frames).rstrip()


def test_memory_that_ran_out_before_the_training_is_not_of_activations() -> None:
    """The weights fill the GPU: contexts of other ranks take little of it."""
    (cause,) = diagnosed(traceback(FULL.format(held="21.80"), *IN_TRAINER)).causes
    assert "while the Trainer was made" in cause.title
    assert "Use ZeRO stage 3" in cause.advice[0]
    assert "set_device(local_rank)" in cause.advice[1]
    assert not any("activation checkpointing" in one for one in cause.advice)
    (cause,) = diagnosed(traceback(FULL.format(held="12.00"), *IN_TRAINER)).causes
    assert "set_device(local_rank)" in cause.advice[0]


def test_a_cut_traceback_below_an_error_belongs_to_it() -> None:
    (cause,) = diagnosed(FULL.format(held="21.80"), _cut(*IN_TRAINER), ENDED.format(further="")).causes
    assert "while the Trainer was made" in cause.title
    steps = (*IN_TRAINER[:1], ("own/loop.py", 9, "training_step", "loss = self.model(batch)"), ("own/model.py", 9, "forward", "h = f(x)"))
    (cause,) = diagnosed(FULL.format(held="21.80"), _cut(*steps), ENDED.format(further="")).causes
    assert "in the forward" in cause.title


@pytest.mark.parametrize(
    ("further", "is_told"),
    [
        ("", True),
        (", '--deepspeed', 'ds.json'", False),
        (", '--deepspeed_config=ds.json'", False),
        (", '--config', 'train.yaml'", False),
    ],
)
def test_a_command_without_a_config_is_told(further: str, is_told: bool) -> None:
    (cause,) = diagnosed(traceback(FULL.format(held="21.80"), *IN_TRAINER), ENDED.format(further=further)).causes
    assert any(one.startswith("The command passes no --deepspeed") for one in cause.why) is is_told
    assert any(one.startswith("Pass --deepspeed with a config") for one in cause.advice) is is_told


@pytest.mark.parametrize(
    ("request_", "held", "is_copy"),
    [("12.55", "12.60", True), ("12.55", "25.00", False), ("13.50", "12.60", False), ("1.50", "1.51", False)],
)
def test_a_request_as_large_as_all_that_was_held_is_for_a_copy(request_: str, held: str, is_copy: bool) -> None:
    error = (
        f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {request_} GiB (GPU 3; 15.78 GiB total capacity; {held} GiB already "
        f"allocated; 0.50 GiB free; {held} GiB reserved in total by PyTorch)"
    )
    (cause,) = diagnosed(STARTED, error).causes
    assert any("a copy of all weights" in one for one in cause.why) is is_copy
    assert any("activation checkpointing do not change" in one for one in cause.advice) is is_copy
    assert any("Lower the micro batch size" in one for one in cause.advice) is not is_copy
