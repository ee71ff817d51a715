"""Ask DeepSpeed by hand: `python -m tests.engine CONFIG... [--world-size N] [--upto parse|initialize|step]` prints a line of JSON each."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tests.engine.harness import Case, Engine

parser = argparse.ArgumentParser(prog="python -m tests.engine", description=__doc__)
parser.add_argument("files", nargs="+", type=Path)
parser.add_argument("--world-size", type=int, default=1)
parser.add_argument("--upto", choices=("parse", "initialize", "step"), default="step")
parser.add_argument("--full", action="store_true", help="also the attributes of DeepSpeedConfig")
arguments = parser.parse_args()
with Engine(jobs=1) as engine:
    cases = [
        Case(
            str(file),
            text=file.read_bytes().decode("utf-8", "replace"),
            world_size=arguments.world_size,
            upto=arguments.upto,
            optimizer=True,
        )
        for file in arguments.files
    ]
    for outcome in engine.ask(cases):
        shown = asdict(outcome)
        if not arguments.full:
            del shown["effective"]
        print(json.dumps(shown))
