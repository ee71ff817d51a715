"""Many cases in one test: all of them are tried, and those that fail are listed by name.

A test of its own costs 2 ms of two processes, which is more than most cases of a table take.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import pytest

Case: TypeAlias = "Callable[[object], AbstractContextManager[None]]"
"""The block of a case, by its name."""


@contextmanager
def every_case() -> Iterator[Case]:
    """Each `with case(NAME):` inside is tried; at the end what failed is raised together. A case that skips fails: it would skip all."""
    failed: list[BaseException] = []

    @contextmanager
    def case(name: object) -> Iterator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:  # noqa: BLE001 - raised with the others
            error.add_note(f"in the case {name}")
            failed.append(error)

    yield case
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} cases fail", failed)


def table(
    names: str, rows: Iterable[Any], ids: Callable[[Any], object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize` does, but in one test. Cases share its fixtures, so that these must be of no single case."""
    cases = list(rows)
    assert cases, "a table without a case tests nothing"
    arguments = [name.strip() for name in names.split(",")]

    def in_one(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def all_rows(**fixtures: object) -> None:
            with every_case() as case:
                for row in cases:
                    values = row if len(arguments) > 1 else (row,)
                    with case((ids or repr)(row)):
                        test(**dict(zip(arguments, values, strict=True)), **fixtures)

        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name not in arguments]
        all_rows.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return all_rows

    return in_one
