"""yaml and OmegaConf, whose files are YAML."""

from __future__ import annotations

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.files import yaml_file
from dslint.evaluate.python.libraries.files import note_rank_as_path, path_of_file
from dslint.evaluate.python.libraries.table import first_argument, follows, unknown_of
from dslint.evaluate.python.tables import copied, deep_merge, leave_open, new_table
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import DictValue, Unknown, Value, path_of
from dslint.source.read import DATA


@follows("omegaconf.OmegaConf.load", "yaml.safe_load", "yaml.full_load", "yaml.unsafe_load", "yaml.load")
def _yaml_load(state: ProgramState, call: CallOf) -> Value:
    """A YAML file, given as an open file, or to OmegaConf as its path."""
    file = call.arguments[0].value if call.arguments else call.get("stream") or call.get("file_")
    path = path_of_file(file) or file
    if file is path:
        note_rank_as_path(state, call, path)
    if (name := path_of(path)) is not None and name.endswith(DATA):
        of_omegaconf = call.name.startswith("omegaconf")
        return yaml_file(state, name, of_omegaconf=of_omegaconf, interpolates=of_omegaconf)
    return unknown_of(path, reason=Reason(Cause.FILE))


@follows("omegaconf.OmegaConf.merge")
def _merged(state: ProgramState, call: CallOf) -> Value:
    made = new_table(state, call.span)
    for one in call.arguments:
        if isinstance(one.value, DictValue):
            deep_merge(state, made, copied(state, one.value))
        else:
            why = one.value.reason if isinstance(one.value, Unknown) else None
            leave_open(state, made, why or Reason(Cause.MERGED, (), one.span))
    return made


follows("omegaconf.OmegaConf.create", "omegaconf.OmegaConf.to_container")(first_argument)
