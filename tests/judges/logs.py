"""Judges `dslint diagnose` by logs whose cause is known: each is put into what real logs have around it.

A case is a true cause (a traceback, a message of a kernel or a launcher) in a job that started, trained, and ended as jobs do: other ranks
follow, a launcher reports, warnings name errors that nobody had. The lines then get prefixes, are interleaved, wrapped, cut or pasted. The
first cause must be the true one, or not be certain where a cut took it away.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

from dslint.diagnose import template
from dslint.diagnose.causes.rank import FIRST_OF_CHAIN
from dslint.diagnose.diagnose import diagnose
from dslint.diagnose.diagnosis import Diagnosis, End
from dslint.diagnose.reading import LogSource
from dslint.diagnose.rewrap import FEWEST
from dslint.diagnose.texts import CAUSE, GENERAL, KnownText, entries
from tests.diagnose.invented import wrapped as with_invented_prefix
from tests.judges.log_texts import ALONE, FOLLOWS, HANG, LATE, MAIN, NOISE, SITE, SURVIVED, TRUTHS, WORKER, Frame, Truth
from tests.judges.table import Row


def traceback_of(truth: Truth) -> list[str]:
    """The traceback of a cause, as Python prints it."""
    lines = ["Traceback (most recent call last):"] if truth.frames else []
    for frame in truth.frames:
        lines += [f'  File "{frame.file}", line {frame.line}, in {frame.function}', f"    {frame.code}"]
    return [*lines, *truth.error.split("\n")]


class Line(NamedTuple):
    """A line and the rank that prints it, None for a launcher. `part` says whether it tells the cause: "head", "frame", "error" or ""."""

    text: str
    rank: int | None = None
    part: str = ""


class Case(NamedTuple):
    """A log, its true cause, whether the line of the error is still in it, and how it was made."""

    text: str
    truth: Truth | None
    is_whole: bool
    frames_left: int
    how: str
    deepspeed: bool


# ---------------------------------------------------------------------- how a job starts, trains and ends


def _start(dice: Random, launcher: str, ranks: int) -> list[Line]:
    """What is printed before the first step."""
    lines: list[Line] = []
    stamp = "2026-05-04 09:12:0"
    if launcher == "deepspeed":
        lines += [
            Line(f"[{stamp}1,101] [WARNING] [runner.py:215:fetch_hostfile] Unable to find hostfile, will proceed with training with local resources only."),
            Line(f"[{stamp}1,102] [INFO] [runner.py:607:main] cmd = /opt/conda/bin/python -u -m deepspeed.launcher.launch --world_info=eyJsb2NhbGhvc3QiOiBbMCwgMSwgMiwgM119 --master_addr=127.0.0.1 --master_port=29500 --enable_each_rank_log=None train.py --deepspeed ds_config.json"),
            Line(f"[{stamp}3,101] [INFO] [launch.py:146:main] WORLD INFO DICT: {{'localhost': {list(range(ranks))}}}"),
            Line(f"[{stamp}3,102] [INFO] [launch.py:152:main] nnodes=1, num_local_procs={ranks}, node_rank=0"),
            Line(f"[{stamp}3,103] [INFO] [launch.py:164:main] dist_world_size={ranks}"),
        ]  # fmt: skip
    elif launcher == "torchrun":
        lines += [
            Line("W0504 09:12:01.101000 139 site-packages/torch/distributed/run.py:793] "),
            Line("W0504 09:12:01.101000 139 site-packages/torch/distributed/run.py:793] *****************************************"),
            Line("W0504 09:12:01.101000 139 site-packages/torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded, please further tune the variable for optimal performance in your application as needed. "),
        ]  # fmt: skip
    elif launcher == "accelerate":
        lines += [
            Line("The following values were not passed to `accelerate launch` and had defaults used instead:"),
            Line("\t`--num_machines` was set to a value of `1`"),
        ]
    for rank in range(ranks):
        if dice.random() < 0.7:
            lines.append(
                Line(
                    f"[{stamp}5,{100 + rank}] [INFO] [real_accelerator.py:219:get_accelerator] Setting ds_accelerator to cuda (auto detect)",
                    rank,
                )
            )
        if dice.random() < 0.5:
            lines.append(Line(f"[{stamp}6,{100 + rank}] [INFO] [comm.py:652:init_distributed] cdb=None", rank))
    lines.append(Line(f"[{stamp}6,400] [INFO] [comm.py:683:init_distributed] Initializing TorchBackend in DeepSpeed with backend nccl", 0))
    noise = dice.sample(NOISE, dice.randint(0, 3))
    return lines + [Line(text, dice.randrange(ranks)) for text in noise]


def _bar(step: int, whole: int, loss: str = "") -> str:
    percent = 100 * step // whole
    return f"{percent:3}%|{'█' * (percent // 10):10}| {step}/{whole} [00:{step % 60:02}<{(whole - step) // 60:02}:{(whole - step) % 60:02},  1.02s/it{loss}]"


def _train(dice: Random, ranks: int, least: int = 1) -> tuple[list[Line], str]:
    """Some steps; also the last version of a progress bar that has no line end."""
    form = dice.choice(("trainer", "engine", "megatron", "own", "bar", "bar-loss", "none")[: None if least == 1 else -1])
    first, number = dice.choice((1, 100)), dice.randint(least, least + 5)
    lines: list[Line] = []
    for step in range(first, first + number):
        loss = f"{3.1 - 0.01 * step:.4f}"
        if form == "trainer":
            lines.append(Line(f"{{'loss': {loss}, 'grad_norm': 1.21, 'learning_rate': 9.8e-06, 'epoch': 0.{step}}}", 0))
        elif form == "engine":
            lines.append(
                Line(
                    f"[2026-05-04 09:13:{step % 60:02},472] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[9.8e-06], mom=[(0.9, 0.999)]",
                    0,
                )
            )
        elif form == "megatron":
            lines.append(
                Line(
                    f" iteration {step:8}/ 5000 | consumed samples: {step * 8} | elapsed time per iteration (ms): 1012.3 | learning rate: 1.0E-05 | global batch size:     8 | lm loss: {loss}E+00 | loss scale: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |",
                    ranks - 1,
                )
            )
        elif form == "own":
            lines.append(Line(f"epoch 0 step {step} loss {loss}", dice.choice((0, 0, ranks - 1))))
    if form in ("bar", "bar-loss"):
        versions = [
            _bar(step, 5000, f", loss={3.1 - 0.01 * step:.2f}" if form == "bar-loss" else "") for step in range(first, first + number)
        ]
        return [Line("\r".join(["", *versions]), 0)], form
    return lines, form


def _end(dice: Random, launcher: str, ranks: int, failed: int, code: int) -> list[Line]:
    """The launcher's report."""
    time = "2026-05-04 09:13:1"
    if launcher == "deepspeed":
        killed = [
            Line(f"[{time}0,{100 + rank}] [INFO] [launch.py:319:sigkill_handler] Killing subprocess {4120 + rank}") for rank in range(ranks)
        ]
        return [
            *killed,
            Line(
                f"[{time}1,472] [ERROR] [launch.py:325:sigkill_handler] ['/opt/conda/bin/python', '-u', 'train.py', '--local_rank={ranks - 1}', '--deepspeed', 'ds_config.json'] exits with return code = {code}"
            ),
        ]
    if launcher in ("torchrun", "accelerate"):
        wrapper = [
            "Traceback (most recent call last):", f'  File "/opt/conda/bin/{launcher}", line 8, in <module>', "    sys.exit(main())",
            f'  File "{SITE}torch/distributed/run.py", line 919, in main', "    run(args)",
            f'  File "{SITE}torch/distributed/launcher/api.py", line 264, in launch_agent', "    raise ChildFailedError(",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "============================================================",
            "train.py FAILED", "------------------------------------------------------------", "Failures:",
        ]  # fmt: skip
        others = [rank for rank in range(ranks) if rank != failed]
        for number, rank in enumerate(others[: dice.randint(0, 2)], 1):
            wrapper += [
                f"[{number}]:",
                f"  time      : {time}2",
                "  host      : gpu-3",
                f"  rank      : {rank} (local_rank: {rank})",
                "  exitcode  : -15 (pid: 4122)",
                "  error_file: <N/A>",
                "  traceback : Signal 15 (SIGTERM) received by PID 4122",
            ]
        wrapper += ["------------------------------------------------------------", "Root Cause (first observed failure):", "[0]:", f"  time      : {time}1", "  host      : gpu-3",
                    f"  rank      : {failed} (local_rank: {failed})", f"  exitcode  : {code} (pid: 4121)", "  error_file: <N/A>", "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
                    "============================================================"]  # fmt: skip
        agent = [
            f"W0504 09:13:10.101000 139 site-packages/torch/distributed/elastic/multiprocessing/api.py:897] Sending process {4120 + rank} closing signal SIGTERM"
            for rank in others
        ]
        agent.append(
            f"E0504 09:13:10.201000 139 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) local_rank: {failed} (pid: 4121) of binary: /opt/conda/bin/python"
        )
        return [Line(text) for text in (*agent, *wrapper)]
    if launcher == "srun":
        how = {-6: "Aborted (core dumped)", -11: "Segmentation fault (core dumped)", 137: "Killed"}.get(
            code, f"Exited with exit code {code}"
        )
        return [Line(f"srun: error: gpu-3: task {failed}: {how}"), Line("srun: launch/slurm: _step_signal: Terminating StepId=4711.0"),
                Line("slurmstepd: error: *** STEP 4711.0 ON gpu-3 CANCELLED AT 2026-05-04T09:13:11 ***"), Line("srun: error: gpu-3: tasks 1-3: Terminated")]  # fmt: skip
    return []


