"""Releases of two libraries with which a program does not even start, or cannot resume."""

from __future__ import annotations

from collections.abc import Callable

from dslint.config import Config
from dslint.diagnostics import Phase
from dslint.facts import Integration, Release
from dslint.facts.find_loader import find_requirement
from dslint.job.events import GivenArgument
from dslint.record import Record
from dslint.rules.helpers.framework_limits import newest_of_framework
from dslint.rules.helpers.model import makes_adapter, told_options
from dslint.rules.helpers.project import calls_itself
from dslint.rules.helpers.releases import allows_newest, is_between, newest_transformers, release_of


class PairReleases(Record):
    """The releases of the two packages of a pair. `limit` is what allows no newer one of the first, where nothing names its release."""

    one: Release
    other: Release
    limit: str = ""


class LibraryPair(Record):
    """The releases `first` to `last` of a package, and those of another one, that raise `error` together. None means no limit.

    What one imports or passes and the other one lacks was read in unpacked releases around most limits. That torch 2.6 and numpy 2.0 are the
    first to change something is what their release notes say.
    """

    package: str
    first: Release
    last: Release
    other: str
    other_first: Release | None
    other_last: Release | None
    used: Callable[[Config], bool]
    error: str
    advice: str
    source: str
    phase: Phase = Phase.LOAD

    def releases(self, config: Config) -> PairReleases | None:
        """The releases of both packages, if these are pinned, and among those that do not fit.

        Of a transformers that is not pinned, it is the newest one that the requirements or the framework allow.
        """
        one, other, limit = release_of(config, self.package), release_of(config, self.other), ""
        if other is None or not is_between(other, self.other_first, self.other_last):
            return None
        if one is None and self.package == "transformers" and (allowed := _newest_allowed(config, self.last)) is not None:
            limit, one = allowed
        if one is None or not is_between(one, self.first, self.last):
            return None
        if _is_denied(config, self.package, one, self.other) or _is_denied(config, self.other, other, self.package):
            return None
        return PairReleases(one, other, limit) if self.used(config) else None


def _newest_allowed(config: Config, last: Release) -> tuple[str, Release] | None:
    """The newest transformers that the project allows, if that is not after `last`, with what allows no newer one."""
    newest = newest_transformers(config) if not allows_newest(config, "transformers") else None
    return newest if newest is not None and newest[1] <= last else newest_of_framework(config, "transformers")


