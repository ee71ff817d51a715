"""Known models: their numbers of parameters are the published ones, and people's spellings find them."""

from __future__ import annotations

import re

import pytest

from dslint.facts.known_models import PRESETS, preset, quantized_by_name
from dslint.facts.model_config import ModelError, load_model
from dslint.memory.families import read_shape
from dslint.memory.given import quantized_bits
from tests.cases import table
from tests.command import dslint

PUBLISHED = {
    "llama-7b": 6738415616,
    "llama-13b": 13015864320,
    "llama-30b": 32528943616,
    "llama-33b": 32528943616,
    "llama-65b": 65285660672,
    "llama-3.1-8b": 8030261248,
    "qwen2.5-3b": 3085938688,
    "qwen2.5-7b": 7615616512,
    "qwen3-30b-a3b": 30532122624,
    "gemma-2-2b": 2614341888,
    "gemma-2-27b": 27227128320,
    "mistral-nemo-12b": 12247782400,
    "mistral-small-24b": 23572403200,
    "phi-4": 14659507200,
    "gpt-oss-20b": 20914757184,
    "deepseek-v2-lite": 15706484224,
    "phi-4-mini": 3836021760,
    "qwen3-4b": 4022468096,
    "qwen3-1.7b": 1720574976,
    "qwen3-14b": 14768307200,
    "smollm2-1.7b": 1711376384,
    "tinyllama-1.1b": 1100048384,
    "yi-6b": 6061035520,
    "yi-34b": 34388917248,
    "deepseek-coder-6.7b": 6740512768,
    "mistral-7b": 7241732096,
    "mistral-7b-v0.3": 7248023552,
    "llama-3.3-70b": 70553706496,
    "glm-4-9b": 9399951360,
    "gpt-j-6b": 6050882784,
    "opt-6.7b": 6658473984,
    "opt-1.3b": 1315758080,
    "bloom-560m": 559214592,
    "bloom-7b1": 7069016064,
    "pythia-2.8b": 2775208960,
    "gemma-3-1b": 999885952,
    "olmo-2-7b": 7298617344,
    "roberta-large": 355412057,
    "qwen3-235b-a22b": 235093634560,
    "deepseek-r1-distill-qwen-1.5b": 1777088000,
    "gpt-oss-120b": 116829156672,
    "qwen1.5-1.8b": 1836828672,
    "qwen1.5-32b": 32512218112,
    "qwen1.5-72b": 72287920128,
    "qwen1.5-110b": 111209914368,
    "qwen-1.8b": 1836828672,
    "qwen-7b": 7721324544,
    "qwen-14b": 14167290880,
    "qwen-72b": 72287920128,
    "baichuan-7b": 7000559616,
    "baichuan-13b": 13264901120,
    "baichuan2-7b": 7505973248,
    "baichuan2-13b": 13896668160,
    "internlm2-7b": 7737708544,
    "internlm2-20b": 19861149696,
    "deepseek-coder-1.3b": 1346471936,
    "chatglm-6b": 6173286400,
    "chatglm2-6b": 6243584000,
}
"""Numbers of parameters, as the repositories of the models state them or transformers counts them."""

OTHERWISE = {
    "phi-4": 14.7,
    "phi-3-mini": 3.82,
    "phi-3-medium": 14.0,
    "phi-4-mini": 3.84,
    "gemma-7b": 8.54,
    "gemma-2b": 2.51,
    "bloom-1b7": 1.72,
}
OTHERWISE |= {"mixtral-8x7b": 46.7, "mixtral-8x22b": 140.6, "gpt2": 0.124, "gpt2-medium": 0.355, "gpt2-large": 0.774, "gpt2-xl": 1.56}
OTHERWISE |= {"flan-t5-small": 0.077, "flan-t5-base": 0.2476, "flan-t5-large": 0.7832, "flan-t5-xl": 2.8498, "flan-t5-xxl": 11.1353}
OTHERWISE |= {"whisper-tiny": 0.03776, "whisper-base": 0.07259, "whisper-small": 0.24173, "whisper-medium": 0.76386}
OTHERWISE |= {"whisper-large-v2": 1.5433, "whisper-large-v3": 1.54349, "whisper-large-v3-turbo": 0.80888}
OTHERWISE |= {"bert-base": 0.11, "bert-large": 0.335, "roberta-base": 0.125, "roberta-large": 0.355, "t5-small": 0.0605, "t5-base": 0.223}
OTHERWISE |= {"t5-large": 0.7377, "t5-3b": 2.8516, "t5-11b": 11.3}
OTHERWISE |= {"qwen2-vl-2b": 2.21, "qwen2-vl-7b": 8.29, "qwen2-vl-72b": 73.4, "qwen2.5-vl-3b": 3.75, "qwen2.5-vl-7b": 8.29}
OTHERWISE |= {"qwen2.5-vl-32b": 33.45, "qwen2.5-vl-72b": 73.4, "qwen3-vl-2b": 2.13, "qwen3-vl-4b": 4.44, "qwen3-vl-8b": 8.77}
OTHERWISE |= {"qwen2.5-omni-7b": 8.93}
OTHERWISE |= {
    "phi-2": 2.78,
    "gemma-2-2b": 2.61,
    "deepseek-r1-distill-qwen-1.5b": 1.78,
    "vit-base": 0.086,
    "llama-4-scout-17b-16e": 107.8,
    "deepseek-v2-lite": 15.7,
    "bloom-7b1": 7.07,
    "llama-3.2-1b": 1.24,
}
"""Billions of parameters of models with a name that does not state them."""


@table("name", PUBLISHED)
def test_the_number_of_parameters_is_the_published_one(name: str) -> None:
    assert read_shape(PRESETS[name], name).size == PUBLISHED[name]


