"""DS1: what a team asks of its configs, as a JSON Schema of its own (`policy` in the settings)."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.config.policy import Policy, PolicyError, breaches
from dslint.diagnostics import Effect, Severity
from dslint.rule import Finding, bad, good, rule
from dslint.source.tree import plain

_TWO = Policy(
    "team.schema.json",
    {"required": ["gradient_clipping"], "properties": {"gradient_clipping": {"maximum": 1, "description": "Agreed in May."}}},
)


@rule("DS118", "policy-broken", effect=Effect.ADVICE, watches=("fact:policy",))
@bad('{"train_micro_batch_size_per_gpu": 4}', at="gradient_clipping", policy=_TWO)
@bad('{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 5.0}', at="gradient_clipping", policy=_TWO)
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0}', policy=_TWO)
@good('{"train_micro_batch_size_per_gpu": 4}')
def policy_broken(config: Config) -> Iterator[Finding]:
    """The config breaks the team's own policy.

    `policy = "team.schema.json"` in the settings names a JSON Schema, which every config is held against as it is written: "the stage has to be
    2", "clipping is required". DeepSpeed has no opinion on it. What the policy says at that place (`description`) is quoted.

    Write what the policy asks for, or ignore the finding there with a reason.
    """
    policy = config.policy
    if policy is None or config.document.root is None or config.document.problems:
        return
    try:
        found = list(breaches(policy, plain(config.document.root)))
    except PolicyError as error:
        yield Finding("", f"{error}. Nothing was held against it.", severity=Severity.ERROR)
        return
    for breach in found:
        key = ".".join(map(str, breach.path)) or "the config"
        yield Finding(
            breach.path,
            f"{key} {breach.message}: so says the policy {policy}.",
            help=breach.reason,
            on="value",
            severity=Severity.ERROR,
        )
