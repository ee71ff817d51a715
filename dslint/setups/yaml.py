"""Read YAML and JSON files that hold or name a config: Accelerate, the Trainer and its frameworks, Lightning, Hydra."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from dslint.config.context import Context
from dslint.config.detect import FileKind, detect_kind, looks_like_config
from dslint.config.infer import infer
from dslint.config.sections import children
from dslint.evaluate.files import find, is_outside
from dslint.evaluate.interpolation import has_floats, interpolated, is_for_omegaconf, of_omegaconf
from dslint.evaluate.placeholders import unknown_in
from dslint.facts import Integration
from dslint.frameworks import huggingface
from dslint.frameworks.accelerate import is_accelerate, is_accelerates_own, read_accelerate
from dslint.frameworks.base import Framework, LauncherFile
from dslint.frameworks.own_loading import read_own
from dslint.frameworks.registry import framework_of, with_own_files
from dslint.frameworks.training import has_foreign_section, may_be_of_a_fork, read_training
from dslint.job.arguments import NUMBERS_AND_SWITCHES, given_at
from dslint.job.model import Program, Setup
from dslint.not_judged import NotJudged, Why, of_note
from dslint.schemas.key_table import KEYS
from dslint.schemas.recognition import SECTIONS
from dslint.setups.gather import LoadedSetup, Read, follow, follow_accelerate, follow_training, loaded_by, release_of, settle
from dslint.setups.own_files import setup_of
from dslint.setups.project import project_of
from dslint.source.parse import parse
from dslint.source.ranges import range_of
from dslint.source.read import ReadError, read
from dslint.source.tree import Document, Mapping, Member, Node, Path, Scalar, Sequence
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import below, parse_yaml

_NAMES_DEEPSPEED = re.compile(
    r"(?im)^[ \t-]*+(?:(?=\w*?deepspeed)\w++|zero_stage|zero_optimization)[ \t]*+:|^[ \t-]*+\w++[ \t]*+:[ \t]*+[\"']?deepspeed"
).search
"""A key or a value of a YAML file that is about DeepSpeed: `distributed_type: DEEPSPEED`, `deepspeed_config:`, `zero_stage:`."""

_DEEPEST = 4
"""How deep a section with a config may stand in a file."""


def read_yaml(text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """Read a YAML text. None for a file that was discovered, not named, and has nothing to do with DeepSpeed."""
    return read_tree(parse_yaml(text), path, shown, given, named=named)


def read_tree(whole: Document, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """Read the tree of a YAML or JSON file. None for a file that was discovered and does not use DeepSpeed."""
    document = interpolated(whole, given.environment)
    if _is_wandbs(document):
        return _not_read(document, NotJudged(Why.OF_WANDB)) if named or _NAMES_DEEPSPEED(whole.text) is not None else None
    other = _why_no_config(document)
    if other is not None:
        return _not_read(document, other)
    readers = (_accelerate, _training, _own_files, _lightning, _whole, _sections)
    found = next((read for reader in readers if (read := reader(document, path, shown, given)) is not None), None)
    if found is not None:
        return found if named or found.setups else None
    problem = document.problems[0] if document.root is None and document.problems else None
    line = document.position(problem.span.start).line if problem is not None else 0
    why = NotJudged(Why.BROKEN_LINE, (str(line), problem.message)) if problem is not None else None
    if not named and _NAMES_DEEPSPEED(document.text) is None:
        return None  # templates of other tools are not valid YAML either
    if not named and why:
        return Read(FileKind.UNRELATED, document, not_judged=[why])
    if why:
        return Read(FileKind.UNREADABLE, document, note=why.reason)
    foreign = _of_unknown_framework(document, path)
    if foreign is not None:
        return _not_read(document, foreign)
    is_hydras = is_for_omegaconf(whole)
    kind, note = detect_kind(document, named=named and not is_hydras, templates=not is_hydras)
    if not named:
        return _not_read(document, of_note(note)) if kind is FileKind.TEMPLATE and note else None
    if kind is FileKind.DS_CONFIG and isinstance(document.root, Mapping):
        return _config(document, shown, given)
    return Read(FileKind.UNRELATED, document, note=note or "this file has no DeepSpeed settings; not checked.")


def _not_read(document: Document, why: NotJudged) -> Read:
    """A file that is not judged as a whole."""
    return Read(FileKind.UNRELATED, document, not_judged=[why])


_OF_A_PARAMETER = frozenset({"value", "values", "desc", "distribution", "min", "max", "mu", "sigma", "q", "probabilities"})


def _is_wandbs(document: Document) -> bool:
    """Whether a file holds the parameters of a sweep, or what a finished run logged: no value is that of an argument by itself."""
    root = document.root
    if not isinstance(root, Mapping):
        return False
    parameters = root.get("parameters")
    section = parameters.value if parameters is not None and isinstance(parameters.value, Mapping) else root
    each = [member.value for member in section.members if not member.key.value.startswith(("_wandb", "wandb_"))]
    return len(each) > 1 and all(_is_parameter(one) for one in each)


def _is_parameter(node: Node) -> bool:
    names = {member.key.value for member in node.members} if isinstance(node, Mapping) else set()
    return bool(names & {"value", "values", "min", "distribution"}) and names <= _OF_A_PARAMETER


_FEWEST_LISTS = 2
"""How many lists make a file a grid beside keys with one value. A single one may be a mistake."""


def _is_grid(document: Document) -> bool:
    """Whether a file holds lists of values to try, for keys of DeepSpeed that have one: `train_micro_batch_size_per_gpu: [1, 2, 4]`.

    A program combines them, as `launcher/search_configs.py` of Zymrael/savanna does with `itertools.product`.
    """
    values = list(_values_of_deepspeed(document.root, ""))
    lists = [
        value for value in values if isinstance(value, Sequence) and value.items and all(isinstance(item, Scalar) for item in value.items)
    ]
    return len(lists) >= _FEWEST_LISTS or (bool(lists) and len(lists) == len(values) and len(lists[0].items) > 1)


def _values_of_deepspeed(section: Node | None, name: str) -> Iterator[Node]:
    """The values of the keys of DeepSpeed that are neither a section nor a list, in a section and below it."""
    known = children().get(name, {})
    for member in section.members if isinstance(section, Mapping) else ():
        spec = KEYS.get(known.get(member.key.value, ""), {})
        if "section" in spec.get("types", ()):
            yield from _values_of_deepspeed(member.value, known[member.key.value])
        elif spec and not {"list", "dict", "any"} & set(spec.get("types", ("any",))):
            yield member.value


def _why_no_config(document: Document) -> NotJudged | None:
    """Why a file is not judged whose keys are those of a config; None if it may be one."""
    if _is_grid(document):
        return NotJudged(Why.OF_GRID)
    return NotJudged(Why.OF_STRATEGY) if _is_of_strategy(document) else None


def _is_of_strategy(document: Document) -> bool:
    """Whether a file holds arguments of Lightning's strategy and nothing else: `DeepSpeedStrategy(**config)`."""
    root = document.root
    names = {member.key.value for member in root.members} if isinstance(root, Mapping) else set()
    if "stage" not in names or not names - children()[""].keys() - children()["zero_optimization"].keys():
        return False
    from dslint.frameworks.lightning import BUILT_FROM  # few files come here

    return names <= BUILT_FROM


