"""Logs are read whatever wrote them: prefixes, carriage returns, encodings, cuts."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dslint.diagnose.diagnose import diagnose
from dslint.diagnose.diagnosis import End
from dslint.diagnose.events import COMPLETE, EventReader, LogEvent
from dslint.diagnose.reading import LogSource, rank_of, sources_of
from dslint.diagnose.restarts import HELD, MOST
from dslint.diagnose.unpack import BLOCK
from dslint.errors import UserError
from tests.diagnose.logs import OOM, STARTED, all_diagnosed, causes, traceback
from tests.growth import assert_linear

LAUNCHED = "[2026-05-04 09:12:07,101] [INFO] [runner.py:605:main] cmd = /usr/bin/python -u -m deepspeed.launcher.launch train.py"


def events(text: str | bytes, name: str = "job.log") -> list[LogEvent]:
    data = text if isinstance(text, bytes) else text.encode()
    return list(EventReader().read([LogSource(name, io.BytesIO(data))]))


def raised(text: str | bytes, name: str = "job.log") -> list[LogEvent]:
    return [event for event in events(text, name) if event.kind == "raised"]


@pytest.mark.parametrize(
    ("prefix", "rank", "host"),
    [
        ("", None, None),
        ("[rank3]: ", 3, None),
        ("[default2]:", 2, None),
        ("0: [rank0]: ", 0, None),
        ("[1,5]<stderr>:", 5, None),
        ("(train_loop pid=4711) ", None, None),
        ("gpu-7: [rank12]: ", 12, "gpu-7"),
        ("> ", None, None),
        ("\x1b[31m[rank3]: ", 3, None),
    ],
)
def test_prefixes_tell_rank_and_host(prefix: str, rank: int | None, host: str | None) -> None:
    (event,) = raised(traceback("ValueError: no", prefix=prefix))
    assert (event.values["kind"], event.values["message"], event.rank, event.host) == ("ValueError", "no", rank, host)
    assert [frame.function for frame in event.frames] == ["main"]


def test_a_word_with_a_colon_is_not_a_host() -> None:
    assert [event.values["kind"] for event in events("RuntimeError: [enforce fail] err == 0") if event.kind == "error"] == ["RuntimeError"]


def test_a_host_is_known_once_the_launcher_has_named_it() -> None:
    text = "gpu-1: [2026-05-04 09:12:09,530] [INFO] [launch.py:268:main] dist_world_size=4\ngpu-1: ValueError: no"
    assert [event.host for event in events(text)] == ["gpu-1", "gpu-1"]


def test_interleaved_ranks_keep_their_own_tracebacks() -> None:
    left = traceback("ValueError: left", ("a.py", 1, "a", "f()"), prefix="[rank0]: ").split("\n")
    right = traceback("KeyError: right", ("b.py", 2, "b", "g()"), prefix="[rank1]: ").split("\n")
    found = raised("\n".join(line for pair in zip(left, right, strict=True) for line in pair))
    assert [(event.rank, event.values["kind"], event.frames[0].file) for event in found] == [
        (0, "ValueError", "a.py"),
        (1, "KeyError", "b.py"),
    ]


def test_carriage_returns_do_not_change_the_numbers_of_lines() -> None:
    text = "a\r 10%|# | 1/10 [00:01<00:09, 1.0s/it]\r 20%|## | 2/10 [00:02<00:08, 1.0s/it]\n" + traceback("ValueError: no")
    assert [event.place.line for event in raised(text)] == [5]
    assert [event.values["step"] for event in events(text) if event.kind == "bar"] == ["1", "2"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_encodings(encoding: str) -> None:
    (event,) = raised(("größe\n" + traceback("ValueError: no")).encode(encoding))
    assert event.place.line == 5


def test_compressed_logs() -> None:
    packed = gzip.compress(OOM.encode()[:100]) + gzip.compress(OOM.encode()[100:])
    (found,) = diagnose([LogSource("log.gz", io.BytesIO(packed))])
    assert found.causes == diagnose([LogSource("log.gz", io.BytesIO(OOM.encode()))])[0].causes


@pytest.mark.slow
def test_a_compressed_log_cut_anywhere_is_read_up_to_the_cut() -> None:
    packed = gzip.compress("\n".join(f"ValueError: {random.Random(number).random()}" for number in range(400)).encode())
    counts = set()
    for cut in range(0, len(packed), 97):
        held = zlib.decompressobj(wbits=31).decompress(packed[:cut])
        assert events(packed[:cut]) == events(held)
        counts.add(held.count(b"Error: "))
    assert len(counts) > 20


@pytest.mark.parametrize("count", [24_000, pytest.param(60_000, marks=pytest.mark.slow)])
def test_a_damaged_compressed_log_is_read_up_to_the_damage(count: int) -> None:
    lines = [f"exits with return code = {random.Random(number).randrange(10**15)}" for number in range(count)]
    packed = gzip.compress("\n".join(lines).encode())
    at = len(packed) // 2
    found = [event.values["code"] for event in events(packed[:at] + b"\xff" * 400 + packed[at + 400 :]) if event.kind == "return_code"]
    whole = [line.rpartition(" ")[2] for line in lines]
    assert len(found) > count // 6
    assert found[: count // 6] == whole[: count // 6]


def test_what_finds_no_character_is_read() -> None:
    assert len(raised(b"\xff\xfb\x00\n" + traceback("ValueError: \x00no").encode())) == 1


def test_lines_are_numbered_across_blocks() -> None:
    filler = "x" * 99 + "\n"
    count = 3 * BLOCK // 100
    (event,) = raised(filler * count + traceback("ValueError: no"))
    assert event.place.line == count + 4


def test_a_line_longer_than_a_block() -> None:
    (event,) = raised("y" * (5 * BLOCK) + "\n" + traceback("ValueError: no"))
    assert event.place.line == 5


@pytest.mark.parametrize(
    ("name", "rank"),
    [("logs/rank_3.log", 3), ("attempt_0/12/stderr.log", 12), ("worker-2.out", 2), ("slurm-881234.out", None), ("train.log", None)],
)
def test_names_of_files_tell_ranks(name: str, rank: int | None) -> None:
    assert rank_of(name) == rank


@pytest.mark.parametrize("step", [13, pytest.param(7, marks=pytest.mark.slow)])
def test_a_log_cut_anywhere_gives_what_it_holds(step: int) -> None:
    whole = "\n".join([STARTED, traceback(OOM, prefix="[rank2]: "), "[rank2]: done"])
    line = whole.count("\n", 0, whole.index("OutOfMemoryError")) + 1
    requested = whole.index("3.91 GiB") + len("3.91 GiB")
    for end in range(0, len(whole), step):
        (found,) = all_diagnosed(whole[:end])
        assert found.job.get("ranks") == (4 if end >= len(STARTED) else None)
        if end >= requested:
            assert causes(found) == [("oom", line)]


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_damaged_logs_are_read_without_an_error(count: int) -> None:
    chance = random.Random(18)
    whole = "\n".join(
        [
            STARTED,
            "config.py:1:print_user_config]   json = {",
            '"a": inf,',
            "}",
            traceback(OOM, prefix="[rank2]: "),
            "MA 1.0 GB  Max_MA 2 GB",
        ]
    )
    for _ in range(count):
        data = bytearray(whole.encode())
        for _ in range(chance.randrange(1, 12)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(9)] = chance.randbytes(chance.randrange(9))
        assert all_diagnosed(bytes(data))


@pytest.mark.slow
def test_a_long_log_is_not_kept() -> None:
    text = "\n".join(f"Iteration {number}: loss=2.0" for number in range(30_000))
    (found,) = all_diagnosed(STARTED, text)
    assert len(found.job.steps) <= 4001
    assert found.job.steps[-1].values["step"] == "29999"


@pytest.mark.parametrize("size", [100, pytest.param(700, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "line",
    [
        "Iteration 7: loss=2.0",
        "tokens 128 29 3382 and other output of a program",
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "Error: " * 20,
        "\r 10%|# | 1/10 [00:01<00:09, 1.0s/it]",
        '[2026-05-04 09:12:09] config.py:1:print]   json = {"a": {"b": {',
        "[rank0]: " * 30,
        "> " * 100,
        "CUDA out of memory. Tried to allocate 1.00 GiB. " + "Process 1 has 1.00 GiB memory in use. " * 20,
    ],
)
def test_time_grows_with_the_length(line: str, size: int) -> None:
    def work(count: int) -> Callable[[], object]:
        data = ("\n".join([line] * count)).encode()
        return lambda: all_diagnosed(data)

    assert_linear(work, size)


def test_frames_as_rich_prints_them() -> None:
    text = """╭─────── Traceback (most recent call last) ───────╮
