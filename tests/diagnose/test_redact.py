"""A redacted report keeps only what is known to be harmless: secrets planted anywhere never come out, in any format."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from dslint.report.diagnosis_html import as_html
from dslint.report.diagnosis_json import as_json
from dslint.report.diagnosis_markdown import as_markdown
from dslint.report.diagnosis_page import page
from dslint.report.redact import Cleaner, redacted
from dslint.report.style import Style
from tests.cases import table
from tests.diagnose.logs import FINISHED, OOM, RETURNED, STARTED, all_diagnosed, traceback

ROUNDS = 40
LETTERS, HEX = string.ascii_letters + string.digits, "0123456789abcdef"


def _text(pick: random.Random, size: int, letters: str = LETTERS) -> str:
    return "".join(pick.choices(letters, k=size))


def _person(pick: random.Random) -> str:
    return pick.choice(("mkowalski", "ayse.yilmaz", "xuwei92", "jdoe7", "o.nwachukwu", "priyanka_s")) + _text(
        pick, 2, string.ascii_lowercase
    )


def _project(pick: random.Random) -> str:
    return "-".join(_text(pick, 5, string.ascii_lowercase) for _ in range(2))


KINDS: dict[str, Callable[[random.Random], str]] = {
    "hugging face": lambda pick: "hf_" + _text(pick, 34),
    "wandb": lambda pick: _text(pick, 40, HEX),
    "openai": lambda pick: "sk-proj-" + _text(pick, 48),
    "anthropic": lambda pick: "sk-ant-api03-" + _text(pick, 40),
    "github": lambda pick: "ghp_" + _text(pick, 36),
    "github fine": lambda pick: "github_pat_" + _text(pick, 30),
    "gitlab": lambda pick: "glpat-" + _text(pick, 20),
    "aws key": lambda pick: "AKIA" + _text(pick, 16, string.ascii_uppercase + string.digits),
    "aws secret": lambda pick: _text(pick, 20) + "/" + _text(pick, 19),
    "gcp": lambda pick: "AIza" + _text(pick, 35),
    "azure": lambda pick: _text(pick, 43) + "==",
    "slack": lambda pick: f"xoxb-{pick.randrange(10**11)}-{_text(pick, 24)}",
    "jwt": lambda pick: "eyJ" + ".".join(_text(pick, 20) for _ in range(3)),
    "base64": lambda pick: base64.b64encode(_text(pick, 21).encode()).decode(),
    "password": lambda pick: _text(pick, 5) + pick.choice("!@#$%") + _text(pick, 5),
    "ipv4": lambda pick: ".".join(str(pick.randrange(11, 250)) for _ in range(4)),
    "ipv6": lambda pick: "fe80::" + ":".join(f"{pick.randrange(4096, 65536):x}" for _ in range(4)),
    "mac": lambda pick: ":".join(f"{pick.randrange(256):02x}" for _ in range(6)),
    "uuid": lambda pick: "-".join(_text(pick, size, HEX) for size in (8, 4, 4, 4, 12)),
    "host": lambda pick: f"{_text(pick, 6, string.ascii_lowercase)}-gpu-{pick.randrange(99)}",
    "fqdn": lambda pick: f"{_text(pick, 7, string.ascii_lowercase)}.{_text(pick, 6, string.ascii_lowercase)}.internal",
    "pod": lambda pick: f"{_project(pick)}-{_text(pick, 9, HEX)}-{_text(pick, 5)}",
    "user": _person,
    "mail": lambda pick: f"{_person(pick)}@{_text(pick, 6, string.ascii_lowercase)}.com",
    "bucket": lambda pick: f"s3://{_project(pick)}/{_text(pick, 8)}",
    "url": lambda pick: f"https://{_text(pick, 8, string.ascii_lowercase)}.example/{_text(pick, 8)}?x={_text(pick, 12)}",
    "repository": lambda pick: f"{_project(pick)}/{_project(pick)}",
    "folder": lambda pick: f"/{_text(pick, 6, string.ascii_lowercase)}/{_project(pick)}/{_person(pick)}",
    "windows": lambda pick: f"C:\\Users\\{_person(pick)}\\{_project(pick)}",
    "project": lambda pick: _project(pick).replace("-", "_"),
    "name": lambda pick: _text(pick, 9, "bcdfgkqvxz"),
}
PLACES: tuple[Callable[[str], str], ...] = (
    lambda it: traceback(f"ValueError: cannot use {it}"),
    lambda it: traceback(f"FileNotFoundError: [Errno 2] No such file or directory: '{it}'"),
    lambda it: traceback(f"PermissionError: [Errno 13] Permission denied: '/data/{it}/model.bin'"),
    lambda it: traceback(f"RuntimeError: HTTP 401 for url https://x.example/{it}?token={it}"),
    lambda it: traceback(f"OSError: {it} is not a local folder and is not a valid model identifier"),
    lambda it: traceback("ValueError: no", (f"/home/{it}/train.py", 3, "main", f"login(token='{it}')")),
    lambda it: traceback("ValueError: no", ("train.py", 3, "main", f"wandb.init(project={it!r}, key={it!r})")),
    lambda it: traceback("ValueError: no", prefix=f"{it}: [rank0]: "),
    lambda it: traceback(f"KeyError: {it!r}"),
    lambda it: traceback(OOM, (f"/opt/{it}/model.py", 3, "forward", f"return {it}(x)")),
    lambda it: f"[2026-05-04 09:12:07,101] [INFO] [runner.py:605:main] cmd = python -m deepspeed.launcher.launch t.py --model_name_or_path {it}\n"
    + traceback("ValueError: no"),
    lambda it: f"srun: error: {it}: task 0: Exited with exit code 1",
    lambda it: f"slurmstepd: error: *** JOB 1 ON {it} CANCELLED AT 2026-05-04T09:12:07 ***",
    lambda it: f"fatal error: cannot clone {it}: secret={it} denied",
    lambda it: f"export TOKEN={it}; PASSWORD='{it}' failed",
    lambda it: traceback("ValueError: x\n  detail: " + it),
    lambda it: '[2026-05-04 09:12:09,530] [INFO] [config.py:1000:print_user_config]   json = {\n    "train_batch_size": 8, \n'
     f'    "wandb": {{"enabled": true, "team": {json.dumps(it)}}},\n    {json.dumps(it)}: 3\n}}\n' + traceback("ValueError: no"),
    lambda it: json.dumps({"host": it, "message": f"RuntimeError: CUDA error: {it}"}),
    lambda it: f"DeepSpeed info: version=0.16.9+{it}, git-hash={it}\n" + traceback("ValueError: no"),
    lambda it: f"[rank0]:[E1122 00:21:12.9 ProcessGroupNCCL.cpp:683] NCCL WARN NET/IB : Got completion from peer {it}<45> with status=12 vendor err 129",
)  # fmt: skip


def reports(text: str, name: str) -> list[str]:
    found = redacted(all_diagnosed(text, name=name))
    return [as_json(found), as_markdown(found), as_html(found), page(found, Style(color=False, width=2000))]


def leaks(seed: int) -> list[str]:
    """The planted secrets that come out."""
    pick = random.Random(seed)
    planted, parts = [], [STARTED]
    for _ in range(3):
        it = KINDS[pick.choice(list(KINDS))](pick)
        planted.append(it)
        parts.append(pick.choice(PLACES)(it))
    parts.append(pick.choice((FINISHED, RETURNED.format(code=1))))
    name = pick.choice((f"/scratch/{planted[0].replace('/', '_')}/job.log", "job.log", f"{_person(pick)}.log"))
    texts = reports("\n".join(parts), name)
    return [it for it in planted for text in texts if it in text or json.dumps(it)[1:-1] in text or it in text.replace("<wbr>", "")]


def test_planted_secrets_never_come_out() -> None:
    for seed in [random.randrange(10**9) for _ in range(ROUNDS)]:
        assert leaks(seed) == [], f"seed {seed}"


FORMS = ["{}", "x {} y", "a={}", '"{}"', "({})", "{},", "/a/{}/b.py", "--key {}", "Bearer {}", "https://u:{}@h.com"]


@table("kind, form", product(KINDS, FORMS))
def test_each_kind_of_secret(kind: str, form: str) -> None:
    for seed in range(5):
        it = KINDS[kind](random.Random(seed))
        assert it not in Cleaner().clean(form.format(it))


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 2 has a total capacity of 79.15 GiB of which 1.32 GiB is free.",
        "Raised at deepspeed/runtime/engine.py:2215, in step.",
        "RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 1",
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 16 != 2 * 1 * 1",
        "Rank 3; last time stamp before: 2026-05-04 09:12:43.",
        "WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.",
        'Set "stage": 3 to offload parameters, or use offload_optimizer.',
        "Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9).",
    ],
)
def test_what_helps_stays(text: str) -> None:
    assert Cleaner().clean(text) == text


def test_equal_texts_have_equal_stand_ins() -> None:
    cleaner = Cleaner(["gpu-7"])
    assert cleaner.clean("gpu-7 /a/b/train.py gpu-7.cluster /a/b/x.py") == "<host-1> <path-1>/train.py <host-2> <path-1>/x.py"
    assert cleaner.clean("gpu-7") == "<host-1>"


def test_the_list_holds_no_name_of_a_machine() -> None:
    words = json.loads((Path(__file__).parents[2] / "dslint/report/harmless_words.json").read_text())["words"]
    assert not {"gpu7", "node1", "worker2", "mkowalski", "jane"} & set(words)
