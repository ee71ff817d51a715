"""Read a file into the setups in it: the kind of the file, the config it names, and the facts it implies."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.load import load
from dslint.evaluate.files import Linked, find, find_checkout, is_elsewhere, is_outside
from dslint.facts import Facts, Integration, PassedAs, Release
from dslint.facts.gpus import smaller_than
from dslint.facts.model_config import ModelConfig, ModelError, load_model, named_model
from dslint.frameworks.accelerate import made_by
from dslint.frameworks.base import Framework
from dslint.frameworks.own_arguments import OwnArguments
from dslint.frameworks.own_loading import built_by, loader_of, own_of
from dslint.frameworks.registry import frameworks, named
from dslint.frameworks.training import completed, of_class
from dslint.job.arguments import Arguments, SourcedValue, given_at
from dslint.job.model import Program, Setup
from dslint.job.training import MODEL_ARGUMENTS, OWN_MODEL_ARGUMENTS
from dslint.not_judged import NotJudged, Why, of_note, what_to_pass
from dslint.record import Record
from dslint.setups.hostfile import with_hostfile
from dslint.setups.project import project_of
from dslint.setups.rows import with_rows
from dslint.source.parse import parse
from dslint.source.read import ReadError
from dslint.source.tree import Document, Mapping, Member, Scalar
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import below

_MOST_NAMED = 3
"""How many files with the same name a sentence names."""


class LoadedSetup(Record):
    """One setup, with its config and every file that was read for it. A reader follows it from file to file: each step is a new value.

    `config` is None if none was found; `context` is the given one with the facts inferred from the setup. `documents` are whole files by
    their shown names, `kinds` the kinds of those that hold no training arguments, `errors` the files that could not be read.
    `reason` says why there is no config, if the reader of the setup knows more than its link tells.
    """

    setup: Setup
    context: Context
    config: Document | None = None
    documents: Table[str, Document] = {}
    errors: Table[str, str] = {}
    kinds: Table[str, FileKind] = {}
    reason: NotJudged | None = None
    accelerate: Document | None = None
    """The tree of an Accelerate file that a script writes; other files are among the documents."""
    rest: str = ""
    """Where the rest of a config comes from that a program completes at run time."""
    built_by: str = ""
    """The program that builds a config from flags, if it is not followed."""
    built_as: str = ""
    """The framework whose function is taken for that of this program: the flags alone do not show what the program writes."""
    launched: frozenset[str] = frozenset()
    """The absolute paths of the files that the launched program consists of: the edges of a launch."""
    unread_model: NotJudged | None = None
    """Why rules about the model did not run, if the setup names one that cannot be read."""
    is_definition: bool = False
    """Whether the config is only defined here, for another file to complete and use, or changes the one that is in use."""

    @property
    def not_judged(self) -> NotJudged | None:
        """Why there is no config to judge, or only a part of one; None if there is a whole one, or if none is used."""
        if self.setup.unread is not None or self.setup.unconfigured is not None or self.setup.refused is not None:
            return None
        if self.config is None:
            return self.reason or _why(self)
        if self.is_definition or not (self.is_in_part or self.built_by):
            return None
        if self.built_by:
            return NotJudged(Why.BUILT, (self.built_by,)) if self.is_in_part else NotJudged(Why.BUILT_AS, (self.built_by, self.built_as))
        rest = f" ({self.rest})" if self.rest else ""
        return NotJudged(Why.COMPLETED, (str(self.setup.config), rest))

    @property
    def is_in_part(self) -> bool:
        """Whether a program completes the config at run time."""
        root = self.config.root if self.config is not None else None
        return isinstance(root, Mapping) and root.may_have_more

    @property
    def facts(self) -> Facts:
        """The facts of the context."""
        return self.context.facts

    def but(self, **changes: Any) -> Self:
        """The same with other fields of its `setup`."""
        return self._replace(setup=replace(self.setup, **changes))

    def inferring(self, evidence: str, **facts: Any) -> Self:
        """The same with facts that follow from `evidence`."""
        return self._replace(context=self.context.inferring(evidence, **facts))

    def with_file(self, shown: str, document: Document, kind: FileKind | None = None) -> Self:
        """The same with a file that was read for it."""
        kinds = self.kinds if kind is None else {**self.kinds, shown: kind}
        return self._replace(documents={**self.documents, shown: document}, kinds=kinds)

    def without_config(self) -> Self:
        """The same without the config that a file names, where something else replaces it: nothing of it is read for the setup."""
        is_file = self.config is not None and self.documents.get(self.setup.config or "") is self.config
        documents = {shown: one for shown, one in self.documents.items() if not is_file or one is not self.config}
        return self._replace(config=None, documents=documents)

    def seen_from(self, shown: str, document: Document, kind: FileKind) -> Self:
        """The same with the file that a person named, where it was read for another one. What is known of the file stays."""
        found = self.with_file(shown, self.documents.get(shown, document), self.kinds.get(shown, kind))
        setup = replace(self.setup, documents=found.documents)
        return found._replace(setup=setup, context=self.context._replace(setup=setup))


class Read(Record):
    """The kind of a file, the setups in it, a sentence about it for the user, and what in it cannot be judged.

    `without_deepspeed` says that the file is read completely, and trains without DeepSpeed: nothing in it is left to judge.
    `only_findings` says that reports show nothing of it but what rules find. `launched_without` says that the launches that are seen, of a
    program or in a script, train without DeepSpeed.
    """

    kind: FileKind
    document: Document
    setups: Sequence[LoadedSetup] = ()
    note: str | None = None
    not_judged: Sequence[NotJudged] = ()
    without_deepspeed: bool = False
    only_findings: bool = False
    launched_without: bool = False


def reasons_of(found: Read) -> list[NotJudged]:
    """What in a file cannot be judged, and why."""
    # What the reader said of a part says more than that there is a part.
    without = [one for one in found.setups if not (one.is_in_part and found.not_judged)]
    reasons = [*found.not_judged, *(reason for one in without if (reason := one.not_judged) is not None)]
    reasons += [one.unread_model for one in found.setups if one.unread_model is not None]
    if not found.setups and not reasons and found.note and not found.without_deepspeed:
        return [of_note(found.note)]
    return list(dict.fromkeys(reasons))


def _why(gathered: LoadedSetup) -> NotJudged:
    """Why a setup has no config, as far as its link tells."""
    setup = gathered.setup
    link = setup.link or setup.passed_over
    if link is None:
        return NotJudged(Why.NO_CONFIG)
    name = link.value if isinstance(link.value, str) and link.value else link.raw
    why, *more = _why_of_link(gathered, link)
    return NotJudged(why, (name, *more), link.range, path=link.path)


def _why_of_link(gathered: LoadedSetup, link: SourcedValue) -> tuple[Why, *tuple[str, ...]]:
    """Why the config that a link names is not judged, with what is known beside its name."""
    if gathered.setup.config in gathered.errors:
        return (Why.UNREADABLE,)
    if gathered.setup.config is not None:
        return (Why.OTHER_FILE,)
    if link.value is UNKNOWN:
        return Why.AT_RUN_TIME, what_to_pass(link.raw)
    same = _same_name(link)
    if is_outside(str(link.value), link.path):
        return (Why.OUTSIDE_WITH_SAME_NAME, same) if same else (Why.OUTSIDE,)
    return (Why.MISSING_WITH_SAME_NAME, same) if same else (Why.MISSING,)


def _same_name(link: SourcedValue) -> str:
    """Which files of the project have the name of a config that is not at its path: often the author's path to one of them."""
    name = os.path.basename(str(link.value))
    found = [os.path.relpath(path).replace(os.sep, "/") for path in project_of(link.path).configs_named(name)] if name else []
    return f"{_and(found[:_MOST_NAMED])} {'have' if len(found) > 1 else 'has'} its name" if found else ""


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def follow_accelerate(gathered: LoadedSetup, path: str, known: Linked | None = None) -> LoadedSetup:
    """With the config of an Accelerate file: the one it names, or the one that Accelerate builds from the block.

    `known` is the file that it names, if the caller has found it.
    """
    file = gathered.setup.accelerate
    assert file is not None
    hosts = file.block.get("deepspeed_hostfile")
    if hosts is not None and isinstance(hosts.value, str):
        gathered = gathered._replace(setup=with_hostfile(gathered.setup, hosts, path, decides=False))
    if gathered.config is not None or not (file.has_block or file.is_for_deepspeed) or file.misplaced_path is not None:
        return gathered
    if file.config_file is not None:
        return follow(gathered, file.config_file, path, known)
    named = file.block.get("deepspeed_config_file")
    if named is not None and named.value is UNKNOWN:
        return gathered.but(link=named)
    config = made_by(gathered.accelerate or gathered.documents[file.path], file, gathered.setup.arguments)
    return gathered._replace(config=config).but(config=file.path, made=True)


