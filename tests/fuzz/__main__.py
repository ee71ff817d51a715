"""The command line of the fuzzer: `python -m tests.fuzz --help`."""

from __future__ import annotations

import argparse
import secrets
import sys

from tests.fuzz.run import GROWTH, Budget, run, shown, summary
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Fuzz, and print counts; 1 if something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Run dslint on mutated inputs of every kind that it reads.")
    parser.add_argument("--target", action="append", choices=TARGETS, help="a target, repeatable (default: all)")
    parser.add_argument("--seconds", type=float, help="how long to run (default: 60, without --cases)")
    parser.add_argument("--cases", type=int, help="the number of inputs of each target")
    parser.add_argument("--seed", type=int, help="the seed (default: a fresh one, which is printed)")
    parser.add_argument("--case", type=int, help="run only this case of --target with --seed, and show its input and traceback")
    given = parser.parse_args()
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    names = given.target or list(TARGETS)
    if given.case is not None:
        print(shown(names[0], seed, given.case))
        return 0
    print(f"seed {seed}", flush=True)
    budget = Budget(given.seconds if given.seconds or given.cases else 60, given.cases)
    outcome = run(names, seed, budget, lambda line: print(line, flush=True))
    print("\n".join(summary(outcome)))
    return int(bool(outcome.failures) or outcome.growth > GROWTH)


if __name__ == "__main__":
    sys.exit(main())
