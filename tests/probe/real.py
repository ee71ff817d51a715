"""Trainings of real sizes for a GPU: 0.5 to 8 billion parameters, every stage, dense models and experts, adapters, offload.

    python -m tests.probe.real FILE [NAME ...]

runs them (or those named) on the GPU of this machine, prints how far the estimate is from each phase, and adds what was measured to FILE.
h100.jsonl has what an H100 measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dslint.probe import session
from dslint.probe.answer import Answer, Memory
from dslint.probe.question import ProbedModel, Question
from tests.probe.matrix import Drawn, compared

RECORDS = Path(__file__).with_name("h100.jsonl")
"""Measurements of an H100 (80 GB, driver 580) with DeepSpeed 0.19.8, torch 2.11 and transformers 5.17. In those of which the optimizer is
"AdamW", torch's Adam replaced the fused one, which did not compile there at first.
"""


def _model(family: str, hidden: int, ffn: int, layers: int, heads: tuple[int, int], vocabulary: int, **more: Any) -> dict[str, Any]:
    """A config.json; `heads` are those of queries, and those of keys and values."""
    return {
        "model_type": family,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        "max_position_embeddings": 32768,
        **more,
    }


_TIED = {"tie_word_embeddings": True}
_ROUTED = {
    "n_routed_experts": 32,
    "num_experts_per_tok": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_LATENT = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
_OSS = {"head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4, "pad_token_id": None, "eos_token_id": 1}
_Q3_MOE = {"head_dim": 128, "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 768}

MODELS = {
    "llama-1b": _model("llama", 2048, 8192, 16, (32, 8), 128256, **_TIED, head_dim=64),
    "llama-8b": _model("llama", 4096, 14336, 32, (32, 8), 128256),
    "qwen2.5-0.5b": _model("qwen2", 896, 4864, 24, (14, 2), 151936, **_TIED),
    "qwen2.5-1.5b": _model("qwen2", 1536, 8960, 28, (12, 2), 151936, **_TIED),
    "qwen3-1.7b": _model("qwen3", 2048, 6144, 28, (16, 8), 151936, **_TIED, head_dim=128),
    "qwen3-4b": _model("qwen3", 2560, 9728, 36, (32, 8), 151936, **_TIED, head_dim=128),
    "mistral-7b": _model("mistral", 4096, 14336, 32, (32, 8), 32000, sliding_window=None),
    "gemma3-1b": _model("gemma3_text", 1152, 6912, 26, (4, 1), 262144, **_TIED, head_dim=256, pad_token_id=0),
    "smollm3-3b": _model("smollm3", 2048, 11008, 36, (16, 4), 128256, **_TIED, pad_token_id=0),
    "granite-2b": _model("granite", 2048, 8192, 40, (32, 8), 49155, **_TIED),
    "olmo2-1b": _model("olmo2", 2048, 8192, 16, (16, 16), 100352),
    "neox-1.4b": _model("gpt_neox", 2048, 8192, 24, (16, 16), 50304),
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257},
    "mixtral, 8 layers": _model("mixtral", 2048, 7168, 8, (32, 8), 32000, num_local_experts=8, num_experts_per_tok=2),
    "qwen3-moe, 8 layers": _model("qwen3_moe", 2048, 6144, 8, (32, 4), 151936, **_Q3_MOE),
    "gpt-oss, 4 layers": _model("gpt_oss", 2880, 2880, 4, (64, 8), 201088, **_OSS),
    "deepseek, 8 layers": _model("deepseek_v3", 2048, 5632, 8, (16, 16), 102400, **_LATENT, **_ROUTED, moe_intermediate_size=1408),
}

_HOST = {"device": "cpu", "pin_memory": True}
_CHECKPOINTING = {"checkpointing": True}


def _training(name: str, stage: int, ranks: int, tokens: int, batch: int, *, config: dict[str, Any] | None = None, **more: Any) -> Drawn:
    """`ranks` beyond the first are simulated. `config` is added to the config, `precision`, `zero` and `adapters` say the rest."""
    precision, zero = more.pop("precision", "bf16"), more.pop("zero", {})
    adapters = more.pop("adapters", 0)
    scale = {"initial_scale_power": 8} if precision == "fp16" else {}
    text = {
        "train_micro_batch_size_per_gpu": batch,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": {"stage": stage, **zero},
        "zero_allow_untested_optimizer": True,
        precision: {"enabled": True, **scale},
        **(config or {}),
    }
    words = [name, f"stage {stage}", f"{ranks} rank{'s' * (ranks > 1)}", f"{batch} x {tokens:,} tokens", precision]
    words += ["LoRA"] * bool(adapters) + [f"{key.removeprefix('offload_')} on CPU" for key in zero]
    words += ["Muon"] * ("optimizer" in (config or {}))
    words += ["checkpointing"] * more.get("checkpointing", False)
    model = ProbedModel(data=MODELS[name], adapters=adapters)
    question = Question(json.dumps(text), device="cuda", world_size=ranks, model=model, sequence=tokens, **more)
    return Drawn(", ".join(words), question)


TRAININGS = (
    _training("llama-1b", 0, 1, 2048, 2),
    _training("llama-1b", 0, 1, 2048, 4),
    _training("llama-1b", 0, 1, 2048, 8, **_CHECKPOINTING),
    _training("llama-1b", 2, 4, 2048, 4, **_CHECKPOINTING),
    _training("llama-1b", 2, 1, 2048, 8, adapters=16, **_CHECKPOINTING),
    _training("qwen2.5-1.5b", 1, 8, 4096, 2, config={"gradient_accumulation_steps": 2}, steps=2, **_CHECKPOINTING),
    _training("qwen3-1.7b", 2, 8, 1024, 4, rank=3),
    _training("qwen3-4b", 3, 8, 4096, 2, **_CHECKPOINTING),
    _training("llama-8b", 3, 8, 8192, 1, **_CHECKPOINTING),
    _training("llama-8b", 3, 8, 2048, 2),
    _training("llama-8b", 3, 2, 2048, 4, adapters=16, **_CHECKPOINTING),
    _training("llama-8b", 3, 8, 2048, 4, zero={"offload_optimizer": _HOST, "offload_param": _HOST}, **_CHECKPOINTING),
    _training("mistral-7b", 3, 16, 2048, 1),
    _training("gemma3-1b", 2, 1, 2048, 2),
    _training("smollm3-3b", 2, 8, 4096, 1, **_CHECKPOINTING),
    _training("granite-2b", 0, 1, 1024, 2, **_CHECKPOINTING),
    _training(
        "olmo2-1b", 2, 1, 2048, 4, config={"optimizer": {"type": "Muon", "params": {"lr": 1e-3, "momentum": 0.95}}}, **_CHECKPOINTING
    ),
    _training("qwen2.5-0.5b", 2, 1, 16384, 1, **_CHECKPOINTING),
    _training("neox-1.4b", 2, 2, 2048, 4, precision="fp16", **_CHECKPOINTING),
    _training("gpt2-xl", 1, 4, 1024, 4, precision="fp16"),
    _training("mixtral, 8 layers", 3, 8, 2048, 2, **_CHECKPOINTING),
    _training("qwen3-moe, 8 layers", 3, 8, 2048, 2),
    _training("qwen3-moe, 8 layers", 3, 8, 2048, 4, **_CHECKPOINTING),
    _training("gpt-oss, 4 layers", 3, 8, 2048, 1, **_CHECKPOINTING),
    _training("deepseek, 8 layers", 3, 8, 2048, 2, **_CHECKPOINTING),
)

_KEPT = ("device", "hardware", "capacity", "model", "parameters", "layers", "versions", "engine", "step_seconds")


def recorded() -> Iterator[tuple[Drawn, Answer]]:
    """The trainings that ran, with what was measured."""
    by_name = {training.name: training for training in TRAININGS}
    for line in RECORDS.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        memory = {"device": Memory(**data.pop("memory"))}
        yield by_name[data.pop("name")], Answer(memory=memory, **data)


def record(path: Path, training: Drawn, answer: Answer) -> None:
    """Add a measurement to a file."""
    data = asdict(answer)
    memory = data["memory"]["device"]
    kept = {name: memory[name] for name in ("initialized", "steady", "peaks", "reserved", "context", "driver")}
    line = {"name": training.name, **{name: data[name] for name in _KEPT}, "memory": kept}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def main(file: str, *names: str) -> None:
    """Run, compare, print, record."""
    for training in TRAININGS:
        if names and training.name not in names:
            continue
        answer = session.ask(training.question, timeout=180, progress=lambda *_: None)
        one = compared(training, answer)
        if one.errors:
            record(Path(file), training, answer)
        words = " ".join(f"{phase} {100 * error:+.1f}%" for phase, error in one.errors.items())
        print(f"{one.name}: {words or one.why}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