def follow_training(gathered: LoadedSetup, document: Document, path: str, shown: str, framework: Framework) -> LoadedSetup | None:
    """With the config of a training file of a framework; None if the file neither names nor contains one."""
    places = (tuple(key.split(".")) for key in framework.config_keys)
    at, found = next(((at, member) for at in places if isinstance(member := document.lookup(at), Member)), ((), None))
    if found is None:
        return None
    node = found.value
    if isinstance(node, Mapping):
        link = given_at(document, shown, at, "", None)
        return gathered._replace(config=below(document, at)).but(config=shown, link=link)
    if isinstance(node, Scalar) and node.value is UNKNOWN:
        return gathered.but(link=given_at(document, shown, at, "", UNKNOWN))
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.value.strip():
        return None
    link = given_at(document, shown, at, "", node.value)
    assert link is not None
    return follow(gathered, link, path, of=framework)


_TEMPLATE = re.compile(r"\{+\s*[\w.]+\s*\}+")


def follow(gathered: LoadedSetup, link: SourcedValue, beside: str, known: Linked | None = None, of: Framework | None = None) -> LoadedSetup:
    """Follow a link to a config: a path, a built-in name, or the config itself as text.

    `known` is the file, if the caller has found it; `of` is the framework whose training file names it. "..." is left to the reader of
    an example, and "{config}" to what fills a template.
    """
    if link.value is UNKNOWN or not str(link.value).strip("./ ") or _TEMPLATE.fullmatch(str(link.value).strip()):
        return gathered.but(link=replace(link, value=UNKNOWN))
    word = str(link.value).strip()
    for framework in frameworks():
        shipped = framework.config_by_name(word) if framework.config_by_name is not None else None
        if shipped is not None and not ("/" in word and known) and _may_ship(framework, gathered, word, beside, of):
            name = f"<{word} of {framework.name}>"
            return gathered.with_file(name, shipped)._replace(config=shipped).but(link=link, config=name)
    if word.startswith("{") and not is_elsewhere(word):
        config = parse(word)
        own = Document(word, config.root, problems=config.problems, departures=config.departures, places=None)
        return gathered.with_file(f"<{link.name}>", config)._replace(config=own).but(link=link, config=f"<{link.name}>")
    linked = known or find(word, beside) or find(word, link.path) or (find_checkout(word, beside) if word.startswith("/") else None)
    if linked is None:
        missing = gathered.setup.missing
        return gathered.but(link=link, missing=missing if is_outside(word, beside) else (*missing, link))
    try:
        loaded = load(linked.path, gathered.context)
    except ReadError as error:
        return gathered._replace(errors={**gathered.errors, linked.shown: str(error)}).but(link=link)
    gathered = gathered.with_file(linked.shown, loaded.document).but(link=link, config=linked.shown)
    return gathered._replace(config=loaded.document) if loaded.kind is FileKind.DS_CONFIG else gathered


