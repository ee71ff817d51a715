"""DS1: what a team requires of its configs, written as a JSON Schema (`policy` in the settings)."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.config.policy import Policy, PolicyError, breaches
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, rule
from dslint.source.tree import plain

_EXAMPLE = Policy(
    "team.schema.json",
    {"required": ["gradient_clipping"], "properties": {"gradient_clipping": {"maximum": 1, "description": "Agreed in May."}}},
)


@rule(
    "DS118",
    effect=Effect.POLICY,
    references=("https://json-schema.org/draft/2020-12/json-schema-validation",),
    watches=("fact:policy",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4}',
    at="gradient_clipping",
    policy=_EXAMPLE,
    message="Policy team.schema.json requires gradient_clipping.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 5.0}',
    at="gradient_clipping",
    policy=_EXAMPLE,
    message="Policy team.schema.json rejects gradient_clipping: 5 is greater than the maximum of 1.",
)
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0}', policy=_EXAMPLE)
@good('{"train_micro_batch_size_per_gpu": 4}')
def policy_broken(config: Config) -> Iterator[Finding]:
    """The config breaks the policy of your team.

    The setting `policy = "team.schema.json"` names a JSON Schema. dslint validates every config against it as written: it can require a
    stage of 2, or gradient clipping. DeepSpeed does not read it. The help quotes the `description` that the policy has at that place.

    Write what the policy requires, or ignore the finding with a reason.
    """
    policy = config.policy
    if policy is None or config.document.root is None or config.document.problems:
        return
    try:
        found = list(breaches(policy, plain(config.document.root)))
    except PolicyError as error:
        text = str(error)
        yield Finding("", f"{text[:1].upper()}{text[1:]}; dslint did not check the config against it.")
        return
    for breach in found:
        yield Finding(
            breach.path,
            f"Policy {policy} {breach.message}.",
            help=breach.reason,
            on="value",
        )