# ---------------------------------------------------------------------- what a terminal, a collector and a copy make of lines


def _join(lines: Sequence[Line], dice: Random) -> str:
    return "\n".join(line.text for line in lines)


PREFIXES: dict[str, Callable[[Line, int], str]] = {
    "none": lambda line, number: line.text,
    "rank": lambda line, number: f"[rank{line.rank}]: {line.text}" if line.rank is not None and not line.text.startswith("[rank") else line.text,
    "rank-tracebacks": lambda line, number: f"[rank{line.rank}]: {line.text}" if line.part and line.rank is not None else line.text,
    "default": lambda line, number: f"[default{line.rank}]:{line.text}" if line.rank is not None else line.text,
    "pdsh": lambda line, number: f"gpu-{3 + (line.rank or 0) // 2}: {line.text}",
    "srun -l": lambda line, number: f"{line.rank or 0}: {line.text}",
    "mpirun": lambda line, number: f"[1,{line.rank or 0}]<stderr>:{line.text}",
    "time": lambda line, number: f"2026-05-04 09:12:{number // 60 % 60:02}.{number % 60:02} {line.text}",
    "iso": lambda line, number: f"2026-05-04T09:12:{number // 60 % 60:02}.{number % 60:02}0123456Z {line.text}",
    "k8s": lambda line, number: f"[pod/train-worker-{(line.rank or 0) // 2}/pytorch] {line.text}",
    "docker": lambda line, number: f"trainer-1  | {line.text}",
    "ray": lambda line, number: f"(TrainWorker pid={4120 + (line.rank or 0)}) {line.text}",
    "ansi": lambda line, number: f"\x1b[36m{line.text}\x1b[0m" if line.part else line.text,
    "quote": lambda line, number: f"> {line.text}",
    "indent": lambda line, number: f"    {line.text}",
}  # fmt: skip
TOLD_APART = ("rank", "default", "srun -l", "mpirun", "ray")
"""Prefixes that tell the ranks apart, so that their lines may be mixed."""