def _accelerate(document: Document, path: str, shown: str, given: Context) -> Read | None:
    if is_accelerate(document):
        gathered = LoadedSetup(_accelerates(document, shown), given, documents={shown: document}, kinds={shown: FileKind.ACCELERATE})
        gathered = follow_accelerate(gathered, path)
        unknown = unknown_in(document, ("mixed_precision", "num_machines", "num_processes", "deepspeed_config"))
        return Read(
            FileKind.ACCELERATE, document, [settle(gathered)], _said(gathered, "an Accelerate config"), [unknown] if unknown else []
        )
    if not is_accelerates_own(document):
        return None
    note = "an Accelerate config that does not use DeepSpeed."
    file = _accelerates(document, shown)
    if file.accelerate is None or not (file.accelerate.has_block or file.accelerate.misplaced_path):
        return Read(FileKind.UNRELATED, document, note=note, without_deepspeed=True)
    unused = LoadedSetup(file, given, documents={shown: document}, kinds={shown: FileKind.ACCELERATE})
    return Read(FileKind.ACCELERATE, document, [settle(unused)], note, without_deepspeed=True)


def _accelerates(document: Document, shown: str) -> Setup:
    return Setup(accelerate=read_accelerate(document, shown))


def _training(document: Document, path: str, shown: str, given: Context) -> Read | None:
    """Training arguments, at the top level or in a section; those that name a config come first."""
    notes: list[str] = []
    for at in _mappings(document, ()):
        section = below(document, at) if at else document
        framework = _framework_of(section, path) if section is not None else None
        if section is None or framework is None:
            continue
        gathered = LoadedSetup(_setup_of(section, shown, path, framework, given), given, documents={shown: document})
        what = f"training arguments for {framework.name}"
        with_config = follow_training(gathered, section, path, shown, framework)
        if framework.own is not None:
            with_config = loaded_by(framework, framework.own, with_config, gathered, shown)
        if with_config is not None:
            keys = ("deepspeed", "micro_batch_size", *NUMBERS_AND_SWITCHES, *(framework.own.arguments if framework.own is not None else ()))
            unknown = unknown_in(section, keys) if with_config.config is not None else None
            return Read(FileKind.TRAINING, document, [settle(with_config)], _said(with_config, what), [unknown] if unknown else [])
        file = framework.launcher_file
        launched = _follow_launcher_file(gathered, file, section, path, shown) if file is not None else None
        if launched is not None:
            return Read(FileKind.TRAINING, document, [settle(launched)], _said(launched, what))
        by_launch = framework.own is None  # a flag, or the config of Accelerate, may let the Trainer use DeepSpeed
        notes.append(f"{what}, which {'name no DeepSpeed config: only their launch can' if by_launch else 'do not use DeepSpeed'}.")
    found = bool(_sections_in(document)) or any(True for _ in _groups(document))
    return Read(FileKind.UNRELATED, document, note=notes[0], without_deepspeed=True) if notes and not found else None


