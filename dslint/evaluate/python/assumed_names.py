"""What names mean that a posted program uses without an import: people post the part of a program that their question is about."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dslint.evaluate.python.sources import Parsed
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import Library, Unknown, Value
from dslint.job.events import ENGINE
from dslint.record import Record

LIBRARIES: Mapping[str, str] = MappingProxyType(
    {
        "accelerate": "accelerate",
        "deepspeed": "deepspeed",
        "peft": "peft",
        "torch": "torch",
        "transformers": "transformers",
        "trl": "trl",
        "dist": "torch.distributed",
        "nn": "torch.nn",
        "optim": "torch.optim",
        "DataLoader": "torch.utils.data.DataLoader",
        "DistributedSampler": "torch.utils.data.DistributedSampler",
        "GradScaler": "torch.cuda.amp.GradScaler",
        "autocast": "torch.cuda.amp.autocast",
        "load_dataset": "datasets.load_dataset",
        "DeepSpeedCPUAdam": "deepspeed.ops.adam.DeepSpeedCPUAdam",
        "FusedLamb": "deepspeed.ops.lamb.FusedLamb",
        "LayerSpec": "deepspeed.pipe.LayerSpec",
        "PipelineModule": "deepspeed.pipe.PipelineModule",
        "TiedLayerSpec": "deepspeed.pipe.TiedLayerSpec",
        "set_z3_leaf_modules": "deepspeed.utils.set_z3_leaf_modules",
        "get_fp32_state_dict_from_zero_checkpoint": "deepspeed.utils.zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint",
        "load_state_dict_from_zero_checkpoint": "deepspeed.utils.zero_to_fp32.load_state_dict_from_zero_checkpoint",
        "Accelerator": "accelerate.Accelerator",
        "DeepSpeedPlugin": "accelerate.DeepSpeedPlugin",
        "DummyOptim": "accelerate.utils.DummyOptim",
        "DummyScheduler": "accelerate.utils.DummyScheduler",
        "InitProcessGroupKwargs": "accelerate.InitProcessGroupKwargs",
        "PartialState": "accelerate.PartialState",
        "init_empty_weights": "accelerate.init_empty_weights",
        "load_checkpoint_and_dispatch": "accelerate.load_checkpoint_and_dispatch",
        "AutoConfig": "transformers.AutoConfig",
        "AutoModel": "transformers.AutoModel",
        "AutoModelForCausalLM": "transformers.AutoModelForCausalLM",
        "AutoModelForMaskedLM": "transformers.AutoModelForMaskedLM",
        "AutoModelForSeq2SeqLM": "transformers.AutoModelForSeq2SeqLM",
        "AutoModelForSequenceClassification": "transformers.AutoModelForSequenceClassification",
        "AutoModelForVision2Seq": "transformers.AutoModelForVision2Seq",
        "AutoProcessor": "transformers.AutoProcessor",
        "AutoTokenizer": "transformers.AutoTokenizer",
        "BitsAndBytesConfig": "transformers.BitsAndBytesConfig",
        "DataCollatorForLanguageModeling": "transformers.DataCollatorForLanguageModeling",
        "DataCollatorForSeq2Seq": "transformers.DataCollatorForSeq2Seq",
        "GPT2LMHeadModel": "transformers.GPT2LMHeadModel",
        "HfArgumentParser": "transformers.HfArgumentParser",
        "HfDeepSpeedConfig": "transformers.integrations.HfDeepSpeedConfig",
        "LlamaForCausalLM": "transformers.LlamaForCausalLM",
        "Seq2SeqTrainer": "transformers.Seq2SeqTrainer",
        "Seq2SeqTrainingArguments": "transformers.Seq2SeqTrainingArguments",
        "T5ForConditionalGeneration": "transformers.T5ForConditionalGeneration",
        "Trainer": "transformers.Trainer",
        "TrainerCallback": "transformers.TrainerCallback",
        "TrainingArguments": "transformers.TrainingArguments",
        "default_data_collator": "transformers.default_data_collator",
        "get_cosine_schedule_with_warmup": "transformers.get_cosine_schedule_with_warmup",
        "get_linear_schedule_with_warmup": "transformers.get_linear_schedule_with_warmup",
        "unset_hf_deepspeed_config": "transformers.integrations.deepspeed.unset_hf_deepspeed_config",
        "is_deepspeed_zero3_enabled": "transformers.integrations.is_deepspeed_zero3_enabled",
        "SentenceTransformerTrainer": "sentence_transformers.SentenceTransformerTrainer",
        "SentenceTransformerTrainingArguments": "sentence_transformers.SentenceTransformerTrainingArguments",
        "AutoPeftModelForCausalLM": "peft.AutoPeftModelForCausalLM",
        "LoraConfig": "peft.LoraConfig",
        "PeftModel": "peft.PeftModel",
        "TaskType": "peft.TaskType",
        "get_peft_model": "peft.get_peft_model",
        "prepare_model_for_int8_training": "peft.prepare_model_for_int8_training",
        "prepare_model_for_kbit_training": "peft.prepare_model_for_kbit_training",
        "AutoModelForCausalLMWithValueHead": "trl.AutoModelForCausalLMWithValueHead",
        "DPOConfig": "trl.DPOConfig",
        "DPOTrainer": "trl.DPOTrainer",
        "GRPOConfig": "trl.GRPOConfig",
        "GRPOTrainer": "trl.GRPOTrainer",
        "KTOTrainer": "trl.KTOTrainer",
        "SFTConfig": "trl.SFTConfig",
        "SFTTrainer": "trl.SFTTrainer",
        "TrlParser": "trl.TrlParser",
    }
)
"""The names that are one library's in practice. Of 329 public repositories that train with DeepSpeed, those that import such a name import
it from that library, with the exception of forks of the library and of projects that have a class of that name themselves: `deepspeed` 171
of 171, `AutoModelForCausalLM` 180 of 184, `LoraConfig` 147 of 150, `TrainingArguments` 94 of 98, `Accelerator` 85 of 88, `dist` 200 of 222,
the others being `deepspeed.comm` with the same functions.

