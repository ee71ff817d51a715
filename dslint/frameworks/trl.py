"""TRL: flags or a YAML file, started with `trl sft`; keys of the file that TRL hands on to Accelerate's launcher, and its own presets."""

from __future__ import annotations

import re
from typing import Any

from dslint.diagnostics import LoadStep
from dslint.evaluate.files import Linked
from dslint.facts import Facts, Integration, Release
from dslint.frameworks import tables
from dslint.frameworks.accelerate import is_accelerate, opened, read_accelerate
from dslint.frameworks.base import Framework, FrameworkWorkload, LauncherFile, Uses
from dslint.frameworks.huggingface import REFUSALS, has_arguments
from dslint.frameworks.refusals import GIVEN, Refusal
from dslint.frameworks.training import bare
from dslint.job.arguments import Arguments, SourcedValue, given_at
from dslint.job.model import AccelerateFile
from dslint.source.tree import Document, Member, Scalar, plain
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import parse_yaml

_KEYS = (
    *("accelerate_config", "num_processes", "num_machines", "mixed_precision", "gradient_clipping", "zero_stage", "zero3_init_flag"),
    *("offload_optimizer_device", "offload_param_device", "zero3_save_16bit_model"),
)


def _keys_for_launcher(document: Document, shown: str) -> dict[str, SourcedValue]:
    """The keys of a training file that Accelerate's launcher gets as flags."""
    members = {name: document.lookup((name,)) for name in _KEYS}
    found = {
        name: given_at(document, shown, (name,), "", plain(member.value))
        for name, member in members.items()
        if isinstance(member, Member) and isinstance(member.value, Scalar)
    }
    return {name: given for name, given in found.items() if given is not None}


def _accelerate_config(name: str, linked: Linked | None) -> tuple[Document, AccelerateFile] | None:
    """The Accelerate config for DeepSpeed that `accelerate_config` names: `linked`, otherwise one that ships with TRL.

    Source: trl/cli.py, main.
    """
    if linked is not None:
        return opened(linked)
    document = built_in_accelerate(name)
    return (document, read_accelerate(document, f"<{name} of TRL>")) if document is not None and is_accelerate(document) else None


def built_in_accelerate(name: str) -> Document | None:
    """The Accelerate config that `trl sft --accelerate_config NAME` uses if there is no file of that name; None for any other name.

    A launch uses it as `accelerate launch --config_file` does.
    """
    text = tables.table("trl").presets.get(name)
    return parse_yaml(text) if text is not None else None


_KEYS_OF_TRL = frozenset("dataset_mixer dataset_mixture dataset_text_field accelerate_config".split())
_SHARED_KEYS = frozenset("dataset_name max_seq_length max_length torch_dtype use_peft beta".split())
"""Keys of TRL that other programs with the Hugging Face Trainer have, too: they count where the project uses TRL."""


def _recognises(names: frozenset[str], uses: Uses) -> bool:
    return has_arguments(names) and bool(names & _KEYS_OF_TRL or (names & _SHARED_KEYS and uses("trl")))


def _completes(arguments: Arguments, facts: Facts) -> dict[str, Any]:
    """TRL turns `bf16` on unless `fp16` is on, since its release 0.19. Source: trl/trainer/base_config.py, up to 0.24 each config."""
    on_gpu = facts.gpu is None or facts.gpu.has_bf16
    fp16 = arguments.said("fp16").value
    return {} if "bf16" in arguments or fp16 is UNKNOWN or not arguments.sure or not on_gpu else {"bf16": not fp16}


def _data(document: Document) -> tuple[str, list[str]] | None:
    """The files of `datasets`, if each of them is one of JSON that the library `datasets` reads whole."""
    member = document.lookup((_DATA,))
    parts = plain(member.value) if isinstance(member, Member) else None
    if not isinstance(parts, list) or not all(isinstance(one, dict) and one.keys() <= {"path", "data_files", "split"} for one in parts):
        return None
    whole = all(one.get("path") == "json" and one.get("split", "train") == "train" for one in parts)
    files = [one.get("data_files") for one in parts]
    return (_DATA, files) if whole and all(isinstance(file, str) for file in files) else None


_DATA = "datasets"

_CHANGE_ROWS = frozenset("packing test_split_size dataset_streaming streaming auto_find_batch_size split_batches".split())
"""Arguments with which the number of samples or of batches is another one than that of the rows."""


def _one_sample(arguments: Arguments) -> bool:
    """Methods that generate take each row several times."""
    return arguments.task in ("sft", "dpo") and arguments.complete


def _trains_rows(arguments: Arguments) -> bool:
    names = {*arguments.values, *(bare(given) for given in arguments.others)}
    return _one_sample(arguments) and names.isdisjoint(_CHANGE_ROWS | {"accelerator_config"})


_REFUSALS = (
    *REFUSALS,
    *(
        Refusal(
            "'test'",
            {name: ("steps", "epoch"), "datasets": GIVEN},
            "Write test_split_size: 0.1, or remove the evaluation: datasets without it give only data to train on.",
            absent=("test_split_size", "dataset_test_split"),
            step=LoadStep.DATA,
            own=False,
        )
        for name in ("eval_strategy", "evaluation_strategy")
    ),
)
"""Source: trl/scripts/sft.py, main, and trl/scripts/utils.py, get_dataset: the error is a KeyError."""