def _framework_of(section: Document, path: str) -> Framework | None:
    """The framework that a file holds training arguments for; None if another program reads them."""
    uses = project_of(path).uses
    framework = framework_of(section, uses)
    if framework is None or any(uses(name) for name in (*framework.packages, *framework.commands)):
        return framework
    return None if has_foreign_section(framework, section) else framework


def _setup_of(section: Document, shown: str, path: str, framework: Framework, given: Context) -> Setup:
    """The setup of a training file: those of a framework without the Trainer have names of their own."""
    if framework.own is not None:
        return Setup(of_framework=read_own(section, shown, framework, framework.own, release_of(framework, given)))
    arguments, uses = read_training(section, shown, framework), project_of(path).uses
    if may_be_of_a_fork(arguments) and not any(uses(name) for name in (*framework.packages, *framework.commands)):
        arguments = replace(arguments, sure=False)
    return Setup(arguments=arguments, program=_own_loop(framework, path))


def _follow_launcher_file(gathered: LoadedSetup, how: LauncherFile, section: Document, path: str, shown: str) -> LoadedSetup | None:
    """With the config to which the file leads that a training file names for Accelerate's launcher; None if there is none."""
    keys = how.keys(section, shown)
    given = keys.get(how.flag)
    name = given.value if given is not None else None
    found = how.open(name, find(name, path)) if isinstance(name, str) else None
    if found is None:
        return None
    document, file = found
    top = {**file.top, **{key: value for key, value in keys.items() if key != how.flag}}
    own = replace(file, top=top, precision_flag=keys.get("mixed_precision"))
    gathered = follow_accelerate(gathered.with_file(file.path, document, FileKind.ACCELERATE).but(accelerate=own), path)
    return gathered if gathered.config is not None else None


def _own_loop(framework: Framework, path: str) -> Program | None:
    """The program that trains with its own loop, where the arguments are of no certain framework and the project has no Trainer."""
    if framework.has_own_loop:
        return None
    loop = project_of(path).own_loop
    return Program(loop, Integration.DEEPSPEED.value) if loop is not None else None


def _own_files(document: Document, path: str, shown: str, given: Context) -> Read | None:  # noqa: ARG001 - all readers have these arguments
    framework, own = next((one for one in with_own_files() if one[1].recognises(document)), (None, None))
    if framework is None or own is None:
        return None
    setup = setup_of(framework, own, document, {shown: document}, given)
    said = f"a {framework.name} config; {framework.name} builds the DeepSpeed config from it."
    return Read(FileKind.TRAINING, document, [settle(setup)], said)


