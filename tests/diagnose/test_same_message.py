"""The same message means different things: the traceback, the wrapped rest of the line and the program's own call decide."""

from __future__ import annotations

import pytest

from tests.diagnose.logs import diagnosed, traceback

ENGINE = ("/x/site-packages/deepspeed/runtime/engine.py", 9, "_load_checkpoint", "self.optimizer.load_state_dict(checkpoint['optimizer'])")
INFERENCE = ("/x/site-packages/deepspeed/inference/engine.py", 151, "__init__", "self.module.to(device)")
TO = ("/x/site-packages/torch/nn/modules/module.py", 927, "to", "return self._apply(convert)")
META = "NotImplementedError: Cannot copy out of meta tensor; no data!"
BACKWARD = ("/x/site-packages/accelerate/accelerator.py", 1979, "backward", "self.deepspeed_engine_wrapped.backward(loss, **kwargs)")
PREPARE = ("/x/site-packages/accelerate/accelerator.py", 1610, "_prepare_deepspeed", '"train_batch_size": batch_size_per_device')
NONE_TIMES = "TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'"
BATCH = "AssertionError: Check batch related parameters. train_batch_size is not"


def told(log: str) -> str:
    """Everything that the first cause says."""
    cause = diagnosed(log).causes[0]
    return " ".join((cause.title, *cause.why, *cause.advice))


@pytest.mark.parametrize(
    ("error", "frames", "said", "not_said"),
    [
        (
            "TypeError: argument of type 'ABCMeta' is not iterable",
            [("/x/site-packages/deepspeed/module_inject/replace_module.py", 637, "_replace", "if name in all_reduce_linears:")],
            "replace_with_kernel_inject=True",
            "set it to False",
        ),
        (
            "TypeError: 'NoneType' object is not subscriptable",
            [ENGINE, ("/x/site-packages/torch/optim/optimizer.py", 108, "load_state_dict", "groups = state_dict['param_groups']")],
            "The optimizer gets None",
            '"latest"',
        ),
        (
            "TypeError: 'NoneType' object is not subscriptable",
            [("train.py", 8, "main", "x = rows[0]")],
            "A value is None",
            "The optimizer gets None",
        ),
        (
            "KeyError: 'checkpoints'",
            [("/x/site-packages/deepspeed/runtime/state_dict_factory.py", 23, "get_sd_loader_json", "ckpt_list = data['checkpoints']")],
            "init_inference",
            '"latest"',
        ),
        (META, [INFERENCE, TO], "init_inference needs the values", "zero.Init"),
        (META, [("train.py", 3, "main", "model.cuda()"), TO], "on the meta device", "init_inference"),
        (
            "RuntimeError: Found dtype Float but expected Half",
            [("train.py", 4, "main", "engine.backward(loss)"), ("/x/site-packages/torch/_tensor.py", 487, "backward", "")],
            "before the loss",
            "auto_cast",
        ),
        (
            "KeyError: 'LOCAL_RANK'",
            [("/x/site-packages/pytorch_lightning/plugins/training_type/deepspeed.py", 193, "init_deepspeed", "")],
            "Lightning before 1.4.0",
            "without a launcher",
        ),
        ("KeyError: 'LOCAL_RANK'", [("train.py", 1, "main", "")], "without a launcher", "Lightning before"),
        (
            "AttributeError: 'DeepSpeedEngine' object has no attribute 'train_batch'",
            [("train.py", 1, "main", "engine.train_batch()")],
            "PipelineModule",
            "run without DeepSpeed",
        ),
        (
            "IndexError: list index out of range",
            [
                (
                    "/x/site-packages/deepspeed/runtime/zero/stage3.py",
                    980,
                    "_optimizer_step",
                    "self.optimizer.param_groups[param_group_id]['params'] = []",
                )
            ],
            "fewer parameter groups",
            "has no parameters",
        ),
        (
            "IndexError: list index out of range",
            [
                (
                    "/x/site-packages/deepspeed/runtime/zero/stage_1_and_2.py",
                    170,
                    "__init__",
                    "self.dtype = self.optimizer.param_groups[0]['params'][0].dtype",
                )
            ],
            "is_trainable=True",
            "fewer parameter groups",
        ),
        (
            "RuntimeError: size mismatch, got 412, 412x4096,0",
            [("/x/site-packages/deepspeed/runtime/zero/linear.py", 57, "forward", "output = input.matmul(weight.t())")],
            "has size 0",
            "two types",
        ),
        (
            "AttributeError: 'NoneType' object has no attribute 'backward'",
            [BACKWARD],
            "this Accelerator has no engine",
            "runs the backward pass",
        ),
        (
            "AttributeError: 'NoneType' object has no attribute 'backward'",
            [("train.py", 9, "main", "loss.backward()")],
            "no loss",
            "Accelerator has no",
        ),
        (
            "RuntimeError: a first word of this kind",
            [BACKWARD, ("/x/site-packages/torch/_tensor.py", 525, "backward", "torch.autograd.backward(")],
            "torch/_tensor.py:525",
            "DeepSpeed runs the backward pass",
        ),
        (NONE_TIMES, [PREPARE], "train_micro_batch_size_per_gpu", "does not know"),
        (NONE_TIMES, [("train.py", 9, "main", "x = rows * 2")], "train.py:9", "train_micro_batch_size_per_gpu"),
    ],
)
def test_the_traceback_decides(error: str, frames: list[tuple[str, int, str, str]], said: str, not_said: str) -> None:
    text = told(traceback(error, *frames))
    assert said in text
    assert not_said not in text


