"""Arguments of trainers that only some releases of their library take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dslint.facts import Release
from dslint.record import Record


class Taken(Record):
    """The releases that do not take an argument, from `first` to `last` (None: no limit), and what to write instead."""

    first: Release | None
    last: Release | None
    help: str


_RENAMED = "Write processing_class."
_NOT_YET = Taken(None, Release(0, 11, 4), "Write tokenizer, or use TRL 0.12.0 or later.")
_IN_CONFIG = "Set it in the {kind}Config of the trainer instead."
_MOVED = Release(0, 13, 0)
"""The first TRL whose trainers take from their config what they took as arguments before."""

_OF_SFT = (
    "dataset_text_field packing max_seq_length infinite num_of_sequences chars_per_token dataset_num_proc dataset_batch_size "
    "neftune_noise_alpha model_init_kwargs dataset_kwargs eval_packing"
)
_OF_DPO = (
    "beta label_smoothing loss_type label_pad_token_id padding_value truncation_mode max_length max_prompt_length max_target_length "
    "is_encoder_decoder disable_dropout generate_during_eval precompute_ref_log_probs dataset_num_proc model_init_kwargs "
    "ref_model_init_kwargs model_adapter_name ref_adapter_name reference_free force_use_ref_model"
)
_LAST_TOKENIZER = {
    "SFT": Release(0, 16, 0),
    "DPO": Release(0, 16, 0),
    "Reward": Release(0, 15, 0),
    "ORPO": Release(0, 15, 0),
    "KTO": Release(0, 14, 0),
    "CPO": Release(0, 14, 0),
    "GRPO": Release(0, 14, 0),
}
"""By kind of trainer: the first TRL that does not take `tokenizer`. 0.12.0 to these take it under its old name; GRPO never did."""
_SINCE_CONFIGS = {
    "SFT": dict.fromkeys(_OF_SFT.split(), Taken(_MOVED, None, _IN_CONFIG.format(kind="SFT"))),
    "DPO": dict.fromkeys(_OF_DPO.split(), Taken(_MOVED, None, _IN_CONFIG.format(kind="DPO"))),
    "Reward": {"max_length": Taken(Release(0, 14, 0), None, _IN_CONFIG.format(kind="Reward"))},
}

_OF_TRANSFORMERS: Mapping[str, Taken] = {
    "tokenizer": Taken(Release(5, 0, 0), None, _RENAMED),
    "processing_class": Taken(None, Release(4, 45, 2), "Write tokenizer, or use transformers 4.46.0 or later."),
    "compute_loss_func": Taken(None, Release(4, 45, 2), "Use transformers 4.46.0 or later."),
}


def trainers() -> Iterator[tuple[str, str, str, Mapping[str, Taken]]]:
    """The library of a trainer, its name as a pattern of events, and in messages, and the arguments that not every release takes.

    Source: transformers/trainer.py of 4.45.2, 4.46.0 and 5.0.0; trl/trainer/*_trainer.py of 0.7.0 to 1.16.0.
    """
    for name in ("Trainer", "Seq2SeqTrainer"):
        yield "transformers", rf"transformers\.(\w+\.)*{name}", name, _OF_TRANSFORMERS
    for kind, first in _LAST_TOKENIZER.items():
        renamed = {"tokenizer": Taken(first, None, _RENAMED), **({} if kind == "GRPO" else {"processing_class": _NOT_YET})}
        yield "trl", rf"trl\.(\w+\.)*{kind}Trainer", f"{kind}Trainer", {**renamed, **_SINCE_CONFIGS.get(kind, {})}
