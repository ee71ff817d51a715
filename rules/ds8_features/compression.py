"""DS8: compression, which DeepSpeed 0.19.7 removed."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import write
from dslint.source.tree import Mapping

REMOVED_IN = Release(0, 19, 7)
SECTION = "compression_training"
TECHNIQUES = ("weight_quantization", "activation_quantization", "sparse_pruning", "row_pruning", "head_pruning", "channel_pruning")


@rule(
    "DS858",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=(SECTION,),
    references=("https://www.deepspeed.ai/docs/config-json/#compression",),
    untried="compression was removed in 0.19.7, and the suite runs 0.19.8",
)
@bad(
    f'{{{MINIMAL}, "compression_training": {{"row_pruning": {{"shared_parameters": {{"enabled": true, "method": "topk"}}}}}}}}',
    at="compression_training.row_pruning",
    deepspeed="0.18.9",
    message="row_pruning has shared_parameters but no different_groups: DeepSpeed 0.18.9 raises AssertionError while parsing.",
)
@good(
    f'{{{MINIMAL}, "compression_training": {{"row_pruning": {{}}}}}}',
    deepspeed="0.18.9",
)
def compression_without_groups(config: Config) -> Iterator[Finding]:
    """A compression technique has shared parameters but no groups of layers to apply them to.

    DeepSpeed up to 0.19.6 requires `different_groups` next to `shared_parameters`. Without it, an enabled technique fails an assertion, and
    a disabled one raises a `KeyError`. Later releases have no compression.

    Add `different_groups` with the modules to compress and their parameters.
    """
    if config.release >= REMOVED_IN:
        return
    for technique in TECHNIQUES:
        section = f"{SECTION}.{technique}"
        shared = config.node(f"{section}.shared_parameters")
        if not isinstance(shared, Mapping) or not shared.members or config.has(f"{section}.different_groups"):
            continue
        if config.literal(f"{section}.shared_parameters.method") == "snip_momentum":
            continue
        enabled = config.literal(f"{section}.shared_parameters.enabled") is True
        error = "AssertionError" if enabled else "KeyError \"'different_groups'\""
        yield Finding(
            section,
            f"{technique} has shared_parameters but no different_groups: DeepSpeed {config.release} raises {error} while parsing.",
            help='Add "different_groups": {...}.',
            on="key",
            fix=None if enabled else write(config, f"{section}.different_groups", "{}", Applicability.SAFE),
        )
