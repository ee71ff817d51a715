"""A projector that a launch of LLaVA's program loads into a model which has one (DS968)."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

CONFIG = (
    '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "gradient_clipping": 1.0, "zero_optimization": {"stage": %d}}'
)
MODEL = """import torch
from transformers import LlamaForCausalLM, LlamaModel
class EyesModel(LlamaModel):
    def __init__(self, config):
        super().__init__(config)
        if hasattr(config, "mm_vision_tower"):
            self.mm_projector = torch.nn.Linear(config.mm_hidden_size, config.hidden_size)
    def initialize_vision_modules(self, args):
        if not hasattr(self, "mm_projector"):
            self.mm_projector = torch.nn.Linear(1024, self.config.hidden_size)
        if args.pretrain_mm_mlp_adapter is not None:
            %s
class Eyes(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.model = EyesModel(config)
"""
LOAD = "self.mm_projector.load_state_dict(torch.load(args.pretrain_mm_mlp_adapter))"
TRAIN = """from dataclasses import dataclass, field
import transformers
from model import Eyes
@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="lmsys/vicuna-7b-v1.5")
    pretrain_mm_mlp_adapter: str | None = field(default=None)
parser = transformers.HfArgumentParser((ModelArguments, transformers.TrainingArguments))
model_args, args = parser.parse_args_into_dataclasses()
model = Eyes.from_pretrained(model_args.model_name_or_path)
model.model.initialize_vision_modules(model_args)
transformers.Trainer(model, args, train_dataset=data).train()
"""
GATHERED = "with deepspeed.zero.GatheredParameters(self.mm_projector.parameters(), modifier_rank=0): " + LOAD


@pytest.mark.parametrize(
    ("model", "adapter", "stage", "load", "count"),
    [
        ("liuhaotian/llava-v1.5-7b", "--pretrain_mm_mlp_adapter p.bin", 3, LOAD, 1),
        ("./checkpoints/LLaVA-onevision-0.5b/checkpoint-200", "--pretrain_mm_mlp_adapter p.bin", 3, LOAD, 1),
        ("liuhaotian/llava-v1.5-7b", "--pretrain_mm_mlp_adapter p.bin", 2, LOAD, 0),
        ("liuhaotian/llava-v1.5-7b", "", 3, LOAD, 0),
        ("lmsys/vicuna-13b-v1.5", "--pretrain_mm_mlp_adapter ./checkpoints/llava-v1.5-pretrain/mm_projector.bin", 3, LOAD, 0),
        ("/data/LLaVA/checkpoints/vicuna-7b", "--pretrain_mm_mlp_adapter p.bin", 3, LOAD, 0),
        ("liuhaotian/llava-pretrain-llama-2-7b-chat", "--pretrain_mm_mlp_adapter p.bin", 3, LOAD, 0),
        ("liuhaotian/llava-v1.5-7b", "--pretrain_mm_mlp_adapter p.bin", 3, GATHERED, 0),
        ("liuhaotian/llava-v1.5-7b", "--pretrain_mm_mlp_adapter p.bin", 3, "load_gathered(self, args)", 0),
        ("$MODEL", "--pretrain_mm_mlp_adapter p.bin", 3, LOAD, 0),
    ],
)
def test_a_projector_beside_a_model_that_has_one(folder: Folder, model: str, adapter: str, stage: int, load: str, count: int) -> None:
    launch = f"deepspeed --num_gpus 8 train.py --deepspeed zero.json --output_dir out --bf16 True --model_name_or_path {model} {adapter}\n"
    folder.write({"zero.json": CONFIG % stage, "model.py": MODEL % load, "train.py": TRAIN, "run.sh": launch})
    found = [one for one in folder.diagnostics("run.sh") if one.code == "DS968"]
    assert len(found) == count
    assert all("model.py:12" in one.message for one in found)
