"""Policies: a team's JSON Schema that every config must satisfy."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from dslint.errors import UserError
from dslint.record import Record
from dslint.source.read import ReadError, read
from dslint.source.tree import Path


class PolicyError(UserError):
    """An unusable policy; the text is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A JSON Schema, and the file it was read from."""

    path: str
    schema: dict[str, Any] = field(compare=False, hash=False)

    def __str__(self) -> str:
        return self.path


_NOTHING: dict[str, Any] = {"not": {}}
"""A schema that no value satisfies."""


class Breach(Record):
    """A place where a config breaks a policy, the violation as the end of a sentence, and the policy's `description` of it, if any."""

    path: Path
    message: str
    reason: str | None


def load_policy(path: str) -> Policy:
    """Read a policy.

    Raises:
        PolicyError: it cannot be read, or is not a JSON Schema.
    """
    import jsonschema  # takes half a second, so only with a policy

    shown = path.replace(os.sep, "/")
    try:
        schema = json.loads(read(path))
    except ReadError as error:
        raise PolicyError(f"cannot read the policy {shown}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"the policy {shown} is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise PolicyError(f"the policy {shown} is not a JSON Schema: it contains no object")
    try:
        jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator).check_schema(schema)
        schema = _with_places(schema)
        seen: dict[int, bool] = {}
        if any(_never_ends(part, schema, seen) for part in _parts(schema)):
            raise RecursionError
    except jsonschema.SchemaError as error:
        where = "/".join(map(str, error.absolute_path)) or "the top level"
        raise PolicyError(f"the policy {shown} is not a JSON Schema: at {where}, {error.message}") from None
    except Exception as error:  # noqa: BLE001 - jsonschema raises all kinds of errors about schemas such as {"$schema": []}
        raise _unusable(shown, error) from None
    return Policy(shown, schema)


def _unusable(shown: str, error: Exception) -> PolicyError:
    reason = "it is nested too deeply, or refers to itself" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
    return PolicyError(f"cannot use the policy {shown} as a JSON Schema: {reason}")


def _with_places(schema: Any) -> Any:
    """The schema with each `false` for a key replaced by `{"not": {}}`: jsonschema does not report where a `false` was violated."""
    if isinstance(schema, list):
        return [_with_places(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    spelled = {key: value if key in ("const", "enum") else _with_places(value) for key, value in schema.items()}
    for key in ("properties", "patternProperties"):
        if isinstance(spelled.get(key), dict):
            spelled[key] = {name: _NOTHING if value is False else value for name, value in spelled[key].items()}
    return spelled


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and every one inside it."""
    if isinstance(schema, dict):
        yield schema
    inside = [value for key, value in schema.items() if key not in ("const", "enum")] if isinstance(schema, dict) else schema
    for part in inside if isinstance(inside, list) else ():
        yield from _parts(part)


_OF_THE_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
"""The keywords whose schemas judge the value that the schema around them judges."""


def _never_ends(schema: Any, root: Any, seen: dict[int, bool]) -> bool:
    """Whether a schema leads back to itself without a step into the value: jsonschema goes around until the stack is full.

    `seen`: the schemas that were tried, by identity: True for those on the way here.
    """
    if not isinstance(schema, dict):
        return isinstance(schema, list) and any(_never_ends(item, root, seen) for item in schema)
    if id(schema) in seen:
        return seen[id(schema)]
    seen[id(schema)] = True
    others = [_referred(schema.get("$ref"), root), *map(schema.get, _OF_THE_SAME_VALUE)]
    found = any(_never_ends(other, root, seen) for other in others)
    seen[id(schema)] = False
    return found


def _referred(reference: Any, root: Any) -> Any:
    """The part of a schema that a JSON Pointer such as `#/$defs/stage` names; None for other references."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    part = root
    for step in unquote(reference).split("/")[1:]:
        part = part.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(part, dict) else None
    return part if reference == "#" or "/" in reference else None  # "#name" is an anchor


def breaches(policy: Policy, config: Any) -> Iterator[Breach]:
    """Where a config (plain data, as it is written) breaks a policy. A key that is missing is a breach at its own path.

    Raises:
        PolicyError: the policy refers to a schema outside of itself, or cannot be used as a schema.
    """
    import jsonschema
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped] # without it, jsonschema would fetch references
    from referencing.exceptions import Unresolvable

    try:
        draft = jsonschema.validators.validator_for(policy.schema, default=jsonschema.Draft202012Validator)
        validator = draft(policy.schema, registry=REGISTRY)
        errors = sorted(validator.iter_errors(config), key=lambda found: list(map(str, found.absolute_path)))
        found = [breach for error in errors for breach in _breaches(error)]
    except Unresolvable as unresolvable:
        raise PolicyError(f"the policy {policy.path} refers to a schema outside of itself: {unresolvable}") from None
    except Exception as error:  # noqa: BLE001 - as in load_policy: a schema may be valid and still unusable, such as {"$ref": "#"}
        raise _unusable(policy.path, error) from None
    yield from found


def _breaches(error: Any) -> Iterator[Breach]:
    path: Path = tuple(error.absolute_path)
    key = _name(path)
    schema = error.schema if isinstance(error.schema, dict) else {}
    reason = schema.get("description")
    if error.validator == "required" and isinstance(error.instance, dict):
        for name in error.validator_value:
            if name not in error.instance:
                of_key = schema.get("properties", {}).get(name, {})
                description = of_key.get("description") if isinstance(of_key, dict) else None
                yield Breach((*path, name), f"requires {_name((*path, name))}", description or reason)
    elif error.validator == "additionalProperties" and isinstance(error.instance, dict):
        patterns = schema.get("patternProperties", {})
        for name in error.instance:
            if name not in schema.get("properties", {}) and not any(re.search(pattern, name) for pattern in patterns):
                yield Breach((*path, name), f"forbids {_name((*path, name))}", reason)
    elif error.validator in ("const", "enum"):
        allowed = [error.validator_value] if error.validator == "const" else error.validator_value
        yield Breach(path, f"requires {key} to be {' or '.join(json.dumps(value) for value in allowed)}", reason)
    elif error.validator == "not" and error.validator_value == {}:
        yield Breach(path, f"forbids {key}", reason)
    else:
        yield Breach(path, f"rejects {key}: {error.message}", reason)


def _name(path: Path) -> str:
    """A place in the config, for messages."""
    return ".".join(map(str, path)) or "the config"
