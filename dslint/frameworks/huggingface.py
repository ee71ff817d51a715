"""The Hugging Face Trainer: programs with `TrainingArguments`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

from dslint.diagnostics import LoadStep
from dslint.facts import Integration
from dslint.frameworks.base import Framework, Uses
from dslint.frameworks.refusals import Refusal
from dslint.frameworks.tables import table
from dslint.frameworks.training import bare
from dslint.job.arguments import Arguments
from dslint.job.training import ARGUMENTS, WORKLOAD
from dslint.schemas.key_table import KEYS
from dslint.schemas.recognition import TELLING_KEYS, TRAINER_KEYS

TRAINER = Integration.TRANSFORMERS.label


def has_arguments(names: frozenset[str]) -> bool:
    """Whether the keys of a file are arguments of the Trainer, and not a DeepSpeed config with some that it shares."""
    is_config = names & TELLING_KEYS and len(names & TRAINER_KEYS - KEYS.keys()) < 3
    return len(names & TRAINER_KEYS) >= 3 and not is_config


OWN_LOOP = frozenset({"num_warmup_steps", "lr_warmup_steps", "max_train_steps", "checkpointing_steps", "with_tracking"})
"""Arguments of the examples of transformers and diffusers that train with Accelerate and a loop of their own."""

_OF_PROGRAMS = frozenset(
    """
    tokenizer_name tokenizer_name_or_path model_revision config_name cache_dir use_fast_tokenizer trust_remote_code token dtype
    dataset_name dataset_config_name dataset_config dataset_text_field data_path train_file validation_file max_train_samples
    max_eval_samples preprocessing_num_workers overwrite_cache defaults hydra
    """.split()
)
"""Arguments of the data and the model in transformers' own example programs, which others copy; and the keys of Hydra."""


def _recognises(names: frozenset[str], uses: Uses) -> bool:
    """A program may add arguments of its own to the Trainer's. Without the program an argument that is not known here may as well be one of
    another framework, which shares some names with the Trainer and means something else by them.
    """
    if not has_arguments(names) or not names.isdisjoint(OWN_LOOP):
        return False
    if names <= _known():
        return True
    return not names.isdisjoint(TRAINER_KEYS - _OF_EVERY_LOOP) and any(uses(package) for package in ("transformers", "trl"))


_OF_EVERY_LOOP = frozenset(
    """
    bf16 fp16 gradient_accumulation_steps gradient_checkpointing learning_rate max_grad_norm max_steps warmup_steps weight_decay
    """.split()
)
"""Arguments of the Trainer with the names that loops of every kind have: the files of programs made from nanoGPT have four of them."""


def not_arguments(names: Iterable[str]) -> list[str]:
    """The names among those of a file that keep it from being one of the Trainer."""
    names = list(names)
    return [name for name in names if name not in _known()] or [name for name in names if name in OWN_LOOP]


def _known() -> frozenset[str]:
    own = table("huggingface")
    return own.accepted | own.older | ARGUMENTS | WORKLOAD | _OF_PROGRAMS


BEST = "--load_best_model_at_end requires the save and eval strategy to match"
_STEP = LoadStep.CHOICES
_BOTH = "Set eval_strategy and save_strategy to the same value, or remove load_best_model_at_end."

REFUSALS = (
    *(
        Refusal(
            BEST,
            {"load_best_model_at_end": True, **save},
            _BOTH,
            absent=("eval_strategy", "evaluation_strategy", *absent),
            step=_STEP,
            own=False,
        )
        for save, absent in (({}, ("save_strategy",)), ({"save_strategy": ("steps", "epoch")}, ()))
    ),
    *(
        Refusal(BEST, {"load_best_model_at_end": True, "eval_strategy": one, "save_strategy": other}, _BOTH, step=_STEP, own=False)
        for one, other in permutations(("no", "steps", "epoch"), 2)
    ),
    Refusal(
        BEST, {"load_best_model_at_end": True, "eval_strategy": ("epoch", "no")}, _BOTH, absent=("save_strategy",), step=_STEP, own=False
    ),
)
"""Source: transformers/training_args.py, TrainingArguments.__post_init__."""

_CHANGE_BATCHES = frozenset("auto_find_batch_size accelerator_config parallelism_config train_sampling_strategy split_batches".split())
"""Arguments with which the number of batches is another one than that of the rows."""


def _one_sample(arguments: Arguments) -> bool:
    return not arguments.kind and arguments.complete


def _trains_rows(arguments: Arguments) -> bool:
    names = {*arguments.values, *map(bare, arguments.others)}
    return _one_sample(arguments) and names.isdisjoint(_CHANGE_BATCHES)


FRAMEWORK = Framework(
    TRAINER,
    Integration.TRANSFORMERS,
    passes_choices=True,
    packages=("transformers",),
    recognises=_recognises,
    rank=2,
    has_own_loop=False,
    generated="huggingface",
    refuses_unknown="Some keys are not used by the HfArgumentParser: ['{name}']",
    refuses_flag="Some specified arguments are not used by the HfArgumentParser: ['--{name}'",
    refusals=REFUSALS,
    loads_quantized={"load_in_4bit": (True,), "load_in_8bit": (True,), "quantization_bit": (8,)},  # the last one in copies of LLaMA-Factory
    one_sample=_one_sample,
    trains_rows=_trains_rows,
)