def _mixed(lines: list[Line], dice: Random) -> list[Line]:
    """The lines of several ranks, each rank's in their order."""
    queues: dict[int | None, list[Line]] = {}
    for line in lines:
        queues.setdefault(line.rank, []).append(line)
    order = [line.rank for line in lines]
    at = 0
    while at < len(order):  # shuffle within short windows
        width = dice.randint(1, 12)
        window = order[at : at + width]
        dice.shuffle(window)
        order[at : at + width] = window
        at += width
    return [queues[rank].pop(0) for rank in order]


def _wrap(text: str, columns: int) -> str:
    """As a terminal of some columns prints a text, where the copy has a line end at each wrap."""
    lines: list[str] = []
    for line in (line.rpartition("\r")[2] for line in text.split("\n")):
        lines += [line[at : at + columns] for at in range(0, len(line), columns)] or [""]
    return "\n".join(lines)


@cache
def _texts() -> tuple[tuple[KnownText, str, str], ...]:
    """The known texts that say a cause of their own: the entry, a name, and the message of an error."""
    own = (entry for entry in entries() if entry.rank == CAUSE and entry.kind != GENERAL and not entry.where)
    found = []
    for entry in own:
        for number, text in enumerate(entry.texts):
            line = "".join(part if isinstance(part, str) else FILLED[part.kind] for part in template.parse(text))
            if line[:1].isupper() and "error: " not in line:
                found.append((entry, f"{entry.id} {number}", line if _NAMED.match(line) else f"RuntimeError: {line}"))
    return tuple(found)


