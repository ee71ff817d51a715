"""What in a program may checkpoint activations."""

from __future__ import annotations

import re

from dslint.evaluate.python.sources import Sources
from dslint.evaluate.python.untaken import Untaken
from dslint.job.arguments import SourcedValue
from dslint.source.unknown import UNKNOWN

_CHECKPOINTS = re.compile(
    r"gradient_checkpointing(?:_enable\(|\s*=(?!=)\s*(?!False|None))|enable_gradient_checkpointing\(|activation_checkpointing"
    r"|gradient_checkpointing\s*:[^=\n]*=\s*(?:True|field\([^)\n]*True)"
    r"|checkpoint(?<!\wcheckpoint)(?:_sequential|_wrapper)?\(|use_reentrant|[Rr]ecompute|prepare_model_for_kbit_training\("
    r"|[\"']gradient_checkpointing[\"']\s*(?::|\]\s*=)\s*(?!False|None)|offload_activations|save_on_cpu|unsloth"
)
"""What computes activations again in the backward pass, or keeps them elsewhere. Flags of parsers and conditions do not."""


def checkpointing(sources: Sources, untaken: Untaken) -> SourcedValue | None:
    """What in the program's files may checkpoint activations, but for branches that the flags of the launch do not take."""
    for one in sources.all:
        if not any(word in one.text for word in ("checkpoint", "ecompute", "use_reentrant", "activations", "save_on_cpu", "unsloth")):
            continue
        for match, place in untaken.places(_CHECKPOINTS, one):
            return sources.sourced(match[0].strip(), place, UNKNOWN)
    return None
