"""Records behave like frozen dataclasses."""

from __future__ import annotations

import pickle
from collections.abc import Callable

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
