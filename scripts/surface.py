"""Say what config a DeepSpeed source release accepts, and where dslint's models say something else.

    python scripts/surface.py show SOURCE [--json]
    python scripts/surface.py compare SOURCE [--release X.Y.Z]
    python scripts/surface.py compare OLD NEW

SOURCE is a folder with DeepSpeed's source, or its sdist (.tar.gz). It is read and never run: pydantic models with their fields, keys that
are looked up by hand (the config is followed from where it comes in to wherever it goes), the optimizers, and the schedules with what they
take. What cannot be known that way is listed as such.

`compare` with one source compares it with the models, judged at the source's own release or at `--release`; with two, it compares them with
each other. It prints Markdown, with new keys as the fields they would be in the models. The exit code is 0 if nothing differs, 1 if
something does, and 2 if there is nothing to compare.
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
    (f"{RANDOM_LTD}.micro_batch_size", "key"): "the engine writes it, whatever the user wrote, before it is looked up",
    (f"{RANDOM_LTD}.random_ltd_schedule.schedule_config.root_degree", "key"): "looked up for callers that give no degree; there are none",
    ("sequence_parallel_size", "default"): "1 where DeepCompile looks it up; elsewhere what is absent is no sequence parallelism at all",
    ("zero_optimization.leaf_module", "type"): "a validator of the section turns null into an empty section",
}
"""Differences from the models that are right: the key and the aspect, and why."""


def main(arguments: list[str] | None = None) -> int:
    """Show or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="print a surface")
    show.add_argument("source", type=Path)
    show.add_argument("--json", action="store_true", help="as JSON rather than Markdown")
    differ = commands.add_parser("compare", help="print what differs")
    differ.add_argument("sources", type=Path, nargs="+", metavar="SOURCE")
    differ.add_argument("--release", help="judge the models at this release rather than the source's own")
    given = parser.parse_args(arguments)
    try:
        if given.command == "show":
            surface = read_surface(Source.open(given.source))
            print(json.dumps(surface_data(surface), indent=1, ensure_ascii=False) if given.json else surface_page(surface), end="")
            return 0
        if len(given.sources) > 2 or (len(given.sources) == 2 and given.release):
            parser.error("compare takes one source, with or without --release, or two without")
        return _compare([read_surface(Source.open(source)) for source in given.sources], given.release)
    except Unreadable as error:
        print(f"surface: {error}", file=sys.stderr)
        return 2


def _compare(surfaces: list[Surface], release: str | None) -> int:
    new = surfaces[-1]
    if len(surfaces) == 2:
        differences = compare(surfaces[0], new)
        title = f"DeepSpeed {new.release or '(release unknown)'} beside {surfaces[0].release or '(release unknown)'}"
        page = differences_page(title, differences, not_read(new), since=new.release or "?", last=surfaces[0].release)
    else:
        at = release or new.release
        if at is None:
            raise Unreadable("the source does not say which release it is: name it with --release")
        models = judged(at)
        differences = [each for each in compare(models, new) if not is_known(each)]
        page = differences_page(f"DeepSpeed {at} beside the models", differences, not_read(new, models), since=at, last=None)
    print(page, end="")
    return 1 if differences else 0


def is_known(difference: Difference) -> bool:
    """Whether the difference is one of those that are right."""
    return (".".join(difference.path), difference.aspect) in KNOWN


if __name__ == "__main__":
    sys.exit(main())
