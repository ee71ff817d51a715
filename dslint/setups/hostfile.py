"""Hostfiles of DeepSpeed's launcher: a line `worker-1 slots=8` for each machine."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from dslint.evaluate.files import find, is_outside
from dslint.evaluate.shell.pieces import Text, known
from dslint.job.arguments import SourcedValue, in_short
from dslint.job.model import Launch, Setup
from dslint.setups.project import project_of
from dslint.source.integers import integer
from dslint.source.read import ReadError, read

_TEMPLATE = re.compile(r"<.*>|((your|my|node|host|worker|server)_?)?(ip|name|hostname|address)", re.IGNORECASE).fullmatch
"""The names of machines that a reader of the project should replace: `node_ip`, `<hostname>`."""

LINE = re.compile(r"(\S+)\s+slots=(\d+)")


class Hostfile(NamedTuple):
    """The number of GPUs of each machine, by its name; and the error of the launcher if it cannot read the file."""

    slots: dict[str, int]
    error: str | None = None


def read_hostfile(text: str) -> Hostfile:
    """Read a hostfile as the launcher does: comments have lines of their own, and what follows the slots is not read.

    A template, with placeholders for the names of the machines, has neither machines nor an error.

    Source: deepspeed/launcher/runner.py, _parse_hostfile.
    """
    slots: dict[str, int] = {}
    for line in text.splitlines():
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        match = LINE.match(entry)
        number = integer(match[2]) if match else None
        if match is None or number is None:
            return Hostfile({}, f"Hostfile contains a bad entry: {in_short(entry)}, unable to proceed with launching")
        if _TEMPLATE(match[1]):
            return Hostfile({})
        if match[1] in slots:
            return Hostfile({}, f"Hostfile contains multiple entries for {in_short(match[1])}, unable to proceed with launching")
        slots[match[1]] = number
    return Hostfile(slots, None if slots else "Hostfile is empty or not formatted correctly, unable to proceed with launching.")


def _is_made(name: str, script: str) -> bool:
    """Whether a script fills a hostfile: `scontrol show hostname ... | while read ...; do echo ... >> hostfile; done`."""
    return (
        re.search(
            rf"""(?:>[ \t]*|\btee[ \t]+(?:-a[ \t]+)?)["']?(?:\./)?{re.escape(name.removeprefix("./"))}(?![\w./-])""",
            project_of(script).text(script),
        )
        is not None
    )


def with_hostfile(setup: Setup, given: SourcedValue, beside: str, *, decides: bool, written: Text | None = None) -> Setup:
    """The setup with the number of GPUs from a hostfile and, if the hostfile `decides`, the number of ranks.

    `written` is the text of the hostfile if the script writes it.
    """
    if written is not None:
        text = known(written)
        return setup if text is None else _with_slots(setup, given, text, decides=decides)
    word = str(given.value)
    if not word:
        return setup  # the launcher starts on this machine
    linked = find(word, beside)
    if linked is None:
        made = is_outside(word, beside) or _is_made(word, given.path)
        return setup if made else replace(setup, missing=(*setup.missing, given))
    try:
        return _with_slots(setup, given, read(linked.path), decides=decides)
    except ReadError:
        return setup


def _with_slots(setup: Setup, given: SourcedValue, text: str, *, decides: bool) -> Setup:
    slots, error = read_hostfile(text)
    launch = setup.launch or Launch("accelerate")
    if error is not None:
        return replace(setup, launch=replace(launch, hostfile_error=error, gpus_given=given))
    if not slots:
        return setup
    if decides:
        launch = replace(launch, world_size=sum(slots.values()), nodes=len(slots), given=given)
    elif launch.launcher == "deepspeed" and launch.flags.keys().isdisjoint(("include", "exclude")):
        return replace(setup, launch=_trimmed(replace(launch, gpus_given=given, hosts=slots)))
    elif launch.launcher == "deepspeed":
        launch = _selected(launch, slots)
    return replace(setup, launch=replace(launch, gpus=sum(slots.values()), gpus_given=given, hosts=slots))


def _selected(launch: Launch, slots: dict[str, int]) -> Launch:
    """A launch on the machines and GPUs that `--include` and `--exclude` select; as it is, if they name others than the hostfile.

    Source: deepspeed/launcher/runner.py, parse_resource_filter.
    """
    given = launch.flags.get("include") or launch.flags["exclude"]
    if not isinstance(given.value, str) or not launch.flags.keys().isdisjoint(("num_gpus", "num_nodes")):
        return launch
    named: dict[str, set[int] | None] = {}
    for part in given.value.split("@"):
        host, colon, numbers = part.strip().partition(":")
        indices = [integer(one) for one in numbers.split(",")] if colon else []
        if host not in slots or any(one is None or one >= slots[host] for one in indices):
            return launch
        named[host] = {one for one in indices if one is not None} if colon else None
    if "include" in launch.flags:
        left = {host: slots[host] if numbers is None else len(numbers) for host, numbers in named.items()}
    else:
        gone = {host: slots[host] if numbers is None else len(numbers) for host, numbers in named.items()}
        left = {host: count - gone.get(host, 0) for host, count in slots.items()}
    used = [count for count in left.values() if count > 0]
    return replace(launch, world_size=sum(used) or None, nodes=len(used) or None, given=given)


def _trimmed(launch: Launch) -> Launch:
    """A launch on the first `--num_nodes` machines of the hostfile, with `--num_gpus` ranks on each whatever its slots say.

    Source: deepspeed/launcher/runner.py, apply_num_nodes_and_gpus.
    """
    most, each = (integer(str(launch.flags[name].value)) if name in launch.flags else -1 for name in ("num_nodes", "num_gpus"))
    if most is None or each is None:
        return replace(launch, world_size=None, nodes=None, gpus=sum(launch.hosts.values()))
    used = list(launch.hosts.values())[: most if most > 0 else None]
    given = launch.flags["num_gpus" if each > 0 else "num_nodes"] if max(most, each) > 0 else launch.gpus_given
    ranks = each * len(used) if each > 0 else sum(used)
    return replace(launch, world_size=ranks, nodes=len(used), given=given, gpus=sum(used))
