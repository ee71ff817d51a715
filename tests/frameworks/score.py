"""Compare what dslint says of jobs with what the real frameworks did: `python -m tests.frameworks.score JOBS.jsonl [--list]`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dslint.diagnostics import Phase
from tests.frameworks.jobs import Job, lay_out, read_jobs


class Said(NamedTuple):
    """What dslint says of a job: the findings, the keys of `show` (path, value, known, origin), and what it could not judge."""

    findings: list[dict[str, Any]]
    keys: list[list[Any]] | None
    not_judged: list[str]


class Verdict(NamedTuple):
    """The comparison of a job. The lists name keys; `named` is "error", "hint" or ""."""

    job: Job
    said: Said
    named: str
    right: bool
    equal: list[str]
    different: list[list[Any]]
    unknown: list[str]
    lost: list[list[Any]]
    extra: list[list[Any]]


def ask_dslint(job: Job) -> Said:
    """What `check` and `show` say of the script of a job."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = _folder_of(job, Path(scratch))
        lay_out(job, folder)
        checked = json.loads(in_fork(str(folder), ["check", "run.sh", "--output-format", "json"]) or '{"diagnostics": [], "files": []}')
        shown = in_fork(str(folder), ["show", "run.sh", "--output-format", "json"])
    keys = [[key["path"], key["value"], key["known"], key["origin"]] for key in json.loads(shown)["keys"]] if shown[:1] == "{" else None
    reasons = [f"{file['path']}: {file['error'] or file['note']} {file['not_judged']}" for file in checked["files"]]
    return Said(checked["diagnostics"], keys, reasons)


def _folder_of(job: Job, scratch: Path) -> Path:
    """Where a job lies: by itself, or, every second one, in a checkout of a project with all frameworks, which must not decide what it is."""
    if not job.id[-1:].isdigit() or int(job.id[-1]) % 2 == 0:
        return scratch
    (scratch / ".git").mkdir()
    (scratch / "pyproject.toml").write_text(
        f'[project]\nname = "jobs"\nversion = "1"\ndependencies = {json.dumps(_PACKAGES)}\n', encoding="utf-8"
    )
    (scratch / "tests").mkdir()
    (scratch / "tests" / "uses.py").write_text("".join(f"import {name}\n" for name in _MODULES), encoding="utf-8")
    return scratch / "jobs" / "one"


_PACKAGES = ["transformers", "trl", "accelerate", "axolotl", "llamafactory", "ms-swift", "lightning", "deepspeed"]
_MODULES = ["transformers", "trl", "accelerate", "axolotl", "llamafactory", "swift", "lightning", "deepspeed"]