_GENERATIONS: dict[str, tuple[int | None, Release]] = {"grpo": (8, Release(0, 15, 0)), "rloo": (None, Release(0, 25, 0))}
"""By method: the default of `num_generations`, and the first release that refuses. RLOO has other names for these arguments up to 0.24, so
that a default of its says nothing.
"""


_COUNTS_STEPS, _NAMES_THE_BATCH = Release(0, 17, 0), Release(0, 20, 0)


def partial_group(arguments: Arguments, method: str, ranks: int | None, release: Release | None) -> tuple[int, str] | None:
    """The generations per prompt of which a batch of GRPO or RLOO would hold a part of a group, and the error; None if that is not known.

    Source: trl/trainer/grpo_trainer.py up to 0.17, GRPOTrainer; after it trl/trainer/grpo_config.py and rloo_config.py, __post_init__.
    What a newer release refuses, those from 0.15 on refuse, too: they count fewer samples.
    """
    default, since = _GENERATIONS.get(method, (None, None))
    if since is None or not ranks or not arguments.complete or (release is not None and release < since):
        return None
    given = arguments.get("num_generations")
    generations = given.value if given is not None else default if arguments.sure else None
    total, per_generation = arguments.get("generation_batch_size"), arguments.get("steps_per_generation")
    micro = arguments.value("per_device_train_batch_size")
    steps = arguments.value("gradient_accumulation_steps") if per_generation is None else per_generation.value
    old = release is not None and release < _COUNTS_STEPS
    counts = [micro, 1 if old else steps, total.value if total is not None else 1]
    if not all(isinstance(one, int) and one > 0 for one in counts) or (total is not None and per_generation is not None):
        return None
    if not isinstance(generations, int) or generations < 1:
        return None
    samples = total.value if total is not None else micro * ranks * (1 if old else steps)
    if samples % generations == 0:
        return None
    if release is None or release >= _NAMES_THE_BATCH:
        return generations, f"generation_batch_size ({samples}) must be divisible by num_generations ({generations})"
    of_what = f"global train batch size ({ranks} x {micro})" if old else f"effective train batch size ({ranks} x {micro} x {steps})"
    return generations, f"The {of_what} must be evenly divisible by the number of generations per prompt ({generations})"


_SCRIPT = re.compile(r"(?:.*[/.])?(?:trl|examples)[/.]scripts[/.](?:\w+/)?(\w+?)(?:\.py)?")
"""A script of TRL, as a file or a module: `trl/scripts/dpo.py`, `trl.scripts.dpo`, `examples/scripts/ppo/ppo.py`."""


def _loads_reference(arguments: Arguments) -> bool:
    """Source: trl/trainer/dpo_trainer.py, DPOTrainer.__init__."""
    without = "use_peft" in arguments or "precompute_ref_log_probs" in arguments
    return arguments.task == "dpo" and arguments.sure and arguments.complete and not without


FRAMEWORK = Framework(
    "TRL",
    Integration.TRANSFORMERS,
    joins_one_target=True,
    task_of_script=_SCRIPT,
    loads_reference=_loads_reference,
    passes_choices=True,
    packages=("trl",),
    commands=("trl",),
    files=tuple(f"trl/scripts/{task}.py" for task in ("sft", "dpo", "grpo", "kto", "reward", "rloo")),
    recognises=_recognises,
    rank=1,
    generated="trl",
    classes={f"trl.{name}Config": name.lower() for name in ("SFT", "DPO", "GRPO", "KTO", "Reward", "RLOO")},
    refuses_unknown="unrecognized arguments: --{name}",
    refuses_in_program="Unknown arguments from config file: ['--{name}'",
    refuses_flag="unrecognized arguments: --{name}",
    computes=frozenset({"bf16"}),
    completes=_completes,
    completes_since=Release(0, 19, 0),
    data=_data,
    one_sample=_one_sample,
    trains_rows=_trains_rows,
    refusals=_REFUSALS,
    steps=(  # its command makes the arguments before it calls Accelerate's launcher
        *(LoadStep.PARSER, LoadStep.CHOICES, LoadStep.REFUSALS, LoadStep.ARGUMENTS, LoadStep.LAUNCHER, LoadStep.PLUGIN, LoadStep.REST),
        *(LoadStep.DATA, LoadStep.MODEL, LoadStep.TRAINER, LoadStep.COMPARISON, LoadStep.END, LoadStep.RANKS),
    ),
    launcher_file=LauncherFile(
        "accelerate_config",
        _keys_for_launcher,
        _accelerate_config,
        "Accelerate config {name} is neither a file nor a valid config in the `trl` package",
    ),
    ships_unread=frozenset({"fsdp1", "fsdp2", "multi_gpu", "single_gpu"}),
    has_own_loop=False,
    workload=FrameworkWorkload(
        checkpoints="TRL since its release 0.20",
        length=1024,
        not_with_length=("block_size", "max_source_length", "do_train"),
        lora_rank=16,
        lora_dropout=0.05,
        zero_init=True,
        vllm_share=0.3,
        beta=0.0,
    ),
)
