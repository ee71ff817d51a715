"""The context of a config: facts, the evidence for inferred ones, and the files of its setup."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from dslint.facts import NOT_NEEDED, Facts, Integration, Release
from dslint.facts.find_loader import PACKAGES, find_loader, find_pin, find_requirement, is_left_out
from dslint.facts.find_release import ReleaseSource
from dslint.facts.installed import COMPARED, libraries_here
from dslint.record import Record

if TYPE_CHECKING:
    from dslint.config.policy import Policy
    from dslint.config.values import Value
    from dslint.facts.calibration import Calibration
    from dslint.facts.checkpoint import CheckpointFacts
    from dslint.job.model import Setup
    from dslint.source.tree import Path


class Filler(Protocol):
    """What a loader makes of a config before DeepSpeed gets it. The layers that know the loaders pass one in."""

    def fill(self, context: Context, key: str, source: str | None) -> Value | None:
        """The value that replaces "auto" in a key that the loader fills, None if it is not known."""

    def added(self, config: Any) -> Mapping[Path, Value]:
        """The keys that the loader writes whatever the file says, with their values; `UNKNOWN` where the value is not known."""


class OwnLoader(Record):
    """A framework that gives the config to DeepSpeed itself: its name in messages, and by key what it puts in the place of "auto".

    `raises` is its error, with `{key}`, for an "auto" in any other key; "" if DeepSpeed gets the word.
    """

    name: str
    fills: Mapping[str, str] = {}
    raises: str = ""


ONLY_REPLACED_BY = "which only the Hugging Face Trainer and Accelerate replace"
"""How the evidence for a loader ends that nothing but "auto" shows."""


class Context(Record):
    """The context of a config.

    `evidence` names the facts that were inferred, each with what it was inferred from. `setup` are the files that the config was found
    with, `policy` is what the team requires, `checkpoint` what the run resumes from, `calibration` what was measured on its GPU,
    `environment` the variables that launch scripts see, and `project` the folder from which the release of the loader is searched upwards
    (None for no search); `pins` are releases of other libraries that are given, which count more than those of the project. `kernel` is
    the release of this machine's kernel, if it is that of WSL and the environment has DeepSpeed.
    `release_source` says what names the DeepSpeed release. `oldest` is the oldest release that may run the config where
    `facts.deepspeed` is only assumed; None if it is known.
    `outside` is the release that will run the config where dslint does not know it: `facts.deepspeed` is then the nearest known one, and
    no finding is certain. With `own_copy` the project has DeepSpeed's sources itself, or requires a fork: none is certain, either.
    `filler` knows what the loaders fill in and add; without one nothing is filled. `through` is the framework that calls DeepSpeed in the
    place of a program.
    With `keeps_ranks` a launch keeps the number of ranks that it states itself, whatever world size is given; `unused_ranks` is then that
    world size, if it is another one. With `keeps_loader` so does a program that passes its config to a loader; `unused_loader` is then the
    integration that is given, if it is another one.
    With `is_hjson` the name of the file says that it is not strict JSON, which only DeepSpeed's own loader reads.
    """

    facts: Facts = Facts()
    evidence: tuple[tuple[str, str], ...] = ()
    setup: Setup | None = None
    policy: Policy | None = None
    checkpoint: CheckpointFacts | None = None
    calibration: Calibration | None = None
    environment: Mapping[str, str] = {}
    project: str | None = None
    pins: Mapping[str, Release] = {}
    kernel: str | None = None
    release_source: ReleaseSource = ReleaseSource.STATED
    oldest: Release | None = None
    outside: Release | None = None
    own_copy: bool = False
    filler: Filler | None = None
    through: OwnLoader | None = None
    keeps_ranks: bool = False
    unused_ranks: int | None = None
    keeps_loader: bool = False
    unused_loader: Integration | None = None
    is_hjson: bool = False

    @property
    def own_loader(self) -> OwnLoader | None:
        """The framework that fills the config, and is none of the integrations."""
        return self.through if self.facts.integration is Integration.DEEPSPEED else None

    @property
    def loader_name(self) -> str:
        """How messages call what loads the config; "" if that is not known."""
        if self.own_loader is not None:
            return self.own_loader.name
        return self.facts.integration.label if self.facts.integration is not None else ""

    @property
    def has_known_release(self) -> bool:
        """Whether the DeepSpeed that will run the config is a release that dslint knows."""
        return self.outside is None and not self.own_copy

    @property
    def is_for_accelerate(self) -> bool:
        """Whether a person says that Accelerate loads the config: its programs use DeepSpeed then, even if nothing names a config."""
        return self.facts.integration is Integration.ACCELERATE and "integration" not in dict(self.evidence)

    @property
    def may_be_for_accelerate(self) -> bool:
        """Whether nothing but "auto" shows that the Trainer loads the config: a program may use Accelerate without the Trainer."""
        return dict(self.evidence).get("integration", "").endswith(ONLY_REPLACED_BY)

    @classmethod
    def of(cls, given: Facts | Context) -> Context:
        """A context with only these facts; a context is returned unchanged."""
        return given if isinstance(given, Context) else cls(given)

    def get(self, need: str) -> Any:
        """A fact, or another part of the context, by its name in `needs` of rules; None if it is unknown."""
        return getattr(self, need) if need in PARTS else getattr(self.facts, need)

    def but(self, **facts: Any) -> Context:
        """The same context with other facts."""
        return self._replace(facts=self.facts._replace(**facts))

    def loading(self, integration: Integration, evidence: str) -> Context:
        """The context with what loads the config, as a program shows it: unless another integration is given and counts more."""
        given = self.facts.integration
        if given is None:
            return self.inferring(evidence, integration=integration)
        if given is integration or not self.keeps_loader:
            return self
        return self.but(loader_release=None).inferring(evidence, integration=integration)._replace(unused_loader=given)

    def inferring(self, evidence: str, **fact: Any) -> Context:
        """The context with one more fact, inferred from the evidence; with the integration also its release, if the project pins one."""
        context = self.with_evidence(evidence, **fact)
        return context.with_loader_release() if "integration" in fact else context

    def with_evidence(self, evidence: str, **fact: Any) -> Context:
        """The context with exactly one more fact, inferred from the evidence."""
        (name,) = fact
        return self.but(**fact)._replace(evidence=(*self.evidence, (name, evidence)))

    def with_loader_release(self) -> Context:
        """The context with the release of its integration, unless it is known, or the project pins none."""
        if self.facts.integration is None or self.facts.loader_release is not None:
            return self
        given = self.pins.get(PACKAGES.get(self.facts.integration, ""))
        if given is not None:
            return self.but(loader_release=given)
        if self.project is None:
            return self
        found = find_loader(self.project, self.facts.integration)
        return self if found is None else self.with_evidence(found.evidence, loader_release=found.release)

    def pinned(self, package: str) -> Release | None:
        """The release of a library that is given, or that the project pins exactly."""
        if package in self.pins:
            return self.pins[package]
        if self.facts.integration is not None and PACKAGES.get(self.facts.integration) == package and self.facts.loader_release is not None:
            return self.facts.loader_release
        found = find_pin(self.project, package) if self.project is not None else None
        return None if found is None else found.release

    @property
    def trains_elsewhere(self) -> bool:
        """Whether the project, or the user, states another release of a library than this environment has.

        A library that is missing here tells nothing: dslint may be installed beside DeepSpeed alone.
        """
        here = libraries_here()
        stated = {package: release for package in COMPARED if package in here and (release := self.pinned(package)) is not None}
        if any(release != here[package] for package, release in stated.items()):
            return True
        installed = [here[one] for one in ("lightning", "pytorch_lightning") if one in here]
        is_lightning = self.facts.integration is Integration.LIGHTNING and self.facts.loader_release is not None
        return is_lightning and bool(installed) and self.facts.loader_release not in installed

    def at_least(self, package: str) -> Release | None:
        """The oldest release of a library that the project may run with: the pinned one, or the lower bound that it requires (`>=4.28`)."""
        pinned = self.pinned(package)
        if pinned is not None:
            return pinned
        required = self.requirement(package)
        bound = (
            re.search(r"(?:>=|~=)\s*v?(\d+\.\d+(?:\.\d+)?)(?![\w.]*(?:a|b|rc|dev)\d)", required[1].partition(";")[0])
            if required is not None
            else None
        )
        return Release.parse(bound[1] if bound[1].count(".") == 2 else f"{bound[1]}.0") if bound is not None else None

    def requirement(self, package: str) -> tuple[str, str] | None:
        """The file of the project that requires a library, with what it says of the release: `>=4.28,<5`. What is given counts more."""
        if package in self.pins:
            return "--package", f"=={self.pins[package]}"
        return find_requirement(self.project, package) if self.project is not None else None

    def leaves_out(self, package: str) -> bool:
        """Whether the project requires DeepSpeed, and in no file this package, which DeepSpeed does not require itself."""
        return package not in self.pins and self.project is not None and is_left_out(self.project, package)


PARTS = ("policy", "checkpoint")
"""What rules can need in addition to facts."""

NEEDS = (*(name for name in Facts._fields if name not in NOT_NEEDED), *PARTS)
"""What rules can need, by name."""
