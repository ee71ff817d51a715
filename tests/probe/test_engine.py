"""The probe on the real DeepSpeed: it runs what runs, says what raises, counts every byte, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.command import INTERRUPTIBLE
from tests.probe.running import asked, environment, needs_engine, program, run

pytestmark = [pytest.mark.deepspeed, needs_engine]

BASE: dict[str, Any] = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
HALF = {**BASE, "bf16": {"enabled": True}}
SMALL_BUCKETS = {"reduce_bucket_size": 100_000, "allgather_bucket_size": 100_000}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 172,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}


def stage(number: int, **more: Any) -> dict[str, Any]:
    return {**HALF, "zero_optimization": {"stage": number, **SMALL_BUCKETS, **more}}


def written(folder: Path, config: object, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize(("number", "device"), [(0, "fake"), (1, "cpu"), (2, "fake"), (3, "cpu")])
def test_a_good_config_starts(tmp_path: Path, number: int, device: str) -> None:
    found = asked(written(tmp_path, stage(number)), "--device", device, "--world-size", "8")
    assert found["starts"] is True
    assert found["exit_code"] == 0
    assert (found["steps"], found["skipped"]) == (3, 0)
    assert found["engine"]["stage"] == number
    assert found["engine"]["dtype"] == "bfloat16"
    assert found["states"] > 0
    assert set(found["memory"]) == ({"both"} if device == "cpu" else {"device", "host", "both"})


def test_the_estimate_is_beside_the_measurement(tmp_path: Path) -> None:
    found = asked(
        written(tmp_path, stage(2)), "--device", "fake", "--world-size", "8", "--model", str(written(tmp_path, LLAMA, "model.json"))
    )
    rows = {row["what"]: (row["predicted"], row["measured"]) for row in found["predicted"]}
    for what in ("parameters", "master weights", "optimizer states"):
        predicted, measured = rows[f"between steps: {what}"]
        assert abs(predicted / measured - 1) < 0.001, what
    predicted, measured = rows["between steps"]
    assert abs(predicted / measured - 1) < 0.001
    assert measured == found["memory"]["device"]["steady"]
    assert abs(rows["peak of backward"][0] / rows["peak of backward"][1] - 1) < 0.12


def test_ranks_of_a_stage_share_what_is_divided(tmp_path: Path) -> None:
    path = written(tmp_path, stage(3))
    one, eight, last = (
        asked(path, "--device", "fake", "--steps", "2", *more) for more in ([], ["--world-size", "8"], ["--world-size", "8", "--rank", "7"])
    )
    assert one["memory"]["device"]["parts"]["master weights"] == 8 * eight["memory"]["device"]["parts"]["master weights"]
    assert last["rank"] == 7
    assert last["memory"]["device"]["parts"] == eight["memory"]["device"]["parts"]


def test_offload_puts_states_on_the_host(tmp_path: Path) -> None:
    found = asked(
        written(tmp_path, stage(2, offload_optimizer={"device": "cpu", "pin_memory": True})), "--device", "fake", "--world-size", "4"
    )
    parts = {place: found["memory"][place]["parts"] for place in ("device", "host")}
    assert "optimizer states" not in parts["device"]
    assert parts["host"]["optimizer states"] == 2 * parts["host"]["master weights"]
    assert found["memory"]["host"]["pinned"] > 0


def test_an_exception_is_explained_by_a_rule(tmp_path: Path) -> None:
    config = {**BASE, "bf16": {"enabled": True}, "fp16": {"enabled": True}}
    found = asked(written(tmp_path, config), "--device", "fake")
    assert found["starts"] is False
    assert found["exit_code"] == 1
    assert found["raised"]["phase"] == "parse"
    assert "cannot be simultaneously enabled" in found["raised"]["text"]
    assert [one["code"] for one in found["explained"]] == ["DS301"]
    page = run(tmp_path / "config.json", "--device", "fake").stdout
    assert "Does not start" in page
    assert "DS301" in page


@pytest.mark.parametrize(
    ("config", "phase", "words"),
    [
        ({**BASE, "zero_optimization": {"stge": 2}}, "parse", "Extra inputs are not permitted"),
        ({**BASE, "train_batch_size": 7}, "parse", "Check batch related parameters"),
        ({**BASE, "optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}}, "initialize", "max_grad_norm"),
        ({**HALF, "gradient_clipping": "1.0"}, "step", ""),
        ('{"train_batch_size": 1, "train_batch_size": 1}', "parse", "Duplicate keys"),
    ],
)
def test_what_raises_is_quoted_with_its_phase(tmp_path: Path, config: object, phase: str, words: str) -> None:
    done = run(written(tmp_path, config), "--device", "fake", "--output-format", "json")
    assert done.exit_code == 1
    raised = json.loads(done.stdout)["raised"]
    assert raised["phase"] == phase
    assert words in raised["text"]


def test_a_config_that_cannot_be_read_is_not_run(tmp_path: Path) -> None:
    done = run(written(tmp_path, "{not a config"), "--device", "fake")
    assert done.exit_code == 2
    assert "config.json:1:1" in done.stderr
    assert not done.stdout


def test_over_the_limit(tmp_path: Path) -> None:
    path = written(tmp_path, stage(2))
    done = run(path, "--device", "fake", "--limit", "10MiB")
    assert done.exit_code == 4
    assert "Does not fit in 10 MiB (--limit)" in done.stdout


def test_an_overflow_in_fp16_is_said(tmp_path: Path) -> None:
    """On real tensors a loss scale of 2**28 overflows until it has come down."""
    config = {
        **BASE,
        "fp16": {"enabled": True, "initial_scale_power": 28, "hysteresis": 1},
        "zero_optimization": {"stage": 2, **SMALL_BUCKETS},
    }
    found = asked(written(tmp_path, config), "--device", "cpu")
    assert found["skipped"] > 0
    assert found["steps"] - found["skipped"] >= 2
    assert found["states"] > 0


def test_a_static_scale_that_always_overflows_has_shown_no_states(tmp_path: Path) -> None:
    config = {**BASE, "fp16": {"enabled": True, "loss_scale": 2.0**60}, "zero_optimization": {"stage": 2, **SMALL_BUCKETS}}
    found = run(written(tmp_path, config), "--device", "cpu")
    assert "no optimizer state was created, so none is shown" in " ".join(found.stdout.split())


def test_outputs_are_redirected_and_the_file_stays(tmp_path: Path) -> None:
    config = {
        **stage(3, offload_optimizer={"device": "nvme", "nvme_path": str(tmp_path / "nvme")}),
        "csv_monitor": {"enabled": True, "output_path": str(tmp_path / "csv"), "job_name": "../../up"},
        "flops_profiler": {"enabled": True, "profile_step": 1, "output_file": str(tmp_path / "flops.txt")},
        "aio": {"block_size": 1048576},
    }
    scratch, home = tmp_path / "tmp", tmp_path / "home"
    scratch.mkdir()
    home.mkdir()
    path = written(tmp_path, config)
    before = path.read_bytes()
    done = program(path, "--device", "fake", "--output-format", "json", TMPDIR=str(scratch), HOME=str(home))
    found = json.loads(done.stdout)
    assert set(found["redirected"]) == {
        "zero_optimization.offload_optimizer.nvme_path",
        "csv_monitor.output_path",
        "csv_monitor.job_name",
        "flops_profiler.output_file",
    }
    assert found["raised"] is None
    assert path.read_bytes() == before
    assert sorted(entry.relative_to(tmp_path).as_posix() for entry in tmp_path.rglob("*")) == ["config.json", "home", "tmp"]


def test_a_model_of_a_config_and_its_depths(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model = str(written(tmp_path, LLAMA, "model.json"))
    path = written(tmp_path, stage(3))
    drawn = asked(path, "--device", "fake", "--world-size", "8", "--model", model, "--layers", "2,3,4", "--steps", "2")
    full = asked(path, "--device", "fake", "--world-size", "8", "--model", model, "--steps", "2")
    assert drawn["depths"]["measured"] == [2, 3, 4]
    assert drawn["depths"]["holds"] is True
    assert drawn["layers"] == full["layers"] == 6
    assert drawn["parameters"] == full["parameters"]
    for place in ("device", "host"):
        assert drawn["memory"][place]["steady"] == pytest.approx(full["memory"][place]["steady"], rel=0.01)
    assert drawn["memory"]["device"]["peak"] == pytest.approx(full["memory"]["device"]["peak"], rel=0.01)


def test_a_model_with_a_padding_token_is_built_in_parts(tmp_path: Path) -> None:
    """transformers clears the row of the token, which a partitioned weight does not have."""
    pytest.importorskip("transformers")
    path = written(tmp_path, stage(3))
    with_token, without = (
        asked(
            path, "--device", "fake", "--world-size", "8", "--model", str(written(tmp_path, {**LLAMA, "pad_token_id": token}, "model.json"))
        )
        for token in (0, None)
    )
    assert with_token["raised"] is None
    assert with_token["memory"]["device"]["peaks"] == without["memory"]["device"]["peaks"]


def test_a_large_model_is_scaled_down_for_the_cpu_and_that_is_said(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    large = {**LLAMA, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
    done = run(written(tmp_path, stage(2)), "--device", "cpu", "--model", str(written(tmp_path, large, "model.json")))
    assert done.exit_code == 0
    assert "2 of 32 layers, hidden size 256 of 4,096" in " ".join(done.stdout.split())


MODEL_FN = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)

    def forward(self, x):
        return self.layer(x).float().pow(2).mean()

def make():
    return Net(), lambda size, device: (torch.randn(size, 32, device=device, dtype=torch.bfloat16),)

def wrong():
    return Net()

def raises():
    raise RuntimeError("there are no weights here")
"""


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_ones_own_model(tmp_path: Path, device: str) -> None:
    (tmp_path / "mine.py").write_text(MODEL_FN, encoding="utf-8")
    found = asked(written(tmp_path, stage(2)), "--device", device, "--model-fn", "mine:make")
    assert found["starts"] is True
    assert found["parameters"] == 32 * 32 + 32


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("mine:wrong", "must return (module, make_batch)"),
        ("mine:nothing", "cannot be imported: AttributeError"),
        ("other:make", "cannot be imported: ModuleNotFoundError: No module named 'other'"),
        ("mine:raises", "raised RuntimeError: there are no weights here"),
    ],
)
def test_functions_that_give_no_model(tmp_path: Path, function: str, words: str) -> None:
    (tmp_path / "mine.py").write_text(MODEL_FN, encoding="utf-8")
    done = run(written(tmp_path, stage(2)), "--device", "fake", "--model-fn", function)
    assert done.exit_code == 3
    assert words in " ".join(done.stdout.split())


