"""An error about None and the line that raised it: only what they prove together is named."""

from __future__ import annotations

import pytest

from dslint.diagnose.causes.none_value import none_in
from tests.diagnose.logs import diagnosed, traceback

TIMES = "unsupported operand type(s) for *: 'NoneType' and 'int'"
BY = "unsupported operand type(s) for *: 'int' and 'NoneType'"


@pytest.mark.parametrize(
    ("message", "code", "name"),
    [
        (TIMES, "global_batch_size = args.batch_size * data_parallel_size * args.gas", "args.batch_size"),
        (TIMES, "if steps * 2 > 3:", "steps"),
        (TIMES, "elif config['steps'] * 2:", "config['steps']"),
        (TIMES, "return self.rate * 2", "self.rate"),
        (BY, "total = 8 * args.accumulation", "args.accumulation"),
        (BY, "total = a * b * c", ""),  # b or c
        (TIMES, "x = sum(rows) * 2", ""),  # sum() says the same of its rows
        (TIMES, "x = a * b + c * d", ""),
        (TIMES, "x = a + b", ""),
        (TIMES, "build(args.batch_size * 2,", ""),  # a part of a statement
        ("unsupported operand type(s) for +=: 'NoneType' and 'Tensor'", "total += loss", "total"),
        ("unsupported operand type(s) for *: 'NoneType' and 'NoneType'", "a * b", ""),
        ("unsupported operand type(s) for /: 'str' and 'int'", "a / b", ""),
        ("'>' not supported between instances of 'NoneType' and 'int'", "if args.rank > 0:", "args.rank"),
        ("'<=' not supported between instances of 'int' and 'NoneType'", "while 0 <= step <= limit:", ""),
        ("'<' not supported between instances of 'int' and 'NoneType'", "if 0 < limit:", "limit"),
        ("'NoneType' object has no attribute 'step'", "self.scheduler.step()", "self.scheduler"),
        ("'NoneType' object has no attribute 'shape'", "print(a.shape, b.shape)", ""),
        ("'NoneType' object has no attribute 'x'", "value = getattr(thing, name)", ""),
        ("'NoneType' object is not subscriptable", "row = batch['labels']", "batch"),
        ("'NoneType' object is not subscriptable", "row = batch['labels'][0]", ""),
        ("'NoneType' object is not callable", "loss = criterion(x)", "criterion"),
        ("cannot unpack non-iterable NoneType object", "path, state = engine.load_checkpoint(folder)", "engine.load_checkpoint(folder)"),
        ("argument of type 'NoneType' is not iterable", "if 'r1' in model_type:", "model_type"),
        ("object of type 'NoneType' has no len()", "steps = len(loader) // 2", "loader"),
        ("no None at all", "a * b", ""),
    ],
)
def test_a_value_is_named_where_the_line_proves_it(message: str, code: str, name: str) -> None:
    assert none_in(message, code) == name


def test_an_argument_that_is_missing_is_named_with_the_error() -> None:
    (cause,) = diagnosed(traceback(f"TypeError: {TIMES}", ("/home/u/train.py", 40, "main", "total = args.batch_size * 2"))).causes
    assert cause.why[0] == "args.batch_size is None here."
    assert cause.advice[0].startswith("Pass the argument batch_size on the command line")


def test_a_call_that_returned_none_is_named_by_its_function() -> None:
    own = ("/home/u/train.py", 40, "main", "path, state = engine.load_checkpoint(folder)")
    (cause,) = diagnosed(traceback("TypeError: cannot unpack non-iterable NoneType object", own)).causes
    assert cause.why[0] == "engine.load_checkpoint(...) returned None."