def _is_denied(config: Config, package: str, release: Release, other: str) -> bool:
    """Whether the project requires another release than the one that is given: then its files do not tell what the other package has."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    project, given = config.context.project, config.context.pins
    required = find_requirement(project, package) if project is not None and other not in given else None
    try:
        return required is not None and not SpecifierSet(required[1]).contains(str(release), prereleases=True)
    except InvalidSpecifier:
        return False


def _by_trainer(config: Config) -> bool:
    return config.facts.integration is Integration.TRANSFORMERS and not config.context.may_be_for_accelerate


def _by_launcher(config: Config) -> bool:
    launch = config.setup.launch if config.setup else None
    return launch is not None and launch.launcher == "deepspeed"


def _resumes(config: Config) -> bool:
    given = config.arguments.get("resume_from_checkpoint") if config.arguments is not None else None
    return given is not None and isinstance(given.value, str | bool) and given.value not in ("", False, "false", "False")


_OWN_GROUPS = ("optim_target_modules", "loraplus_lr_ratio", "use_galore", "use_apollo", "use_badam", "use_muon", "lr_groups")
"""Arguments with which a framework divides the weights into other groups than the Trainer does."""


def _has_empty_group(config: Config) -> bool:
    """Whether the Trainer makes the optimizer and the schedule of an adapter, of which no weight is without decay."""
    if not _by_trainer(config) or config.has("optimizer") or config.has("scheduler"):
        return False
    arguments, program = config.arguments, config.setup.program if config.setup else None
    if arguments is not None and (arguments.framework == "axolotl" or any(name in arguments for name in _OWN_GROUPS)):
        return False
    told = told_options(config)
    if program is None or "lora_rank" in told:
        return "lora_rank" in told and "lora_saves" not in told
    made = [one for one in program.events.of(r"peft\.(\w+\.)*LoraConfig") if one.complete]
    plain = (one for one in made if one.argument("modules_to_save") is None and _is_none(one.argument("bias")))
    return len(made) == 1 and any(plain) and makes_adapter(program)


def _is_none(bias: GivenArgument | None) -> bool:
    return bias is None or bias.value == "none"


def _requires(first: Release, last: Release, least: Release, newest_below: Release) -> LibraryPair:
    """A Trainer that requires a newer Accelerate. Accelerate of another release than `least` is at most `newest_below`."""
    return LibraryPair(
        "transformers",
        first,
        last,
        "accelerate",
        None,
        newest_below,
        _by_trainer,
        f'the Trainer raises ImportError "Using the `Trainer` with `PyTorch` requires `accelerate>={least}`"',
        f"Use Accelerate {least} or later.",
        "transformers/training_args.py, TrainingArguments._setup_devices",
    )


def _trains_with(*kinds: str) -> Callable[[Config], bool]:
    """Whether the program trains with one of these trainers of TRL, and not with a class that extends it."""

    def trains(config: Config) -> bool:
        program = config.setup.program if config.setup else None
        made = program.events.of(rf"trl\.(\w+\.)*({'|'.join(kinds)})Trainer") if program is not None else ()
        return any(not one.unlikely and calls_itself(config, one, one.name.rpartition(".")[2]) for one in made)

    return trains


_PREFERENCES = ("DPO", "KTO", "CPO", "ORPO")
"""The trainers of TRL that generate samples of both models, and log their rewards."""

PAIRS = (
    _requires(Release(4, 30, 0), Release(4, 36, 2), Release(0, 20, 1), Release(0, 20, 0)),
    _requires(Release(4, 37, 0), Release(4, 44, 2), Release(0, 21, 0), Release(0, 20, 3)),
    _requires(Release(4, 45, 2), Release(4, 57, 1), Release(0, 26, 0), Release(0, 25, 0)),
    LibraryPair(
        "transformers",
        Release(4, 32, 0),
        Release(4, 39, 3),
        "accelerate",
        Release(1, 0, 0),
        None,
        _by_trainer,
        "the Trainer raises TypeError \"Accelerator.__init__() got an unexpected keyword argument 'dispatch_batches'\"",
        "Use Accelerate 0.34.2, or transformers 4.40.0 or later.",
        "accelerate/accelerator.py, Accelerator.__init__ of 0.34.2 and 1.0.0",
    ),
    LibraryPair(
        "transformers",
        Release(4, 38, 0),
        Release(4, 39, 3),
        "accelerate",
        Release(0, 21, 0),
        Release(0, 25, 0),
        _by_trainer,
        "the Trainer raises TypeError \"Accelerator.__init__() got an unexpected keyword argument 'use_seedable_sampler'\"",
        "Use Accelerate 0.26.0 to 0.34.2.",
        "https://github.com/hiyouga/LlamaFactory/issues/2552",
    ),
    LibraryPair(
        "peft",
        Release(0, 14, 0),
        Release(0, 18, 0),
        "transformers",
        Release(4, 30, 0),
        Release(4, 42, 4),
        _by_trainer,
        "the Trainer imports PEFT, which raises ImportError \"cannot import name 'EncoderDecoderCache' from 'transformers'\"",
        "Use PEFT 0.13.2 or older, or transformers 4.43.0 or later.",
        "peft/peft_model.py of 0.13.2 and 0.14.0",
    ),
    LibraryPair(
        "peft",
        Release(0, 16, 0),
        Release(0, 17, 1),
        "transformers",
        Release(5, 0, 0),
        None,
        _by_trainer,
        "the Trainer imports PEFT, which raises ImportError \"cannot import name 'HybridCache' from 'transformers'\"",
        "Use PEFT 0.18.0 or later.",
        "peft/peft_model.py of 0.17.1 and 0.18.0",
    ),
    LibraryPair(
        "peft",
        Release(0, 15, 0),
        Release(0, 18, 0),
        "accelerate",
        Release(0, 20, 0),
        Release(0, 26, 1),
        _by_trainer,
        "the Trainer imports PEFT, which raises ImportError \"cannot import name 'clear_device_cache' from 'accelerate.utils.memory'\"",
        "Use Accelerate 0.32.1 or later, or PEFT 0.14.0.",
        "peft/utils/loftq_utils.py of 0.14.0 and 0.15.0",
    ),
    LibraryPair(
        "deepspeed",
        Release(0, 9, 0),
        Release(0, 14, 3),
        "numpy",
        Release(2, 0, 0),
        None,
        _by_launcher,
        "the launcher raises ImportError \"cannot import name 'BUFSIZE' from 'numpy'\"",
        "Use DeepSpeed 0.14.4 or later, or numpy before 2.0.",
        "https://github.com/deepspeedai/DeepSpeed/pull/5680",
    ),
    LibraryPair(
        "deepspeed",
        Release(0, 9, 0),
        Release(0, 15, 4),
        "torch",
        Release(2, 6, 0),
        None,
        _resumes,
        'torch loads only weights by default, and DeepSpeed does not ask for more: the resume raises UnpicklingError "Weights only load failed"',
        "Use DeepSpeed 0.16.0 or later, or a torch before 2.6.",
        "https://github.com/deepspeedai/DeepSpeed/pull/6751",
        Phase.RESUME,
    ),
    LibraryPair(
        "transformers",
        Release(4, 30, 0),
        Release(5, 0, 0),
        "torch",
        Release(2, 10, 0),
        None,
        _has_empty_group,
        "the Trainer makes the schedule for two groups of weights, and no weight of the adapter is in the group without decay, which DeepSpeed "
        'removes: the first step of the schedule raises ValueError "zip() argument 2 is longer than argument 1"',
        "Use transformers 5.1.0 or later, or a torch before 2.10.",
        "https://github.com/huggingface/transformers/pull/43711",
        Phase.STEP,
    ),
    LibraryPair(
        "transformers",
        Release(4, 52, 0),
        Release(5, 24, 0),
        "accelerate",
        Release(0, 26, 0),
        Release(1, 2, 1),
        _by_trainer,
        "the Trainer raises TypeError \"Accelerator.unwrap_model() got an unexpected keyword argument 'keep_torch_compile'\"",
        "Use Accelerate 1.3.0 or later.",
        "https://github.com/hiyouga/LlamaFactory/issues/8451",
    ),
    LibraryPair(
        "trl",
        Release(0, 8, 0),
        Release(0, 11, 4),
        "transformers",
        Release(4, 46, 0),
        None,
        _trains_with(*_PREFERENCES),
        "transformers has a get_batch_samples since 4.46, and calls that of the trainer in its place: the first step raises AttributeError "
        "\"'generator' object has no attribute 'generate'\", or from 4.50 on TypeError \"get_batch_samples() takes 3 positional arguments but 4 "
        'were given"',
        "Use TRL 0.12.0 or later, or transformers 4.45.2.",
        "trl/trainer/dpo_trainer.py, DPOTrainer.get_batch_samples of 0.11.4",
        Phase.STEP,
    ),
    LibraryPair(
        "trl",
        Release(0, 8, 0),
        Release(0, 11, 4),
        "transformers",
        Release(4, 46, 0),
        None,
        _trains_with("Reward"),
        "the first step raises TypeError \"RewardTrainer.compute_loss() got an unexpected keyword argument 'num_items_in_batch'\"",
        "Use TRL 0.12.0 or later, or transformers 4.45.2.",
        "trl/trainer/reward_trainer.py, RewardTrainer.compute_loss of 0.11.4 and 0.12.0",
        Phase.STEP,
    ),
    LibraryPair(
        "trl",
        Release(0, 12, 0),
        Release(0, 12, 2),
        "transformers",
        Release(4, 47, 0),
        None,
        _trains_with(*_PREFERENCES),
        'the trainer raises TypeError "log() takes 2 positional arguments but 3 were given" when it logs first',
        "Use TRL 0.13.0 or later, or transformers 4.46.3.",
        "https://github.com/huggingface/trl/issues/2445",
        Phase.STEP,
    ),
    LibraryPair(
        "trl",
        Release(0, 15, 0),
        Release(0, 16, 1),
        "transformers",
        Release(4, 52, 0),
        None,
        _trains_with("GRPO"),
        'the trainer raises TypeError "GRPOTrainer._get_train_sampler() takes 1 positional argument but 2 were given"',
        "Use TRL 0.17.0 or later, or transformers 4.51.3.",
        "trl/trainer/grpo_trainer.py, GRPOTrainer._get_train_sampler of 0.16.1 and 0.17.0",
        Phase.STEP,
    ),
)
