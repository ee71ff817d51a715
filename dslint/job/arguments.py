"""Training arguments: the values that training files and command-line flags set, each with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping as Table
from dataclasses import dataclass, field, replace
from typing import Any

from dslint.diagnostics import Range, Related
from dslint.facts.release import Release
from dslint.record import Record
from dslint.source.ranges import range_of
from dslint.source.read import DATA
from dslint.source.tree import Document, Mapping, Member, Path, Scalar, Sequence, pointer
from dslint.source.unknown import UNKNOWN

DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 1.0,
    "learning_rate": 5e-5,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "warmup_steps": 0,
    "warmup_ratio": 0.0,
    "fp16": False,
    "bf16": False,
    "fp16_full_eval": False,
    "bf16_full_eval": False,
    "max_steps": -1,
    "auto_find_batch_size": False,
    "save_only_model": False,
    "load_best_model_at_end": False,
}
"""The defaults of transformers' `TrainingArguments`, the same in its releases 4 and 5."""

FLOATS = frozenset(
    {"max_grad_norm", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "warmup_ratio", "warmup_steps"}
)
INTEGERS = frozenset(
    {"per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "num_processes", "quantization_bit"}
    | {"cutoff_len", "sequence_len", "max_seq_length", "max_length", "model_max_length", "block_size", "max_source_length", "max_seq_len"}
    | {"lora_rank", "lora_r", "lora_dim"}
)
BOOLEANS = frozenset(
    {"fp16", "bf16", "fp16_full_eval", "bf16_full_eval", "auto_find_batch_size", "save_only_model", "load_best_model_at_end"}
    | {"do_train", "do_eval", "do_predict", "gradient_checkpointing", "predict_with_generate", "ds3_gather_for_generation"}
    | {"disable_gradient_checkpointing", "dataloader_drop_last", "lora_enable", "use_peft", "use_lora", "use_peft_lora", "sample_packing"}
    | {"enable_liger_kernel", "use_liger_kernel", "use_liger", "liger_fused_linear_cross_entropy"}
    | {"load_in_4bit", "load_in_8bit", "use_unsloth", "pure_bf16", "pissa_init"}
    | {"use_4bit_quantization", "use_8bit_quantization"}
)

NUMBERS_AND_SWITCHES = FLOATS | INTEGERS | BOOLEANS

_SHARES = FLOATS | {"num_train_epochs", "lora_dropout", "val_set_size", "vllm_gpu_memory_utilization", "beta"}
_COUNTS = (
    INTEGERS
    | {"per_device_eval_batch_size", "eval_batch_size", "quant_bits", "sleep_level"}
    | {"sequence_parallel_size", "context_parallel_size", "sequence_parallel_degree"}
    | {"num_generations", "generation_batch_size", "steps_per_generation"}
    | {"seq_length", "seq_len", "max_len", "max_token_length", "maxlen", "max_prompt_length", "max_completion_length"}
    | {"prompt_max_len", "generate_max_len", "max_prompt_seq_len", "max_answer_seq_len"}
    | {"image_max_pixels", "max_pixels", "max_target_length"}
)
_SWITCHES = BOOLEANS | {
    "packing",
    "neat_packing",
    "use_vllm",
    "precompute_ref_log_probs",
    "vllm_enable_sleep_mode",
    "freeze_vision_tower",
    "freeze_vit",
}
"""The same with those that only the estimate reads."""

LISTS = frozenset({"lora_target", "target_modules", "lora_target_modules", "additional_target", "lora_modules_to_save", "modules_to_save"})
"""Arguments with several names: a list, or words separated by commas."""

_NUMBER = re.compile(r"[+-]?(\d[\d_]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?")

_LONGEST_NUMBER = 100
"""The most characters of a number. The time to read one grows with the square of its digits, and Python refuses more than 4,300."""

_LARGEST_INTEGER = 10**300
"""Larger integers are not comparable with floats."""


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value that a file or a command gives.

    `value` is what the framework reads, `UNKNOWN` if that cannot be inferred; `name` and `raw` are as written. `range` is None if the
    value does not come from a file.
    """

    value: Any
    name: str
    raw: str
    path: str
    range: Range | None = None
    pointer: str | None = None
    empty: bool = False
    """Whether the value is an empty list or mapping."""

    @property
    def where(self) -> str:
        """The place for messages: `train.yaml:12`."""
        return f"{self.path}:{self.range.start.line}" if self.range else self.path

    @property
    def shown(self) -> str:
        """What is written, for messages: `learning_rate: 5e-5`, `--bf16 true`."""
        if self.name.startswith("-"):
            return f"{self.name} {self.raw}".strip()
        in_data = self.pointer is not None or self.path.endswith(DATA)  # which a program may have read
        return f"{self.name}: {self.raw}" if in_data else f"{self.name}={self.raw}"

    def related(self, message: str) -> Related:
        """The place as a related place of a finding."""
        return Related(self.path, message, self.pointer, self.range)


class Said(Record):
    """An argument: its value, the place that sets it (None: the default applies), and whether the value is certain."""

    value: Any
    given: SourcedValue | None
    sure: bool


@dataclass(frozen=True, slots=True)
class Arguments:
    """The training arguments of one training, by the names of transformers' `TrainingArguments`.

    `framework` names the reader of the arguments, for messages. `path` is the file that holds most of them. `defaults` are the values of
    arguments that are not set, and `sure` means that they hold; otherwise the program may have its own. `complete` is False if some could
    not be read. `assigned` are those that the program sets after it has parsed the flags of the command; None if it parses none.
    """

    framework: str
    path: str
    values: Table[str, SourcedValue] = field(default_factory=dict)
    sure: bool = False
    complete: bool = True
    defaults: Table[str, Any] = field(default_factory=lambda: DEFAULTS)
    others: tuple[SourcedValue, ...] = ()
    """Arguments that dslint does not read, where the framework refuses those that it does not know."""
    refusal: str = ""
    """The error with which a program refuses a name in `others`, with `{name}`; "" for that of the framework."""
    texts: frozenset[str] = frozenset()
    """Arguments of numbers that the program gets as text, and does not convert."""
    former: Release | None = None
    """The first release of the framework without its program, if that is one which only older releases have."""
    assigned: frozenset[str] | None = None
    before: Table[str, SourcedValue | None] = field(default_factory=dict)
    """What the program gave the object of arguments for those that it sets in it afterwards; None for the default."""
    redefined: frozenset[str] | None = frozenset()
    """Those for which the program may have a default of its own: its class of arguments defines them. None if it may have one for each."""
    kind: str = ""
    """The class of a library other than transformers that the program gives or parses: `trl.SFTConfig`."""
    task: str = ""
    """What the command of the framework does, or the name of a script of TRL: `sft`, `dpo`."""
    data: SourcedValue | None = None
    """The argument that names the data, if all of it is in files of the project; its value is their names."""
    rows: int | None = None
    """How many rows the files of `data` have, if they could be counted."""
    steps: SourcedValue | None = None
    """The number of steps that the Trainer computes from the rows, in the place of the data."""
    most_steps: int | None = None
    """The most steps that the rows can make, where the samples are not as many as they."""
    most_batches: int | None = None
    """The most batches that a rank gets of the rows in an epoch."""

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str) -> SourcedValue | None:
        """The value that is set for an argument, if any."""
        return self.values.get(name)

    def said(self, name: str) -> Said:
        """The value of an argument, set or default."""
        given = self.values.get(name)
        if given is not None:
            return Said(given.value, given, sure=True)
        if name == "max_steps" and self.steps is not None:
            return Said(self.steps.value, self.steps, sure=self.sure)
        if not self.is_left_out(name) or name not in self.defaults:
            return Said(UNKNOWN, None, sure=False)
        return Said(self.defaults[name], None, self.sure)

    def when_made(self) -> Arguments:
        """The arguments that their object was made with, before the program set some of them in it."""
        given = {name: one for name, one in self.before.items() if one is not None}
        kept = {name: one for name, one in self.values.items() if name not in self.before}
        return replace(self, values=kept | given, before={}) if self.before else self

    def may_be_redefined(self, name: str) -> bool:
        """Whether the program may have a default of its own for an argument."""
        return self.redefined is None or name in self.redefined

    def is_left_out(self, name: str) -> bool:
        """Whether nothing sets an argument for certain, so that it has the framework's default."""
        return self.complete and name not in self.values and not self.may_be_redefined(name)

    def has_own_default(self, name: str) -> bool:
        """Whether an argument is not set, and the framework or the program has a default of its own for it."""
        is_own = name not in self.defaults or self.may_be_redefined(name)
        return self.complete and name not in self.values and name in DEFAULTS and is_own

    def value(self, name: str) -> Any:
        """The value that the framework uses, `UNKNOWN` if it is not certain."""
        said = self.said(name)
        return said.value if said.sure else UNKNOWN


def as_read(name: str, value: Any) -> Any:
    """A value as frameworks read it for an argument with a name of the Trainer's."""
    return as_kind(bool if name in _SWITCHES else float if name in _SHARES else int if name in _COUNTS else str, value)


_WORDS = {**dict.fromkeys(("true", "yes", "1", "t", "y"), True), **dict.fromkeys(("false", "no", "0", "f", "n"), False)}
"""What frameworks read as a switch."""


def as_kind(kind: type, value: Any) -> Any:
    """A value as frameworks read it for an argument of a type. YAML 1.1 reads `1e-5` as a string and a command line has only strings;
    frameworks convert both. `UNKNOWN` where they may refuse it; for other types than bool, int and float the value as it is.
    """
    if value is None or value is UNKNOWN or kind not in (bool, int, float):
        return value
    if kind is bool:
        return _WORDS.get(value.lower(), UNKNOWN) if isinstance(value, str) else bool(value) if isinstance(value, int) else UNKNOWN
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return UNKNOWN
    if isinstance(value, str):
        value = value.strip()
        if len(value) > _LONGEST_NUMBER or not _NUMBER.fullmatch(value):
            return UNKNOWN
        value = float(value) if any(mark in value for mark in ".eE") else int(value)
    if isinstance(value, int) and abs(value) >= _LARGEST_INTEGER:
        return UNKNOWN
    if kind is float or isinstance(value, int):
        return value
    return int(value) if value.is_integer() else UNKNOWN


def in_short(raw: str) -> str:
    """A value as written, for messages: of a long one its beginning and its end, which for a path is the name of the file."""
    if "\n" in raw:
        return "..."
    return raw if len(raw) <= 60 else f"{raw[:20]}...{raw[-37:]}"


def given_at(document: Document, shown: str, path: Path, name: str, value: Any) -> SourcedValue | None:
    """The value at a path of a tree, read as the argument `name`."""
    found = document.lookup(path)
    if not isinstance(found, Member):
        return None
    return SourcedValue(
        as_read(name, value),
        found.key.value,
        in_short(found.value.raw) if isinstance(found.value, Scalar) else "...",
        shown,
        range_of(document, found.span),
        pointer(document.in_file(path)),
        _is_empty(found),
    )


def _is_empty(member: Member) -> bool:
    node = member.value
    return not (node.members if isinstance(node, Mapping) else node.items if isinstance(node, Sequence) else True)