def in_fork(folder: str, arguments: list[str]) -> str:
    """The output of dslint in a process of its own: caches and the working directory stay apart."""
    near, far = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(near)
        os.chdir(folder)
        for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "DSLINT_"))]:
            del os.environ[name]
        os.dup2(far, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
        from dslint.cli import cli

        with contextlib.suppress(SystemExit):
            cli(arguments)
        sys.stdout.flush()
        os._exit(0)
    os.close(far)
    with os.fdopen(near, encoding="utf-8") as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return text


def compare(job: Job, said: Said) -> Verdict:
    """Compare a job with what dslint says of it."""
    seen = set(Phase) if job.raises else {Phase.LOAD, Phase.PARSE, Phase.INITIALIZE}  # the judge looks no further than the start
    crashes = [one for one in said.findings if one["effect"] == "crash" and Phase(one["phase"]) in seen]
    errors = sorted((one for one in crashes if one["severity"] == "error"), key=lambda one: one["order"])
    hints = [one for one in said.findings if one in crashes or (one["code"].startswith("DS9") and "raise" in one["message"])]
    named = "error" if errors else "hint" if hints else ""
    real = job.error if job.outcome == "raises" else job.refused
    right = bool(errors) and real is not None and is_about(errors[0]["message"] + " " + (errors[0].get("help") or ""), real, job.type)
    if job.config is None or job.raises:
        return Verdict(job, said, named, right, [], [], [], [], [])
    shown = {".".join(map(str, path)): (value, known, origin) for path, value, known, origin in said.keys or []}
    engine = job.engine or {}
    real_keys = {key: engine.get(key, value) for key, value in flat(job.config).items()} | engine
    equal, different, unknown, lost = [], [], [], []
    for key, value in real_keys.items():
        if key not in shown:
            lost += [] if _changes_nothing(value) else [[key, value]]
        elif not shown[key][1]:
            unknown.append(key)
        elif same(value, shown[key][0]):
            equal.append(key)
        else:
            different.append([key, value, shown[key][0], shown[key][2]])
    extra = [
        [key, value, origin]
        for key, (value, known, origin) in shown.items()
        if origin in ("written", "filled") and known and key not in real_keys and not isinstance(value, dict | list)
    ]
    return Verdict(job, said, named, right, equal, different, unknown, lost, extra)


_QUOTED = re.compile(r'"([^"]*)"')
_WORD = re.compile(r"[A-Za-z_]\w*")
_TELLING = {"JSONDecodeError": "JSONDecodeError", "SystemExit": "unrecognized arguments"}
"""By error type: what a message says that is about such an error. argparse prints what it refuses, and only exits."""


def is_about(said: str, error: str, kind: str | None = None) -> bool:
    """Whether a message is about an error of a type: it quotes a part of it, names the key, or has most of the rarer words of some line."""
    if any(len(quoted) >= 16 and quoted in error for quoted in _QUOTED.findall(said)) or _TELLING.get(kind or "", "?") in said:
        return True
    words = _words(said)
    for line in error.splitlines():
        wanted = {word for word in _words(line) if len(word) > 3}
        if (wanted and len(wanted & words) >= max(2, 0.5 * len(wanted))) or (len(wanted) == 1 and wanted & words):
            return True
    return False


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


def _changes_nothing(value: Any) -> bool:
    """Whether a framework adds a key with this value without changing what DeepSpeed does."""
    return value is None or value is False or value == "none"


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """A config by dotted keys."""
    if not isinstance(value, dict) or not value:
        return {prefix: value} if prefix else {}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return found


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same for DeepSpeed: true is not 1, and 1.0 is 1."""
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if right in (float("inf"), "inf") and left == "Infinity":
        return True
    return bool(left == right)


def verdicts(jobs: Iterable[Job], workers: int = 2) -> list[Verdict]:
    """All jobs compared, by several processes."""
    return [compare(job, said) for job, said in _asked(list(jobs), workers, ask_dslint)]


def _asked(jobs: list[Job], workers: int, ask: Callable[[Job], Said]) -> Iterator[tuple[Job, Said]]:
    from multiprocessing import get_context

    warm_up(jobs)
    with get_context("fork").Pool(workers) as pool:
        yield from zip(jobs, pool.imap(ask, jobs, chunksize=4), strict=True)


def warm_up(jobs: list[Job]) -> None:
    """Judge some jobs in this process: the forks inherit what dslint imports on the way, which is most of the time that a job takes."""
    from dslint.cli import cli

    here = Path.cwd()
    for job in {job.framework: job for job in jobs}.values():
        with tempfile.TemporaryDirectory() as scratch, Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            lay_out(job, Path(scratch))
            os.chdir(scratch)
            for command in ("check", "show"):
                with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere), contextlib.suppress(SystemExit):
                    cli([command, "run.sh", "--output-format", "json"])
            os.chdir(here)


def table(found: list[Verdict]) -> str:
    """The comparison by framework."""
    head = "framework      jobs raise | named right hinted silent | runs false-error false-hint | configs known% all-right wrong lost extra"
    lines = [head]
    for framework in [*dict.fromkeys(one.job.framework for one in found), "all"]:
        mine = [one for one in found if framework in (one.job.framework, "all")]
        lines.append(_row(framework, mine))
    return "\n".join(lines)


def _row(framework: str, mine: list[Verdict]) -> str:
    raising, running = [one for one in mine if one.job.raises], [one for one in mine if not one.job.raises]
    named, missed = Counter(one.named for one in raising), Counter(one.named for one in running)
    configs = [one for one in running if one.job.config is not None]
    known = sum(len(one.equal) + len(one.different) for one in configs)
    keys = known + sum(len(one.unknown) + len(one.lost) for one in configs) or 1
    wrong = sum(bool(one.different) for one in configs)
    good = sum(not (one.different or one.lost or one.extra or one.unknown) for one in configs)
    lost, extra = sum(len(one.lost) for one in configs), sum(len(one.extra) for one in configs)
    right = sum(one.right for one in raising)
    return (
        f"{framework:14} {len(mine):4} {len(raising):5} | {named['error']:5} {right:5} {named['hint']:6} {named['']:6} | {len(running):4} "
        f"{missed['error']:11} {missed['hint']:10} | {len(configs):7} {100 * known / keys:5.1f}% {good:9} {wrong:5} {lost:4} {extra:5}"
    )


def listing(found: list[Verdict]) -> Iterator[str]:
    """A line for each disagreement."""
    for one in found:
        job, errors = one.job, [f"{f['code']} {f['severity']}: {f['message']}" for f in one.said.findings if f["severity"] != "info"]
        real = job.error if job.outcome == "raises" else job.refused
        if job.raises and one.named != "error":
            yield f"[{one.named or 'silent'}] {job.id}: {(real or '')[:300]!r} | said: {errors[:3]} | {one.said.not_judged if not one.said.keys else ''}"
        elif job.raises and not one.right:
            yield f"[other] {job.id}: {(real or '')[:300]!r} | said: {[e for e in errors if ' error:' in e][:2]}"
        elif not job.raises and one.named:
            yield f"[false {one.named}] {job.id}: {errors} ({job.outcome})"
        for kind in ("different", "lost", "extra"):
            if getattr(one, kind):
                yield f"[{kind}] {job.id}: {getattr(one, kind)}"
        if one.unknown:
            yield f"[unknown] {job.id}: {one.unknown}"
        if job.config is not None and not job.raises and one.said.keys is None:
            yield f"[no config] {job.id}: {one.said.not_judged}"


def main() -> None:
    """Print the table, and with --list every disagreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", type=Path, nargs="+")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="", help="only jobs whose id contains this")
    given = parser.parse_args()
    found = verdicts(
        job for path in given.jobs for job in read_jobs(path) if given.only in job.id and job.outcome not in ("died", "unsure")
    )
    if given.list:
        print("\n".join(sorted(listing(found))))
    print(table(found))


if __name__ == "__main__":
    main()
