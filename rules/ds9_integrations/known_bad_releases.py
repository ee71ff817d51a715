"""DS9: releases of DeepSpeed and of its loaders that do not work together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.facts.find_release import ReleaseSource
from dslint.frameworks.mmengine import FRAMEWORK as XTUNER
from dslint.record import Record
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.rules.helpers.loaders import HUGGING_FACE, RAISED_BY_LOADER, names_its_release, releases_belong_together
from dslint.rules.helpers.releases import is_between, newest_transformers
from dslint.rules.helpers.zero import STAGE

_ACCUMULATING = BF16_ZERO_2.replace('"gradient_accumulation_steps": 1', '"gradient_accumulation_steps": 4')

_PREPARED = "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel = accelerator.prepare(model)\n"


class Pair(Record):
    """Releases that do not work together: DeepSpeed from `first` to `last`, and the loaders from `loader_first` to `loader_last`.

    None means no limit. `while_accumulating` limits the pair to ZeRO stages 2 and 3 with gradient accumulation, `on_several_ranks` to a world
    size that is not known to be 1. `unless` names what can still prevent the error.
    """

    first: Release
    last: Release | None
    loaders: tuple[Integration, ...]
    loader_first: Release | None
    loader_last: Release | None
    outcome: str
    advice: str
    phase: Phase = Phase.INITIALIZE
    while_accumulating: bool = False
    on_several_ranks: bool = False
    unless: str = ""

    def holds(self, config: Config) -> bool:
        """Whether the releases and the settings of a config are those of the pair."""
        facts = config.facts
        if self.on_several_ranks and facts.world_size == 1:
            return False
        if facts.integration not in self.loaders or not is_between(facts.deepspeed, self.first, self.last):
            return False
        if not config.context.has_known_release or config.context.release_source is ReleaseSource.ASSUMED:
            return False
        if self.while_accumulating and not (config.value(STAGE) in (2, 3) and config.value("gradient_accumulation_steps") > 1):
            return False
        if self.loader_first is None and self.loader_last is None:
            return True
        loader = facts.loader_release
        if loader is None:
            return False
        return releases_belong_together(config) and is_between(loader, self.loader_first, self.loader_last)


_NO_SYNC = 'the step raises AssertionError "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage {stage}"'
_NOT_ACCUMULATING = "the program does not use accelerator.accumulate"

PAIRS = (
    Pair(
        Release(0, 9, 0),
        Release(0, 9, 0),
        HUGGING_FACE,
        None,
        None,
        "DeepSpeed takes the world size as 1, and the batch does not fit (issue 3228)",
        "Use DeepSpeed 0.9.1 or later.",
        on_several_ranks=True,
    ),
    Pair(
        Release(0, 9, 0),
        Release(0, 9, 2),
        (Integration.ACCELERATE,),
        Release(0, 21, 0),
        None,
        'Accelerate raises ImportError "DeepSpeed version must be >= 0.9.3. Please update DeepSpeed"',
        "Use DeepSpeed 0.9.3 or later.",
    ),
    Pair(
        Release(0, 16, 0),
        None,
        (Integration.TRANSFORMERS,),
        Release(4, 46, 0),
        Release(4, 47, 0),
        _NO_SYNC,
        "Use transformers 4.47.1 or later, Accelerate 1.9.0 or later, or DeepSpeed 0.15.4.",
        phase=Phase.STEP,
        while_accumulating=True,
        unless="Accelerate is 1.9.0 or later",
    ),
    Pair(
        Release(0, 16, 0),
        None,
        (Integration.ACCELERATE,),
        None,
        Release(1, 8, 1),
        _NO_SYNC,
        "Use Accelerate 1.9.0 or later, or DeepSpeed 0.15.4.",
        phase=Phase.STEP,
        while_accumulating=True,
        unless=_NOT_ACCUMULATING,
    ),
)
"""Known pairs, each with what happens."""


_REQUIRED = (
    (Release(4, 14, 1), Release(0, 5, 7)),
    (Release(4, 20, 0), Release(0, 6, 5)),
    (Release(4, 28, 0), Release(0, 8, 3)),
    (Release(4, 31, 0), Release(0, 9, 3)),
)
"""The oldest DeepSpeed that transformers accepts from a release on. Source: transformers/dependency_versions_table.py of each."""


@rule(
    "DS952",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("fact:integration",),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/3228",
        "https://github.com/deepspeedai/DeepSpeed/issues/6793",
        "accelerate/accelerator.py, Accelerator.__init__ and Accelerator.no_sync",
        "transformers/trainer.py, Trainer._inner_training_loop",
        "transformers/dependency_versions_table.py and deepspeed.py, HfDeepSpeedConfig",
    ),
    untried="requires releases that the tests do not install; taken from the issues and from the source of these releases",
)
@bad(
    BF16_ZERO_2,
    at="",
    integration="accelerate",
    deepspeed="0.9.0",
    message="DeepSpeed 0.9.0 with Accelerate: DeepSpeed takes the world size as 1, and the batch does not fit (issue 3228).",
)
@bad(
    BF16_ZERO_2,
    at="",
    integration="accelerate",
    deepspeed="0.9.2",
    loader_release=Release(0, 21, 0),
    message='DeepSpeed 0.9.2 with Accelerate 0.21.0: Accelerate raises ImportError "DeepSpeed version must be >= 0.9.3. Please update DeepSpeed".',
)
@bad(
    _ACCUMULATING,
    at="",
    integration="transformers",
    deepspeed="0.16.4",
    loader_release=Release(4, 46, 3),
    message='DeepSpeed 0.16.4 with the Hugging Face Trainer 4.46.3: the step raises AssertionError "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2", unless Accelerate is 1.9.0 or later.',
)
@bad(
    _ACCUMULATING,
    at="",
    integration="accelerate",
    deepspeed="0.16.4",
    loader_release=Release(1, 3, 0),
    message='DeepSpeed 0.16.4 with Accelerate 1.3.0: the step raises AssertionError "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2", unless the program does not use accelerator.accumulate.',
)
@bad(
    BF16_ZERO_2,
    at="",
    integration="transformers",
    deepspeed="0.9.2",
    loader_release=Release(4, 31, 0),
    message='DeepSpeed 0.9.2 with transformers 4.31.0: transformers raises ImportError "deepspeed>=0.9.3 is required for a normal functioning of this module".',
)
@good(BF16_ZERO_2, integration="transformers", deepspeed="0.9.2", loader_release=Release(4, 30, 2))
@good(BF16_ZERO_2, integration="transformers", deepspeed="0.9.3", loader_release=Release(4, 31, 0))
@good(_ACCUMULATING, integration="transformers", deepspeed="0.16.4", loader_release=Release(4, 49, 0))
@good(_ACCUMULATING, integration="transformers", deepspeed="0.15.4", loader_release=Release(4, 46, 3))
@good(BF16_ZERO_2, integration="accelerate", deepspeed="0.16.4", loader_release=Release(1, 3, 0))
@good(BF16_ZERO_2, integration="accelerate", deepspeed="0.9.1", loader_release=Release(0, 18, 0))
@good(BF16_ZERO_2, integration="deepspeed", deepspeed="0.9.0")
@good(BF16_ZERO_2, integration="accelerate", deepspeed="0.9.0", world_size=1)
@bad(
    _ACCUMULATING,
    at="",
    integration="accelerate",
    loader_release=Release(1, 3, 0),
    deepspeed="0.16.4",
    program=f"{_PREPARED}with accelerator.accumulate(model):\n    accelerator.backward(model(batch))\n",
    message='DeepSpeed 0.16.4 with Accelerate 1.3.0: the step raises AssertionError "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2".',
)
@good(
    _ACCUMULATING,
    integration="accelerate",
    loader_release=Release(1, 3, 0),
    deepspeed="0.16.4",
    program=f"{_PREPARED}accelerator.backward(model(batch))\n",
)
def known_bad_releases(config: Config) -> Iterator[Finding]:
    """The release of DeepSpeed is known not to work with the integration, or with its release.

    DeepSpeed 0.9.0 takes the world size as 1 under Accelerate and the Trainer; 0.9.1 fixed it. Accelerate from 0.21 on refuses DeepSpeed
    below 0.9.3, and transformers from 4.31 on does, too; its older releases accept an older DeepSpeed, down to a release of their own. DeepSpeed from 0.16.0 on refuses `no_sync` at ZeRO stages 2 and 3, which the Trainer of transformers 4.46.0 to 4.47.0, and
    `accelerator.accumulate` before Accelerate 1.9.0, enter at every step but the last of an accumulation.

    dslint reads the release of the integration from exact pins in lock files and requirements; otherwise give it:
    `--integration accelerate==0.21.0`.

    Use another release.
    """
    pair = next((pair for pair in PAIRS if pair.holds(config)), None)
    if pair is None:
        yield from _too_old_for_transformers(config)
        return
    facts = config.facts
    loader = f"{facts.integration.label if facts.integration else ''}{f' {facts.loader_release}' if facts.loader_release else ''}"
    unless = pair.unless
    if unless == _NOT_ACCUMULATING:
        uses = _accumulates(config)
        if uses is False:
            return
        unless = "" if uses else unless
    certain = "deepspeed" not in config.evidence and not unless
    outcome = pair.outcome.format(stage=config.value(STAGE))
    yield Finding(
        "",
        f"DeepSpeed {facts.deepspeed} with {loader}: {outcome}{f', unless {unless}' if unless else ''}.",
        help=pair.advice,
        phase=pair.phase,
        certain=certain,
    )


def _accumulates(config: Config) -> bool | None:
    """Whether the program calls `accelerator.accumulate`; None if that is not known."""
    setup = config.setup
    program = setup.program if setup is not None else None
    if setup is None or program is None or program.loader != Integration.ACCELERATE.value:
        return None
    if any(one.certain for one in program.events.of(r"accelerate\.(\w+\.)?Accelerator\.accumulate")):
        return True
    texts = [document.text for path, document in setup.documents.items() if path.endswith(".py")]
    return None if any(re.search(r"accumulate\(|no_sync\(", text) for text in texts) else False


def _too_old_for_transformers(config: Config) -> Iterator[Finding]:
    """The finding for a DeepSpeed that is stated, and older than transformers requires."""
    facts, context = config.facts, config.context
    if facts.integration is not Integration.TRANSFORMERS or context.own_copy or context.release_source is not ReleaseSource.STATED:
        return
    release, loader = context.outside or facts.deepspeed, facts.loader_release
    shown = f"transformers {loader}"
    if loader is None:
        allowed = newest_transformers(config)
        loader = allowed[1] if allowed is not None else None
        shown = f"the newest transformers that {allowed[0]} allows" if allowed is not None else ""
    least = next((least for first, least in reversed(_REQUIRED) if loader is not None and loader >= first), release)
    if release >= least:
        return
    yield Finding(
        "",
        f'DeepSpeed {release} with {shown}: transformers raises ImportError "deepspeed>={least} is required for a normal functioning of this module".',
        help=f"Use DeepSpeed {least} or later, or an older transformers.",
        phase=Phase.LOAD,
        certain=not config.evidence.keys() & {"deepspeed", "loader_release"} and facts.loader_release is not None,
    )


_WITHOUT_ONE_BIT = Release(0, 19, 7)
"""The first DeepSpeed without the 1-bit optimizers."""
_LAST_MMENGINE = Release(0, 10, 7)
"""The newest MMEngine that is known to import them; 0.8.0 and 0.9.0 do, too."""
_STRATEGY = (
    'strategy = dict(type="DeepSpeedStrategy", config="ds_config.json")\n'
    'optim_wrapper = dict(type="DeepSpeedOptimWrapper", optimizer=dict(type="AdamW", lr=1e-4))\n'
    "train_dataloader = dict(batch_size=4)\n"
)


@rule(
    "DS993",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("mmengine/_strategy/deepspeed.py, register_deepspeed_optimizers",),
    untried=RAISED_BY_LOADER,
)
@bad(
    BF16_ZERO_2,
    at="",
    program=_STRATEGY,
    integration="deepspeed",
    deepspeed="0.19.8",
    message="DeepSpeed 0.19.8 has no 1-bit optimizers, which MMEngine up to 0.10.7 imports for its DeepSpeedStrategy: it may raise ModuleNotFoundError \"No module named 'deepspeed.runtime.fp16.onebit'\".",
)
@good(BF16_ZERO_2, program=_STRATEGY, integration="deepspeed", deepspeed="0.19.6")
@good(BF16_ZERO_2, program=_STRATEGY, integration="deepspeed", deepspeed="0.19.8", pins={"mmengine": Release(0, 11, 0)})
def mmengine_with_one_bit(config: Config) -> Iterator[Finding]:
    """MMEngine imports the 1-bit optimizers, which DeepSpeed removed in 0.19.7.

    MMEngine's `DeepSpeedStrategy`, which xtuner uses, registers the optimizers of DeepSpeed when it is made, whichever of them the training
    uses. MMEngine up to 0.10.7 raises `ModuleNotFoundError: No module named 'deepspeed.runtime.fp16.onebit'` with DeepSpeed 0.19.7 and newer.

    Use DeepSpeed 0.19.6.
    """
    program = config.setup.program if config.setup else None
    pinned = config.context.pinned("mmengine")
    if program is None or program.through != XTUNER.name or config.release < _WITHOUT_ONE_BIT or not names_its_release(config):
        return
    if pinned is not None and pinned > _LAST_MMENGINE:
        return
    yield Finding(
        "",
        f"DeepSpeed {config.release} has no 1-bit optimizers, which MMEngine {pinned or f'up to {_LAST_MMENGINE}'} imports for its "
        "DeepSpeedStrategy: it raises ModuleNotFoundError \"No module named 'deepspeed.runtime.fp16.onebit'\".",
        help="Use DeepSpeed 0.19.6.",
        certain=pinned is not None,
    )