def _known(dice: Random) -> Truth:
    """A known text as the message of an error that leads to its own entry."""
    while True:
        entry, name, error = dice.choice(_texts())
        source = next((one for one in entry.sources if one.endswith(".py") and " " not in one), "torch/nn/functional.py")
        truth = Truth(name, (entry.kind,), "", (MAIN, Frame(SITE + source, 117, "apply", "return checked(value)")), error)
        causes = diagnosed("\n".join(traceback_of(truth)))[0].causes
        if causes and causes[0].kind == entry.kind and causes[0].certain:
            return truth._replace(words=causes[0].title[:60])


_NAMED = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)(?::|$)")
FILLED = {
    "int": "7",
    "number": "65536.0",
    "size": "2.50 GiB",
    "name": "worker-1",
    "path": "ckpts/epoch=9",
    "text": "anything (1 of 2)",
    "variable": "PDSH_ARGS",
    "section": "ZenFlowConfig",
    "trainer": "Seq2SeqTrainer",
    "arguments": "PeftArguments",
}
"""A value for each kind of place in a known text."""


def _of_error(dice: Random, truth: Truth, rank: int, how: list[str]) -> list[Line]:
    """The lines of an error as the rank that fails prints them: alone, in a chain, or passed on by a process that loads data."""
    lines = _parts(truth, rank)
    form = dice.random()
    if truth.frames and form < 0.1:
        link = dice.choice(
            (
                "During handling of the above exception, another exception occurred:",
                "The above exception was the direct cause of the following exception:",
            )
        )
        wrapper = traceback_of(
            Truth(
                "",
                (),
                "",
                (MAIN, Frame("/workspace/proj/train.py", 300, "main", "raise RuntimeError(msg) from e")),
                "RuntimeError: run aborted",
            )
        )
        lines += [Line(text, rank) for text in ("", link, "", *wrapper)]
        how.append("chain")
    elif truth.name in ("own", "key") and form < 0.4:
        kind = truth.error.partition(":")[0]
        worker = [Line(text.format(kind=kind), rank, "frame") for text in WORKER]
        lines = [*worker, *lines]
        how.append("worker")
    return lines


def _torn(dice: Random, truth: Truth, ranks: int) -> list[Line]:
    """The traceback of several ranks that write to one terminal at once: Python writes a line of code in three parts."""
    queues = []
    for _ in range(min(ranks, dice.randint(2, 4))):
        pieces: list[str] = []
        for line in _parts(truth, 0):
            code = line.part == "frame" and line.text.startswith("    ")
            pieces += ["    ", line.text[4:], "\n"] if code else [line.text + "\n"]
        queues.append(pieces)
    text = ""
    while any(queues):
        queue = dice.choice([one for one in queues if one])
        for _ in range(dice.randint(1, 6)):
            text += queue.pop(0) if queue else ""
    return [Line(line, 0, "error" if truth.error in line else "frame") for line in text.rstrip("\n").split("\n")]


def _parts(truth: Truth, rank: int | None) -> list[Line]:
    """The lines of a cause."""
    texts, number = traceback_of(truth), len(truth.error.split("\n"))
    return [
        Line(text, rank, "error" if at >= len(texts) - number else "head" if text.startswith("Traceback") else "frame")
        for at, text in enumerate(texts)
    ]


def _of_others(dice: Random, truth: Truth, ranks: int, failed: int, how: list[str]) -> list[Line]:
    """What other ranks print: the same error, or what follows from it."""
    if ranks == 1:
        return []
    if dice.random() < 0.3:
        how.append("everybody")
        others = dice.sample([rank for rank in range(ranks) if rank != failed], min(ranks - 1, dice.randint(1, 3)))
        return [line._replace(part="frame" if line.part == "head" else line.part) for rank in others for line in _parts(truth, rank)]
    follow = dice.choice(FOLLOWS)
    rank = dice.choice([rank for rank in range(ranks) if rank != failed])
    how.append(f"follow {FOLLOWS.index(follow)}")
    return [Line(text.format(r=rank), rank) for text in follow]