Not here: names of several libraries, as `FusedAdam` (deepspeed 23, apex 9), `AdamW` (torch 36, transformers 25), `get_scheduler`
(transformers 35, diffusers 17), `PPOConfig` and `RewardTrainer` (many projects have their own), `Fabric`, `DeepSpeedStrategy`.
"""

_OBJECTS: Mapping[str, str] = MappingProxyType({"accelerator": "accelerate.Accelerator", "model_engine": ENGINE})
"""The names of objects that one class or function makes in practice: `accelerator` in 62 of the 74 of these repositories that assign a new
object to it, `model_engine` in 39 of 45.
"""

_LIGHTNING = "pytorch_lightning"
_OF_LIGHTNING = frozenset(
    "accelerator accumulate_grad_batches devices gpus gradient_clip_val max_epochs num_nodes precision strategy".split()
)
"""Arguments of Lightning's Trainer, from which 16 of these repositories import the name, and not of transformers' (120)."""

_MODULES: Mapping[str, str] = MappingProxyType({"pl": _LIGHTNING, "L": "lightning"})
_STRATEGY = "DeepSpeedStrategy"
"""Lightning and MMEngine have one: what it is, a Trainer or a module of Lightning beside it says."""
_IN_LIGHTNING = frozenset(
    "Callback Fabric LightningDataModule LightningModule Trainer callbacks plugins seed_everything strategies".split()
)
"""What stands behind `pl` or `L` where that is Lightning: of 40 of these repositories `pl` is that in 29, and 9 are torch_xla's loader."""


class AssumedNames(Record):
    """The names of a program that nothing in it binds, with what they are taken for, in the order of their first uses."""

    values: Mapping[str, Value]
    meanings: Mapping[str, str]
    """The full name of what each is taken for, or for an object of what."""
    without_imports: bool
    """Whether the program has no import at all."""

    def __bool__(self) -> bool:
        return bool(self.values)

    @property
    def in_words(self) -> list[str]:
        """What the names are taken for: those of one library together."""
        groups: dict[str, list[str]] = {}
        for name, meaning in self.meanings.items():
            library, _, rest = meaning.partition(".")
            of = _ITSELF if name == meaning else f"that of {library}" if rest.rpartition(".")[2] == name else meaning
            groups.setdefault(f"an object of {meaning}" if name in _OBJECTS else of, []).append(name)
        return [_taken(names, of) for of, names in groups.items()]


_ITSELF = "the library of that name"


def _taken(names: list[str], of: str) -> str:
    """What some names are taken for: `Trainer for that of transformers`, `deepspeed and torch for the libraries of these names`."""
    if len(names) == 1:
        return f"{names[0]} for {of}"
    several = "the libraries of these names" if of == _ITSELF else of.replace("that of", "those of", 1)
    return f"{', '.join(names[:-1])} and {names[-1]} for {several}"


def assumed_names(parts: Iterable[Parsed]) -> AssumedNames:
    """What the names in the files or cells of a program are taken for. None is, if an import with a star may bind it."""
    parts = list(parts)
    bound = frozenset[str]().union(*(one.names.bound for one in parts))
    used = dict.fromkeys(name for one in parts for name in one.names.used)
    found: dict[str, str] = {}
    if "*" not in bound:
        known = [name for name in used if name not in bound and (name in LIBRARIES or name in _OBJECTS or name in (*_MODULES, _STRATEGY))]
        found = {name: meaning for name in known if (meaning := _meaning(name, parts))}
    values = {
        name: Unknown(Reason(Cause.NOT_ASSIGNED, (name,)), meaning) if name in _OBJECTS else Library(meaning)
        for name, meaning in found.items()
    }
    return AssumedNames(values, found, not any(one.names.imports for one in parts))


def _meaning(name: str, parts: list[Parsed]) -> str:
    """What a name is taken for; "" for nothing."""
    looks = name in (*_MODULES, "Trainer", _STRATEGY)
    nodes = [node for one in parts if one.tree is not None for node in ast.walk(one.tree)] if looks else []
    if name == _STRATEGY:
        is_lightning = any(_meaning(other, parts).startswith(("lightning", _LIGHTNING)) for other in (*_MODULES, "Trainer"))
        modules = [one.module or "" for one in nodes if isinstance(one, ast.ImportFrom)]
        modules += [alias.name for one in nodes if isinstance(one, ast.Import) for alias in one.names]
        is_imported = any(one.startswith(("lightning", _LIGHTNING)) for one in modules)
        return f"{_LIGHTNING}.strategies.{name}" if is_lightning or is_imported else ""
    if name in _MODULES:
        behind = {one.attr for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == name}
        return _MODULES[name] if not behind.isdisjoint(_IN_LIGHTNING) else ""
    if name == "Trainer":
        calls = (one for one in nodes if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == name)
        if any(word.arg in _OF_LIGHTNING for one in calls for word in one.keywords):
            return f"{_LIGHTNING}.Trainer"
    return LIBRARIES.get(name) or _OBJECTS.get(name, "")
