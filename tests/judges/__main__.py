"""Ask the judges with a fresh seed: `python -m tests.judges bash --count 1000 --seed 7`; without a name, all of them."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.judges import bash, interpolations, launchers, python
from tests.judges.fence import missing
from tests.judges.table import Row, table

_HERE = Path(__file__).parent

JUDGES: dict[str, tuple[Callable[[int, int], Row], Callable[[int, int], str], int]] = {
    "bash": (bash.ask, bash.record, 2_000),
    "python": (python.ask, python.record, 2_000),
    "launchers": (launchers.ask, launchers.record, 500),
    "interpolations": (interpolations.ask, interpolations.record, 500),
}
"""For each judge: how it is asked, how its answers are recorded, and how much it is asked if nothing else is said."""


def main() -> None:
    """Ask the judges that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("judges", nargs="*", choices=[[], *JUDGES], default=[])
    parser.add_argument("--count", type=int, help="how many cases each judge is asked")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6, 10**9))
    parser.add_argument("--shown", type=int, default=20, help="how many disagreements are shown")
    parser.add_argument("--record", action="store_true", help="record the answers that plain pytest replays")
    given = parser.parse_args()
    if missing():
        print(f"skipped: {missing()}")
        return
    rows: list[Row] = []
    for name in given.judges or JUDGES:
        if name == "interpolations" and interpolations.missing():
            print(f"{name} skipped: {interpolations.missing()}")
            continue
        ask, record, count = JUDGES[name]
        start = time.monotonic()
        if given.record:
            print(record(given.count or 400, given.seed))
            continue
        row = ask(given.count or count, given.seed)
        for number, text in list(dict(reversed(row.wrong)).items())[::-1][: given.shown]:
            print(f"  {name} {number}: {text}")
        rows.append(row._replace(seconds=time.monotonic() - start))
    if rows:
        print(table(rows, given.seed), end="")
    if any(row.wrong for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
