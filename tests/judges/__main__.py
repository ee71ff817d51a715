"""Ask the judges with a fresh seed: `python -m tests.judges bash --count 1000 --seed 7`; without a name, all of them."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.judges import bash, contradictions, getters, hydra, interpolations, launchers, logs, notebooks, python, reach
from tests.judges.fence import missing
from tests.judges.table import Row, table

_HERE = Path(__file__).parent


class Judge(NamedTuple):
    """How a judge is asked and its answers are recorded, how many cases it is asked if nothing else is said, and with `--whole`."""

    ask: Callable[[int, int], Row]
    record: Callable[[int, int], str]
    count: int
    whole: int
    missing: Callable[[], str] = missing


JUDGES = {
    "bash": Judge(bash.ask, bash.record, 2_000, 10_000),
    "python": Judge(python.ask, python.record, 2_000, 10_000),
    "launchers": Judge(launchers.ask, launchers.record, 500, 2_000),
    "logs": Judge(logs.ask, logs.record, 1_000, 10_000),
    "contradictions": Judge(contradictions.ask, contradictions.record, 300, 3_000, contradictions.missing),
    "getters": Judge(getters.ask, getters.record, 30, 500, getters.missing),
    "interpolations": Judge(interpolations.ask, interpolations.record, 500, 2_000, interpolations.missing),
    "hydra": Judge(hydra.ask, hydra.record, 300, 2_000, hydra.missing),
    "reach": Judge(reach.ask, reach.record, 60, 2_000, reach.missing),
    "notebooks": Judge(notebooks.ask, notebooks.record, 500, 2_000, notebooks.missing),
}


def main() -> None:
    """Ask the judges that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("judges", nargs="*", choices=[[], *JUDGES], default=[])
    parser.add_argument("--count", type=int, help="how many cases each judge is asked")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6, 10**9))
    parser.add_argument("--shown", type=int, default=20, help="how many disagreements are shown")
    parser.add_argument("--whole", action="store_true", help="ask as many cases as a release is judged by; takes hours")
    parser.add_argument("--record", action="store_true", help="record the answers that plain pytest replays")
    given = parser.parse_args()
    rows: list[Row] = []
    for name in given.judges or JUDGES:
        judge = JUDGES[name]
        if judge.missing():
            print(f"{name} skipped: {judge.missing()}")
            continue
        start = time.monotonic()
        if given.record:
            print(judge.record(given.count or 400, given.seed))
            continue
        row = judge.ask(given.count or (judge.whole if given.whole else judge.count), given.seed)
        for number, text in list(dict(reversed(row.wrong)).items())[::-1][: given.shown]:
            print(f"  {name} {number}: {text}")
        rows.append(row._replace(seconds=time.monotonic() - start))
    if rows:
        print(table(rows, given.seed), end="")
    if any(row.wrong for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
