"""Ask the judges with a fresh seed: `python -m tests.judges bash --count 1000 --seed 7`."""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

from tests.judges import bash, scripts
from tests.judges.fence import fenced, missing

_BATCH = 100
RECORDED = Path(__file__).parent / "bash.json"


def ask_bash(count: int, seed: int, shown: int) -> None:
    """Compare generated scripts with bash and print the figures."""
    launches = read = 0
    wrong: list[tuple[int, str]] = []
    for start in range(seed, seed + count, _BATCH):
        made = [scripts.script(number) for number in range(start, min(start + _BATCH, seed + count))]
        answers = fenced(bash.DRIVER, [{"files": files} for files in made], 600)
        for number, (files, answer) in enumerate(zip(made, answers, strict=True), start):
            verdict = bash.compare(files, answer)
            launches += verdict.launches
            read += verdict.read
            wrong += [(number, one) for one in verdict.wrong]
    first = dict(reversed(wrong))
    for number, one in list(first.items())[::-1][:shown]:
        print(f"  script {number}: {one}")
    seeds = len({number for number, _ in wrong})
    print(
        f"bash, {count} scripts from seed {seed}: {launches} launches, {100 * read / max(launches, 1):.1f} % read, {len(wrong)} wrong in {seeds} scripts"
    )


def record_bash(count: int, seed: int) -> None:
    """Write the answers to the scripts of `count` seeds, without those that are known to be read wrongly."""
    seeds = range(seed, seed + count)
    made = [scripts.script(number) for number in seeds]
    answers = fenced(bash.DRIVER, [{"files": files} for files in made], 600)
    kept = {number: answer for number, files, answer in zip(seeds, made, answers, strict=True) if not bash.compare(files, answer).wrong}
    RECORDED.write_text(json.dumps(kept, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{len(kept)} of {count} scripts recorded")


def main() -> None:
    """Run the judges that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("judges", nargs="*", default=["bash"])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6, 10**9))
    parser.add_argument("--shown", type=int, default=20)
    parser.add_argument("--record", action="store_true", help="record the answers that plain pytest replays")
    given = parser.parse_args()
    if missing():
        print(f"skipped: {missing()}")
        return
    if given.record:
        record_bash(given.count, given.seed)
        return
    for judge in given.judges:
        start = time.process_time()
        {"bash": ask_bash}[judge](given.count, given.seed, given.shown)
        print(f"  {time.process_time() - start:.0f} s of CPU here")


if __name__ == "__main__":
    main()
