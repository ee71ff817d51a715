"""Arithmetic of the shell: `$((GPUS / 8))`, `((i += 1))`. Integers only; what is not known gives None.

The operators and their precedence are those of "Shell Arithmetic" in the manual of bash.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

Number: TypeAlias = int | None
Lookup: TypeAlias = Callable[..., Number]
"""The value of a variable by its name; of an item of an array by its name and index."""
Store: TypeAlias = Callable[[str, Number], None]

_LONGEST = 500
"""The most characters of an expression: it is read by recursion, which a longer one in brackets could exhaust."""

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)|([A-Za-z_]\w*)|(<<=|>>=|\*\*|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%<>=!~&|^?:(),\[\]]))"
)

_BINARY: dict[str, tuple[int, Callable[[int, int], Number]]] = {}
"""The binary operators with their precedence; a higher one binds more tightly."""


def _truncated(left: int, right: int) -> Number:
    """Division as in C: towards zero."""
    quotient = abs(left) // abs(right) if right else None
    return quotient if quotient is None or (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> Number:
    quotient = _truncated(left, right)
    return None if quotient is None else left - right * quotient


def _power(left: int, right: int) -> Number:
    return left**right if 0 <= right <= 64 and abs(left) <= 2**16 else None


def _shifted(left: int, right: int) -> Number:
    return left << right if 0 <= right < 63 else None


for _level, _operators in enumerate(
    (
        {"||": lambda one, other: int(bool(one or other))},
        {"&&": lambda one, other: int(bool(one and other))},
        {"|": operator.or_},
        {"^": operator.xor},
        {"&": operator.and_},
        {"==": lambda one, other: int(one == other), "!=": lambda one, other: int(one != other)},
        {
            "<": lambda one, other: int(one < other),
            "<=": lambda one, other: int(one <= other),
            ">": lambda one, other: int(one > other),
            ">=": lambda one, other: int(one >= other),
        },
        {"<<": _shifted, ">>": lambda one, other: one >> other if 0 <= other < 63 else None},
        {"+": operator.add, "-": operator.sub},
        {"*": operator.mul, "/": _truncated, "%": _remainder},
        {"**": _power},
    ),
    start=1,
):
    _BINARY.update({sign: (_level, apply) for sign, apply in _operators.items()})


class _Syntax(Exception):
    """The expression is not one that is understood."""


def calculate(expression: str, lookup: Lookup, store: Store | None = None) -> Number:
    """The value of an expression; None if it is unknown or not understood.

    Args:
        expression: the text between `((` and `))`, without `$` before variables.
        lookup: gives the variables.
        store: takes the values of assignments; without it they have no effect.
    """
    if len(expression) > _LONGEST:
        return None
    try:
        parser = _Parser(list(_tokens(expression)), lookup, store)
        value = parser.comma()
        if parser.left:
            return None
    except (_Syntax, RecursionError):
        return None
    return value


def _tokens(text: str) -> Iterator[str]:
    text, position = text.rstrip(), 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _Syntax
        yield match[1] or match[2] or match[3]
        position = match.end()


def _wrapped(value: Number) -> Number:
    """A number as bash keeps it, in 64 bits."""
    return None if value is None else (value + 2**63) % 2**64 - 2**63


class _Parser:
    """Evaluates the tokens of an expression. With `quiet` an operand does not count, and assigns nothing."""

    def __init__(self, tokens: list[str], lookup: Lookup, store: Store | None) -> None:
        self.left = tokens[::-1]
        self.lookup = lookup
        self.store = store
        self.quiet = 0

    def take(self, *tokens: str) -> str | None:
        """The next token, if it is one of these."""
        return self.left.pop() if self.left and self.left[-1] in tokens else None

    def comma(self) -> Number:
        """`a, b`: the last value."""
        value = self.assignment()
        while self.take(","):
            value = self.assignment()
        return value

    def assignment(self) -> Number:
        """`a = b`, `a += b`, `a ? b : c`."""
        signs = ("=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^=")
        if len(self.left) > 1 and self.left[-1].isidentifier() and self.left[-2] in signs:
            name, sign = self.left.pop(), self.left.pop()
            value = self.assignment()
            if sign != "=":
                value = self._apply(sign[:-1], self.lookup(name), value)
            return self._assign(name, value)
        test = self.binary(1)
        if not self.take("?"):
            return test
        values: list[Number] = []
        for wanted, end in ((True, ":"), (False, None)):
            self.quiet += test is None or bool(test) is not wanted
            values.append(self.assignment())
            self.quiet -= test is None or bool(test) is not wanted
            if end and not self.take(end):
                raise _Syntax
        return None if test is None else values[0] if test else values[1]

    def binary(self, lowest: int) -> Number:
        """Operators that bind at least as tightly as `lowest`."""
        value = self.unary()
        while self.left and self.left[-1] in _BINARY and _BINARY[self.left[-1]][0] >= lowest:
            sign = self.left.pop()
            level = _BINARY[sign][0]
            skips = (sign == "&&" and value == 0) or (sign == "||" and bool(value))
            self.quiet += skips or (sign in ("&&", "||") and value is None)
            other = self.binary(level if sign == "**" else level + 1)
            self.quiet -= skips or (sign in ("&&", "||") and value is None)
            value = int(sign == "||") if skips else self._apply(sign, value, other)
        return value

    def unary(self) -> Number:
        """Signs, increments, parentheses, numbers and variables."""
        sign = self.take("!", "~", "-", "+", "++", "--")
        if sign in ("++", "--"):
            name = self._name()
            return self._assign(name, self._apply(sign[0], self.lookup(name), 1))
        if sign is not None:
            value = self.unary()
            return None if value is None else {"!": int(not value), "~": ~value, "-": -value, "+": value}[sign]
        if self.take("("):
            value = self.comma()
            if not self.take(")"):
                raise _Syntax
            return value
        if self.left and self.left[-1][:1].isdigit():
            return _constant(self.left.pop())
        return self._variable()

    def _variable(self) -> Number:
        name = self._name()
        if self.take("["):
            index = self.comma()
            if not self.take("]"):
                raise _Syntax
            return self.lookup(name, index)
        value = self.lookup(name)
        sign = self.take("++", "--")
        if sign is not None:
            self._assign(name, self._apply(sign[0], value, 1))
        return value

    def _name(self) -> str:
        if not self.left or not self.left[-1].isidentifier():
            raise _Syntax
        return self.left.pop()

    def _assign(self, name: str, value: Number) -> Number:
        if self.store is not None and not self.quiet:
            self.store(name, value)
        return value

    @staticmethod
    def _apply(sign: str, left: Number, right: Number) -> Number:
        return None if left is None or right is None else _wrapped(_BINARY[sign][1](left, right))


def _constant(text: str) -> Number:
    """A number: hexadecimal with 0x, octal with 0."""
    try:
        return int(text, 16 if text[:2].lower() == "0x" else 8 if text[0] == "0" else 10)
    except ValueError:
        raise _Syntax from None
