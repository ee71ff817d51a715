"""Records behave like frozen dataclasses."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dslint.record import Record


class Point(Record):
    x: int
    y: int = 0
    note: str | None = None

    @property
    def sum(self) -> int:
        return self.x + self.y


class Other(Record):
    x: int
    y: int = 0
    note: str | None = None


def test_fields_have_the_values_given_or_their_defaults() -> None:
    point = Point(1, note="a")
    assert (point.x, point.y, point.note, point.sum) == (1, 0, "a", 1)
    assert repr(point) == "Point(x=1, y=0, note='a')"
    assert point._asdict() == {"x": 1, "y": 0, "note": "a"}


class One(Record):
    x: int


def test_a_record_may_have_one_field() -> None:
    assert One(1) == One(1) != One(2)
    assert hash(One(1)) != hash(One(2))
    assert One(1)._replace(x=2)._asdict() == {"x": 2}


def test_records_are_equal_by_class_and_value() -> None:
    assert Point(1) == Point(1, 0)
    assert hash(Point(1)) == hash(Point(1, 0))
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)


def test_a_record_does_not_change() -> None:
    point = Point(1)
    with pytest.raises(AttributeError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del point.x  # type: ignore[misc]
    assert point._replace(y=3) == Point(1, 3)
    assert point == Point(1)


@pytest.mark.parametrize(
    "wrong",
    [Point, lambda: Point(1, x=2), lambda: Point(1, z=2), lambda: Point(1, 2, "a", 4), lambda: Point(1)._replace(z=1)],  # type: ignore[call-arg,misc]
)
def test_fields_that_are_missing_unknown_or_given_twice_are_refused(wrong: Callable[[], Point]) -> None:
    with pytest.raises(TypeError, match="Point takes each of x, y, note once, and requires x"):
        wrong()


ROOT = Path(__file__).parent.parent

TUPLES = {
    "compared": "LogPlace Position Release Suspect",
    "unpacked, added up or indexed": """
        Bounds HostFact Hostfile Import Latent Predicted Printed Reason Reserve SarifResult Seconds ShellSource ShellText _Slices Upgrade
    """,
    "made by the ten thousand": """
        AwaitedName CallPlaces CommandWord Condition _Layer Linked LogLine Operation OutlinePart OutlinePiece Span TextPiece Weight
    """,
}
"""The named tuples, by why they are not records: making a record takes longer than making a tuple."""

FROZEN = """
    AccelerateFile Answer Arguments Baseline Block DecoderSizes Estimate Event Frame Launch Layout LikelyCause LogEvent Memory
    Model ModelConfig Plan Policy ProbedModel Program Question RaisedError Setup Site SourcedValue Workload
"""
"""The frozen dataclasses, which stood before there were records. Write no new one, and make a record of one that you change: what changes
their values calls `dataclasses.replace`."""


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes of dslint and its rules, with the way in which each is written."""
    for file in (*ROOT.glob("dslint/**/*.py"), *ROOT.glob("rules/**/*.py")):
        if file.is_relative_to(ROOT / "dslint/rules") or file.is_relative_to(ROOT / "dslint/schemas"):
            continue
        text = file.read_text(encoding="utf-8")
        if "NamedTuple" not in text and "frozen=True" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                if any(ast.unparse(base) == "NamedTuple" for base in node.bases):
                    yield "tuple", node
                if any("frozen=True" in ast.unparse(one) for one in node.decorator_list):
                    yield "frozen", node


def test_values_are_records_where_no_reason_is_written_down() -> None:
    """A value is a record. A named tuple has a reason in the table above."""
    found = list(classes())
    assert {node.name for way, node in found if way == "tuple"} == {name for names in TUPLES.values() for name in names.split()}
    assert {node.name for way, node in found if way == "frozen"} == {*FROZEN.split()}