def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        MODEL_FN + "def make():\n    return Full(), lambda size, device: (torch.randn(size, 32, device=device),)\n"
        "class Full(Net):\n    def forward(self, x):\n        raise OSError(28, 'No space left on device')\n",
        encoding="utf-8",
    )
    done = run(written(tmp_path, stage(2)), "--device", "fake", "--model-fn", "mine:make")
    assert done.exit_code == 3
    assert "the disk with the temporary folder is full; set TMPDIR to another location" in " ".join(done.stdout.split())


def test_a_model_that_transformers_does_not_know(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model = written(tmp_path, {**LLAMA, "model_type": "nonesuch"}, "model.json")
    done = run(written(tmp_path, stage(2)), "--device", "fake", "--model", str(model))
    assert done.exit_code == 3
    assert "nonesuch" in done.stdout


def test_comparing(tmp_path: Path) -> None:
    path = written(tmp_path, stage(0))
    found = asked(path, "--device", "fake", "--world-size", "8", "--compare", "stage=1,2,3", "--steps", "2")
    assert [variant["name"] for variant in found["variants"]] == ["stage 1", "stage 2", "stage 3"]
    steady = [variant["result"]["memory"]["device"]["steady"] for variant in found["variants"]]
    assert steady == sorted(steady, reverse=True)
    done = run(path, "--device", "fake", "--compare", "activation-checkpointing", "--steps", "2")
    assert done.exit_code == 0
    assert "with checkpointing" in done.stdout


def test_searching(tmp_path: Path) -> None:
    path = written(tmp_path, stage(2))
    found = asked(path, "--device", "fake", "--search", "micro-batch", "--limit", "120MiB", "--steps", "2")
    peaks = {one["micro_batch"]: one["result"]["memory"]["device"]["peak"] for one in found["tried"]}
    assert peaks[found["largest"]] <= 120 * 2**20 < peaks[found["largest"] + 1]
    assert run(path, "--device", "fake", "--search", "micro-batch", "--limit", "1MiB").exit_code == 4


def test_plotting(tmp_path: Path) -> None:
    from xml.etree import ElementTree as ET

    path = written(tmp_path, stage(2))
    assert run(path, "--device", "fake", "--plot", str(tmp_path / "a.svg"), "--limit", "1GiB").exit_code == 0
    picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert ET.fromstring(picture).tag.endswith("svg")
    assert picture.count("<polyline") == 2
    assert "backward" in picture


def test_cuda_where_there_is_none(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = run(written(tmp_path, stage(2)), "--device", "cuda")
    assert done.exit_code == 3
    assert "finds no GPU" in done.stdout


def test_a_timeout_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import time\ndef make():\n    time.sleep(600)\n", encoding="utf-8")
    start = time.monotonic()
    done = program(written(tmp_path, stage(2)), "--device", "cpu", "--model-fn", "mine:make", "--timeout", "5")
    assert done.returncode == 3
    assert time.monotonic() - start < 60
    assert "no answer within 5 s" in " ".join(done.stdout.split())


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are a thing of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_end_from_outside_leaves_no_process(tmp_path: Path, number: int) -> None:
    marker, held = tmp_path / "pid", tmp_path / "lock"
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    (tmp_path / "mine.py").write_text(
        f"import os, subprocess, time\ndef make():\n    other = subprocess.Popen(['sleep', '600'])\n"
        f"    open({str(marker)!r} + '.new', 'w').write(f'{{os.getpid()}} {{other.pid}}')\n"
        f"    open({str(held)!r}, 'w').close()\n"  # as torch does while it compiles an op
        f"    os.rename({str(marker)!r} + '.new', {str(marker)!r})\n"
        f"    try:\n        time.sleep(600)\n    finally:\n        os.remove({str(held)!r})\n",
        encoding="utf-8",
    )
    program = subprocess.Popen(
        [*INTERRUPTIBLE, "probe", str(written(tmp_path, stage(2))), "--device", "cpu", "--model-fn", "mine:make"],
        cwd=tmp_path,
        env=environment(TMPDIR=str(scratch)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _until(marker.exists, 120)
        program.send_signal(number)
        if number == signal.SIGINT:
            program.send_signal(number)  # impatience
        _, errors = program.communicate(timeout=30)
    finally:
        program.kill()
    assert program.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[signal.Signals(number)]
    assert "Traceback" not in errors
    _until(lambda: not any(map(_alive, map(int, marker.read_text().split()))), 20)
    assert not held.exists()
    assert number == signal.SIGKILL or list(scratch.iterdir()) == []


def _until(condition: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        return "State:\tZ" not in status.read_text()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path("/proc").is_dir()


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def ranks(path: Path, *options: str) -> list[tuple[int, str, str]]:
    """Two real ranks, with what srun tells them: exit code and streams of each."""
    port = str(_free_port())
    programs = [
        subprocess.Popen(
            [sys.executable, "-m", "dslint", "probe", str(path), *options],
            cwd=path.parent,
            env=environment(
                SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), SLURM_STEP_NUM_TASKS="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    streams = [program.communicate(timeout=200) for program in programs]
    return [(program.returncode, *both) for program, both in zip(programs, streams, strict=True)]


def test_two_real_ranks_over_gloo(tmp_path: Path) -> None:
    """Each holds half of what is divided, as the rank that plays one of two alone says, too."""
    path = written(tmp_path, stage(2))
    (first, output, _), (second, silent, _) = ranks(path, "--device", "cpu", "--output-format", "json")
    assert (first, second, silent) == (0, 0, "")
    found = json.loads(output)
    assert (found["ranks"], found["world_size"]) == (2, 2)
    alone = asked(path, "--device", "cpu", "--world-size", "2")
    for part in ("master weights", "optimizer states", "parameters"):
        assert found["memory"]["both"]["parts"][part] == alone["memory"]["both"]["parts"][part]


def test_real_ranks_that_raise(tmp_path: Path) -> None:
    """A model that only one rank can run: the other waits in a collective, and is not left there."""
    (tmp_path / "mine.py").write_text(
        MODEL_FN + "import os\nclass Bad(Net):\n    def forward(self, x):\n        if os.environ['RANK'] == '1':\n"
        "            raise RuntimeError('only here')\n        return super().forward(x)\n"
        "def bad():\n    return Bad(), make()[1]\n",
        encoding="utf-8",
    )
    path = written(tmp_path, stage(2))
    start = time.monotonic()
    (first, output, _), (second, _, _) = ranks(path, "--device", "cpu", "--model-fn", "mine:bad", "--output-format", "json")
    assert first == 1
    assert second != 0
    assert json.loads(output)["raised"]["text"] == "only here"
    assert time.monotonic() - start < 120


def test_fake_is_for_one_rank(tmp_path: Path) -> None:
    (first, output, _), _ = ranks(written(tmp_path, stage(2)), "--device", "fake")
    assert first == 3
    assert "simulates a single rank" in output


def test_torchrun_starts_it(tmp_path: Path) -> None:
    path = written(tmp_path, stage(3))
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(_free_port())]
    done = subprocess.run(
        [sys.executable, *command, "-m", "dslint", "probe", str(path), "--device", "cpu"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Starts:") == 1
    assert "with 2 real ranks" in done.stdout


FAMILIES = {
    "llama": {"intermediate_size": 1408, "num_key_value_heads": 4, "tie_word_embeddings": False},
    "qwen3": {"intermediate_size": 1408, "num_key_value_heads": 4, "head_dim": 64, "tie_word_embeddings": True},
    "gpt2": {"n_positions": 1024},
}
"""Of gpt2, linear layers are `Conv1D`."""


SOME_LAYERS = ("--lora-targets", "c_attn,q_proj,down_proj,c_proj")


@pytest.mark.parametrize(
    ("family", "number", "targets"),
    [("llama", 2, ()), ("llama", 3, SOME_LAYERS), ("qwen3", 2, SOME_LAYERS), ("qwen3", 3, ()), ("gpt2", 2, ()), ("gpt2", 3, SOME_LAYERS)],
)
def test_adapters_take_what_is_estimated(family: str, number: int, targets: tuple[str, ...], tmp_path: Path) -> None:
    sizes = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 8192}
    (tmp_path / "m.json").write_text(json.dumps({"model_type": family, **sizes, **FAMILIES[family]}), encoding="utf-8")
    options = ("--device", "fake", "--model", "m.json", "--world-size", "4", "--lora-rank", "8", *targets, "--sequence-length", "256")
    done = program(written(tmp_path, {**stage(number), "bf16": {"enabled": True}}), *options, "--output-format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(done.stdout)
    assert data["model"].endswith("with LoRA of rank 8")
    for what, predicted, measured in (tuple(row.values()) for row in data["predicted"]):
        assert predicted == pytest.approx(measured, rel=0.03), what


def test_adapters_need_a_layer_and_no_function(tmp_path: Path) -> None:
    done = run(written(tmp_path, stage(2)), "--device", "fake", "--lora-rank", "8", "--lora-targets", "q_prj")
    assert done.exit_code == 3
    assert "no linear layer is named q_prj" in " ".join(done.stdout.split())
    done = run(written(tmp_path, stage(2)), "--lora-targets", "q_proj")
    assert "--lora-targets requires --lora-rank" in done.output
    done = run(written(tmp_path, stage(2)), "--lora-rank", "8", "--model-fn", "mine:make")
    assert "cannot be combined with --model-fn" in done.output
