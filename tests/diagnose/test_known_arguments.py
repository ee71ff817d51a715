"""Arguments that a library refuses: the table says which of its releases take them."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from dslint.diagnose.known_arguments import PROGRAM, RENAMED, taken, takes
from tests.diagnose.logs import diagnosed, traceback

TABLES = json.loads(resources.files("dslint.diagnose").joinpath("known_arguments.json").read_text(encoding="utf-8"))


def _told(text: str) -> tuple[str, str]:
    """The sentences and the advice of the first cause."""
    found = diagnosed(text)
    return " ".join(found.causes[0].why), " ".join(found.causes[0].all_advice)


def _call(code: str, error: str, file: str = "train.py") -> str:
    return traceback(error, (file, 18, "<module>", code))


@pytest.mark.parametrize(
    ("code", "error", "cause", "advice"),
    [
        (
            "args = TrainingArguments(",
            "TypeError: __init__() got an unexpected keyword argument 'evaluation_strategy'",
            "transformers takes it up to 4.50.0 (not 4.51.3): the installed release is newer.",
            "Write eval_strategy, as later releases call it.",
        ),
        (
            "args = TrainingArguments(",
            "TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'eval_strategy'",
            "transformers takes it from 4.41.2 on (not 4.40.2): the installed release is older.",
            "Or install transformers 4.41.2 or newer.",
        ),
        (
            "trainer = SFTTrainer(",
            "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'dataset_text_field'",
            "the installed release is newer",
            "Pass dataset_text_field to SFTConfig",
        ),
        (
            "trainer = Trainer(model=model, tokenizer=tokenizer)",
            "TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'",
            "transformers takes it up to 4.57.6 (not 5.0.0)",  # a decorator takes the former name until then
            "Write processing_class",
        ),
        (
            "model = deepspeed.init_inference(model,",
            "TypeError: init_inference() got an unexpected keyword argument 'base_dir'",
            "deepspeed takes it from 0.7.3 on (not 0.7.2): the installed release is older.",
            "Leave base_dir out. Or install deepspeed 0.7.3 or newer.",
        ),
        (
            "config = SFTConfig(",
            "TypeError: SFTConfig.__init__() got an unexpected keyword argument 'evaluation_strategy'",
            "transformers takes it up to 4.50.0",
            "install transformers 4.50.0 or older",
        ),
    ],
)
def test_releases_that_take_an_argument_of_a_call(code: str, error: str, cause: str, advice: str) -> None:
    told, advised = _told(_call(code, error))
    assert cause in told
    assert advice in advised


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("trainer = Trainer(", "TypeError: Trainer.__init__() got an unexpected keyword argument 'my_own'"),
        ("loader = Loader(", "TypeError: Loader.__init__() got an unexpected keyword argument 'evaluation_strategy'"),
        ("self.model(**batch)", "TypeError: forward() got an unexpected keyword argument 'evaluation_strategy'"),
        ("super().__init__(**kwargs)", "TypeError: __init__() got an unexpected keyword argument 'evaluation_strategy_'"),
    ],
)
def test_nothing_is_said_of_an_argument_or_class_that_no_table_has(code: str, error: str) -> None:
    told, advised = _told(_call(code, error))
    assert "installed release is" not in told
    assert "or newer" not in advised


def test_a_library_that_passes_an_argument_on_is_named() -> None:
    frames = (
        "/env/lib/python3.10/site-packages/trl/trainer/sft_trainer.py",
        300,
        "__init__",
        "super().__init__(model=model, tokenizer=tokenizer)",
    )
    error = "TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'"
    text = traceback(error, ("train.py", 9, "<module>", "trainer = SFTTrainer("), frames)
    assert "trl passes it: install transformers 4.57.6 or older, or a release of trl from the same time as yours." in _told(text)[1]


def test_a_wrapper_of_a_library_passes_on_what_the_program_passes() -> None:
    wrapper = ("/env/lib/python3.11/site-packages/transformers/utils/deprecation.py", 165, "wrapped_func", "return func(*args, **kwargs)")
    error = "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'dataset_text_field'"
    _, advised = _told(traceback(error, ("train.py", 9, "<module>", "trainer = SFTTrainer("), wrapper))
    assert "Pass dataset_text_field to SFTConfig" in advised
    assert "transformers passes it" not in advised


def test_the_trainers_of_unsloth_take_what_those_of_trl_take() -> None:
    error = "TypeError: _UnslothDPOTrainer.__init__() got an unexpected keyword argument 'tokenizer'"
    mixin = ("/env/lib/python3.12/site-packages/swift/trainers/mixin.py", 95, "__init__", "super().__init__(")
    told, advised = _told(traceback(error, ("sft.py", 112, "run", "trainer = trainer_cls("), mixin))
    assert "DPOTrainer does not take tokenizer in the installed release" in told
    assert "swift passes it: install trl" in advised


@pytest.mark.parametrize(
    ("error", "cause", "advice"),
    [
        (
            "ValueError: remaining_argv: ['--sft_type', 'lora']",
            "ms-swift takes it up to 2.6.1 (not 3.0.0)",
            "Write --train_type, as releases up to",
        ),
        ("ValueError: remaining_argv: ['--ld_alpha', '0.8']", "ms-swift takes it from 3.8.0 on", "Or install ms-swift 3.8.0 or newer."),
        (r"ValueError: remaining_argv: ['\\', '\\']", "A backslash arrived as an argument", "Write the command in one line"),
        (
            "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--local_rank=0']",
            "The launcher passes --local_rank",
            "Pass --no_local_rank to the launcher",
        ),
        (
            "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--evaluation_strategy', 'no']",
            "an argument of the Trainer; transformers takes it up to 4.50.0 (not 4.51.3): the installed release may be newer.",
            "Write eval_strategy",
        ),
    ],
)
def test_arguments_of_a_command(error: str, cause: str, advice: str) -> None:
    told, advised = _told(error)
    assert cause in told
    assert advice in advised


def test_an_argument_that_nothing_knows_is_told_as_before() -> None:
    told, _ = _told("ValueError: Some specified arguments are not used by the HfArgumentParser: ['--my_own', '1']")
    assert "The program does not know these arguments" in told


def test_each_bound_is_a_release_with_a_neighbour() -> None:
    for library, table in TABLES.items():
        releases = table["releases"].split()
        assert len(set(releases)) == len(releases)
        for thing, known in table["things"].items():
            assert not set(known["always"].split()) & set(known["changed"])
            for argument, (since, until) in known["changed"].items():
                assert since or until
                found = taken(library, thing, argument)
                if found is not None:
                    assert bool(since) is bool(found.before)
                    assert bool(until) is bool(found.after)
                    assert not (since and until) or releases.index(since) <= releases.index(until)


def test_each_new_name_is_one_of_a_later_release() -> None:
    for library, renamed in RENAMED.items():
        for old, new in renamed.items():
            things = TABLES[library]["things"]
            later = [thing for thing in things if takes(library, thing, new) or taken(library, thing, new)]
            assert later, (library, new)
            assert any(not takes(library, thing, old) for thing in later), (library, old)
            assert library != "ms-swift" or later == [PROGRAM]