REFUSED = "TypeError: DeepSpeedEngine.load_checkpoint() got an unexpected keyword argument 'weights_only'"
ACCELERATE = ("/x/site-packages/accelerate/accelerator.py", 3690, "load_state", "model.load_checkpoint(folder, **kwargs)")


def test_an_argument_that_the_program_passes_is_its_own() -> None:
    text = told(traceback(REFUSED, ("run.py", 9, "train", "accelerator.load_state(folder, weights_only=False)"), ACCELERATE))
    assert "The program passes weights_only (run.py:9)" in text
    assert "pip install -U" not in text


def test_an_argument_that_only_libraries_pass_is_not_the_programs() -> None:
    text = told(traceback(REFUSED, ("run.py", 9, "train", "accelerator.load_state(folder)"), ACCELERATE))
    assert "The program passes" not in text
    assert "releases of the same time" in text


def test_an_error_that_is_also_printed_alone_is_told_with_its_traceback() -> None:
    found = diagnosed(META, traceback(META, INFERENCE, TO))
    assert [cause.evidence[0].place.line for cause in found.causes] == [7]
    assert "init_inference" in found.causes[0].why[0]


BOX = "\n".join(
    (
        "╭────────────────── Traceback (most recent call last) ──────────────────╮",
        "│ /x/site-packages/deepspeed/runtime/config.py:891 in _batch_assertion  │",
        "╰───────────────────────────────────────────────────────────────────────╯",
    )
)


@pytest.mark.parametrize("before", ["", BOX + "\n"])
def test_a_message_that_the_terminal_wrapped_is_read_whole(before: str) -> None:
    log = (
        f"{before}{BATCH}\nequal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 *\n8 * 1\nERROR:torch.distributed: failed"
    )
    text = told(log)
    assert "world_size 64 != 4 * 8 * 1" in text
    assert "DeepSpeed saw only 1 rank" in text
    assert "ERROR:torch" not in text


def test_a_message_is_wrapped_where_the_next_word_had_no_place_below_a_narrow_box() -> None:
    log = f"{BOX}\nValueError: the number of attention heads of this model has no divisor\nwhich the ranks share\nsaved nothing"
    assert "has no divisor which the ranks share" in told(log)
    short = f"{BOX}\nValueError: the number of attention heads of this model is odd\nsaved nothing"
    assert "saved nothing" not in told(short)
    found = diagnosed(f"{BOX}\nValueError: the number of attention heads is odd\nsrun: Node failure on n1")
    assert [cause.kind for cause in found.causes] == ["crash", "hardware"]  # the next line is one of its own


def test_a_message_of_python_in_a_torn_traceback_names_no_rule() -> None:
    torn = "IndexError: list index out of range\n    self.actor_model.step()"
    found = diagnosed(f"{torn}\n    if(self._inference_containers[0].module.attention.attn_qkvw is not None and \\")
    told = [" ".join(cause.why) for cause in found.causes]
    assert "hybrid engine of DeepSpeed before 0.9.2" in told[0]
    assert "record this error" not in " ".join(told)
    assert not any(cause.rules for cause in found.causes)


@pytest.mark.parametrize(
    ("error", "frame", "rules"),
    [
        (
            "ValueError: max() arg is an empty sequence",
            ("/x/site-packages/deepspeed/runtime/zero/stage3.py", 9, "initialize", ""),
            ("DS991",),
        ),
        ("TypeError: 'NoneType' object is not subscriptable", ("/x/site-packages/torch/optim/optimizer.py", 9, "load_state_dict", ""), ()),
    ],
)
def test_a_rule_that_records_the_words_is_named_only_at_its_place(
    error: str, frame: tuple[str, int, str, str], rules: tuple[str, ...]
) -> None:
    assert diagnosed(traceback(error, ENGINE, frame)).causes[0].rules == rules
