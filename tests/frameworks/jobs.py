"""A training job as files and a command, and what a real framework did with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "float32",
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128,
}
"""The `config.json` of the model that all jobs train."""


ROWS = 24
"""The rows of each of the files with data."""


def _data() -> dict[str, str]:
    talk = lambda row: [{"role": "user", "content": "hello"}, {"role": "assistant", "content": f"world {row}"}]  # noqa: E731
    question = {"prompt": [{"role": "user", "content": "hello"}]}
    answer = lambda name, row: [{"role": "assistant", "content": f"{name} {row}"}]  # noqa: E731
    pairs = [question | {name: answer(name, row) for name in ("chosen", "rejected")} for row in range(ROWS)]
    return {
        "data/messages.jsonl": "".join(json.dumps({"messages": talk(row)}) + "\n" for row in range(ROWS)),
        "data/pairs.jsonl": "".join(json.dumps(pair) + "\n" for pair in pairs),
        "data/alpaca.json": json.dumps([{"instruction": "say hello", "input": "", "output": "hello world"}] * ROWS),
        "data/dataset_info.json": json.dumps({"tiny": {"file_name": "alpaca.json"}}),
    }


DATA = _data()
"""The files with data that jobs train with."""


class Job(NamedTuple):
    """A job: the texts of its files by name, its command and environment, and the number of GPUs.

    `outcome` is "initialize" if the framework reached `deepspeed.initialize` with `config`, "raises" if it raised `error` of `type`, "finished" if it
    trained without DeepSpeed. `refused` is what DeepSpeed itself raises for `config`, or None, and `engine` what
    the getters of its engine say, by dotted keys.
    """

    id: str
    framework: str
    release: dict[str, str]
    files: dict[str, str]
    command: list[str]
    env: dict[str, str]
    gpus: int
    outcome: str = ""
    error: str | None = None
    config: dict[str, Any] | None = None
    refused: str | None = None
    world_size: int | None = None
    type: str | None = None
    engine: dict[str, Any] | None = None

    @property
    def raises(self) -> bool:
        """Whether the job ends before the first step."""
        return self.outcome == "raises" or self.refused is not None


def read_jobs(path: Path) -> Iterator[Job]:
    """The jobs of a file of JSON lines."""
    for line in path.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        files = {name: text if isinstance(text, str) else json.dumps(text, indent=2) for name, text in data["files"].items()}
        yield Job(**{**{name: data.get(name) for name in Job._fields}, "files": files, "refused": data.get("refused", data.get("parse"))})


def lay_out(job: Job, folder: Path) -> None:
    """Write the files of a job, with the config of its model and its data."""
    for name, text in {"model/config.json": json.dumps(MODEL), **DATA, **job.files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