def made(seed: int) -> Case:
    """The log of a seed."""
    dice = Random(f"logs {seed}")
    launcher = dice.choice(("deepspeed", "deepspeed", "torchrun", "torchrun", "accelerate", "srun", "python"))
    ranks = 1 if launcher == "python" else dice.choice((2, 4, 8))
    story = dice.random()
    if story < 0.1:
        return _quiet(dice, launcher, ranks)
    truth = dice.choice(TRUTHS) if story < 0.6 else _known(dice) if story < 0.88 else dice.choice((*ALONE, HANG))
    failed = dice.randrange(ranks)
    how = [truth.name, launcher]
    started = _start(dice, launcher, ranks)
    lines: list[Line] = []
    form = "none"
    if truth.trained:
        if dice.random() < 0.15:
            lines += [Line(text, failed) for text in dice.choice(SURVIVED)]
            steps, form = _train(dice, ranks, least=5)
            how.append("survived")
        else:
            steps, form = _train(dice, ranks)
        lines += steps
        how.append(form)
    own = _of_error(dice, truth, failed, how)
    if truth is HANG:
        own = [line._replace(text=line.text.format(r=rank), rank=rank) for rank in range(ranks) for line in _parts(truth, rank)]
    elif form.startswith("bar") and dice.random() < 0.5:  # the bar has no line end
        last = lines.pop()
        own[0] = own[0]._replace(text=last.text + own[0].text)
        how.append("glued")
    after = _of_others(dice, truth, ranks, failed, how) if truth.frames else []
    if truth.frames and ranks > 1 and "\n" not in truth.error and dice.random() < 0.1:
        own, after = _torn(dice, truth, ranks), []
        how.append("torn")
    late = [] if not truth.frames else [Line(part, failed) for text in dice.sample(LATE, dice.randint(0, 2)) for part in text.split("\n")]
    lines = [*lines, *own, *after, *late]
    name = dice.choice(tuple(PREFIXES))
    if name in TOLD_APART and truth.frames and not {"survived", "torn"} & set(how) and not form.startswith("bar") and dice.random() < 0.5:
        lines = _mixed(lines, dice)
        how.append("mixed")
    lines = [*started, *lines, *_end(dice, launcher, ranks, failed, truth.code)]
    how.append(name)
    return _as_read(lines, truth, name, dice, how)


def _quiet(dice: Random, launcher: str, ranks: int) -> Case:
    """A job that did not fail, or of which the log does not say so."""
    lines = _start(dice, launcher, ranks)
    how = ["no failure", launcher]
    if dice.random() < 0.2:
        lines += [Line(text, 0) for text in dice.choice(SURVIVED)]
        steps, form = _train(dice, ranks, least=5)
        how.append("survived")
    else:
        steps, form = _train(dice, ranks)
    lines += steps
    if dice.random() < 0.5 and steps:
        lines.append(
            Line(
                "{'train_runtime': 4711.2, 'train_samples_per_second': 3.2, 'train_steps_per_second': 0.1, 'train_loss': 2.1, 'epoch': 1.0}",
                0,
            )
        )
        lines += [Line(part, 0) for text in dice.sample(LATE, dice.randint(0, 2)) for part in text.split("\n")]
        how.append("finished")
    name = dice.choice(tuple(PREFIXES))
    text = "\n".join(PREFIXES[name](line, number) for number, line in enumerate(lines))
    kind, text = _copied(text, name, dice, can_wrap="survived" not in how)
    return Case(text, None, False, 0, ", ".join([*how, form, name, kind]), "deepspeed" in text.lower())


