"""The recipes of a Makefile as shell texts, with the variables of make replaced.

A line of a recipe runs in a shell of its own, unless the file names `.ONESHELL`. Variables are read as make reads them: `:=` at once, `=`
when they are used, and those of recipes after the whole file is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dslint.evaluate.shell.pieces import ShellSource, Text, TextPiece, is_absent, known
from dslint.evaluate.shell.words import bounded
from dslint.record import Record
from dslint.source.tree import Span

_LOGICAL = re.compile(r"(?:[^\n]*\\\r?\n)*[^\n]*\n?")
_ASSIGNMENT = re.compile(r"[ ]*((?:(?:export|override)[ \t]+)*)([A-Za-z_]\w*)[ \t]*(\?|:{1,3}|\+|!)?=[ \t]*")
_TARGET = re.compile(r"([^\s:=#$](?:[^:=#$]*[^ \t:=#$])?)[ \t]*::?(?!=)[ \t]*")
_CONDITION = re.compile(r"[ ]*(ifeq|ifneq|ifdef|ifndef|else|endif)\b[ \t]*(.*)", re.DOTALL)
_EXPORT = re.compile(r"[ ]*(un)?export\b[ \t]*(.*)", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\(([A-Za-z_]\w*)\)|\{([A-Za-z_]\w*)\}|(\$)|([@<^]))")
_DEEPEST = 12
"""How deep variables that name each other are replaced; one that names itself is an error of make."""

_MOST_EXPANSIONS = 10_000
"""How many references of a file are replaced."""


class Recipe(Record):
    """Lines that run in one shell, and the variables that make exports to it."""

    text: Text
    exported: Mapping[str, Text]
    perhaps: bool
    """Whether a conditional that only the run decides is around them."""


class _Variable(Record):
    """A value that is replaced at once (`text`), or a place that is replaced where it is used."""

    text: Text | None
    spans: tuple[tuple[int, int], ...] = ()


@dataclass
class _Rule:
    targets: list[str]
    needs: list[str]
    lines: list[tuple[int, int, bool]] = field(default_factory=list)
    """Each line from its begin to its end, and whether only the run knows that it counts."""


def recipes(source: ShellSource, environment: Mapping[str, Text] | None = None) -> list[Recipe]:
    """The recipes of all targets in the order of the file.

    Args:
        source: the Makefile.
        environment: variables of the run, which assignments of the file replace.
    """
    return _Makefile(source, environment or {}).recipes()


class _Makefile:
    """Reads a Makefile line by line."""

    def __init__(self, source: ShellSource, environment: Mapping[str, Text]) -> None:
        self.source = source
        self.text = source.document.text
        self.variables = {name: _Variable(value) for name, value in environment.items()}
        self.exported = set(environment)
        self.exports_all = False
        self.own: dict[str, dict[str, _Variable]] = {}
        """The variables of single targets: `train: GPUS = 4`."""
        self.rules: list[_Rule] = []
        self.skipping: list[bool | None] = []
        """For each conditional around a line, whether it is taken; None if only the run knows."""
        self.in_define = False
        self.expansions = 0
        self.expanding: list[str] = []
        self.names_itself = False
        """Whether a variable names itself, for which make ends."""

    def recipes(self) -> list[Recipe]:
        """Read the lines, and then expand the recipes."""
        self._read()
        whole = re.search(r"^\.ONESHELL:", self.text, re.MULTILINE) is not None
        found: list[Recipe] = []
        for rule in self.rules:
            target = rule.targets[0] if rule.targets else ""
            scope = {**self.variables, **self.own.get(target, {})}
            scope |= {"@": self._own_text(target, rule), "^": self._own_text(" ".join(rule.needs), rule)}
            scope["<"] = self._own_text((rule.needs or [""])[0], rule)
            texts = [(self._expanded(((start, end),), scope), perhaps) for start, end, perhaps in rule.lines]
            values = {
                name: self._value(name, scope, 0) for name in sorted(self.exported | (set(self.variables) if self.exports_all else set()))
            }
            if whole:
                texts = [(tuple(piece for text, _ in texts for piece in text), any(perhaps for _, perhaps in texts))]
            found += [Recipe(text, values, perhaps) for text, perhaps in texts if text]
        return [one._replace(perhaps=True) for one in found] if self.names_itself else found

    def _own_text(self, text: str, rule: _Rule) -> _Variable:
        start = rule.lines[0][0] if rule.lines else 0
        return _Variable((TextPiece(text, self.source, Span(start, start), exact=False),))

    # ------------------------------------------------------------------ lines

    def _read(self) -> None:
        rule: _Rule | None = None
        for match in _LOGICAL.finditer(self.text):
            start, end, line = match.start(), match.end(), match[0]
            if self.in_define:
                self.in_define = line.strip() != "endef"
            elif self._condition(line) or False in self.skipping:
                continue
            elif line.startswith("\t") and rule is not None:
                begin = start + len(line) - len(line.lstrip("\t @-+"))
                rule.lines.append((begin, end, None in self.skipping))
            elif line.strip() and not line.lstrip().startswith("#"):
                rule = self._statement(start, end, line) or (None if line[:1] not in "\t " else rule)

    def _statement(self, start: int, end: int, line: str) -> _Rule | None:
        """An assignment, an export, the begin of a definition, or a rule, which is returned."""
        if line.startswith("define "):
            self.in_define = True
            self.variables[line.split()[1]] = _Variable((self._unknown(start),))
            return None
        if (assigned := _ASSIGNMENT.match(line)) is not None:
            self._assign(self.variables, assigned, start, end)
            if "export" in assigned[1]:
                self.exported.add(assigned[2])
            return None
        if (exported := _EXPORT.match(line)) is not None:
            names = exported[2].split()
            self.exported = self.exported - set(names) if exported[1] else self.exported | set(names)
            self.exports_all = self.exports_all or not names
            return None
        rule = _TARGET.match(line)
        if rule is None:
            return None
        targets = rule[1].split()
        inner = _ASSIGNMENT.match(line, rule.end())
        if inner is not None:
            for target in targets:
                own = self.own.setdefault(target, {})
                own.setdefault(inner[2], self.variables[inner[2]]) if inner[2] in self.variables else None
                self._assign(own, inner, start, end)
                if "export" in inner[1]:
                    self.exported.add(inner[2])
            return None
        needs, semicolon, _ = line[rule.end() :].partition(";")
        made = _Rule(targets, needs.partition("#")[0].replace("\\\n", " ").split())
        if semicolon:
            made.lines.append((start + rule.end() + len(needs) + 1, end, None in self.skipping))
        if not targets[0].startswith("."):
            self.rules.append(made)
        return made

    def _assign(self, variables: dict[str, _Variable], match: re.Match[str], start: int, end: int) -> None:
        """`A = b`, `A := b`, `A ?= b`, `A += b`. The text ends before a comment; lines that are joined are joined by a blank."""
        name, kind, before = match[2], match[3], variables.get(match[2])
        if kind == "?" and before is not None:
            return
        begin = start + match.end()
        if None in self.skipping:
            variables[name] = _Variable((self._unknown(begin),))
            return
        comment = re.search(r"(?<!\\)#", self.text[begin:end])
        stop = begin + comment.start() if comment else begin + len(self.text[begin:end].rstrip("\r\n"))
        spans = tuple(_joined_lines(self.text, begin, stop))
        if kind == "!":
            variables[name] = _Variable((self._unknown(begin),))
        elif kind == "+" and before is not None:
            if before.text is None:
                variables[name] = _Variable(None, before.spans + spans)
            else:
                more = self._expanded(spans, self.variables)
                both = _is_filled(before.text) and _is_filled(more)
                blank = TextPiece(" " if both else None, self.source, Span(begin, begin), exact=False)
                one_is_empty = "" in (known(before.text), known(more))  # then make adds no blank
                variables[name] = _Variable((*before.text, *more) if one_is_empty else (*before.text, blank, *more))
        elif kind is not None and kind.startswith(":"):
            variables[name] = _Variable(self._expanded(spans, self.variables))
        else:
            variables[name] = _Variable(None, spans)

    def _condition(self, line: str) -> bool:
        """Follow `ifeq`, `else` and `endif`. Returns whether the line is one of them."""
        match = _CONDITION.match(line)
        if match is None or line.startswith("\t"):
            return False
        kind, rest = match[1], match[2].partition("#")[0].strip()
        if kind == "endif":
            self.skipping = self.skipping[:-1]
        elif kind == "else" and self.skipping:
            before = self.skipping.pop()
            taken = None if before is None else not before
            inner = _CONDITION.match(rest)
            if inner is not None and taken is not False:
                decided = self._decided(inner[1], inner[2].strip())
                taken = decided if taken else None
            self.skipping.append(taken if not rest or inner is not None else None)
        else:
            self.skipping.append(self._decided(kind, rest))
        return True

    def _decided(self, kind: str, rest: str) -> bool | None:
        """Whether a conditional is taken; None if only the run knows."""
        if kind in ("ifdef", "ifndef"):
            variable = self.variables.get(rest)
            if variable is None:
                is_set = False
            elif variable.text is None:
                is_set = any(start < end for start, end in variable.spans)
            else:
                text = known(variable.text)
                if text is None:
                    return None
                is_set = bool(text)
            return is_set == (kind == "ifdef")
        match = re.fullmatch(r"\(([^,]*),[ \t]*(.*)\)", rest) or re.fullmatch(r"[\"']([^\"']*)[\"'][ \t]+[\"']([^\"']*)[\"']", rest)
        if match is None:
            return None
        values = [self._inline(part) for part in match.groups()]
        return None if None in values else (values[0] == values[1]) == (kind == "ifeq")

    def _inline(self, text: str) -> str | None:
        """The value of a short text of a conditional, in which a variable that nothing sets is empty."""
        parts: list[str] = []
        position = 0
        for match in _REFERENCE.finditer(text):
            parts.append(text[position : match.start()])
            position = match.end()
            name = match[1] or match[2]
            text_of = self._value(name, self.variables, 0)
            value = "" if is_absent(text_of) else known(text_of)
            if value is None:
                return None
            parts.append("$" if match[3] else value)
        parts.append(text[position:])
        return None if "$" in "".join(parts[::2]) else "".join(parts)

    # ------------------------------------------------------------------ texts

    def _value(self, name: str, scope: Mapping[str, _Variable], depth: int) -> Text:
        variable = scope.get(name)
        if variable is None:
            return ()
        if variable.text is not None:
            return variable.text
        if name in self.expanding:
            self.names_itself = True
            return (self._unknown(variable.spans[0][0] if variable.spans else 0),)
        self.expanding.append(name)
        value = self._expanded(variable.spans, scope, depth + 1)
        self.expanding.pop()
        return value

    def _expanded(self, spans: tuple[tuple[int, int], ...], scope: Mapping[str, _Variable], depth: int = 0) -> Text:
        """Places of the file with their references replaced, joined by blanks."""
        found: list[TextPiece] = []
        for index, (start, end) in enumerate(spans):
            if index:
                found.append(TextPiece(" ", self.source, Span(start, start), exact=False))
            found += self._replaced(start, end, scope, depth)
        return bounded(tuple(found), TextPiece(None, self.source, Span(*spans[0]), exact=False)) if spans else ()

    def _replaced(self, start: int, end: int, scope: Mapping[str, _Variable], depth: int) -> Iterator[TextPiece]:
        position = start
        while (dollar := self.text.find("$", position, end)) >= 0:
            yield from self._literal(position, dollar)
            self.expansions += 1
            match = _REFERENCE.match(self.text, dollar, end)
            if match is None or depth > _DEEPEST or self.expansions > _MOST_EXPANSIONS:
                position = self._after_call(dollar, end)
                yield TextPiece(None, self.source, Span(dollar, position), exact=False)
                continue
            position = match.end()
            name = match[1] or match[2] or match[4]
            if match[3]:
                yield from self._literal(dollar, dollar + 1)  # $$ is the shell's $
            elif name in scope:
                yield from self._value(name, scope, depth)
            else:
                yield TextPiece(None, self.source, Span(*match.span()), exact=False, absent=True)
        yield from self._literal(position, end)

    def _after_call(self, dollar: int, end: int) -> int:
        """Where a call of a function ends: `$(shell ...)`, with its parentheses."""
        opening = self.text[dollar + 1 : dollar + 2]
        closing = {"(": ")", "{": "}"}.get(opening)
        if closing is None:
            return min(dollar + 2, end)
        depth = 0
        for position in range(dollar + 1, end):
            depth += (self.text[position] == opening) - (self.text[position] == closing)
            if not depth:
                return position + 1
        return end

    def _literal(self, start: int, end: int) -> Iterator[TextPiece]:
        if start < end:
            yield TextPiece(self.text[start:end], self.source, Span(start, end))

    def _unknown(self, at: int) -> TextPiece:
        return TextPiece(None, self.source, Span(at, at), exact=False)


def _is_filled(text: Text) -> bool:
    """Whether a text is certainly not empty."""
    return any(piece.text for piece in text)


def _joined_lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a value that is continued with backslashes, without the blanks around them."""
    position = start
    for match in re.finditer(r"[ \t]*\\\r?\n[ \t]*", text[start:end]):
        yield position, start + match.start()
        position = start + match.end()
    yield position, max(position, end)
