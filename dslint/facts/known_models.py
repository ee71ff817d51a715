"""Known models by name: the sizes in the `config.json` of their repositories on huggingface.co.

Names are patterns: `preset` removes the organization and words such as "-instruct" from a name, so that `meta-llama/Llama-3.1-8B-Instruct`
is `llama-3.1-8b`. The number of parameters of every model here is tested against its published one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

_DECODERS = """
llama-7b              llama    4096  11008  32  32  32   32000   2048
llama-13b             llama    5120  13824  40  40  40   32000   2048
llama-30b             llama    6656  17920  60  52  52   32000   2048
llama-33b             llama    6656  17920  60  52  52   32000   2048
llama-65b             llama    8192  22016  80  64  64   32000   2048
llama-2-7b            llama    4096  11008  32  32  32   32000   4096
llama-2-13b           llama    5120  13824  40  40  40   32000   4096
llama-2-70b           llama    8192  28672  80  64   8   32000   4096
llama-3-8b            llama    4096  14336  32  32   8  128256   8192
llama-3-70b           llama    8192  28672  80  64   8  128256   8192
llama-3.1-8b          llama    4096  14336  32  32   8  128256 131072
llama-3.1-70b         llama    8192  28672  80  64   8  128256 131072
llama-3.1-405b        llama   16384  53248 126 128   8  128256 131072
llama-3.2-1b          llama    2048   8192  16  32   8  128256 131072 tied
llama-3.2-3b          llama    3072   8192  28  24   8  128256 131072 tied
llama-3.3-70b         llama    8192  28672  80  64   8  128256 131072
codellama-7b          llama    4096  11008  32  32  32   32016  16384
codellama-13b         llama    5120  13824  40  40  40   32016  16384
codellama-34b         llama    8192  22016  48  64   8   32000  16384
vicuna-7b             llama    4096  11008  32  32  32   32000   4096
vicuna-13b            llama    5120  13824  40  40  40   32000   4096
tinyllama-1.1b        llama    2048   5632  22  32   4   32000   2048
smollm2-135m          llama     576   1536  30   9   3   49152   8192 tied
smollm2-360m          llama     960   2560  32  15   5   49152   8192 tied
smollm2-1.7b          llama    2048   8192  24  32  32   49152   8192 tied
yi-6b                 llama    4096  11008  32  32   4   64000   4096
yi-34b                llama    7168  20480  60  56   8   64000   4096
deepseek-llm-7b       llama    4096  11008  30  32  32  102400   4096
baichuan-7b           llama    4096  11008  32  32  32   64000   4096 auto_map
baichuan-13b          llama    5120  13696  40  40  40   64000   4096 auto_map
baichuan2-7b          llama    4096  11008  32  32  32  125696   4096 auto_map
baichuan2-13b         llama    5120  13696  40  40  40  125696   4096 auto_map
internlm2-7b          llama    4096  14336  32  32   8   92544  32768 auto_map
internlm2-20b         llama    6144  16384  48  48   8   92544  32768 auto_map
chatglm2-6b           qwen2    4096  13696  28  32   2   65024  32768 auto_map
chatglm3-6b           qwen2    4096  13696  28  32   2   65024   8192 auto_map
deepseek-coder-1.3b   llama    2048   5504  24  16  16   32256  16384
deepseek-coder-6.7b   llama    4096  11008  32  32  32   32256  16384
deepseek-coder-33b    llama    7168  19200  62  56   8   32256  16384
deepseek-r1-distill-llama-8b  llama 4096 14336 32 32 8 128256 131072
deepseek-r1-distill-llama-70b llama 8192 28672 80 64 8 128256 131072
mistral-7b            mistral  4096  14336  32  32   8   32000  32768
mistral-7b-v0.3       mistral  4096  14336  32  32   8   32768  32768
zephyr-7b             mistral  4096  14336  32  32   8   32000  32768
mistral-nemo-12b      mistral  5120  14336  40  32   8  131072 131072 head_dim=128
mistral-small-24b     mistral  5120  32768  40  32   8  131072  32768 head_dim=128
mixtral-8x7b          mixtral  4096  14336  32  32   8   32000  32768 num_local_experts=8 num_experts_per_tok=2
mixtral-8x22b         mixtral  6144  16384  56  48   8   32768  65536 num_local_experts=8 num_experts_per_tok=2
qwen-1.8b             qwen2    2048   5504  24  16  16  151936   8192 auto_map
qwen-7b               qwen2    4096  11008  32  32  32  151936   8192 auto_map
qwen-14b              qwen2    5120  13696  40  40  40  152064   8192 auto_map
qwen-72b              qwen2    8192  24576  80  64  64  152064  32768 auto_map
qwen1.5-0.5b          qwen2    1024   2816  24  16  16  151936  32768 tied
qwen1.5-1.8b          qwen2    2048   5504  24  16  16  151936  32768
qwen1.5-4b            qwen2    2560   6912  40  20  20  151936  32768
qwen1.5-7b            qwen2    4096  11008  32  32  32  151936  32768
qwen1.5-14b           qwen2    5120  13696  40  40  40  152064  32768
qwen1.5-32b           qwen2    5120  27392  64  40   8  152064  32768
qwen1.5-72b           qwen2    8192  24576  80  64  64  152064  32768
qwen1.5-110b          qwen2    8192  49152  80  64   8  152064  32768
qwen2.5-0.5b          qwen2     896   4864  24  14   2  151936  32768 tied
qwen2.5-1.5b          qwen2    1536   8960  28  12   2  151936  32768 tied
qwen2.5-3b            qwen2    2048  11008  36  16   2  151936  32768 tied
qwen2.5-7b            qwen2    3584  18944  28  28   4  152064 131072
qwen2.5-14b           qwen2    5120  13824  48  40   8  152064 131072
qwen2.5-32b           qwen2    5120  27648  64  40   8  152064 131072
qwen2.5-72b           qwen2    8192  29568  80  64   8  152064 131072
qwq-32b               qwen2    5120  27648  64  40   8  152064 131072
deepseek-r1-distill-qwen-1.5b qwen2 1536  8960 28 12 2 151936 131072
deepseek-r1-distill-qwen-7b   qwen2 3584 18944 28 28 4 152064 131072
deepseek-r1-distill-qwen-14b  qwen2 5120 13824 48 40 8 152064 131072
deepseek-r1-distill-qwen-32b  qwen2 5120 27648 64 40 8 152064 131072
qwen3-0.6b            qwen3    1024   3072  28  16   8  151936  40960 tied head_dim=128
qwen3-1.7b            qwen3    2048   6144  28  16   8  151936  40960 tied head_dim=128
qwen3-4b              qwen3    2560   9728  36  32   8  151936  40960 tied head_dim=128
qwen3-embedding-0.6b  qwen3    1024   3072  28  16   8  151669  32768 tied head_dim=128
qwen3-embedding-4b    qwen3    2560   9728  36  32   8  151665  40960 tied head_dim=128
qwen3-reranker-0.6b   qwen3    1024   3072  28  16   8  151669  40960 tied head_dim=128
qwen3-reranker-4b     qwen3    2560   9728  36  32   8  151669  40960 tied head_dim=128
qwen3-8b              qwen3    4096  12288  36  32   8  151936  40960 head_dim=128
qwen3-14b             qwen3    5120  17408  40  40   8  151936  40960 head_dim=128
qwen3-32b             qwen3    5120  25600  64  64   8  151936  40960 head_dim=128
qwen3-30b-a3b         qwen3_moe 2048  6144  48  32   4  151936  40960 head_dim=128 moe_intermediate_size=768
qwen3-235b-a22b       qwen3_moe 4096 12288  94  64   4  151936  40960 head_dim=128 moe_intermediate_size=1536
gemma-2b              gemma    2048  16384  18   8   1  256000   8192 head_dim=256
gemma-7b              gemma    3072  24576  28  16  16  256000   8192 head_dim=256
gemma-2-2b            gemma2   2304   9216  26   8   4  256000   8192 head_dim=256
gemma-2-9b            gemma2   3584  14336  42  16   8  256000   8192 head_dim=256
gemma-2-27b           gemma2   4608  36864  46  32  16  256000   8192 head_dim=128
gemma-3-1b            gemma3_text 1152  6912 26  4  1 262144  32768 head_dim=256
gemma-3-4b            gemma3_text 2560 10240 34  8  4 262208 131072 head_dim=256
gemma-3-12b           gemma3_text 3840 15360 48 16  8 262208 131072 head_dim=256
gemma-3-27b           gemma3_text 5376 21504 62 32 16 262208 131072 head_dim=128
phi-2                 phi      2560  10240  32  32  32   51200   2048
phi-3-mini            phi3     3072   8192  32  32  32   32064   4096
phi-3-medium          phi3     5120  17920  40  40  10   32064   4096
phi-4                 phi3     5120  17920  40  40  10  100352  16384
phi-4-mini            phi3     3072   8192  32  24   8  200064 131072 tied
olmo-2-7b             olmo2    4096  11008  32  32  32  100352   4096
gpt-oss-20b           gpt_oss  2880   2880  24  64   8  201088 131072 head_dim=64 num_local_experts=32
gpt-oss-120b          gpt_oss  2880   2880  36  64   8  201088 131072 head_dim=64 num_local_experts=128
llama-4-scout-17b-16e llama4_text 5120 8192 48 40 8 202048 131072 head_dim=128 num_local_experts=16 intermediate_size_mlp=16384
"""
"""A line is a name, the family, hidden and intermediate size, layers, heads, key-value heads, vocabulary, positions and further values.
Models with `auto_map` bring their own code: their layers have the sizes of this family, and other names.
"""

_GPT2 = {"gpt2": (768, 12, 12), "gpt2-medium": (1024, 24, 16), "gpt2-large": (1280, 36, 20), "gpt2-xl": (1600, 48, 25)}
_OPT = {"opt-125m": (768, 12, 12), "opt-1.3b": (2048, 24, 32), "opt-2.7b": (2560, 32, 32), "opt-6.7b": (4096, 32, 32)}
_OPT |= {"opt-13b": (5120, 40, 40), "opt-30b": (7168, 48, 56), "opt-66b": (9216, 64, 72)}
_BLOOM = {"bloom-560m": (1024, 24, 16), "bloom-1b7": (2048, 24, 16), "bloom-3b": (2560, 30, 32), "bloom-7b1": (4096, 30, 32)}
_BLOOM |= {"bloom-176b": (14336, 70, 112)}
_NEOX = {"pythia-160m": (768, 12, 12, 50304), "pythia-410m": (1024, 24, 16, 50304), "pythia-1b": (2048, 16, 8, 50304)}
_NEOX |= {"pythia-1.4b": (2048, 24, 16, 50304), "pythia-2.8b": (2560, 32, 32, 50304), "pythia-6.9b": (4096, 32, 32, 50432)}
_NEOX |= {"pythia-12b": (5120, 36, 40, 50688), "gpt-neox-20b": (6144, 44, 64, 50432)}
_BERT = {"bert-base": (768, 12, 12), "bert-large": (1024, 24, 16)}
_ROBERTA = {"roberta-base": (768, 12, 12), "roberta-large": (1024, 24, 16)}
"""Hidden size, layers, heads (and vocabulary)."""


def _decoder(line: str) -> tuple[str, dict[str, Any]]:
    name, family, *rest = line.split()
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")
    data: dict[str, Any] = {"model_type": family, **dict(zip((*keys, "max_position_embeddings"), map(int, rest[:7]), strict=True))}
    for word in rest[7:]:
        key, _, value = word.partition("=")
        data["tie_word_embeddings" if key == "tied" else key] = int(value) if value else True
    return name, data


def _sizes(family: str, hidden: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": 4 * hidden}
    return {"model_type": family, **sizes, **more}


_T5 = {
    "t5-small": (512, 64, 2048, 6, 8),
    "t5-base": (768, 64, 3072, 12, 12),
    "t5-large": (1024, 64, 4096, 24, 16),
    "t5-3b": (1024, 128, 16384, 24, 32),
    "t5-11b": (1024, 128, 65536, 24, 128),
}
_FLAN = {
    "flan-t5-small": (512, 64, 1024, 8, 6),
    "flan-t5-base": (768, 64, 2048, 12, 12),
    "flan-t5-large": (1024, 64, 2816, 24, 16),
    "flan-t5-xl": (2048, 64, 5120, 24, 32),
    "flan-t5-xxl": (4096, 64, 10240, 24, 64),
}
"""Hidden size, head size, intermediate size, layers, heads."""


def _t5(hidden: int, head: int, inner: int, layers: int, heads: int) -> dict[str, Any]:
    """T5 1.1 and FLAN-T5: a gated feed-forward layer, and a head of their own."""
    sizes = {"d_model": hidden, "d_kv": head, "d_ff": inner, "num_layers": layers, "num_heads": heads, "vocab_size": 32128}
    return {"model_type": "t5", **sizes, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}


_WHISPER = {
    "whisper-tiny": (384, 4, 4, 6, 80, 51865),
    "whisper-base": (512, 6, 6, 8, 80, 51865),
    "whisper-small": (768, 12, 12, 12, 80, 51865),
    "whisper-medium": (1024, 24, 24, 16, 80, 51865),
    "whisper-large-v2": (1280, 32, 32, 20, 80, 51865),
    "whisper-large-v3": (1280, 32, 32, 20, 128, 51866),
    "whisper-large-v3-turbo": (1280, 32, 4, 20, 128, 51866),
}
"""Hidden size, layers of encoder and decoder, heads, mel bins, vocabulary."""


def _whisper(hidden: int, encoder: int, decoder: int, heads: int, bins: int, vocabulary: int) -> dict[str, Any]:
    sides = {
        f"{side}_{name}": value
        for side, layers in (("encoder", encoder), ("decoder", decoder))
        for name, value in (("layers", layers), ("attention_heads", heads), ("ffn_dim", 4 * hidden))
    }
    return {"model_type": "whisper", "d_model": hidden, **sides, "num_mel_bins": bins, "vocab_size": vocabulary}


PRESETS: dict[str, dict[str, Any]] = {
    **dict(_decoder(line) for line in _DECODERS.strip().splitlines()),
    "deepseek-v2-lite": {
        **_sizes("deepseek_v2", 2048, 27, 16),
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "n_routed_experts": 64,
        "vocab_size": 102400,
    },
    "glm-4-9b": {
        **_sizes("glm", 4096, 40, 32),
        "intermediate_size": 13696,
        "vocab_size": 151552,
        "max_position_embeddings": 131072,
    },
    "chatglm-6b": _sizes(
        "gpt_neox", 4096, 28, 32, vocab_size=130528, max_position_embeddings=2048, tie_word_embeddings=True, auto_map=True
    ),
    "gpt-j-6b": {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048, "vocab_size": 50400},
    **{
        name: {"model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": 1024, "vocab_size": 50257}
        for name, (hidden, layers, heads) in _GPT2.items()
    },
    **{name: _sizes("opt", *sizes, ffn_dim=4 * sizes[0]) for name, sizes in _OPT.items()},
    **{
        name: {"model_type": "bloom", "hidden_size": hidden, "n_layer": layers, "n_head": heads, "vocab_size": 250880}
        for name, (hidden, layers, heads) in _BLOOM.items()
    },
    **{name: _sizes("gpt_neox", *sizes[:3], vocab_size=sizes[3], max_position_embeddings=2048) for name, sizes in _NEOX.items()},
    **{name: _sizes("bert", *sizes, vocab_size=30522) for name, sizes in _BERT.items()},
    **{
        name: _sizes("roberta", *sizes, vocab_size=50265, max_position_embeddings=514, type_vocab_size=1)
        for name, sizes in _ROBERTA.items()
    },
    **{
        name: {
            "model_type": "t5",
            "d_model": hidden,
            "d_kv": head,
            "d_ff": inner,
            "num_layers": layers,
            "num_heads": heads,
            "vocab_size": 32128,
        }
        for name, (hidden, head, inner, layers, heads) in _T5.items()
    },
    **{name: _t5(*sizes) for name, sizes in _FLAN.items()},
    **{name: _whisper(*sizes) for name, sizes in _WHISPER.items()},
    "vit-base": _sizes("vit", 768, 12, 12, image_size=224, patch_size=16, num_channels=3),
}
"""By name, in lower case."""

_VISION = {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "depth": 32}
_EARLY = {**_VISION, "embed_dim": 1280, "mlp_ratio": 4}
_LATE = {**_VISION, "model_type": "qwen2_5_vl", "hidden_size": 1280, "intermediate_size": 3420}
_SMALL = {**_VISION, "patch_size": 16, "depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "deepstack_visual_indexes": [5, 11, 17]}
_THIRD = {**_SMALL, "depth": 27, "hidden_size": 1152, "intermediate_size": 4304}
_SEEING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen2-vl-2b": ("qwen2_vl", "qwen2.5-1.5b", _EARLY),
    "qwen2-vl-7b": ("qwen2_vl", "qwen2.5-7b", _EARLY),
    "qwen2-vl-72b": ("qwen2_vl", "qwen2.5-72b", _EARLY),
    "qwen2.5-vl-3b": ("qwen2_5_vl", "qwen2.5-3b", _LATE),
    "qwen2.5-vl-7b": ("qwen2_5_vl", "qwen2.5-7b", _LATE),
    "qwen2.5-vl-32b": ("qwen2_5_vl", "qwen2.5-32b", {**_LATE, "intermediate_size": 3456}),
    "qwen2.5-vl-72b": ("qwen2_5_vl", "qwen2.5-72b", {**_LATE, "intermediate_size": 3456}),
    "qwen3-vl-2b": ("qwen3_vl", "qwen3-1.7b", _SMALL),
    "qwen3-vl-4b": ("qwen3_vl", "qwen3-4b", _SMALL),
    "qwen3-vl-8b": ("qwen3_vl", "qwen3-8b", _THIRD),
    "qwen3-vl-30b-a3b": ("qwen3_vl_moe", "qwen3-30b-a3b", _THIRD),
}
"""The family of models that see, their language model, and the sizes of their tower."""


def _seeing(family: str, language: str, vision: dict[str, Any]) -> dict[str, Any]:
    text = PRESETS[language]
    return {
        "model_type": family,
        "text_config": {**text, "model_type": f"{family}_text"},
        "vision_config": {**vision, "out_hidden_size": text["hidden_size"], "in_channels": 3},
    }


PRESETS.update({name: _seeing(*parts) for name, parts in _SEEING.items()})

_CLIP = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 336, "patch_size": 14}
_LLAVA = {"llava-1.5-7b": "vicuna-7b", "llava-1.5-13b": "vicuna-13b", "llava-1.6-vicuna-7b": "vicuna-7b"}
_LLAVA |= {"llava-1.6-vicuna-13b": "vicuna-13b", "llava-1.6-mistral-7b": "mistral-7b", "llava-1.6-34b": "yi-34b"}
PRESETS.update(
    {
        name: {"model_type": "llava", "text_config": PRESETS[language], "vision_config": _CLIP, "projector_hidden_act": "gelu"}
        for name, language in _LLAVA.items()
    }
)
"""LLaVA, with the encoder of CLIP ViT-L/14 for images of 336 pixels."""

_AUDIO = {"d_model": 1280, "encoder_layers": 32, "encoder_ffn_dim": 5120}
PRESETS["qwen2.5-omni-7b"] = {
    "model_type": "qwen2_5_omni",
    "thinker_config": {
        **_seeing("qwen2_5_omni", "qwen2.5-7b", {**_LATE, "model_type": "qwen2_5_omni_vision_encoder"}),
        "audio_config": _AUDIO,
    },
}

_QUANTIZED = {
    "awq": "awq",
    "gptq": "gptq",
    "int4": "int4",
    "int8": "int8",
    "bnb": "bitsandbytes",
    "4bit": "bitsandbytes",
    "8bit": "bitsandbytes",
    "fp8": "fp8",
}
"""Words in a name that say how its weights are quantized. int4 and int8 say no method: GPTQ for Qwen, one of its own for ChatGLM."""

_VARIANT = re.compile(
    r"(hf|instruct|chat|it|pt|base|sft|dpo|rm|reward|rlhf|ppo|grpo|kto|orpo|mixture|merged|ft|finetuned|v\d(\.\d)?|full|beta|alpha|preview|thinking"
    r"|python|coder?|math|uncased|cased|\d+k|int4|int8|bf16|deduped|delta|\d{4})$"
)
"""Words in the name of a model that do not change the shapes of its weights, besides those of quantization."""

_ALIASES = (
    (r"^meta-llama-", "llama-"),
    (r"^llama([23])(?=[.-])", r"llama-\1"),
    (r"^bloomz", "bloom"),
    (r"^bloom$", "bloom-176b"),
    (r"^bloom-3b1$", "bloom-3b"),
    (r"^qwen-1-8b$", "qwen-1.8b"),
    (r"^qwen1half-", "qwen1.5-"),
    (r"^internlm2[.-]5-", "internlm2-"),
    (r"^qwen-(?=(1\.5|2|2\.5|3)-)", "qwen"),
    (r"^qwen2-(?!vl)", "qwen2.5-"),
    (r"^vicuna-(7|13)b-v1\.\d$", r"vicuna-\1b"),
    (r"^llava-v(1\.[56])-", r"llava-\1-"),
    (r"^mistral-nemo$", "mistral-nemo-12b"),
    (r"^phi-3\.5-mini$", "phi-3-mini"),
)
"""Patterns of names that stand for another known model: earlier releases with the same sizes, other spellings."""


def preset(name: str) -> dict[str, Any] | None:
    """The data of a known model by one of its names: `llama-3-8b`, `meta-llama/Llama-3.1-8B-Instruct`, `Qwen3-30B-A3B`. If the name says
    that the model is quantized, the data does, too.
    """
    last = _last_name(name)
    found = _shaped(last)
    return found if found is not None or _OWNER.match(last) is None else _shaped(_OWNER.sub("", last))


def _last_name(name: str) -> str:
    """The last folder of a path that is named after the model, in lower case."""
    folder, _, last = without_cache(name).strip().rstrip("/").lower().rpartition("/")
    last = folder.rpartition("/")[2] if last in _BELOW_THE_NAME else last
    return re.sub(r"^models--.+?--", "", last)


_BELOW_THE_NAME = ("main", "master", "hf", "latest")
"""Folders of revisions and formats, which stand in the folder of the model."""

_OWNER = re.compile(
    r"(01-ai|allenai|baichuan-inc|bigscience|codellama|deepseek-ai|eleutherai|facebook|google|huggyllama|internlm|llm-research|lmsys"
    r"|meta-llama|microsoft|mistralai|modelscope|nousresearch|openai|qwen|shakechen|thudm|tiiuae|tinyllama|unsloth|zai-org)(_+|--?)(?=[a-z])"
)
"""An organization before the name of the model, as in folders of downloads: `mistralai_Mixtral-8x7B-v0.1`."""


def _shaped(last: str) -> dict[str, Any] | None:
    words = re.sub(r"[\s_]+", "-", last).split("-")
    method = next((_QUANTIZED[word] for word in words if word in _QUANTIZED), None)
    extra = [index for index, word in enumerate(words) if word in _QUANTIZED or _VARIANT.match(word)]
    for count in range(min(len(extra), _MOST_EXTRA) + 1):
        for left_out in combinations(extra, count):
            found = _named("-".join(word for index, word in enumerate(words) if index not in left_out))
            if found is not None:
                bits = 8 if method == "fp8" or not {"8bit", "int8"}.isdisjoint(words) else 4
                return {**found, "quantization_config": {"quant_method": method, "bits": bits}} if method else found
    return None


def without_cache(name: str) -> str:
    """The name of a model whose folder is in the cache of huggingface_hub: `models--org--name/snapshots/<commit>` is `org/name`."""
    found = re.search(r"(?:^|/)models--([^/]+?)--([^/]+)/snapshots/[0-9a-f]{7,64}/?$", name.strip())
    return f"{found[1]}/{found[2]}" if found is not None else name


def quantized_by_name(name: str) -> str | None:
    """How a model is quantized by its name: `Qwen3-235B-A22B-FP8`. V3 and R1 of DeepSeek are published in fp8 alone."""
    owner, _, last = name.strip().lower().rpartition("/")
    words = re.split(r"[-_\s]+", last)
    if (owner == "deepseek-ai" or owner.endswith("/deepseek-ai")) and _DEEPSEEK_FP8.fullmatch(last):
        return "fp8"
    is_local = owner.startswith((".", "/", "~", "$")) or "/" in owner  # a folder may be named after the training in it
    if is_local or not _NOT_QUANTIZED.isdisjoint(words):
        return None
    return next((_QUANTIZED[word] for word in words[1:] if word in _QUANTIZED), None)


_NOT_QUANTIZED = frozenset(("bf16", "fp16", "16bit", "merged", "dequantized", "unquantized", "free"))
"""Words in the name of a model that was made of a quantized one, or is none."""

_DEEPSEEK_FP8 = re.compile(r"deepseek-(v3(\.[12])?|r1)(-(base|zero|exp|terminus|\d{4}))*")

_MOST_EXTRA = 5
"""How many words of a name may be left out for a known model, as in `Llama-2-7b-hf-chat-awq`: all subsets of more are too many to try."""


def _named(name: str) -> dict[str, Any] | None:
    for spelling in _with_points(name):
        known = {spelling, *(re.sub(pattern, word, spelling) for pattern, word in _ALIASES)}
        known |= {re.sub(pattern, word, other) for other in known for pattern, word in _ALIASES}  # "qwen-2-7b"
        found = next((PRESETS[other] for other in sorted(known) if other in PRESETS), None)
        if found is not None:
            return found
    return None


def _with_points(name: str) -> Iterator[str]:
    """A name, and it with points between numbers, where folders have "_" or "-": `Qwen2_5-1_5B`."""
    yield name
    between = [found.start() for found in re.finditer(r"(?<=\d)-(?=\d)", name)]
    for places in (*((one,) for one in between), *combinations(between, 2)):
        yield "".join("." if index in places else letter for index, letter in enumerate(name))
