"""Open what a person named: the one way from a file, a standard input, a command or an editor's buffer to configs and their facts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Table
from typing import Any, TypeVar

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.load import Loaded, load, load_data, load_text, take
from dslint.config.sections import children
from dslint.evaluate.files import concerns_deepspeed
from dslint.record import Record
from dslint.setups.graph import beside, contexts_of
from dslint.setups.names import CONFIGS, Says, says
from dslint.source.read import names_file
from dslint.source.store import a_run, store
from dslint.source.tree import Document, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dslint.job.arguments import Arguments
    from dslint.setups.gather import Read


_Found = TypeVar("_Found")


class UsedConfig(Record):
    """A config as one training uses it: its tree, with the context of that training and its arguments."""

    loaded: Loaded
    arguments: Arguments | None = None


class Subject(Record):
    """What was opened. Either `loaded` or `trainings` is set.

    `loaded` is the file as a config by itself, and `contexts` what is known in each training that uses it. `trainings` is what was read of
    a file that leads to configs.
    """

    path: str
    loaded: Loaded | None = None
    contexts: tuple[Context, ...] = ()
    trainings: Read | None = None
    named: bool = True
    """Whether a person named it, or its name says surely that it is a config."""

    @property
    def shown(self) -> str:
        """The name of the file in messages."""
        return self.path.replace(os.sep, "/")

    @property
    def note(self) -> str | None:
        """A sentence about the file, if there is something to say."""
        found = self.trainings or self.loaded
        return found.note if found is not None else None

    @property
    def configs(self) -> tuple[UsedConfig, ...]:
        """The configs with an object in them, once for each training that uses them in a way of its own."""
        found: list[UsedConfig] = []
        for gathered in self.trainings.setups if self.trainings is not None else ():
            if gathered.setup.one_of_several:
                continue
            if gathered.config is not None and isinstance(gathered.config.root, Mapping):
                loaded = Loaded(gathered.config, FileKind.DS_CONFIG, gathered.context)
                found.append(UsedConfig(loaded, gathered.setup.workload))
        if self.loaded is not None:
            for context in self.contexts:
                setup = context.setup
                found.append(UsedConfig(take(self.loaded.document, context), setup.workload if setup is not None else None))
            found = found or [UsedConfig(self.loaded)]
        return tuple(one for number, one in enumerate(found) if all(not _is_same(one, other) for other in found[:number]))


def _is_same(one: UsedConfig, other: UsedConfig) -> bool:
    return (
        one.loaded.document is other.loaded.document
        and one.loaded.context.facts == other.loaded.context.facts
        and one.arguments == other.arguments
    )


def open_text(
    text: str, path: str, given: Context, *, named: bool = True, hinted: bool = False, contexts: Sequence[Context] | None = None
) -> Subject | None:
    """Open a text as if it were the file `path`, whatever is saved there.

    Args:
        text: the text.
        path: the path of the file, or how messages name a text that is in none.
        given: what is given; it counts more than what files say.
        named: whether a person named the file. None is returned for a file that was only found and has nothing to do with DeepSpeed.
        hinted: whether a program mentions a file that was only found.
        contexts: what is known where the config is used, if the caller knows it; by default the files near it are searched.
    """
    with a_run(store().with_text(path, text)):
        return opened(text, path, given, named=named, hinted=hinted, contexts=contexts)


def opened(
    text: str, path: str, given: Context, *, named: bool = True, hinted: bool = False, contexts: Sequence[Context] | None = None
) -> Subject | None:
    """Open a text that was read from its file, as `open_text` does."""
    shown = path.replace(os.sep, "/")
    name_says = says(path)
    given = given if named else _for_found(given)
    if name_says is Says.LEADS:
        if not named and not _may_lead(text, path, given):
            return None
        from dslint.setups.read import read_once  # most runs see neither programs nor scripts

        def read(context: Context) -> Read | None:
            return read_once(text, path, shown, context, named=named)

        found = _with_ranks(read, lambda read: [one.context for one in read.setups] if read is not None else [], given, named=named)
        return Subject(path, trainings=found) if found is not None else None
    if named and (posted := _posted(text, path, given)) is not None:
        return posted
    if named and contexts is None:
        contexts = _contexts(path, given, named=named)
    if not contexts and (name_says is Says.FOREIGN or (named and (_is_plain_text(text, path) or _is_log(text, path)))):
        return _of_other_text(text, path, given) if named else None
    sure = name_says is Says.CONFIG
    if not named and not sure and not hinted and not contexts and len(text) > _LONG and _is_long_data(text):
        return Subject(path, Loaded(Document(text, None, language="json"), FileKind.UNRELATED, given), named=False)
    loaded = load_text(text, given, named=named or sure, hinted=hinted or (name_says is Says.MAYBE and not named))
    if sure and not named and loaded.kind is FileKind.DS_CONFIG and _holds_other_data(loaded.document):
        loaded = loaded._replace(kind=FileKind.UNRELATED, note="not checked: a config is an object, and this is another JSON value.")
    leads = loaded.kind in (FileKind.TRAINING, FileKind.ACCELERATE)
    leads = leads or (named and loaded.kind is FileKind.UNRELATED and _is_for_framework(loaded.document, path))
    if not contexts and (leads or (loaded.kind is FileKind.DS_CONFIG and _builds_config(loaded.document))):
        from dslint.setups.read import read_arguments

        found = read_arguments(loaded.document, path, shown, given, named=named)
        return Subject(path, trainings=found) if found is not None else None
    if contexts is None and loaded.kind is FileKind.DS_CONFIG:
        contexts = _contexts(path, given, named=named)
    if contexts is not None and not contexts and loaded.kind is FileKind.DS_CONFIG:
        contexts = _beside(loaded, path, given)
    if contexts:
        loaded = load_text(text, contexts[0])
    return Subject(path, loaded, tuple(contexts or ()), named=named or sure)


def _may_lead(text: str, path: str, given: Context) -> bool:
    """Whether a file that was found may lead to a config, by what is in it and beside it."""
    if concerns_deepspeed(text) or (given.is_for_accelerate and "ccelerat" in text):
        return True
    from dslint.setups.candidates import may_be_posted, may_have_candidates, may_use_config_beside  # most files concern DeepSpeed

    return may_have_candidates(path, text, given) or may_use_config_beside(path, text, given) or may_be_posted(path, text)


def open_passed(config: Table[str, Any] | str, given: Context) -> Loaded:
    """Open what a running program passes to DeepSpeed: data, or the path of a file. It is a config, whatever its name and its keys are,
    and `given` has all that is known of its use: no file near it is searched.

    Raises:
        TypeError: the data holds something that JSON has no form for.
        dslint.source.read.ReadError: the file cannot be read.
    """
    return load(config, given) if isinstance(config, str) else load_data(config, given)


def _is_for_framework(document: Document, path: str) -> bool:
    """Whether a JSON file without keys that are known here is a training file of a framework, with arguments of its own."""
    from dslint.frameworks.registry import framework_of  # most files are configs
    from dslint.setups.project import project_of

    framework = framework_of(document, project_of(path).uses)
    return framework is not None and framework.own is not None


_FOREIGN_KEYS = 2
"""The fewest keys of its own by which a framework tells its file, here GPT-NeoX. Fewer spare most configs the import of the frameworks."""


def _builds_config(document: Document) -> bool:
    """Whether a JSON file with keys of a config is one from which a framework builds the config."""
    names = {member.key.value for member in document.root.members} if isinstance(document.root, Mapping) else set()
    if len(names - children()[""].keys()) < _FOREIGN_KEYS:
        return False
    from dslint.frameworks.registry import with_own_files

    return any(own.recognises(document) for _, own in with_own_files())


_LONG = 100_000
"""The length in characters from which a JSON file of a folder is first asked whether it is other data: the longest config among those of
thirty public repositories has 20,000, and files with results and data of training have millions, which take seconds for each."""


def _is_long_data(text: str) -> bool:
    """Whether a long text has no key of a config, or is sound JSON without one at the top and in the sections there."""
    known = children()[""]
    if not any(match[1] in known for match in _QUOTED.finditer(text)):
        return True
    import json  # slow to import, and short files need none of it

    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return False
    levels = [data, *data.values()] if isinstance(data, dict) else []
    return not any(key in known for level in levels if isinstance(level, dict) for key in level)


_QUOTED = re.compile(r'"(?=(\w+)")')
"""A word in quotes. One search for all of them takes an eighth of the time of one for each key."""

_NO_JSON = "not a DeepSpeed config: a config is a JSON file."


def _holds_other_data(document: Document) -> bool:
    """Whether a text is sound JSON of another kind than an object: a list of results, say."""
    return document.root is not None and not isinstance(document.root, Mapping) and not document.problems


def _contexts(path: str, given: Context, *, named: bool) -> Sequence[Context]:
    """What is known where a config is used. Who gives the setup needs no other, and a text without a name is used nowhere."""
    if given.setup is not None or not names_file(path):
        return ()
    return _with_ranks(lambda context: contexts_of(path, context), lambda found: found, given, named=named)


def _with_ranks(
    read: Callable[[Context], _Found], contexts: Callable[[_Found], Sequence[Context]], given: Context, *, named: bool
) -> _Found:
    """What is read of a file, with the world size that is given: it replaces that of the launch of a file that a person named.

    Where several launches state different numbers, it cannot be right for all of them, and in a folder it is meant for what states none:
    then each launch keeps its own number.
    """
    size = given.facts.world_size
    if size is None:
        return read(given)
    found = read(given._replace(keeps_ranks=True))
    sizes = {one.facts.world_size for one in contexts(found) if "world_size" in dict(one.evidence)}
    return found if not named or len(sizes) > 1 or sizes <= {size} else read(given)


def _beside(loaded: Loaded, path: str, given: Context) -> Sequence[Context]:
    """The integration of the configs in the folder of one that nothing uses, and that has an "auto" as they have."""
    if loaded.context.facts.integration is not None or given.setup is not None or not names_file(path):
        return ()
    found = beside(path, given) if '"auto"' in loaded.document.text else None
    return () if found is None else (found,)


def _for_found(given: Context) -> Context:
    """What is given for a folder: an integration is meant for the configs there for which no program shows one. One value for a run, by
    which what is read is kept.
    """
    if given.facts.integration is None or "integration" in dict(given.evidence):
        return given
    return store().found(("for a folder", id(given)), lambda: (given, given._replace(keeps_loader=True)))[1]


def _posted(text: str, path: str, given: Context) -> Subject | None:
    """A text that people post, with a config in it: its name is not that of a JSON file, and lines stand before the first brace."""
    if path.lower().endswith(CONFIGS) or "{" not in text or text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        return None
    from dslint.setups.posted_config import read_posted  # few runs see one

    found = read_posted(text, path.replace(os.sep, "/"), given)
    return Subject(path, trainings=found) if found is not None else None


def _of_other_text(text: str, path: str, given: Context) -> Subject:
    """A named file that is not a config by its name or its text: a hostfile, or anything else."""
    from dslint.setups.named_hostfile import read_by_itself  # few runs see one

    if (hostfile := read_by_itself(text, path, path.replace(os.sep, "/"), given)) is not None:
        return Subject(path, trainings=hostfile)
    if _is_one_command(text):
        from dslint.setups.script import read_shell

        if (command := read_shell(text, path, path.replace(os.sep, "/"), given, named=True)) is not None:
            return Subject(path, trainings=command)
    note = f"a log; to explain it, run dslint diagnose {path.replace(os.sep, '/')}." if _is_log(text, path) else _NO_JSON
    return Subject(path, Loaded(Document(text, None, language="text"), FileKind.UNRELATED, given, note))


def _is_log(text: str, path: str) -> bool:
    """Whether a file is the log of a job, by its name or by lines that only logs have. A config begins with a brace."""
    if not names_file(path) or path.lower().endswith(CONFIGS) or text.lstrip("\ufeff \t\r\n").startswith("{"):
        return False
    return bool(text.strip()) and (path.lower().endswith(_LOGS) or _OF_LOG.search(text) is not None)


_LOGS = (".log", ".out", ".err")
_OF_LOG = re.compile(r"^[^{\n]*(?:Traceback \(most recent call last\):|\[(?:INFO|WARNING|ERROR)\])", re.MULTILINE)
"""The head of a traceback, or the level of a line as DeepSpeed and torchrun print it."""


_COMMAND = re.compile(
    r"(?:\w+=\S*[ \t]+)*(?:deepspeed|accelerate launch|torchrun|python[\d.]*|llamafactory-cli|swift|trl|axolotl)[ \t]"
    r"|--[a-z][\w-]+(?=[ =\\]|$)"
)
"""How a command, or the options of one, begins."""


def _is_one_command(text: str) -> bool:
    """Whether a text is one command, over several lines or not, or the options of one."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines or _COMMAND.match(lines[0]) is None:
        return False
    return all(line.endswith("\\") for line in lines[:-1]) or all(line.startswith("--") for line in lines)


def _is_plain_text(text: str, path: str) -> bool:
    """Whether a file is another one than a config, such as a hostfile: neither its name nor its text is that of JSON."""
    if not names_file(path) or path.lower().endswith(CONFIGS) or "{" in text or text.lstrip().startswith("["):
        return False
    return bool(text.strip()) and not _MEMBER.search(text)


_MEMBER = re.compile(r"^\s*[\"']?\w+[\"']?\s*:", re.MULTILINE)
"""A key with its colon, which HJSON accepts at the top level without braces."""