│ /home/ann/train.py:12 in main                   │
│                                                 │
│   11     engine = build()                       │
│ ❱ 12     engine.step()                          │
╰─────────────────────────────────────────────────╯
ValueError: no"""
    (event,) = raised(text)
    assert [(frame.file, frame.line, frame.function) for frame in event.frames] == [("/home/ann/train.py", 12, "main")]


def test_after_many_tracebacks_only_their_errors_are_read() -> None:
    ignored = "Exception ignored in: <function f at 0x7f>\n" + traceback("OSError: ignored")
    text = "\n".join(
        [*[traceback(f"ValueError: {number}") for number in range(COMPLETE)], ignored, traceback("KeyError: late"), "TypeError: x"]
    )
    *whole, last = raised(text)[COMPLETE - 1 :]
    assert [len(event.frames) for event in whole] == [1, 0]
    assert [event.values.get("ignored") for event in whole] == [None, "yes"]
    assert (last.values["kind"], last.frames) == ("KeyError", ())
    assert [event.values["kind"] for event in events(text) if event.kind == "error"] == ["TypeError"]


def test_the_next_job_is_read_with_its_tracebacks() -> None:
    found = raised("\n".join([*[traceback("ValueError: first")] * (COMPLETE + 1), LAUNCHED, traceback("ValueError: second")]))
    assert [len(event.frames) for event in found[-2:]] == [0, 1]


def restarted(jobs: int, job: str = "") -> str:
    return "\n".join(f"{LAUNCHED}\n{job}\n{traceback(f'ValueError: in job {number}')}" for number in range(jobs))


def test_of_many_jobs_the_first_ones_and_the_last_one_are_read() -> None:
    jobs = MOST + 50
    found = all_diagnosed(restarted(jobs))
    assert [cause.title for cause in found[MOST - 1].causes] == [f"ValueError: in job {MOST - 1}"]
    assert [cause.title for cause in found[-1].causes] == [f"ValueError: in job {jobs - 1}"]
    assert found[-1].causes[0].evidence[0].place.line == len(restarted(jobs).splitlines())
    assert (len(found), found[-1].job.get("left_out")) == (MOST + 1, 49)
    assert [notice.kind for notice in found[-1].notices] == ["left-out"]
    assert not any(notice.kind == "left-out" for one in found[:-1] for notice in one.notices)


def test_no_job_is_left_out_of_a_log_with_few() -> None:
    found = all_diagnosed(restarted(MOST))
    assert len(found) == MOST
    assert not any(one.notices for one in found)


def test_a_long_job_is_read_even_among_many() -> None:
    text = "\n".join([restarted(MOST + 3), restarted(1, "x" * 999 + "\n" + ("y" * 999 + "\n") * (HELD // 1000)), restarted(3)])
    found = all_diagnosed(text)
    assert [one.job.get("left_out") for one in found[MOST:]] == [3, 2]


def test_the_logs_of_many_jobs_in_a_folder_are_all_read(tmp_path: Path) -> None:
    for number in range(MOST + 5):
        (tmp_path / f"{number}.log").write_text(restarted(1))
    assert len(diagnose(sources_of([str(tmp_path)]))) == MOST + 5


def test_one_line_that_never_ends() -> None:
    for text in ("{" * 400_000, "> " * 200_000, "[rank1]: " * 50_000, "a" * 400_000 + ": Error: "):
        assert_linear(lambda count, text=text: lambda: all_diagnosed(text[:count]), 40_000)  # type: ignore[misc]


def test_a_size_that_is_no_number_is_not_read() -> None:
    line = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.159.159.15 GiB total capacity)\n"
    (found,) = diagnose([LogSource("job.log", io.BytesIO(line))])
    assert found.job.get("gpu_capacity") is None


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_compressed_formats(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    data = (("a line\n" * 100_000) + traceback("ValueError: no")).encode()
    (tmp_path / "job.log").write_bytes(pack(data[:500_000]) + pack(data[500_000:]))
    (found,) = diagnose(sources_of([str(tmp_path / "job.log")]))
    assert [(cause.title, cause.evidence[0].place.line) for cause in found.causes] == [("ValueError: no", 100_004)]
    assert found.unread == ()


@pytest.mark.slow
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_damage_is_said(pack: Callable[[bytes], bytes]) -> None:
    lines = "\n".join(f"{random.Random(number).random()}" for number in range(40_000))
    packed = pack((traceback("ValueError: no") + "\n" + lines).encode())
    cut = packed[: len(packed) * 2 // 3]
    broken = bytearray(packed)
    broken[len(packed) // 2 : len(packed) // 2 + 200] = b"\xff" * 200
    for data, word in ((cut, "is cut"), (bytes(broken), "is damaged")):
        (found,) = diagnose([LogSource("job.log.x", io.BytesIO(data))])
        assert len(found.unread) == 1
        assert word in found.unread[0]


def test_formats_that_cannot_be_unpacked_are_named() -> None:
    with pytest.raises(UserError, match="zip archive"):
        diagnose([LogSource("job.zip", io.BytesIO(b"PK\x03\x04rest"))])


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark(codec: str) -> None:
    (found,) = diagnose([LogSource("job.log", io.BytesIO(traceback("ValueError: größe").encode(codec)))])
    assert found.causes[0].title == "ValueError: größe"


@pytest.mark.parametrize(
    ("count", "printed", "end"),
    [
        (3, "ds_report", End.FINISHED),
        (3, "Iteration 7/9: loss=2.0", End.UNFINISHED),
        (3, "Iteration 9/9: loss=2.0", End.FINISHED),
        (None, "ds_report", End.UNFINISHED),
    ],
)
def test_cells_that_ended_are_no_log_that_goes_on(tmp_path: Path, count: int | None, printed: str, end: End) -> None:
    output = {"output_type": "stream", "text": [f"DeepSpeed info: version=0.17.3\n{printed}\n"]}
    book = {"cells": [{"cell_type": "code", "source": [], "execution_count": count, "outputs": [output]}], "nbformat": 4}
    (tmp_path / "run.ipynb").write_text(json.dumps(book))
    (found,) = diagnose(sources_of([str(tmp_path / "run.ipynb")]))
    assert found.outcome.end is end
    assert ("log ends" in found.outcome.sentence) == (count is None)


def test_a_notebook_is_read_by_its_outputs(tmp_path: Path) -> None:
    shown = [
        "\x1b[0;31m---------------------------------------------------------------------------\x1b[0m",
        "\x1b[0;31mValueError\x1b[0m                                Traceback (most recent call last)",
        "Cell \x1b[0;32mIn[3], line 5\x1b[0m\n\x1b[1;32m      3\x1b[0m x = 1\n\x1b[0;32m----> 5\x1b[0m trainer.train()\n\x1b[1;32m      6\x1b[0m y = 2",
        (
            "File \x1b[0;32m/env/lib/python3.11/site-packages/deepspeed/runtime/engine.py:1234\x1b[0m, in DeepSpeedEngine.step(self)\n"
            "\x1b[1;32m   1233\x1b[0m a\n\x1b[0;32m-> 1234\x1b[0m     self.optimizer.step()"
        ),
        "\x1b[0;31mValueError\x1b[0m: no",
    ]
    book = {
        "cells": [
            {"cell_type": "code", "source": ["raise RuntimeError('source')"], "outputs": []},
            {
                "cell_type": "code",
                "source": [],
                "outputs": [{"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": shown}],
            },
        ],
        "nbformat": 4,
    }
    (tmp_path / "run.ipynb").write_text(json.dumps(book, indent=1))
    (found,) = diagnose(sources_of([str(tmp_path / "run.ipynb")]))
    (cause,) = found.causes
    assert cause.title == "ValueError: no"
    assert cause.evidence[0].place.file.endswith("run.ipynb cell 2")
    assert "Raised at deepspeed/runtime/engine.py:1234" in " ".join(cause.why)
    assert "In[3]:5 (trainer.train())" in " ".join(cause.why)


def test_a_row_of_a_table_is_read_without_its_cells() -> None:
    """Web pages show logs as tables, which a copy keeps."""
    row = "|  |  | 2026-07-26 16:07:35.024 | {} |  "
    whole = traceback("RuntimeError: no rows | no columns", ("me/train.py", 3, "main", "step()"))
    table = "\n".join(row.format(line.replace(" | ", " or ").lstrip()) for line in whole.split("\n"))
    (event,) = raised(table)
    assert (event.values["message"], [frame.function for frame in event.frames]) == ("no rows or no columns", ["main"])
    (event,) = raised("\n".join(f"gpu-1 | {line}" for line in whole.split("\n")))
    assert event.values["message"] == "no rows | no columns"


def test_a_prefix_that_ends_with_a_bracket_is_learned_from_a_frame() -> None:
    """Where a copy has lost the blanks before the frames, and its first line."""
    lines = [
        "{} main()",
        '{} File "me/train.py", line 335, in main',
        "{} model.backward(loss)",
        '{} File "/x/site-packages/deepspeed/runtime/engine.py", line 1873, in backward',
        "{} self.optimizer.backward(loss)",
        "{}RuntimeError: no gradient",
    ]
    text = "\n".join(f"{number}\n{line}" for number, line in enumerate(lines, 1032)).format(
        *["\N{LEFT BLACK LENTICULAR BRACKET}2026-07-09 22:14:41\N{RIGHT BLACK LENTICULAR BRACKET}"] * 6
    )
    (event,) = raised(text)
    assert (event.values["message"], event.frames[-1].function) == ("no gradient", "backward")


def test_code_that_processes_print_at_once_is_told_once() -> None:
    text = traceback("ValueError: no", ("me/train.py", 3, "main", "train(model, data)train(model, data)"))
    (event,) = raised(text)
    assert event.frames[0].code == "train(model, data)"