def _lightning(document: Document, path: str, shown: str, given: Context) -> Read | None:
    if "trategy" not in document.text:
        return None
    # They build the config as for a program, and most files have none.
    from dslint.frameworks.lightning import bare_strategy, strategy_of
    from dslint.setups.named_module import with_named_module

    trainers = (strategy_of(document, at, shown) for at in _mappings(document, ()))
    for found in chain([bare_strategy(document, shown)], trainers):
        if found is None:
            continue
        gathered = LoadedSetup(Setup(program=found.program), given, documents={shown: document}, kinds={shown: FileKind.TRAINING})
        if given.facts.integration is None:
            evidence = f"{found.given.where} selects Lightning's DeepSpeed strategy"
            gathered = gathered.inferring(evidence, integration=Integration.LIGHTNING)
        if found.ranks is not None and given.facts.world_size is None:
            evidence = f"{found.ranks.shown} ({found.ranks.where})"
            gathered = gathered.inferring(evidence, world_size=found.ranks.value)
        if found.link is not None:
            gathered = follow(gathered, found.link, path)
        else:
            gathered = gathered._replace(config=found.config).but(link=found.given, config=shown)
        gathered = with_named_module(gathered, document, path)
        return Read(FileKind.TRAINING, document, [settle(gathered)], _said(gathered, "a Lightning config"))
    return None


def _as_loaded(document: Document, path: str) -> Document:
    """A file of a program as it is loaded: a project that imports another reader than PyYAML may read 1e-4 as a number.

    Sources: omegaconf/_utils.py, get_yaml_loader, which Hydra uses, too; ruamel.yaml reads YAML 1.2.
    """
    if not has_floats(document):
        return document
    return of_omegaconf(document) if any(project_of(path).uses(package) for package in _OTHER_READERS) else document


_OTHER_READERS = ("omegaconf", "hydra", "ruamel")
"""Packages that read a number with an exponent as one, also without a point in it."""


def _whole(document: Document, path: str, shown: str, given: Context) -> Read | None:
    """A file that is a config itself."""
    document = _as_loaded(document, path)
    kind, _ = detect_kind(document, named=False, templates=bool(document.problems))
    return _config(document, shown, given) if kind is FileKind.DS_CONFIG else None


def _config(document: Document, shown: str, given: Context) -> Read:
    note = "a DeepSpeed config in YAML. DeepSpeed reads only JSON: the program must load this file and pass the dict."
    json = parse(document.text) if document.text.lstrip().startswith("{") else None
    if json is not None and json.language == "json" and not json.problems:
        # Strict JSON behind a YAML name: who gets its path reads JSON, where 5e8 is a number. To PyYAML it is a string, but a program that
        # loads JSON with PyYAML was not found in public repositories, and Accelerate files that name such a config were.
        document, note = json, "a DeepSpeed config in JSON."
    gathered = LoadedSetup(Setup(config=shown), infer(document, given), document, {shown: document}, kinds={shown: FileKind.DS_CONFIG})
    unknown = unknown_in(document)
    return Read(FileKind.DS_CONFIG, document, [settle(gathered)], note, [unknown] if unknown else [])


def _sections(document: Document, path: str, shown: str, given: Context) -> Read | None:
    """Configs and links to configs in the sections of a file, as in files for Hydra and OmegaConf."""
    document = _as_loaded(document, path)
    setups: list[LoadedSetup] = []
    unknown: list[NotJudged] = []
    for at in _sections_in(document):
        config = below(document, at)
        link = given_at(document, shown, at, "", _value(document, at))
        gathered = LoadedSetup(Setup(link=link), given, documents={shown: document}, kinds={shown: FileKind.TRAINING})
        if config is not None:
            gathered = gathered._replace(config=config).but(config=shown)
            unknown += [one] if (one := unknown_in(config)) is not None else []
        elif link is not None:
            gathered = follow(gathered, link, path)
        setups.append(settle(gathered))
    setups += _hydra_groups(document, path, shown, given)
    foreign = _of_unknown_framework(document, path) if setups else None
    unknown += [foreign._replace(why=Why.ARGUMENTS_OF_UNKNOWN_FRAMEWORK)] if foreign is not None else []
    return Read(FileKind.TRAINING, document, setups, _said(setups[0], "a config of a program"), unknown) if setups else None


_MOST_NAMED = 3


def _of_unknown_framework(document: Document, path: str) -> NotJudged | None:
    """Why training arguments are not judged that no known framework uses; None for a file without such arguments."""
    for at in _mappings(document, ()):
        section = below(document, at) if at else document
        if section is None or not isinstance(section.root, Mapping):
            continue
        keys = {member.key.value: member.key for member in section.root.members}
        if huggingface.has_arguments(frozenset(keys)) and _framework_of(section, path) is None:
            names = huggingface.not_arguments(keys)
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            place = range_of(document, keys[names[0]].span) if names else None
            return NotJudged(Why.UNKNOWN_FRAMEWORK, (f"{', '.join(names[:_MOST_NAMED])}{more}",), place)
    return None


