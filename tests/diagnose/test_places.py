"""Errors that the table does not know are explained by the place in the library that raised them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from dslint.diagnose.explain import explain
from dslint.diagnose.frames import Frame
from dslint.diagnose.places import frames_in, known_places, place_of
from tests.diagnose.logs import STARTED, diagnosed, traceback
from tests.docs.test_language import AVOIDED

PACKAGES = "/venv/lib/python3.11/site-packages/"
MODULE = Frame(f"{PACKAGES}torch/nn/modules/module.py", 1, "_call_impl")
PROGRAM = Frame("/home/me/train.py", 20, "main", "engine.train_batch()")
PIPELINE = Frame(f"{PACKAGES}deepspeed/runtime/pipe/engine.py", 9, "_exec_send_grads", "p2p.send(inputs[1])")

TEXT = f"""\
Traceback (most recent call last):
  File "/home/me/train.py", line 20, in main
    engine.load_checkpoint(folder)
  File "{PACKAGES}deepspeed/runtime/engine.py", line 3100, in load_checkpoint
    self._get_all_zero_checkpoints(load_dir, tag)
ValueError: the moon is full
"""


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([PROGRAM, PIPELINE], "pipeline-gradients"),
        ([PROGRAM, PIPELINE, Frame(f"{PACKAGES}torch/distributed/c10d_logger.py", 3, "wrapper")], "pipeline-gradients"),
        ([Frame(PIPELINE.file, 1, "something_new")], "pipeline"),
        ([Frame("deepspeed\\runtime\\swap_tensor\\utils.py", 1, "swap_in_tensors")], "nvme-offload"),
        ([PROGRAM, Frame("/data/Megatron-DeepSpeed/megatron/arguments.py", 9, "validate_args")], "framework-arguments"),
        ([PROGRAM, Frame("/data/Megatron-DeepSpeed/megatron/training.py", 9, "train_step")], None),
        ([PIPELINE, MODULE, PROGRAM], None),
        ([PROGRAM, MODULE], None),
        ([Frame(f"{PACKAGES}deepspeed/runtime/engine.py", 2000, "forward"), MODULE], None),
        ([], None),
    ],
)  # fmt: skip
def test_the_innermost_known_place_counts_unless_the_program_raised_it(frames: list[Frame], expected: str | None) -> None:
    found = place_of(frames)
    assert (found.id if found else None) == expected


def test_an_attribute_that_an_optimizer_of_deepspeed_lacks_says_more_than_the_place() -> None:
    """The files of the checkpoint have nothing to do with it."""
    lacking = TEXT.replace("ValueError: the moon is full", "AttributeError: 'FP16_Optimizer' object has no attribute '_restore'")
    (cause,) = explain(lacking).causes
    assert (cause.known.entry.id if cause.known else None) == "attribute-of-own-optimizer"


@pytest.mark.parametrize(
    ("file", "expected"),
    [(f"{PACKAGES}transformers/trainer.py", "engine-method-by-trainer"), ("/home/me/train.py", "engine-method-on-model")],
)
def test_who_calls_a_method_of_the_engine(file: str, expected: str) -> None:
    lines = traceback("AttributeError: 'Net' object has no attribute 'save_checkpoint'", (file, 7, "save", "model.save_checkpoint(out)"))
    (cause,) = explain(lines).causes
    assert (cause.known.entry.id if cause.known else None) == expected


def test_a_place_explains_a_message_that_nothing_else_knows() -> None:
    (cause,) = explain(TEXT).causes
    assert cause.place
    assert (cause.printed, cause.place.id) == ("ValueError: the moon is full", "load-checkpoint")
    (known,) = explain(TEXT.replace("the moon is full", "'weight' must be 2-D")).causes
    assert known.known
    assert known.place is None


def test_a_log_is_explained_by_the_place_too() -> None:
    (cause,) = diagnosed(STARTED, TEXT).causes
    assert cause.why[0] == "DeepSpeed loads a checkpoint."
    assert any("load_module_strict" in advice for advice in cause.advice)


def test_an_assertion_without_a_message_is_known_by_its_line() -> None:
    lines = TEXT.replace("self._get_all_zero_checkpoints(load_dir, tag)", "assert len(self.ckpt_list) > 0")
    text = lines.replace("ValueError: the moon is full", "AssertionError")
    (cause,) = explain(text).causes
    assert cause.known
    assert cause.known.entry.id == "checkpoint-list-empty"
    assert diagnosed(STARTED, text).causes[0].why[0] == cause.known.cause


def test_frames_of_rich_are_read() -> None:
    lines = ["│ /venv/site-packages/deepspeed/autotuning/autotuner.py:631 in tune_space        │", "│   628 │   │   x │"]
    (frame,) = frames_in(lines)
    assert (frame.line, frame.function) == (631, "tune_space")
    found = place_of([frame])
    assert found is not None
    assert found.id == "autotuning"


def test_a_place_whose_cause_only_names_the_library_says_so() -> None:
    assert [one.id for one in known_places() if one.only_library is not one.cause.startswith("The error is raised in ")] == []


def test_the_sentences_of_places_are_complete() -> None:
    for place in known_places():
        for sentence in filter(None, (place.cause, place.advice)):
            assert sentence.endswith(".")
            assert not [pattern for pattern in AVOIDED if re.search(pattern, sentence, re.IGNORECASE)]
    ids = [place.id for place in known_places()]
    assert len(ids) == len(set(ids))


@pytest.mark.deepspeed
@pytest.mark.integrations
@pytest.mark.parametrize("library", ["deepspeed", "accelerate", "transformers"])
def test_the_places_exist_in_the_installed_libraries(library: str) -> None:
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None:
        pytest.skip(f"{library} is not installed")
    parent = Path(found.origin).parents[1]
    missing = []
    for at in (at for place in known_places() for at in place.at if at.startswith(f"{library}/") and at not in OF_OTHER_RELEASES):
        file, _, function = at.partition(":")
        if not (parent / file).exists() or (function and f"def {function}(" not in (parent / file).read_text(encoding="utf-8")):
            missing.append(at)
    assert not missing


OF_OTHER_RELEASES = {
    "deepspeed/elasticity/",
    "deepspeed/ops/aio/",
    "deepspeed/ops/csrc/aio/",
    "deepspeed/pydantic_v1.py",
    "deepspeed/runtime/fp16/onebit/",
    "deepspeed/runtime/hybrid_engine.py",
    "deepspeed/runtime/zero/stage1.py:load_state_dict",
    "deepspeed/runtime/zero/stage2.py:load_state_dict",
    "transformers/modeling_utils.py:_load_state_dict_into_model",
    "transformers/tokenization_utils.py",
}
"""Places that some supported releases do not have."""


PIPE = "/x/site-packages/deepspeed/runtime/pipe/engine.py"
NOT_A_TENSOR = "TypeError: Invalid function argument. Expected parameter `tensor` to be of type torch.Tensor."
TWO_DEVICES = "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!"
TWO_TYPES = "RuntimeError: expected mat1 and mat2 to have the same dtype, but got: float != c10::BFloat16"
ENGINE = "/x/site-packages/deepspeed/runtime/engine.py"
KEYWORD = "TypeError: __init__() got an unexpected keyword argument 'beta'"
CIRCLE = "AttributeError: partially initialized module '{}' has no attribute 'ProcessGroup' (most likely due to a circular import)"


@pytest.mark.parametrize(
    ("error", "frames", "said", "not_said"),
    [
        (TWO_DEVICES, [("./zero_to_fp32.py", 121, "convert", "torch.cat(")], "script of a current release", "engine.device"),
        (TWO_DEVICES, [("train.py", 121, "step", "a + b")], "engine.device", "zero_to_fp32"),
        (TWO_TYPES, [("/x/site-packages/deepspeed/runtime/zero/linear.py", 57, "forward", "")], "memory_efficient_linear", "auto_cast"),
        (TWO_TYPES, [("train.py", 57, "forward", "a @ b")], "auto_cast", "memory_efficient_linear"),
        (
            NOT_A_TENSOR,
            [(PIPE, 276, "_exec_reduce_tied_grads", ""), ("/x/site-packages/torch/a.py", 1, "all_reduce", "")],
            "tied weight",
            "zeros",
        ),
        (NOT_A_TENSOR, [("train.py", 276, "reduce", ""), ("/x/site-packages/torch/a.py", 1, "all_reduce", "")], "zeros", "tied"),
        (CIRCLE.format("deepspeed.comm"), [("train.py", 1, "<module>", "import deepspeed")], "import each other", "Rename"),
        (CIRCLE.format("deepspeed"), [("train.py", 1, "<module>", "import deepspeed")], "Rename deepspeed.py", "each other"),
        (
            "RuntimeError: Invalid mt19937 state",
            [("/x/accelerate/utils/random.py", 84, "synchronize_rng_state", "")],
            "same collective",
            "know",
        ),
        (
            "RuntimeError: The size of tensor a (8) must match the size of tensor b (9) at non-singleton dimension 0",
            [("/x/site-packages/deepspeed/runtime/zero/stage2.py", 1770, "load_state_dict", "")],
            "load_optimizer_states=False",
            '"latest"',
        ),
        (
            "ValueError: not enough values to unpack (expected 4, got 1)",
            [("/x/site-packages/deepspeed/runtime/pipe/module.py", 368, "forward", "")],
            "runs its layers",
            "builds the pipeline",
        ),
        (
            "RuntimeError: Found dtype Float but expected Half",
            [("/x/site-packages/pytorch_lightning/strategies/deepspeed.py", 9, "backward", "")],
            "Cast the floating-point inputs",
            "batch size",
        ),
        ("RuntimeError: odd", [("/x/site-packages/pytorch_lightning/strategies/deepspeed.py", 9, "setup", "")], "Lightning", "Cast"),
        (
            "KeyError: 'attention_mask'",
            [("data.py", 9, "encode", ""), ("/x/site-packages/transformers/tokenization_utils_base.py", 254, "__getitem__", "")],
            "What the tokenizer returned",
            "model folder",
        ),
        (
            "TypeError: no",
            [("/x/site-packages/transformers/modeling_utils.py", 2, "save_pretrained", "")],
            "saves a model",
            "weights belong to the config",
        ),
        ("TypeError: no", [("/x/site-packages/transformers/modeling_utils.py", 2, "from_pretrained", "")], "loads a model", "saves"),
        (
            "RuntimeError: odd",
            [("/x/site-packages/requests/api.py", 2, "get", "")],
            "the error names the server",
            "A download fails",
        ),
    ],
)
def test_the_place_says_what_the_same_message_means(error: str, frames: list[tuple[str, int, str, str]], said: str, not_said: str) -> None:
    cause = diagnosed(traceback(error, *frames)).causes[0]
    told = " ".join((*cause.why, *cause.advice))
    assert said in told
    assert not_said not in told


@pytest.mark.parametrize(
    ("error", "own"),
    [
        (
            "IndexError: pop from empty list",
            ("/x/site-packages/accelerate/accelerator.py", 3400, "save_state", "hook(models, weights, out)"),
        ),
        ("ValueError: max() arg is an empty sequence", ("/x/site-packages/deepspeed/runtime/zero/stage_1_and_2.py", 300, "__init__", "")),
        ("RuntimeError: torch.cat(): expected a non-empty list of Tensors", ("/x/deepspeed/runtime/zero/stage3.py", 300, "__init__", "")),
    ],
)
def test_a_message_of_python_is_no_cause_where_the_program_raised_it(error: str, own: tuple[str, int, str, str]) -> None:
    program = ("/u/data.py", 30, "collate", "queue.pop()")
    last = [] if "max()" in error or "cat" in error else [program]
    known, unknown = diagnosed(traceback(error, own, *last)).causes[0], diagnosed(traceback(error, program)).causes[0]
    assert known.rules or len(known.why) > 1
    assert not unknown.rules
    assert unknown.why == ("Raised at u/data.py:30, in collate.",)


def test_advice_of_an_error_that_deepspeed_raises_itself_stays() -> None:
    frames = [
        ("/x/site-packages/deepspeed/runtime/zero/stage_1_and_2.py", 900, "reduce_ready_partitions_and_remove_grads", "self.ipg_index")
    ]
    (cause,) = diagnosed(traceback("AttributeError: 'DeepSpeedZeroOptimizer' object has no attribute 'ipg_index'", *frames)).causes
    assert "engine.backward" in " ".join(cause.advice)


def test_an_empty_group_of_the_optimizer_is_known_by_its_line() -> None:
    code = "self.dtype = self.optimizer.param_groups[0]['params'][0].dtype"
    frames = [("/x/site-packages/deepspeed/runtime/zero/stage3.py", 157, "__init__", code)]
    (cause,) = diagnosed(traceback("IndexError: list index out of range", *frames)).causes
    assert "has no parameters" in cause.why[0]
    assert not cause.rules


def test_a_place_that_names_only_the_library_adds_nothing_to_a_known_message() -> None:
    frames = [("/x/site-packages/trl/trainer/sft_trainer.py", 300, "compute_loss", "x")]
    (cause,) = diagnosed(traceback("RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x0 and 16x4)", *frames)).causes
    assert "The error is raised in" not in " ".join(cause.why)


def test_the_kernels_of_the_hybrid_engine_are_not_those_of_init_inference() -> None:
    inner = "/x/site-packages/deepspeed/module_inject/containers/base.py"
    engines = {"hybrid-engine": "hybrid_engine.py", "injection": "engine.py"}
    for place, file in engines.items():
        lines = [f'  File "/x/site-packages/deepspeed/runtime/{file}", line 1, in new', f'  File "{inner}", line 2, in create']
        found = place_of(frames_in(lines))
        assert found is not None
        assert found.id == place


CALLED = "TypeError: __call__() missing 1 required positional argument: 'value'"


def test_a_wrong_call_in_a_library_is_not_explained_by_the_data() -> None:
    reduces = ("/env/site-packages/deepspeed/runtime/pipe/engine.py", 246, "_exec_reduce_grads", "if stage < ZeroStageEnum().gradients:")
    (cause,) = diagnosed(traceback(CALLED, reduces)).causes
    assert cause.advice == ("Use DeepSpeed 0.9.3 or newer.",)
    ties = ("/env/site-packages/deepspeed/runtime/pipe/engine.py", 9, "_exec_reduce_tied_grads", "f()")
    (cause,) = diagnosed(traceback("TypeError: f() missing 1 required positional argument: 'group'", ties)).causes
    assert "micro batches" not in " ".join(cause.advice)
    (cause,) = diagnosed(traceback("ValueError: no", ties)).causes
    assert (cause.why[0], cause.advice) == ("The error is raised in the pipeline engine.", ())


def test_a_missing_key_is_not_said_to_be_one_of_the_data() -> None:
    (cause,) = diagnosed(traceback("KeyError: 'use_muon'", ("/env/site-packages/torch/optim/optimizer.py", 9, "step", "f()"))).causes
    assert "Muon" in cause.why[0]
    (cause,) = diagnosed(traceback("KeyError: 'turtle'", ("/env/site-packages/a/b.py", 9, "step", "f()"))).causes
    assert cause.why[0] == "A dictionary, or what is read like one, has no entry turtle."


def test_layers_that_chatglm_builds_on_the_meta_device_have_their_own_cause() -> None:
    error = "NotImplementedError: Cannot copy out of meta tensor; no data!"
    (cause,) = diagnosed(traceback(error, ("/cache/transformers_modules/glm/modeling_chatglm.py", 770, "__init__", "f()"))).causes
    assert "empty_init=False" in cause.advice[0]
    assert "empty_init" not in " ".join(diagnosed(traceback(error, ("/a/train.py", 7, "main", "f()"))).causes[0].advice)


def test_a_missing_attribute_is_shown_where_it_is_read() -> None:
    error = "torch.nn.modules.module.ModuleAttributeError: 'DeepSpeedEngine' object has no attribute 'no_sync'"
    frames = [
        ("/u/run.py", 186, "main", "trainer.train()"),
        (f"{PACKAGES}transformers/trainer.py", 937, "train", "with model.no_sync():"),
        (f"{PACKAGES}torch/nn/modules/module.py", 779, "__getattr__", "type(self).__name__, name))"),
    ]
    cause = diagnosed(traceback(error, *frames)).causes[0]
    told = " ".join((*cause.why, *cause.advice))
    assert "The Trainer of transformers before 4.4.0 does so with more than one accumulation step." in told
    assert "Read at transformers/trainer.py:937, in train, called by u/run.py:186 (trainer.train())." in told
    own = [("/u/run.py", 9, "main", "engine.layers"), (f"{PACKAGES}deepspeed/runtime/engine.py", 500, "__getattr__", "raise")]
    cause = diagnosed(traceback("AttributeError: 'DeepSpeedEngine' object has no attribute 'layers'", *own)).causes[0]
    assert "Read at u/run.py:9, in main." in " ".join(cause.why)
