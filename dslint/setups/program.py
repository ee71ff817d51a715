"""The setups in a Python program or a notebook: each config that a call takes, with the files around it."""

from __future__ import annotations

import re
from itertools import takewhile

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.evaluate.budget import Budget
from dslint.evaluate.python.mentions import first_mention
from dslint.evaluate.python.notes import ConfigCall
from dslint.evaluate.python.read import PythonFile
from dslint.evaluate.reasons import Cause
from dslint.facts import Integration, PassedAs
from dslint.frameworks.programs import read_python
from dslint.job.arguments import SourcedValue
from dslint.job.events import INFERENCE, Event
from dslint.job.model import Setup
from dslint.not_judged import AnsweredBy, NotJudged, Why
from dslint.setups.gather import LoadedSetup, Read, follow, settle
from dslint.source.read import DATA
from dslint.source.tree import Document, Mapping, Node, Sequence

_CONFIG_STEPS = 10_000
"""The steps for the configs of one program: a node of a config, or a file or cell of the program, is one. A program with 20 calls in a
notebook of 100 cells, or with 200 calls and configs of 40 keys, takes fewer. Without a limit 800 cells with a call each took 12 s.
"""

_MOST_PLACES = 3
"""How many places a sentence names."""


def read_program(text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """Read a Python text or a notebook. None for a discovered file that passes no config to DeepSpeed."""
    found = read_followed(read_python(text, shown, path), text, path, shown, given, named=named)
    return found if found is not None or named else found_inference(text, path, shown, given)


def read_followed(found: PythonFile | None, text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """The same of a program that was followed; None for one that is not Python."""
    if found is None:
        document = Document(text, None, language="text")
        return Read(FileKind.UNRELATED, document, note="cannot be parsed as Python; not checked.") if named else None
    not_judged = _unread(found, shown, named=named)
    not_judged += left_unread(found, shown)
    if not found.calls:
        if not not_judged and not named:
            return None
        if found.parses_arguments and not found.unread:
            not_judged.append(_at_launch(", if any,", "--deepspeed"))
        return _without_calls(found, not_judged, given)
    judged = _within_budget(found)
    if len(judged) < len(found.calls):
        first = found.calls[len(judged)].given
        counts = str(len(judged)), str(len(found.calls))
        not_judged.append(NotJudged(Why.TOO_MANY_CALLS, (*counts, _at(first)), first.range, path=_cell_of(first)))
    setups = [gather_call(call, found, path, shown, given, single=len(found.calls) == 1) for call in judged]
    calls = ", ".join(dict.fromkeys(_called(call, gathered) for call, gathered in zip(judged, setups, strict=True)))
    return Read(FileKind.PYTHON, found.document, setups, f"a program: {calls}.", not_judged)


def left_unread(found: PythonFile, shown: str) -> list[NotJudged]:
    """What of a program is not read: what is not Python, and what is beyond the limit of steps. `shown` is the file that is reported."""
    reasons = [NotJudged(Why.NOT_PYTHON, (_at(line),), line.range, path=_cell_of(line)) for line in found.broken]
    if found.breaks_off is not None:
        line = found.breaks_off
        reasons.append(NotJudged(Why.BREAKS_OFF, (_at(line),), line.range, path=_cell_of(line)))
    if found.cut_off:
        last = found.cut_off
        is_here = last.path.partition(":cell ")[0] == shown
        where = _at(last) if is_here else last.where  # the end is in a file that it imports
        place, cell = (last.range, _cell_of(last)) if is_here else (None, "")
        reasons.append(NotJudged(Why.TOO_LONG_PROGRAM, (where,), place, path=cell))
    return reasons


def with_assumed_names(read: Read, found: PythonFile) -> Read:
    """The same, where something of a posted program is judged, with what its names are taken for."""
    assumed = found.assumed
    if not assumed or not read.setups:
        return read
    why = Why.WITHOUT_IMPORTS if assumed.without_imports else Why.WITHOUT_SOME_IMPORTS
    return read._replace(not_judged=[*read.not_judged, NotJudged(why, (", ".join(assumed.in_words),))])


def not_known_of(found: PythonFile, shown: str) -> list[NotJudged]:
    """Why the config of a launched program is not known; none if it does not use DeepSpeed. `shown` is the file that launches it.

    A flag for the Trainer's config that the launch does not give means a training without DeepSpeed, and so does a missing Accelerate file.
    """
    if any(call.integration for call in found.calls):
        return []
    if (inference := inference_of(found)) is not None:
        return [NotJudged(Why.INFERENCE, (inference.at.where,))]
    at = _mention(found) if not found.unread and found.loader != Integration.ACCELERATE else None
    if at is not None:
        return [NotJudged(Why.NO_KNOWN_CALL, (f"{at.raw} ({at.path}, {_at(at)})",), answer=AnsweredBy.CALL)]
    reasons = _reasons([call for call in found.unread if not call.flag], shown)
    for call in found.unread:
        if call.flag and call.integration == Integration.DEEPSPEED:
            source = call.reason.text if call.reason is not None else call.given.raw
            reasons.append(NotJudged(Why.NOT_IN_COMMAND, (f"{call.given.path}, {_at(call.given)}", source)))
    return reasons


def _mention(found: PythonFile) -> SourcedValue | None:
    """The first expression of a program that concerns a config of DeepSpeed."""
    for source in found.sources.all:
        if (mention := first_mention(source)) is not None:
            return found.place(source, source.span(mention))
    return None


def inference_of(found: PythonFile) -> Event | None:
    """The call of `deepspeed.init_inference`, in a program without one that takes a config of a training."""
    return None if found.unread else next(found.events.of(re.escape(INFERENCE)), None)


def found_inference(text: str, path: str, shown: str, given: Context) -> Read | None:
    """A discovered program that only calls `deepspeed.init_inference`; None for any other. Reports show it where a rule finds something.

    It is followed only if its own text names the function, and then read as if a person had named it.
    """
    found = read_python(text, shown, path) if INFERENCE.rpartition(".")[2] in text else None
    if found is None or found.calls or inference_of(found) is None:
        return None
    read = read_followed(found, text, path, shown, given, named=True)
    return read._replace(only_findings=True) if read is not None and read.setups else None


def _of_inference(found: PythonFile, given: Context) -> LoadedSetup | None:
    """The setup of a program that calls `deepspeed.init_inference`; it has no config to judge."""
    inference = inference_of(found)
    if inference is None:
        return None
    reason = NotJudged(Why.INFERENCE, ("the program",), inference.at.range, path=_cell_of(inference.at))
    return settle(LoadedSetup(Setup(program=found.program), given, documents=found.documents, kinds=kinds_of(found), reason=reason))


def _within_budget(found: PythonFile) -> list[ConfigCall]:
    """The first calls of a program, as many as one subject has steps for; each is judged with all files of the program."""
    budget = Budget(_CONFIG_STEPS)
    return list(takewhile(lambda call: budget.spend(len(found.documents) + _size(call.config)), found.calls))


def _size(config: Node | None) -> int:
    """The number of nodes of a config."""
    count = 0
    waiting = [config] if config is not None else []
    while waiting:
        node = waiting.pop()
        count += 1
        waiting += [one.value for one in node.members] if isinstance(node, Mapping) else node.items if isinstance(node, Sequence) else []
    return count


def _without_calls(found: PythonFile, not_judged: list[NotJudged], given: Context) -> Read:
    """A program in which no call takes a config. One that only mentions DeepSpeed has nothing to judge."""
    if not not_judged and not found.commands:
        at = _mention(found)
        if (setup := _of_inference(found, given)) is not None:
            return Read(FileKind.UNRELATED, found.document, [setup])
        if at is None:
            note = "dslint sees no DeepSpeed config in this program, and nothing that launches it with one; not checked."
            return Read(FileKind.UNRELATED, found.document, note=note, without_deepspeed=True)
        if found.loader == Integration.ACCELERATE:
            not_judged = [launched_with_accelerate(at)]
        else:
            not_judged = [NotJudged(Why.NO_KNOWN_CALL, (at.raw,), at.range, AnsweredBy.CALL, path=_cell_of(at))]
    return Read(FileKind.UNRELATED, found.document, not_judged=not_judged)


def _unread(found: PythonFile, shown: str, *, named: bool) -> list[NotJudged]:
    """Why configs are not judged: one reason for all calls of a file that share it. It names a file that the program imports.

    A program that is found says nothing of a config that is in use: no file of it is left unread.
    """
    return _reasons([call for call in found.unread if named or not call.is_in_use], shown)


def _reasons(calls_without: list[ConfigCall], shown: str) -> list[NotJudged]:
    groups: dict[tuple[str, str], list[ConfigCall]] = {}
    for unread in calls_without:
        groups.setdefault((unread.given.path.partition(":cell ")[0], _why(unread).reason), []).append(unread)
    reasons = []
    for (path, _), calls in groups.items():
        if path != shown:
            reasons.append(_why(calls[0], f" ({path}, {_all_at(calls)})")._replace(range=None, path=""))
        else:
            reasons.append(_why(calls[0], f" (also {_all_at(calls[1:])})" if len(calls) > 1 else ""))
    return reasons


def _all_at(calls: list[ConfigCall]) -> str:
    places = list(dict.fromkeys(_at(call.given) for call in calls))
    more = len(places) - _MOST_PLACES
    return ", ".join(places[:_MOST_PLACES]) + (f" and {more} more" if more > 0 else "")


_AT_LAUNCH = "Check the launch script, or the program with its config: dslint check PROGRAM CONFIG."

_OTHER_READERS = {
    "config_file_or_dict": "HfDeepSpeedConfig",
    "config_dict_or_path": "deepspeed.zero.Init",
    "deepspeedConfig": "DeepspeedTorchDistributor",
}
"""By keyword for the config: what takes it before deepspeed.initialize or the Trainer does."""


def _why(unread: ConfigCall, where: str = "") -> NotJudged:
    """Why the config of a call is not judged, and what the user can do. `where` is said of the call."""
    assert unread.reason is not None
    integration, raw, place = Integration(unread.integration), unread.given.raw, unread.given.range
    reads = "deepspeed.initialize" if integration is Integration.DEEPSPEED else integration.label
    label = _OTHER_READERS.get(unread.given.name, reads) + where
    cell = _cell_of(unread.given)
    source = f"{raw} is computed at run time" if unread.reason.is_computed else unread.reason.text
    if unread.is_part:
        answer = AnsweredBy.REST if unread.flag else AnsweredBy.CALLER if unread.reason.is_parameter else None
        return NotJudged(Why.PART_ELSEWHERE, (label, source), place, answer, path=cell)
    if unread.flag:
        return _at_launch(f" for {label}", source, unread.given, AnsweredBy.FLAG)
    if unread.reason.cause is Cause.NO_STRATEGY:
        by_flag = AnsweredBy.FLAG if unread.by_flag else None
        return NotJudged(Why.NO_STRATEGY, (unread.reason.text + where,), place, by_flag, path=cell)
    if unread.reason.cause is Cause.NO_PATH:
        return NotJudged(Why.PATH_EMPTY, (label,), place, AnsweredBy.FLAG, _AT_LAUNCH, path=cell)
    answer = AnsweredBy.CALLER if unread.reason.is_parameter else None
    return NotJudged(Why.CONFIG_ELSEWHERE, (label, source), place, answer, path=cell)


def launched_with_accelerate(place: SourcedValue | None = None) -> NotJudged:
    """The config of a program for Accelerate comes from its launcher."""
    return _at_launch(" for Accelerate", "accelerate launch --config_file", place)


def _at_launch(what: str, source: str, at: SourcedValue | None = None, answer: AnsweredBy = AnsweredBy.LAUNCH) -> NotJudged:
    place, cell = (at.range, _cell_of(at)) if at is not None else (None, "")
    return NotJudged(Why.GIVEN_AT_LAUNCH, (what, source), place, answer, _AT_LAUNCH, path=cell)


def _cell_of(line: SourcedValue) -> str:
    """The cell of a notebook that a line is in, as `x.ipynb:cell 3`; "" in any other file. Lines are counted within it."""
    return line.path if ":cell " in line.path else ""


def _at(line: SourcedValue) -> str:
    cell = line.path.rpartition(":")[2] if ":cell " in line.path else ""
    number = f"line {line.range.start.line}" if line.range else "a line"
    return f"{number} of {cell}" if cell else number


def _called(call: ConfigCall, gathered: LoadedSetup) -> str:
    if not call.integration:
        return f"defines the config {call.given.name}" if call.config is not None else f"names the config {call.given.value}"
    what = "a config written in it" if call.config is not None else str(gathered.setup.config or call.given.value)
    return f"passes {what} to {Integration(call.integration).label}"


def kinds_of(found: PythonFile, config: Document | None = None) -> dict[str, FileKind]:
    """The kinds of the files that a program consists of and reads; a file of data is a config if keys of the config are written in it."""
    members = config.root.members if config is not None and isinstance(config.root, Mapping) else ()
    written = {part.shown for member in members if config is not None and (part := config.part(member.key.span.start)) is not None}
    of_data = {path: FileKind.DS_CONFIG if path in written else FileKind.TRAINING for path in found.documents if path.endswith(DATA)}
    return {path: of_data.get(path, FileKind.PYTHON) for path in found.documents}


def gather_call(call: ConfigCall, found: PythonFile, path: str, shown: str, given: Context, *, single: bool) -> LoadedSetup:
    """The setup of a call that takes a config."""
    setup = Setup(program=found.program_of(call), arguments=call.arguments, link=call.given)
    same = [one for one in found.unread if one.is_part and (one.given.path, one.given.range) == (call.given.path, call.given.range)]
    rest = next((one.reason.text for one in same if one.reason is not None), "")
    for_others = not call.integration or any(one.is_in_use for one in same)
    gathered = LoadedSetup(setup, given, documents=found.documents, kinds=kinds_of(found), rest=rest, is_definition=for_others)
    if call.config is not None:
        config = found.config(call.config)
        gathered = gathered._replace(config=config, kinds=kinds_of(found, config)).but(config=shown)
        if single and not config.parts:
            gathered = gathered.with_file(shown, config)._replace(kinds={})
    else:
        gathered = follow(gathered, call.given, path)
        if not call.integration:  # nothing in this file loads it
            gathered = gathered.but(missing=())
    if call.integration:
        integration = Integration(call.integration)
        context = gathered.context.loading(integration, f"{call.given.where} passes it to {integration.label}")
        gathered = gathered._replace(context=context)
    if call.ranks is not None and given.facts.world_size is None:
        gathered = gathered.inferring(f"{call.ranks.shown} ({call.ranks.where})", world_size=call.ranks.value)
    if call.integration == Integration.DEEPSPEED:
        gathered = gathered._replace(context=gathered.context.but(passed_as=way_of(call)))
    return settle(gathered)


def way_of(call: ConfigCall) -> PassedAs:
    """How a call of `deepspeed.initialize` passes the config."""
    if call.as_dict:
        return PassedAs.DICT
    return PassedAs.HJSON if call.by_hjson else PassedAs.PATH
