"""Completion: keys and values of a config, whole sections, and the comments that suppress findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lsprotocol import types

from dslint.config import Config
from dslint.facts import NEWEST, Release
from dslint.record import Record
from dslint.registry.rules import all_rules
from dslint.schemas.recognition import SECTIONS
from dslint.schemas.snippets import SNIPPETS
from dslint.server.checking import Checked
from dslint.server.cursor import Cursor, json_cursor, yaml_cursor
from dslint.server.inside import Training
from dslint.server.keys import KnownKey, gone_keys, keys_of, known, status
from dslint.server.writing import Writer
from dslint.setups.names import leads
from dslint.source.tree import Mapping, Member, Path, dotted

_OPENING = re.compile(r"(?:[=(,:]|^)[ \t]*(\{)", re.MULTILINE)
_MOST_OPENINGS = 30
"""How many braces before the cursor are tried as the begin of a config in a program: each is parsed while a person types."""


class _Place(Record):
    """Where to complete: the cursor with its path in the config, the stretch to replace, and what the config is so far."""

    cursor: Cursor
    path: Path
    end: int
    root: Mapping | None
    release: Release
    writer: Writer


def complete(
    checked: Checked, trainings: Iterable[Training], position: types.Position, *, has_snippets: bool
) -> list[types.CompletionItem]:
    """What can be written at a place, the most used first."""
    offset = checked.file.positions.offset(position)
    if checked.result is None:
        return []
    config = next((training.config for training in trainings if training.is_here and training.config is not None), None)
    found = _cursor(checked, offset, config)
    if found is None:
        return []
    cursor, language = found
    if cursor.comment is not None:
        return list(_comments(cursor.comment, checked, offset))
    root = config.document.root if config is not None else None
    place = _Place(
        cursor,
        _inside(cursor.path, config, is_yaml=language == "yaml" or cursor.is_flow),
        _word_end(checked.file.text, offset, cursor.quote),
        root if isinstance(root, Mapping) else None,
        config.release if config is not None else NEWEST,
        Writer(language, has_snippets),
    )
    items = _values(place) if cursor.is_value else _keys(place, checked.file.text)
    return [_item(item, place, checked, number) for number, item in enumerate(items)]


def _cursor(checked: Checked, offset: int, config: Config | None) -> tuple[Cursor, str] | None:
    """The place of an offset, and the language of the text there."""
    text, path = checked.file.text, checked.file.path.lower()
    if path.endswith((".yaml", ".yml")):
        cursor = yaml_cursor(text, offset)
        return None if cursor is None else (cursor, "json" if cursor.is_flow else "yaml")
    if not leads(path):
        cursor = json_cursor(text, offset)
        return None if cursor is None else (cursor, "json")
    language, comments = ("python", ("#",)) if path.endswith(".py") else ("json", ("//", "#"))
    if config is not None and config.document.root is not None:
        span = config.document.root.span
        if span.start < offset < span.end and (cursor := json_cursor(text, offset, start=span.start, comments=comments)):
            return cursor, language
    # Half written, the file may not be readable as a program: the outermost brace with a key of a config in front of the cursor.
    best: Cursor | None = None
    for opening in list(_OPENING.finditer(text, 0, offset))[-_MOST_OPENINGS:]:
        cursor = json_cursor(text, offset, start=opening.start(1), comments=comments)
        if cursor is not None and cursor.comment is None and best is None and _is_config(text[opening.start(1) : offset], cursor):
            best = cursor
    return None if best is None else (best, language)


def _is_config(text: str, cursor: Cursor) -> bool:
    names = {match[1] for match in re.finditer(r"""["'](\w+)["']\s*:""", text)}
    top = keys_of((), None)
    return bool(names & {name for name in top if "_" in name}) and (not cursor.path or cursor.path[0] in top)


def _inside(path: Path, config: Config | None, *, is_yaml: bool) -> Path:
    """The path in the config of a path in the file."""
    places = config.document.places if config is not None else None
    above = places.get((), ()) if places is not None else ()
    if above and path[: len(above)] == above:
        return path[len(above) :]
    if is_yaml:
        named = [number for number, step in enumerate(path) if step in SECTIONS]
        return path[named[0] + 1 :] if named else path
    return path


def _word_end(text: str, offset: int, quote: str) -> int:
    """The end of the word that a place is in, its closing quote included."""
    end = offset
    while end < len(text) and (text[end].isalnum() or text[end] in "_-./"):
        end += 1
    return end + 1 if quote and text[end : end + 1] == quote else end


class _Offer(Record):
    """Something to write: a label, the text, and what is known of it."""

    label: str
    text: str
    kind: types.CompletionItemKind
    detail: str = ""
    meaning: str = ""
    is_last: bool = False
    is_deprecated: bool = False


def _keys(place: _Place, text: str) -> Iterator[_Offer]:
    section = place.path
    here = section_at(place.root, section)
    written = {member.key.value for member in here.members} if here is not None else set()
    current = text[place.cursor.start : place.end].strip("\"'")
    after = text[place.end :].lstrip(" \t")
    only_name = after.startswith(":")
    comma = "," if place.writer.language != "yaml" and re.match(r"""\s*["'\w]""", text[place.end :]) else ""
    offered = keys_of(section, place.root)
    if not section and not written - {current} and not only_name:
        for snippet in SNIPPETS[""]:
            yield _Offer(snippet.label, place.writer.members(snippet.body), types.CompletionItemKind.Snippet, "config", snippet.description)
    for name, key in offered.items():
        if name in written and name != current:
            continue
        yield _key(place, name, key, comma, only_name=only_name)
        for snippet in () if only_name else SNIPPETS.get(dotted((*section, name)), ()):
            value = place.writer.body(snippet.body)
            member = f"{name}:{value}" if place.writer.language == "yaml" else place.writer.member(name, value) + comma
            yield _Offer(f"{name}: {snippet.label}", member, types.CompletionItemKind.Snippet, "section", snippet.description)
    for name in gone_keys(section):
        if name not in offered and name not in written and status((*section, name), place.release, place.root) is None:
            yield _key(place, name, KnownKey(name), comma, only_name=only_name)


def _key(place: _Place, name: str, key: KnownKey, comma: str, *, only_name: bool) -> _Offer:
    gone = status((*place.path, name), place.release, place.root)
    value = place.writer.blank(key)
    whole = f"{name}:{value}" if place.writer.language == "yaml" and value.startswith("\n") else place.writer.member(name, value)
    default = "" if key.default is None else f"default {place.writer.value(key.default)}"
    return _Offer(
        name,
        place.writer.key(name) if only_name else whole + comma,
        types.CompletionItemKind.Module if "object" in key.kinds else types.CompletionItemKind.Property,
        f"not in DeepSpeed {place.release}" if gone else default,
        "\n\n".join(part for part in (gone, key.meaning) if part),
        is_last=gone is not None,
        is_deprecated=bool(key.deprecated),
    )


def _values(place: _Place) -> Iterator[_Offer]:
    key = known(place.path, place.root)
    if key is None:
        return
    for choice in key.choices:
        word = place.writer.value(choice.value)
        detail = "default" if type(choice.value) is type(key.default) and choice.value == key.default else ""
        yield _Offer(word, word, types.CompletionItemKind.EnumMember, detail, choice.meaning)
    if not key.choices and key.default is not None:
        word = place.writer.value(key.default)
        yield _Offer(word, word, types.CompletionItemKind.Value, "default")
    for snippet in SNIPPETS.get(dotted(place.path), ()) if not place.cursor.quote else ():
        yield _Offer(snippet.label, place.writer.body(snippet.body), types.CompletionItemKind.Snippet, "section", snippet.description)


def section_at(root: Mapping | None, path: Path) -> Mapping | None:
    """The section at a path of a config, if it is written."""
    node: object = root
    for step in path:
        found = node.get(step) if isinstance(node, Mapping) and isinstance(step, str) else None
        node = found.value if isinstance(found, Member) else None
    return node if isinstance(node, Mapping) else None


def _item(offer: _Offer, place: _Place, checked: Checked, number: int) -> types.CompletionItem:
    is_snippet = place.writer.has_snippets and "$" in offer.text
    text = offer.text if is_snippet or not place.writer.has_snippets else offer.text.replace("\\$", "$")
    return types.CompletionItem(
        label=offer.label,
        kind=offer.kind,
        detail=offer.detail or None,
        documentation=types.MarkupContent(types.MarkupKind.Markdown, offer.meaning) if offer.meaning else None,
        tags=[types.CompletionItemTag.Deprecated] if offer.is_deprecated else None,
        sort_text=f"{int(offer.is_last)}{number:04}",
        filter_text=place.cursor.quote + offer.label.strip('"') + place.cursor.quote,
        insert_text_format=types.InsertTextFormat.Snippet if is_snippet else types.InsertTextFormat.PlainText,
        insert_text_mode=types.InsertTextMode.AdjustIndentation,
        text_edit=types.TextEdit(checked.file.positions.range(place.cursor.start, place.end), text),
    )


def _comments(comment: str, checked: Checked, offset: int) -> Iterator[types.CompletionItem]:
    """What a comment of dslint can say: which findings to ignore. The rules with findings in the file come first."""
    match = re.match(r"(?:#|//|/\*)\s*dslint\s*:\s*(?P<rest>.*)$", comment, re.DOTALL)
    if match is None:
        return
    rest = match["rest"]
    begun = re.match(r"ignore(?:-file)?\s*\[(?:[^\]]*,\s*)?(?P<word>[\w-]*)$", rest)
    if begun is not None:
        found = {one.name for one in checked.result.diagnostics} if checked.result is not None else set()
        edit = checked.file.positions.range(offset - len(begun["word"]), offset)
        for rule in all_rules():
            order = f"{int(rule.name not in found)}{rule.code}"
            kind, detail = types.CompletionItemKind.Constant, rule.code
            yield types.CompletionItem(rule.name, kind=kind, detail=detail, sort_text=order, text_edit=types.TextEdit(edit, rule.name))
    elif re.fullmatch(r"[\w-]*", rest):
        edit = checked.file.positions.range(offset - len(rest), offset)
        for word, meaning in (
            ("ignore", "the findings of this line, or of the section below"),
            ("ignore-file", "the findings of the file"),
        ):
            text = types.TextEdit(edit, f"{word}[")
            yield types.CompletionItem(f"{word}[rule] reason", kind=types.CompletionItemKind.Keyword, detail=meaning, text_edit=text)
