"""From files and bytes to text: whatever is wrong with a file is said in a sentence."""

from __future__ import annotations

import base64
import os
import socket
import sys
from pathlib import Path

import pytest

from dslint.source.parse import parse
from dslint.source.read import MAX_BYTES, ReadError, decode, decode_base64, read

CONFIG = '{"train_batch_size": 8, "name": "caf\u00e9"}'


def refused(path: str | Path) -> tuple[str, str]:
    with pytest.raises(ReadError) as caught:
        read(path)
    assert str(caught.value) == caught.value.message
    return caught.value.kind, caught.value.message


def test_text_comes_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    for text in (CONFIG, "", "a: 1\r\nb: 2\r", "\ufeff{}"):
        path.write_bytes(text.encode())
        assert read(path) == text
        assert read(str(path)) == text


def test_a_byte_order_mark_is_a_departure() -> None:
    assert [departure.kind for departure in parse(decode(b"\xef\xbb\xbf{}")).departures] == ["bom"]


def test_a_missing_file(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.json")[0] == "missing"


def test_a_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    kind, _ = refused(tmp_path / "file" / "ds.json")
    assert kind == "missing"


def test_a_path_that_no_file_can_have(tmp_path: Path) -> None:
    assert refused("a\0b")[0] == "missing"
    assert refused(tmp_path / ("x" * 5000))[0] in {"missing", "unreadable"}


def test_a_directory(tmp_path: Path) -> None:
    assert refused(tmp_path) == ("not-a-file", "this is a directory, not a file")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_pipes_devices_and_sockets_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert refused(pipe) == ("not-a-file", "this is a pipe; dslint reads regular files only")
    assert refused("/dev/zero") == ("not-a-file", "this is a device; dslint reads regular files only")
    monkeypatch.chdir(tmp_path)  # the path of a socket has to be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert refused("socket") == ("not-a-file", "this is a socket; dslint reads regular files only")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_a_file_that_turns_into_a_pipe_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ds.json"
    path.write_text("{}")
    before = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(os, "stat", lambda *_, **__: before)
    assert refused(path)[0] == "not-a-file"


def test_a_file_that_vanishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ds.json"
    path.write_text("{}")
    before = path.stat()
    path.unlink()
    monkeypatch.setattr(os, "stat", lambda *_, **__: before)
    assert refused(path)[0] == "missing"


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (PermissionError(13, "Permission denied"), "permission", "permission denied"),
        (OSError(5, "Input/output error"), "unreadable", "Input/output error"),
        (OSError("odd"), "unreadable", "odd"),
    ],
)
def test_errors_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, kind: str, reason: str) -> None:
    path = tmp_path / "ds.json"
    path.write_text("{}")

    def fail(*args: object) -> int:
        raise error

    monkeypatch.setattr(os, "open", fail)
    said = refused(path)
    assert said[0] == kind
    assert said[1].endswith(reason)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a right on Windows")
def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert refused(tmp_path / "loop")[0] == "unreadable"


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.json"
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    kind, message = refused(path)
    assert kind == "too-large"
    assert "100 MiB" in message
    assert "16 MiB" in message
    with pytest.raises(ReadError, match="too large"):
        decode(b" " * (MAX_BYTES + 1))
    assert len(decode(b" " * MAX_BYTES)) == MAX_BYTES


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("utf-16", "UTF-16"), ("utf-32", "UTF-32"), ("utf-16-le", "UTF-16"), ("utf-16-be", "UTF-16")],
)
def test_wide_encodings(encoding: str, name: str) -> None:
    with pytest.raises(ReadError) as caught:
        decode(CONFIG.encode(encoding))
    assert caught.value.kind == "encoding"
    assert name in str(caught.value)


@pytest.mark.parametrize("data", [b"\x00", b'{"a": "\x00"}', b"\x80\x02}q\x00X\x05", b"PK\x03\x04\x00\x00\xff"])
def test_binary_files(data: bytes) -> None:
    with pytest.raises(ReadError) as caught:
        decode(data)
    assert caught.value.kind == "binary"


def test_other_encodings() -> None:
    with pytest.raises(ReadError) as caught:
        decode('{\r\n"\u00e9": "\u20ac",\r\n'.encode() + "\u00e9".encode("latin-1") + b'": 1}')
    error = caught.value
    assert (error.kind, error.offset, error.line) == ("encoding", 17, 3)
    assert "byte 0xe9 at offset 17, line 3" in str(error)


@pytest.mark.parametrize("name", ["train.sh", "jobs/RUN.SBATCH", "Makefile"])
def test_a_comment_of_a_script_may_be_in_any_encoding(name: str) -> None:
    text = decode("# \u8bad\u7ec3\ndeepspeed train.py\n".encode("gbk"), name)
    assert text.splitlines()[1] == "deepspeed train.py"


def test_a_program_may_declare_its_encoding() -> None:
    text = "#!/usr/bin/env python\n# -*- coding: gbk -*-\nname = '\u8bad\u7ec3'\n"
    assert decode(text.encode("gbk"), "train.py") == text


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"# caf\xe9\n", "train.py"),
        (b"# coding: no-such-encoding\n# caf\xe9\n", "train.py"),
        (b"# coding: ascii\n# caf\xe9\n", "train.py"),
        (b"x = 1\ny = 2\n# coding: latin-1\n# caf\xe9\n", "train.py"),
        (b'{"cells": ["caf\xe9"]}', "train.ipynb"),
        (b"# coding: latin-1\n# caf\xe9\n", "ds.json"),
    ],
)
def test_what_no_reader_accepts(data: bytes, name: str) -> None:
    with pytest.raises(ReadError, match="not UTF-8 text: byte 0xe9") as caught:
        decode(data, name)
    assert caught.value.kind == "encoding"


@pytest.mark.parametrize("encode", [base64.urlsafe_b64encode, base64.b64encode, base64.encodebytes])
@pytest.mark.parametrize("config", [CONFIG, ' {"a": "' + "\u00bf?>~" * 30 + '"}', "{}", "train_batch_size: 8\nzero: {}\n"])
def test_base64_configs(encode: object, config: str) -> None:
    assert callable(encode)
    word = encode(config.encode()).decode()
    assert decode_base64(word) == config
    assert decode_base64(f"  {word}\n") == config


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        CONFIG,
        "train",
        "auto",
        "a: 1",
        "AAAA",
        "e30",
        "IiI=",
        base64.b64encode(b"hello").decode(),
        base64.b64encode(b"[1]").decode(),
    ],
)
def test_what_is_no_base64_config(text: str) -> None:
    assert decode_base64(text) is None
