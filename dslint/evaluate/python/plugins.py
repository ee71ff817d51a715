"""Accelerate's `DeepSpeedPlugin` holds the config, and a program may change it until Accelerate prepares the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.files import json_file
from dslint.evaluate.python.sources import SourceFile
from dslint.evaluate.python.tables import SECTIONS, copied, new_table
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import Constant, DictValue, Object, Unknown, Value, path_of
from dslint.source.tree import Mapping, Member, Span

KIND = "DeepSpeedPlugin"
PLUGIN = "deepspeed_plugin"
"""The attribute of Accelerate's state, and of training arguments, that holds the plugin."""

CONFIGS = ("deepspeed_config", "hf_ds_config")
"""The attributes of the plugin that hold the config: a dict, and an object with this dict as its `config`."""

LAUNCHED = Span(0, 0)
"""The place of the plugin that no call of the program makes, but the launcher or the Trainer."""

_DEEPEST = 10
"""How deep the sections of a config are searched for open ones. DeepSpeed's keys are at most 8 deep; a dict can have itself in it."""

_BEFORE_PLUGIN = 4
"""How many arguments of `Accelerator` stand before its plugin in every release, at least."""

_HANDED_ON = re.compile(r"\bdeepspeed_plugins?=[^=]|[(,]\s*deepspeed_plugins?\s*=[^=]|\.deepspeed_plugins?\b|[\"']deepspeed_plugins?[\"']")
"""An argument, an attribute or a key with the name of the plugin; not a variable of this name."""


def new_plugin(state: ProgramState, at: Span, given: Argument | None = None) -> Object:
    """The plugin that a call makes, with the config that it is given."""
    made = Object(KIND, state.journal.cells(), about=given)
    state.plugins[at] = made
    return made


def plugin_in_use(state: ProgramState, reason: Reason | None) -> Value:
    """The plugin of Accelerate's state. `reason` says where the object comes from that the program finds it in."""
    if len(state.plugins) > 1:
        return Unknown(reason or Reason(Cause.ATTRIBUTE, ("", PLUGIN)))
    known = next(iter(state.plugins.values()), None)
    return known or new_plugin(state, LAUNCHED, Argument(Unknown(reason), LAUNCHED, LAUNCHED))


def config_attribute(state: ProgramState, plugin: Object, name: str) -> Value:
    """One of the attributes that hold the config."""
    config = _config(state, plugin)
    if name == CONFIGS[0]:
        return config
    held = Object("HfDeepSpeedConfig", state.journal.cells())
    held.cells["config"] = config
    return held


def _config(state: ProgramState, plugin: Object) -> DictValue:
    """The config of a plugin: a copy of the dict that it is given, or the file; an open dict if it is not known."""
    known = plugin.cells.get(CONFIGS[0])
    if isinstance(known, DictValue):
        return known
    given = plugin.about.value if plugin.about is not None else Unknown()
    if (path := path_of(given)) is not None:
        given = json_file(state, path)
    if isinstance(given, DictValue):
        made = copied(state, given)
    else:
        made = new_table(state, plugin.about.span if plugin.about is not None else LAUNCHED)
        made.open["more"] = True
        made.open["in_use"] = plugin.about is not None and plugin.about.span == LAUNCHED
        made.open["reason"] = given.reason if isinstance(given, Unknown) else None
        if made.open["in_use"] and state.sections is not None:
            made.open.update({f"has {name}": Constant(name in state.sections) for name in SECTIONS})
    _predate(made, plugin.cells.born)
    plugin.cells[CONFIGS[0]] = made
    return made


def _predate(table: DictValue, born: int) -> None:
    """Make a dict that is read late as old as its plugin, so that what a branch changes in it is undone and joined."""
    table.cells.born = table.open.born = born
    if table.file is not None:
        table.file.born = born
    for entry in table.cells.values():
        if isinstance(entry.value, DictValue):
            _predate(entry.value, born)


def is_used(accelerators: Sequence[CallOf], sources: Iterable[SourceFile]) -> bool:
    """Whether a plugin that a program makes may reach Accelerate: an `Accelerator` or training arguments are given it.

    Each `Accelerator` without one makes its own plugin, from what `accelerate launch` sets. Something is given the plugin where a call has
    the argument, or where an attribute or a key has its name, in any of the files.
    """
    if not accelerators or any(len(call.arguments) > _BEFORE_PLUGIN for call in accelerators):
        return True
    return any("deepspeed_plugin" in source.text and _HANDED_ON.search(source.text) for source in sources)


def changed_config(plugin: Object | None) -> DictValue | None:
    """The config of a plugin if the program may have changed it; None if it is what the plugin is given."""
    config = plugin.cells.get(CONFIGS[0]) if plugin is not None else None
    return config if isinstance(config, DictValue) and config.cells and config.path is None else None


def written_paths(table: DictValue, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The keys that a program sets in a dict of which it knows nothing else."""
    for name, entry in table.cells.items():
        if isinstance(entry.value, DictValue) and entry.value.open and len(above) < _DEEPEST:
            yield from written_paths(entry.value, (*above, name))
        else:
            yield (*above, name)


def overlaid(root: Mapping, changes: Mapping) -> Mapping:
    """A tree with the values of another one in the place of its own."""
    members = {one.key.value: one for one in root.members}
    for one in changes.members:
        before = members.get(one.key.value)
        if before is not None and isinstance(before.value, Mapping) and isinstance(one.value, Mapping) and one.value.may_have_more:
            members[one.key.value] = Member(before.key, overlaid(before.value, one.value))
        else:
            members[one.key.value] = one
    return Mapping(root.span, list(members.values()))