def _sections_in(document: Document) -> list[Path]:
    """The paths of sections that are a config, and of values that name one."""
    found: list[Path] = []
    for at in _mappings(document, ()):
        if any(at[: len(other)] == other for other in found):
            continue
        node = document.lookup(at)
        inner = node.value if isinstance(node, Member) else node
        assert isinstance(inner, Mapping)
        about = bool(at) and str(at[-1]).lower() in SECTIONS
        if at and looks_like_config(inner, about=about):
            found.append(at)
            continue
        for member in inner.members:
            names_config = member.key.value.lower() in SECTIONS or (about and member.key.value in ("config", "config_file", "path"))
            if names_config and isinstance(member.value, Scalar) and _is_file(member.value.value):
                found.append((*at, member.key.value))
    return found


def _is_file(value: object) -> bool:
    return isinstance(value, str) and value.endswith((".json", ".hjson", ".yaml", ".yml"))


def _groups(document: Document) -> Iterator[tuple[Path, str, object]]:
    """The config groups for DeepSpeed in the list of defaults of a file for Hydra: the place, the name and the selected option."""
    root = document.root
    defaults = root.get("defaults") if isinstance(root, Mapping) else None
    for index, item in enumerate(defaults.value.items if defaults and isinstance(defaults.value, Sequence) else ()):
        for member in item.members if isinstance(item, Mapping) else ():
            group = member.key.value.partition("@")[0].removeprefix("override ").strip("/ ")
            if group.rpartition("/")[2] in SECTIONS and isinstance(member.value, Scalar) and member.value.value is not None:
                yield ("defaults", index, member.key.value), group, member.value.value


def _hydra_groups(document: Document, path: str, shown: str, given: Context) -> Iterator[LoadedSetup]:
    """The files of config groups for DeepSpeed that a file for Hydra selects: `defaults: [{deepspeed: zero2}]`."""
    for at, group, option in _groups(document):
        name = f"{group}/{str(option).removesuffix('.yaml')}.yaml"
        linked = None if option is UNKNOWN else find(name, path)
        link = given_at(document, shown, at, "", option)
        try:
            config = interpolated(parse_yaml(read(linked.path)), given.environment) if linked else None
        except ReadError:
            config = None
        gathered = LoadedSetup(Setup(link=link), given, documents={shown: document}, kinds={shown: FileKind.TRAINING})
        other = _why_no_config(config) if config is not None else None
        if link is not None and other is not None:
            gathered = gathered._replace(reason=NotJudged(Why.OPTION_IS_NO_CONFIG, (str(option), group, other.reason), link.range))
        elif linked is not None and config is not None and isinstance(config.root, Mapping):
            gathered = gathered.with_file(linked.shown, config)._replace(config=config).but(config=linked.shown)
        elif link is not None and option is not UNKNOWN:
            gathered = gathered._replace(reason=NotJudged(Why.NO_OPTION, (str(option), group, name), link.range))
        yield settle(gathered)


def _mappings(document: Document, at: Path) -> Iterator[Path]:
    """The paths of the mappings of a document, the outer ones first."""
    pending: list[Path] = [at]
    while pending:
        here = pending.pop(0)
        node = document.lookup(here)
        inner = node.value if isinstance(node, Member) else node
        if isinstance(inner, Mapping):
            yield here
            if len(here) < _DEEPEST:
                names = dict.fromkeys(member.key.value for member in inner.members if not isinstance(member.value, Scalar))
                pending += [(*here, name) for name in names]


def _value(document: Document, at: Path) -> object:
    node = document.lookup(at)
    return node.value.value if isinstance(node, Member) and isinstance(node.value, Scalar) else None


def _said(gathered: LoadedSetup, what: str) -> str:
    """A sentence that names the file and its DeepSpeed config."""
    setup = gathered.setup
    if setup.made:
        by = setup.of_framework.framework if setup.of_framework is not None else "Accelerate"
        return f"{what}; {by} builds the DeepSpeed config from it."
    if setup.link is None:
        return f"{what} without a DeepSpeed config."
    if setup.config == setup.link.path:
        return f"{what}, with the DeepSpeed config in the same file."
    if setup.link.value is UNKNOWN:
        return f"{what}; DeepSpeed config: {setup.link.raw}, which is only known at run time."
    if setup.config is not None:
        return f"{what}; DeepSpeed config: {setup.config}."
    where = "outside this project" if is_outside(str(setup.link.value), setup.link.path) else "not found"
    return f"{what}; DeepSpeed config: {setup.link.value}, {where} and not checked."
