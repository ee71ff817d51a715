"""Arguments that a decorator passes to a function: the config of `hydra.main`, the defaults of `click.option`."""

from __future__ import annotations

import ast
import posixpath

from dslint.evaluate.python.evaluate import State, evaluate
from dslint.evaluate.python.files import yaml_file
from dslint.evaluate.python.tables import deep_merge, new_table
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.reasons import flag as as_flag
from dslint.evaluate.values import Constant, DictValue, Entry, Library, ListValue, Scope, Unknown, Value, soften

_CLICK = frozenset({"click.option", "click.argument"})


def given_by(state: State, decorator: ast.expr, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> dict[str, Value]:
    """The arguments that a decorator passes, as far as they are known."""
    if not isinstance(decorator, ast.Call):
        return {}
    found = evaluate(state, decorator.func, scope)
    name = found.name if isinstance(found, Library) else ""
    keywords = {one.arg: evaluate(state, one.value, scope) for one in decorator.keywords if one.arg}
    if name in _CLICK:
        return _of_click(state, decorator, keywords, scope)
    if name == "hydra.main" and node.args.args:
        return {node.args.args[0].arg: _of_hydra(state, keywords, scope)}
    return {}


def _of_click(state: State, decorator: ast.Call, keywords: dict[str, Value], scope: Scope) -> dict[str, Value]:
    names = [one.value for given in decorator.args if isinstance(one := evaluate(state, given, scope), Constant)]
    flags = [name for name in names if isinstance(name, str)]
    plain = next((name for name in flags if not name.startswith("-")), None)
    flag = next((name for name in flags if name.startswith("--")), flags[0] if flags else "--")
    default = keywords.get("default")
    if default is None and "is_flag" in keywords:
        default = Constant(value=False)
    known = isinstance(default, Constant) and default.value is not None
    return {
        (plain or flag.partition("/")[0]).lstrip("-").replace("-", "_"): soften(default)
        if known and default
        else Unknown(as_flag(flag, scope.source.span(decorator)))
    }


def _of_hydra(state: State, keywords: dict[str, Value], scope: Scope) -> Value:
    folder, name = keywords.get("config_path", Constant(None)), keywords.get("config_name")
    if not isinstance(folder, Constant) or not isinstance(name, Constant) or not isinstance(name.value, str):
        return Unknown(Reason(Cause.HYDRA))
    return _composed(state, str(folder.value or "."), name.value.removesuffix(".yaml"), scope) or Unknown(Reason(Cause.HYDRA))


def _composed(state: State, folder: str, name: str, scope: Scope, depth: int = 0) -> Value | None:
    """A YAML file with the files that its list `defaults` names; None if there is none."""
    own = yaml_file(state, posixpath.join(folder, f"{name}.yaml"), beside=scope.source.path, interpolates=True)
    if not isinstance(own, DictValue):
        return None
    defaults = own.cells.pop("defaults", None)
    if defaults is None or depth > 3:
        return own
    made = new_table(state, own.span)
    listed = defaults.value.items if isinstance(defaults.value, ListValue) else []
    if not any(isinstance(one.value, Constant) and one.value.value == "_self_" for one in listed):
        listed = [*listed, Entry(Constant("_self_"), own.span, own.span)]
    for one in listed:
        added = own if isinstance(one.value, Constant) and one.value.value == "_self_" else _default(state, folder, one, scope, depth)
        if added is None:
            made.open["more"] = True
        else:
            deep_merge(state, made, added)
    return made


def _default(state: State, folder: str, listed: Entry, scope: Scope, depth: int) -> DictValue | None:
    """The file that an item of the list `defaults` names: `base`, or `group: name`; None if it is not known."""
    if isinstance(listed.value, Constant) and isinstance(listed.value.value, str):
        found = _composed(state, folder, listed.value.value, scope, depth + 1)
        return found if isinstance(found, DictValue) else None
    if not isinstance(listed.value, DictValue) or len(listed.value.cells) != 1:
        return None
    ((group, entry),) = listed.value.cells.items()
    if not isinstance(entry.value, Constant) or not group.replace("/", "").replace("_", "").isalnum():
        return None
    found = _composed(state, posixpath.join(folder, group), str(entry.value.value), scope, depth + 1)
    if not isinstance(found, DictValue):
        return None
    made = found
    for name in reversed(group.split("/")):
        made = new_table(state, found.span, [(name, Entry(made, entry.key_span, entry.span))])
    return made