def _as_read(lines: list[Line], truth: Truth, name: str, dice: Random, how: list[str]) -> Case:
    """The log as a person has it: the whole, a part, or wrapped."""
    cut = dice.choice(("", "", "", "head", "head in traceback", "tail", "tail in traceback", "only traceback"))
    errors = [at for at, line in enumerate(lines) if line.part == "error"]
    first = next(at for at, line in enumerate(lines) if line.part)
    frames = [at for at, line in enumerate(lines) if line.part == "frame" and first < at < errors[0]]
    if cut == "head":
        lines = lines[dice.randint(0, first) :]
    elif cut == "head in traceback" and len(frames) > 1:
        lines = lines[dice.choice(frames) :]
    elif cut == "tail":
        told = max(at for at in errors if lines[at].rank == lines[first].rank)
        lines = lines[: dice.randint(told + 1, len(lines))]
    elif cut == "tail in traceback" and len(frames) > 1:
        lines = lines[: dice.choice(frames[1:]) + 1]
    elif cut == "only traceback":
        lines = [line for line in lines if line.part and line.rank == lines[first].rank]
    how.append(cut or "whole")
    is_whole = any(line.part == "error" for line in lines)
    left = sum(1 for line in lines if line.part == "frame" and line.text.startswith("  File"))
    text = "\n".join(PREFIXES[name](line, number) for number, line in enumerate(lines))
    kind, text = _copied(text, name, dice, can_wrap="survived" not in how)
    return Case(text, truth, is_whole, left, ", ".join([*how, kind]), "deepspeed" in text.lower())


def _copied(text: str, name: str, dice: Random, *, can_wrap: bool) -> tuple[str, str]:
    """What saving and copying makes of a text, with its name."""
    form = dice.choice(("plain", "plain", "plain", "plain", "crlf", "wrapped", "stripped", "blank", "invented"))
    if form == "crlf":
        text = text.replace("\n", "\r\n")
    elif form == "wrapped" and can_wrap:  # of a bar only the last text is left
        columns = dice.choice((100, 120, 140, 160, 200))
        if len({re.sub(r"\d", "", line) for line in text.split("\n") if len(line) > columns}) > FEWEST:
            text = _wrap(text, columns)
        form += f" {columns}"
    elif form == "stripped":
        text = "\n".join(line.strip() for line in text.split("\n"))
    elif form == "blank":
        text = text.replace("\n", "\n\n")
    elif form == "invented" and name == "none":
        text = with_invented_prefix(text, dice)
    return form, text


# ---------------------------------------------------------------------- the verdict


def diagnosed(text: str) -> list[Diagnosis]:
    """The diagnosis of a log."""
    return diagnose([LogSource("job.log", io.BytesIO(text.encode()))])


_SPACE = re.compile(r"\s+")


def _flat(text: str) -> str:
    return _SPACE.sub("", text)


def wrong(case: Case) -> str:
    """What is wrong with the diagnosis of a case, "" if nothing is."""
    found = diagnosed(case.text)
    causes = [cause for one in found for cause in one.causes]
    ends = {one.outcome.end for one in found}
    truth = case.truth
    if End.UNKNOWN in ends and not causes and case.deepspeed:
        return "nothing of a job"
    if truth is None:
        bad = [cause for cause in causes if cause.certain or cause.kind != "hang"]
        return f"a cause without a failure: {bad[0].kind} {bad[0].title!r}" if bad else "failed" if End.FAILED in ends else ""
    if not case.is_whole:
        bad = next((cause for cause in causes[:1] if cause.certain and cause.kind != "exit" and not cause.title.startswith("raise ")), None)
        if bad is not None:
            return f"certain without its error: {bad.kind} {bad.title!r}"
        if case.frames_left and not causes:
            return "no word about a cut traceback"
        return ""
    if not causes:
        return "no cause"
    first = causes[0]
    told = _flat(" ".join([first.title, *first.why, *(shown.text for shown in first.evidence)]))
    if FIRST_OF_CHAIN in first.why and not first.certain:
        return ""
    if _flat(truth.words) not in told:
        return f"another cause: {first.kind} {first.title!r}"
    if first.kind not in truth.kinds and (first.certain or first.kind != "unknown"):
        return f"another kind: {first.kind} {first.title!r}"
    if End.FINISHED in ends:
        return "a failed job is called finished"
    if len(found) > 1:
        return f"{len(found)} jobs"
    return ""


def ask(count: int, seed: int) -> Row:
    """Diagnose `count` logs."""
    bad: list[tuple[int, str]] = []
    read = 0
    for number in range(seed, seed + count):
        case = made(number)
        said = wrong(case)
        if said:
            bad.append((number, f"{said} [{case.how}]"))
        else:
            read += 1
    return Row("logs", count, "logs", count, read, bad)


def record(count: int, seed: int) -> str:
    """Nothing is recorded: each case has its answer, and plain pytest asks some."""
    return "logs are not recorded"
