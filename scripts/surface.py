"""Extract the config that a DeepSpeed source release accepts, and compare it with dslint's models.

    python scripts/surface.py show SOURCE [--json]
    python scripts/surface.py compare SOURCE [--release X.Y.Z]
    python scripts/surface.py compare OLD NEW

SOURCE is a folder with DeepSpeed's source, or its sdist (.tar.gz). It is read but never run: pydantic models with their fields, keys that
are looked up without a model (by following the config through the code), optimizers, and schedules with their parameters. What cannot
be determined is listed.

`compare` with one source compares it with the models, for the release of the source or for `--release`; with two sources, it compares
them with each other. It prints Markdown, with new keys as fields for the models. The exit code is 0 if nothing differs, 1 if something
does, and 2 if there is nothing to compare.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from surface_reading.compare import Difference, compare, not_read
from surface_reading.judged import judged
from surface_reading.page import differences_page, surface_data, surface_page
from surface_reading.source import Source, Unreadable
from surface_reading.surface import Surface, read_surface

RANDOM_LTD = "data_efficiency.data_routing.random_ltd"
KNOWN = {
    (f"{RANDOM_LTD}.micro_batch_size", "key"): "the engine overwrites it before it is looked up",
    (f"{RANDOM_LTD}.random_ltd_schedule.schedule_config.root_degree", "key"): "looked up for callers without a degree; there are none",
    ("sequence_parallel_size", "default"): "1 where DeepCompile looks it up; elsewhere an absent key means no sequence parallelism",
    ("zero_optimization.leaf_module", "type"): "a validator of the section turns null into an empty section",
}
"""Intended differences from the models: key, aspect, reason."""


def main(arguments: list[str] | None = None) -> int:
    """Show or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="print a surface")
    show.add_argument("source", type=Path)
    show.add_argument("--json", action="store_true", help="as JSON instead of Markdown")
    differ = commands.add_parser("compare", help="print the differences")
    differ.add_argument("sources", type=Path, nargs="+", metavar="SOURCE")
    differ.add_argument("--release", help="compare with the models for this release instead of the source's")
    given = parser.parse_args(arguments)
    try:
        if given.command == "show":
            surface = read_surface(Source.open(given.source))
            print(json.dumps(surface_data(surface), indent=1, ensure_ascii=False) if given.json else surface_page(surface), end="")
            return 0
        if len(given.sources) > 2 or (len(given.sources) == 2 and given.release):
            parser.error("compare accepts one source, optionally with --release, or two without it")
        return _compare([read_surface(Source.open(source)) for source in given.sources], given.release)
    except Unreadable as error:
        print(f"surface: {error}", file=sys.stderr)
        return 2


def _compare(surfaces: list[Surface], release: str | None) -> int:
    new = surfaces[-1]
    if len(surfaces) == 2:
        differences = compare(surfaces[0], new)
        title = f"DeepSpeed {new.release or '(release unknown)'} compared with {surfaces[0].release or '(release unknown)'}"
        page = differences_page(title, differences, not_read(new), since=new.release or "?", last=surfaces[0].release)
    else:
        at = release or new.release
        if at is None:
            raise Unreadable("unknown release of the source: pass --release")
        models = judged(at)
        differences = [each for each in compare(models, new) if not is_known(each)]
        page = differences_page(f"DeepSpeed {at} compared with the models", differences, not_read(new, models), since=at, last=None)
    print(page, end="")
    return 1 if differences else 0


def is_known(difference: Difference) -> bool:
    """Whether the difference is intended."""
    return (".".join(difference.path), difference.aspect) in KNOWN


if __name__ == "__main__":
    sys.exit(main())
