"""The explanation of a pasted text: causes with the rules behind them, and what only follows from them."""

from __future__ import annotations

import re

import pytest

from dslint.diagnose.explain import codes, explain
from dslint.diagnose.search import known
from dslint.registry.rules import loaded_rules
from tests.cases import table

QUOTE = re.compile(r"`((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): [^`]+)`")
"""An error with its message that the documentation of a rule quotes."""

QUOTED = [
    (rule.code, quote)
    for rule in loaded_rules()
    for quote in QUOTE.findall(" ".join(rule.documentation.split()))
    if not quote.endswith((" ", "("))  # the message goes on in backticks of its own
]

FAILED = """\
worker-1: [rank0]: Traceback (most recent call last):
worker-1: [rank0]:   File "train.py", line 20, in <module>
worker-1: [rank0]: RuntimeError: CUDA error: invalid device ordinal
[2025-01-02 10:00:00,000] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4242
[2025-01-02 10:00:00,000] [ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = 1
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def entries_of(text: str) -> list[str]:
    return [explained.known.entry.id for explained in explain(text).causes if explained.known]


@table("code, quote", QUOTED)
def test_what_a_rule_quotes_leads_to_the_rule(code: str, quote: str) -> None:
    assert code in [named for explained in explain(quote).causes for named in codes(explained)]


@pytest.mark.slow
@table("row", known(), ids=lambda row: f"{row.code}-{row.kind}-{row.message[:30]}")
def test_every_recorded_message_has_an_answer(row: object) -> None:
    assert isinstance(row, type(known()[0]))
    if row.kind and row.message and "#" not in row.message:
        where = f"{row.keys[0].rpartition('.')[2]} " if row.kind == "ValidationError" and row.keys else ""
        assert explain(f"{row.kind}: {where}{row.message}").causes


def test_the_cause_comes_before_what_follows_from_it() -> None:
    explanation = explain(FAILED)
    (cause,) = explanation.causes
    assert cause.printed == "RuntimeError: CUDA error: invalid device ordinal"
    assert [match.line_number for match in explanation.others] == [4, 5, 6]


def test_a_similar_record_does_not_compete_with_a_known_text() -> None:
    text = "ZeRORuntimeException: You are using ZeRO-Offload with a client provided optimizer (<class 'torch.optim.adamw.AdamW'>) which in most cases will yield poor performance."
    (cause,) = explain(text).causes
    assert codes(cause) == ["DS525", "DS526"]
    assert cause.known
    assert cause.known.values["optimizer"] == "<class 'torch.optim.adamw.AdamW'>"


def test_a_few_words_are_similar_to_nothing() -> None:
    assert not explain("IndexError: string index out of range").causes  # a record says: list index out of range


def test_the_name_of_an_exception_leads_to_no_rule() -> None:
    for text in (
        "deepspeed.runtime.zero.utils.ZeRORuntimeException",
        "ZeRORuntimeException:",
        "deepspeed.runtime.config.DeepSpeedConfigError",
    ):
        assert explain(text).causes == ()


@pytest.mark.parametrize(
    ("text", "entry", "said"),
    [
        ("AttributeError: 'DeepSpeedHybridEngine' object has no attribute 'mp_group'", "hybrid-engine-without-group", "inference_tp_size"),
        ("AttributeError: 'DeepSpeedHybridEngine' object has no attribute 'x'", "hybrid-engine-unsupported", "hybrid engine"),
        ("AttributeError: 'Namespace' object has no attribute 'ds_dict'", "argument-attribute-missing", "nor its code has set before"),
    ],
)
def test_a_missing_attribute_leads_to_what_sets_it(text: str, entry: str, said: str) -> None:
    (cause,) = explain(text).causes
    assert cause.known is not None
    assert cause.known.entry.id == entry
    assert said in cause.known.cause


def test_a_known_text_and_its_record_are_one_error() -> None:
    (cause,) = explain("'>' not supported between instances of 'str' and 'int'").causes
    assert cause.known
    assert codes(cause)[0] in {match.code for match in cause.rules}
    assert {"DS104", "DS902"} <= set(codes(cause))


def test_keys_that_pydantic_names_are_the_cause_and_its_heading_is_not() -> None:
    explanation = explain(
        "2 validation errors for DeepSpeedZeroConfig\nstge\n  Extra inputs are not permitted [type=extra_forbidden, input_value=1, input_type=int]"
    )
    assert "DS101" in codes(explanation.causes[0])
    assert [match.entry.id for match in explanation.others] == ["pydantic-validation", "pydantic-extra-key"]


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000)", "nccl-watchdog-timeout"),
        ("OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4294967296, reducing to 2147483648", "loss-scale-overflow"),
    ],
)
def test_a_symptom_is_explained_if_there_is_no_cause(text: str, entry: str) -> None:
    assert entries_of(text) == [entry]
    assert entries_of(f"{text}\nRuntimeError: CUDA error: invalid device ordinal") == ["invalid-device-ordinal"]


def test_a_message_of_many_libraries_leads_to_a_rule_only_through_a_traceback() -> None:
    message = "AssertionError: 28 is not divisible by 8"
    frame = '  File "/x/site-packages/{}", line 7, in check\n    assert x\n'
    for text, rules in (
        (message, []),
        (frame.format("megatron/core/utils.py") + message, []),
        (frame.format("deepspeed/utils/groups.py") + message, ["DS404", "DS870"]),
    ):
        (cause,) = explain(text).causes
        assert (cause.known is not None, list(codes(cause))) == (True, rules)


def test_a_follow_up_is_not_a_cause() -> None:
    explanation = explain("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:")
    assert not explanation.causes
    assert explanation.others[0].entry.id == "child-failed-error"


def test_a_text_without_errors_has_no_causes() -> None:
    assert explain("everything went well").causes == ()
    assert explain("").read == ()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("stage3_foo\n  Extra inputs are not permitted [type=extra_forbidden, input_value=1, input_type=int]", "stage3_foo"),
        ("zero_optimization.foo: Extra inputs are not permitted", "zero_optimization.foo"),
        ("Extra inputs are not permitted", ""),
    ],
)
def test_an_unknown_key_is_named_without_the_heading_of_pydantic(text: str, key: str) -> None:
    (first, *_) = explain(text).causes
    assert codes(first)[0] == "DS101"
    assert key in first.printed


RAISED = re.compile(r'raises "([^"]{25,})"')
RAISED_BY_RULES = [
    (rule.code, quote)
    for rule in loaded_rules()
    for example in rule.bad
    for quote in RAISED.findall(str(example.message))
    if "…" not in quote
]


@pytest.mark.slow
@table("code, quote", RAISED_BY_RULES)
def test_what_a_finding_quotes_leads_to_an_answer(code: str, quote: str) -> None:
    assert explain(quote).causes, code


LOST = "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/NCCLUtils.hpp:317, remote process exited or there was a network error, NCCL version 2.21.5"


@pytest.mark.parametrize(("error", "entry"), [(LOST, ["nccl-remote-error"]), ("RuntimeError: odd", [])])
def test_a_symptom_that_is_the_error_says_more_than_its_place(error: str, entry: list[str]) -> None:
    frame = '  File "/x/site-packages/deepspeed/runtime/engine.py", line 1120, in _broadcast_model\n    dist.broadcast(p.data)'
    assert entries_of(f"{frame}\n{error}") == entry


@pytest.mark.parametrize(
    ("scheduler", "entry"), [("WarmupCosineLR", "cosine-scheduler-before-its-release"), ("WarmupCosine", "unknown-scheduler")]
)
def test_a_schedule_of_a_later_release_is_not_advised_to_who_lacks_it(scheduler: str, entry: str) -> None:
    (cause,) = explain(f"AssertionError: DeepSpeed does not recognize LR scheduler {scheduler}").causes
    assert cause.known is not None
    assert cause.known.entry.id == entry