def _may_ship(framework: Framework, gathered: LoadedSetup, word: str, beside: str, of: Framework | None) -> bool:
    """Whether the name of a config that ships with a framework means that one in a job: a path only in a job for the framework, where the
    project has no such file; a name not in a job for another one, or of a program that does not mention its package.
    """
    arguments, program = gathered.setup.arguments, gathered.setup.program
    name = of.name if of is not None else arguments.framework if arguments is not None else None
    if name == framework.name:
        return "/" not in word or not find(word, beside)
    if "/" in word or (name is not None and name != Integration.TRANSFORMERS.label):
        return False
    texts = [document.text for document in gathered.documents.values() if document.language == "python"]
    return (
        program is None or program.loader is None or not texts or any(package in text for package in framework.packages for text in texts)
    )


def settle(gathered: LoadedSetup) -> LoadedSetup:
    """Infer the ranks and their groups, the nodes, the host memory, the model and the integration from the setup, unless they are given."""
    setup, context = gathered.setup, gathered.context
    if context.facts.world_size is None or (context.keeps_ranks and setup.launch is not None):
        size, evidence = _world_size(setup)
        if size is not None:
            unused = None if context.facts.world_size == size else context.facts.world_size
            context = context.inferring(evidence, world_size=size)._replace(unused_ranks=unused)
    context = _with_groups(setup.program, context)
    nodes = (setup.launch.nodes if setup.launch else None) or (setup.accelerate.number("num_machines") if setup.accelerate else None)
    if context.facts.nodes is None and nodes is not None:
        context = context.but(nodes=nodes)
    limit = setup.launch.memory if setup.launch else None
    if context.facts.host_memory is None and limit is not None:
        context = context.inferring(f"{limit.shown} ({limit.where})", host_memory=limit.value)
    context = _with_gpu(context, setup.launch.gpu if setup.launch is not None else None)
    gathered = with_model(gathered._replace(context=context), _names_model(setup))
    context = gathered.context
    if context.facts.integration is None:
        integration, evidence = _integration(gathered)
        if integration is not None:
            context = context.inferring(evidence, integration=integration)
    elif _passes_own_dict(gathered):
        evidence = f"{setup.program.path if setup.program else ''} passes its own dict to deepspeed.initialize"
        context = context.but(loader_release=None).inferring(evidence, integration=Integration.DEEPSPEED)
    if setup.arguments is not None:
        given = setup.program.train_data if setup.program is not None else None
        setup = replace(
            setup, arguments=completed(with_rows(of_class(setup.arguments, context.pinned, context.facts), given), context.facts)
        )
    own = own_of(setup.of_framework)
    if own is not None and setup.of_framework is not None and setup.made and gathered.config is None:
        gathered = gathered._replace(config=built_by(own, setup.of_framework, context.facts, gathered.documents))
    setup = replace(setup, documents=gathered.documents)
    return gathered._replace(setup=setup, context=context._replace(setup=setup))


