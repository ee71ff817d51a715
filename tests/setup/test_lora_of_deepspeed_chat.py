"""DeepSpeed-Chat looks for the layers that get LoRA by a part of their names (DS994)."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

CHAT = """import argparse, deepspeed
from utils.module.lora import convert_linear_layer_to_lora
parser = argparse.ArgumentParser()
for name in ("--lora_dim", "--lora_module_name", "--model_name_or_path", "--local_rank", "--only_optimize_lora"):
    parser.add_argument(name)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
model = convert_linear_layer_to_lora(model, args.lora_module_name, args.lora_dim)
deepspeed.initialize(args=args, model=model, config={"train_batch_size": 8, "zero_optimization": {"stage": 3}})
"""


@pytest.mark.parametrize(
    ("model", "part", "more", "finds"),
    [
        ("path/to/codegen-16B-multi", "decoder.layers.", "--lora_dim 128 --only_optimize_lora", "nothing is left to train"),
        ("bigscience/bloom-560m", "decoder.layers.", "--lora_dim 128", "all weights are trained"),
        ("meta-llama/Llama-2-7b-hf", "decoder.layers.", "--lora_dim 128", "all weights are trained"),
        ("facebook/opt-1.3b", "transformer.h.", "--lora_dim 128", "all weights are trained"),
        ("facebook/opt-1.3b", "decoder.layers.", "--lora_dim 128", ""),
        ("facebook/opt-1.3b", "layers.", "--lora_dim 128", ""),
        ("meta-llama/Llama-2-7b-hf", "layers.", "--lora_dim 128", ""),
        ("bigscience/bloom-560m", "transformer.h.", "--lora_dim 128", ""),
        ("EleutherAI/pythia-1b", "gpt_neox.layers.", "--lora_dim 128", ""),
        ("bigscience/bloom-560m", "decoder.layers.", "--lora_dim 0", ""),
        ("bigscience/bloom-560m", "decoder.layers.", "", ""),
        ("bigscience/bloom-560m", "query_key_value", "--lora_dim 128", ""),
        ("our/model", "decoder.layers.", "--lora_dim 128", ""),
    ],
)
def test_the_part_of_names_by_which_deepspeed_chat_finds_layers(folder: Folder, model: str, part: str, more: str, finds: str) -> None:
    launch = f"deepspeed train.py --model_name_or_path {model} --lora_module_name {part} {more} --deepspeed\n"
    folder.write({"run.sh": launch, "train.py": CHAT})
    messages = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS994"]
    assert [finds in one for one in messages] == ([True] if finds else [])


def test_the_default_of_the_part_counts_where_the_launch_gives_none(folder: Folder) -> None:
    program = CHAT.replace("parser = deepspeed", "parser.set_defaults(lora_module_name='decoder.layers.')\nparser = deepspeed")
    launch = "deepspeed train.py --model_name_or_path %s --lora_dim 128 --deepspeed\n"
    for model, count in (("meta-llama/Llama-2-7b-hf", 1), ("facebook/opt-1.3b", 0)):
        folder.write({"run.sh": launch % model, "train.py": program})
        messages = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS994"]
        assert len(messages) == count, messages
        assert all('the default of --lora_module_name is "decoder.layers."' in one for one in messages)