@table("name", PRESETS)
def test_every_name_states_its_size(name: str) -> None:
    stated = OTHERWISE.get(name)
    if stated is None:
        number, unit = re.findall(r"(\d+(?:\.\d+)?)([bm])(?=-|$)", name)[0]
        stated = float(number) / (1 if unit == "b" else 1000)
    assert read_shape(PRESETS[name], name).size / 1e9 == pytest.approx(stated, rel=0.15)


@table(
    "spelling, name",
    [
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("/mnt/data/mistralai_Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("/data/mistralai__Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("/data/meta-llama_Llama-2-7b-hf", "llama-2-7b"),
        ("/data/Qwen_Qwen2-7B", "qwen2.5-7b"),
        ("/hub/models--meta-llama--Llama-2-7b-hf", "llama-2-7b"),
        ("/data/Llama-2-7b-hf/main/", "llama-2-7b"),
        ("qwen1half-7b-chat", "qwen1.5-7b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("decapoda-research/llama-7b-hf", "llama-7b"),
        ("Llama-3.3-70B-Instruct", "llama-3.3-70b"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2.5-7b"),
        ("Qwen/Qwen2-72B", "qwen2.5-72b"),
        ("Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl-7b"),
        ("Qwen/Qwen2-VL-2B-Instruct", "qwen2-vl-2b"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseek-r1-distill-qwen-7b"),
        ("deepseek-ai/deepseek-coder-33b-instruct", "deepseek-coder-33b"),
        ("EleutherAI/pythia-1.4b-deduped", "pythia-1.4b"),
        ("facebook/opt-1.3b", "opt-1.3b"),
        ("bigscience/bloomz-7b1", "bloom-7b1"),
        ("lmsys/vicuna-7b-v1.5", "vicuna-7b"),
        ("hub/models--lmsys--vicuna-7b-delta-v0/snapshots/f902a2f7e2ca5dfeedf40a0220320e50d2d4fa2a", "vicuna-7b"),
        ("HuggingFaceH4/zephyr-7b-beta", "zephyr-7b"),
        ("google-bert/bert-base-uncased", "bert-base"),
        ("THUDM/glm-4-9b-chat", "glm-4-9b"),
        ("allenai/OLMo-2-1124-7B", "olmo-2-7b"),
        ("baichuan-inc/Baichuan2-13B-Chat", "baichuan2-13b"),
        ("internlm/internlm2_5-7b-chat", "internlm2-7b"),
        ("alignment-handbook/zephyr-7b-sft-full", "zephyr-7b"),
        ("bloom_3b1/", "bloom-3b"),
        ("Qwen/Qwen-1_8B-Chat", "qwen-1.8b"),
        ("../models/Qwen2_5-14B-Instruct", "qwen2.5-14b"),
        ("Qwen2_5-1_5B", "qwen2.5-1.5b"),
        ("Qwen2-1_5B", "qwen2.5-1.5b"),
        ("/data/qwen-1.5-7B/", "qwen1.5-7b"),
        ("qwen-2-7b", "qwen2.5-7b"),
        ("qwen_72b_chat", "qwen-72b"),
        ("Llama3_1-8B", "llama-3.1-8b"),
        ("Phi-3_5-mini-instruct", "phi-3-mini"),
        ("gemma-2-2b-it", "gemma-2-2b"),
        ("OpenRLHF/Llama-3-8b-rm-mixture", "llama-3-8b"),
        ("codellama_13b_sft_v3", "codellama-13b"),
        ("THUDM/chatglm-6b", "chatglm-6b"),
        ("liuhaotian/llava-v1.6-34b", "llava-1.6-34b"),
        ("llava-hf/llava-1.5-7b-hf", "llava-1.5-7b"),
        ("liuhaotian/llava-v1.5-13b", "llava-1.5-13b"),
        ("chatglm3-6b-32k", "chatglm3-6b"),
        ("main/models--baichuan-inc--Baichuan-7B/snapshots/c1a5c7d5b7f50ecc51bb0e08150a9f12e5656756", "baichuan-7b"),
    ],
)
def test_spellings(spelling: str, name: str) -> None:
    assert preset(spelling) is PRESETS[name]


def test_a_name_may_say_that_the_weights_are_quantized() -> None:
    assert load_model("unsloth/Llama-3.2-1B-Instruct-bnb-4bit").quantization == "bitsandbytes"
    assert load_model("Llama-3.2-1B-Instruct").quantization is None
    assert quantized_bits(load_model("Qwen/Qwen-7B-Chat-Int4")) == 4
    assert load_model("Qwen/Qwen1.5-7B-Chat-GPTQ-Int8").quantization == "gptq"
    assert quantized_by_name("THUDM/chatglm2-6b-int4") == "int4"  # its own method
    for ending, bits in (("GPTQ-Int8", 8), ("GPTQ-Int4", 4), ("AWQ", 4), ("FP8", 8), ("bnb-8bit", 8)):
        assert quantized_bits(load_model(f"Qwen/Qwen2.5-7B-Instruct-{ending}")) == bits


@pytest.mark.parametrize("name", ["llama-9", "gpt5", "", "-", "llama-3-8b.json"])
def test_other_names_are_refused(name: str) -> None:
    assert preset(name) is None
    with pytest.raises(ModelError):
        load_model(name)


def test_check_knows_names() -> None:
    done = dslint(
        "check",
        "-",
        "--isolated",
        "--model=mistralai/Mixtral-8x7B-v0.1",
        "--world-size=8",
        "--gpu=a100",
        "--select=DS706",
        input='{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
    )
    assert "DS706" in done.stdout