def _with_gpu(context: Context, asked: SourcedValue | None) -> Context:
    """Infer the GPU, and its memory, from the kind that the job asks for. A kind with several sizes is taken for the largest: what does not
    fit there fits on none.
    """
    if asked is None or context.facts.gpu is not None:
        return context
    gpu = asked.value
    context = context.inferring(f"{asked.shown} ({asked.where})", gpu=gpu)
    if context.facts.gpu_memory is not None:
        return context
    smaller = smaller_than(gpu)
    but = f"; there is one with {smaller.sold} GB, too" if smaller is not None and str(smaller.sold) not in asked.raw else ""
    return context.inferring(f"that of {gpu} with {gpu.sold} GB{but}", gpu_memory=gpu.memory)


def with_model(gathered: LoadedSetup, named_by: SourcedValue | None) -> LoadedSetup:
    """With the model that an argument names, unless it is known."""
    if named_by is None or gathered.facts.model is not None:
        return gathered
    found = _model(named_by)
    if isinstance(found, ModelError):
        return gathered._replace(unread_model=NotJudged(Why.UNREAD_MODEL, (str(found),), named_by.range))
    return gathered if found is None else gathered.inferring(f"{named_by.shown} ({named_by.where})", model=found)


def _with_groups(program: Program | None, context: Context) -> Context:
    """Infer the groups of ranks from the program: those of a pipeline, or those of an `mpu` or a mesh, whose number nobody knows."""
    if program is None:
        return context
    pipeline = program.pipeline
    if pipeline is not None and context.facts.pipeline_parallel is None:
        known = type(pipeline.value) is int and pipeline.value > 0
        evidence = f"{pipeline.shown} ({pipeline.where})"
        return context.inferring(evidence, pipeline_parallel=pipeline.value) if known else context.but(divided_by_program=True)
    given = (context.facts.tensor_parallel, context.facts.pipeline_parallel, context.facts.sequence_parallel)
    passes_groups = program.passed is not None and not program.passed.isdisjoint(("mpu", "mesh_param"))
    return context.but(divided_by_program=True) if passes_groups and given == (None, None, None) else context


def _world_size(setup: Setup) -> tuple[int | None, str]:
    launch, accelerate = setup.launch, setup.accelerate
    if launch is not None and launch.world_size is not None and launch.given is not None:
        nodes = f" on {launch.nodes:,} machines" if launch.nodes and launch.nodes > 1 and "num_processes" not in launch.given.name else ""
        return launch.world_size, f"{launch.given.shown}{nodes} ({launch.given.where})"
    processes = accelerate.number("num_processes") if accelerate else None
    if accelerate and processes is not None:
        given = accelerate.top["num_processes"]
        machines = accelerate.number("num_machines") or 1
        return max(1, processes // machines) * machines, f"{given.shown} ({given.where})"
    return _ranks_of_framework(setup)


def _ranks_of_framework(setup: Setup) -> tuple[int | None, str]:
    """The ranks by the arguments of a framework without the Trainer, where its own command starts the job, or nothing known does."""
    arguments, launch = setup.of_framework, setup.launch
    framework = named(arguments.framework) if arguments is not None else None
    given = arguments.get(framework.rank_flag) if arguments is not None and framework is not None else None
    is_other = launch is not None and framework is not None and (launch.launcher != framework.launcher or bool(launch.flags))
    if given is None or framework is None or arguments is None or is_other:
        return None, ""
    each, nodes = given.value, arguments.get(framework.node_flag)
    counts = [each, nodes.value if nodes is not None else 1]
    if not all(type(one) is int and one > 0 for one in counts):
        return None, ""
    return math.prod(counts), f"{given.shown}{f' on {counts[1]:,} machines' if counts[1] > 1 else ''} ({given.where})"


def _names_model(setup: Setup) -> SourcedValue | None:
    """The value of the arguments or the program that names the model."""
    arguments, own = setup.arguments, own_of(setup.of_framework)
    if own is not None and setup.of_framework is not None and "model" in own.estimates:
        return setup.of_framework.get(own.estimates["model"])
    given = named_in(arguments)
    given = given or (setup.program.model if setup.program is not None else None)
    if given is None and setup.made and setup.own is not None:  # the program builds the config of the same flags
        given = setup.own.get("model_name_or_path")
    return given if given is not None and isinstance(given.value, str) and given.value else None


def named_in(arguments: Arguments | None) -> SourcedValue | None:
    """The first of the arguments that name a model, if there is one."""
    names = (*MODEL_ARGUMENTS, *OWN_MODEL_ARGUMENTS)
    given = next((found for name in names if (found := arguments.get(name)) is not None), None) if arguments is not None else None
    return given if given is not None and isinstance(given.value, str) and given.value else None


def _model(given: SourcedValue) -> ModelConfig | ModelError | None:
    """The model of this name: of a folder of the project with its config.json, else a known one; the error for one that cannot be read."""
    name = str(given.value)
    linked = None if is_elsewhere(name) else find(os.path.join(name, "config.json"), given.path)
    if linked is None:
        return named_model(name)
    try:
        return load_model(linked.path)
    except ModelError as error:
        return error


def _passes_own_dict(gathered: LoadedSetup) -> bool:
    """Whether the integration that is given is not that of this config: the program writes it, and passes it to DeepSpeed itself.

    The integration that a person names is that of the training; a program may initialize another model beside it, such as a frozen one.
    """
    program, config = gathered.setup.program, gathered.config
    is_own = config is not None and config.language == "python" and gathered.setup.arguments is None
    return (
        is_own
        and program is not None
        and program.loader == Integration.DEEPSPEED
        and gathered.facts.integration is not Integration.DEEPSPEED
    )


def _integration(gathered: LoadedSetup) -> tuple[Integration | None, str]:
    setup = gathered.setup
    program = setup.program
    if program is not None and program.loader is not None and setup.arguments is None and not _reads_itself(setup, program):
        return Integration(program.loader), f"inferred from the calls in {program.path}"
    if setup.arguments is not None:
        framework = named(setup.arguments.framework)
        if framework is not None:
            return framework.loader, f"{setup.arguments.path} sets arguments of {framework.phrase}"
    if setup.accelerate is not None:
        if gathered.config is not None:
            betas = (gathered.config.lookup(("optimizer", "params", key)) for key in ("betas", "eps"))
            if any(isinstance(found, Member) and isinstance(found.value, Scalar) and found.value.value == "auto" for found in betas):
                return Integration.TRANSFORMERS, 'optimizer.params has "auto" that only the Hugging Face Trainer replaces'
        path = setup.accelerate.path
        if gathered.accelerate is None and gathered.kinds.get(path) in (FileKind.SCRIPT, FileKind.PYTHON):
            return Integration.ACCELERATE, f"{path} starts DeepSpeed with accelerate launch"
        return Integration.ACCELERATE, f"{path} {'writes' if gathered.accelerate is not None else 'is'} an Accelerate config"
    return None, ""


def _reads_itself(setup: Setup, program: Program) -> bool:
    """Whether the file that a flag of the launch names cannot reach the loader of the program, as in a script for a chat that parses it.

    Accelerate gets a config from its file, flags, variables, or from a `DeepSpeedPlugin`. `deepspeed.initialize` gets `config` or `args`.
    """
    if setup.launch is None or setup.link is None or setup.accelerate is not None:
        return False
    if program.loader == Integration.TRANSFORMERS:
        return setup.link.name == "--deepspeed"  # of the Trainer's, the setup would have the arguments
    if program.loader == Integration.ACCELERATE:
        return setup.link.name != "ACCELERATE_DEEPSPEED_CONFIG_FILE" and next(program.events.of(_PLUGIN), None) is None
    engines = list(program.events.of(_ENGINE)) if program.loader == Integration.DEEPSPEED else []
    takes = (("config", 10), ("args", 0), ("config_params", 11))
    return bool(engines) and all(one.complete and not any(one.argument(*name) for name in takes) for one in engines)


_PLUGIN, _ENGINE = r"accelerate.*\.DeepSpeedPlugin", r"deepspeed\.initialize"


def passed_by_framework(gathered: LoadedSetup, framework: Framework) -> LoadedSetup:
    """What a framework makes of a setup that calls DeepSpeed itself: it leaves no "auto", and it passes the optimizer."""
    setup, loader = gathered.setup, framework.loader
    program = setup.program or Program(framework.name, loader.value)
    gathered = gathered.but(program=replace(program, loader=loader.value, passed=framework.passes or None, through=framework.name))
    if gathered.facts.integration is None or gathered.facts.integration is Integration.TRANSFORMERS:
        evidence = f"{framework.name} passes it to {loader.label}" + (f" ({setup.link.where})" if setup.link is not None else "")
        gathered = gathered._replace(context=gathered.context.inferring(evidence, integration=loader).but(passed_as=PassedAs.DICT))
    gathered = gathered._replace(context=gathered.context._replace(through=loader_of(framework)))
    if gathered.config is not None and framework.as_passed is not None:
        gathered = gathered._replace(config=framework.as_passed(gathered.config))
    return gathered


def release_of(framework: Framework, given: Context) -> Release | None:
    """The release of a framework, if the project pins it."""
    return given.pinned(framework.packages[0]) if framework.packages else None


def loaded_by(
    framework: Framework, own: OwnArguments, with_config: LoadedSetup | None, gathered: LoadedSetup, shown: str
) -> LoadedSetup | None:
    """A setup as a framework without the Trainer loads it: with the config that is named, or else the one that it builds. None if the
    arguments do not use DeepSpeed.
    """
    arguments = gathered.setup.of_framework
    if with_config is None and own.builds and arguments is not None and (own.uses_deepspeed is None or own.uses_deepspeed(arguments)):
        with_config = gathered.but(config=shown, made=True)
    return passed_by_framework(with_config, framework) if with_config is not None else None
