"""The expressions of generated programs: numbers, texts and conditions, from names that are set in every run."""

from __future__ import annotations

from random import Random

INTS = ("1", "2", "3", "4", "8", "16", "500_000")
FLOATS = ("1e-4", "3e-5", "0.9", "1.0", "2.5e-3")
TEXTS = ("cpu", "nvme", "none", "AdamW", "WarmupLR", "auto", "run-1", "bf16")


class Values:
    """Writes expressions."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.indent = 0
        self.count = 0
        self.names: dict[str, list[str]] = {"int": [], "float": [], "text": [], "bool": []}
        """The expressions of each kind that can be used here: variables, attributes, items."""
        self.imports: set[str] = set()
        self.files: dict[str, str] = {}

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def line(self, text: str) -> None:
        self.lines += ["    " * self.indent + one for one in text.split("\n")]

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count}"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def of(self, kind: str) -> str:
        """An expression of a kind."""
        return {"int": self.int, "float": self.float, "text": self.text, "bool": self.bool}[kind]()

    def simple(self, kind: str) -> str:
        """A literal or a name."""
        if self.names[kind] and self.chance(0.6):
            return self.random.choice(self.names[kind])
        return {"int": self.pick(*INTS), "float": self.pick(*FLOATS), "text": repr(self.pick(*TEXTS)), "bool": self.pick("True", "False")}[
            kind
        ]

    def int(self) -> str:
        a, b = self.simple("int"), self.simple("int")
        if self.chance(0.45):
            return a
        return self.pick(
            f"{a} * {b}", f"{a} + {b}", f"{a} // 2 + 1", f"({a} - {b})", f"max({a}, {b})", f"min({a}, {b}, 64)", f"int({self.simple('float')} * 10)", f'int("{self.pick("3", "12")}")',
            f"len([{a}, {b}])", f"abs(-{a})", f"({a} if {self.bool()} else {b})", f"sum([{a}, {b}, 1])", f"[{a}, {b}][1]", f"{{'a': {a}}}['a']", f"dict(x={a}).get('y', {b})",
            f"round({self.simple('float')} + 2)", f"2 ** {self.pick('2', '3', '10')}", f"int({a} / 2)", f"{a} % 5", f"({a} or {b})", f"({a} and {b})", f"len({self.simple('text')})", f"-{a}",
            f"next(iter([{a}, {b}]))", f"(lambda x: x + {a})({b})", f"divmod({a}, 3)[0]", f"int(str({a}))", f"[x * 2 for x in ({a}, {b})][0]", "sum(x for x in range(4) if x % 2)",
            f"({a}, {b})[-1]", f"sorted([{a}, {b}])[0]", f"list(range({self.pick('3', '5')}))[-1]", f"{a} << 1", f"int({self.bool()})", f"{a} - -{b}", f"{{**{{'k': {a}}}, 'k': {b}}}['k']",
        )  # fmt: skip

    def float(self) -> str:
        a, b = self.simple("float"), self.simple("float")
        if self.chance(0.6):
            return a
        return self.pick(
            f"{a} * 2", f"{a} / 2", f"float({self.simple('int')})", 'float("1e-4")', f"max({a}, {b})", f"{self.simple('int')} * 1e-5", f"({a} if {self.bool()} else {b})", f"{a} * {self.simple('int')}", f"round({a}, 2)",
        )  # fmt: skip

    def text(self) -> str:
        a, b = self.simple("text"), self.simple("text")
        if self.chance(0.5):
            return a
        return self.pick(
            f"{a} + {b}", f'f"{{{self.simple("int")}}}-x"', f"f'{{{a.replace(chr(39), chr(34))}}}'" if "'" not in a.strip("'") else a, f'"{{}}_{{}}".format({a}, {self.simple("int")})', f'"%s/%d" % ({a}, {self.simple("int")})',
            f"{a}.upper()", f"{a}.replace('u', 'v')", f"os.path.join({a}, 'sub')", f"'-'.join([{a}, {b}])", "'a-b-c'.split('-')[1]", f"({a} if {self.bool()} else {b})", f"str({self.simple('int')})", f"{a}.strip().lower()",
            f"{a}[:2]", f"{a}[-1]", "'zero{stage}'.format(stage=3)", f"f'{{{self.simple('float')}:.1e}}'", f"f'{{{self.simple('int')}:03d}}'", f"{a} * 2", f"os.path.basename({a})", f"({a} or 'other')", f"{a}.title()", f"{a}.removesuffix('u')", "os.path.splitext('ds.json')[0]",
        )  # fmt: skip

    def bool(self) -> str:
        a, b, text = self.simple("int"), self.simple("int"), self.simple("text")
        if self.chance(0.4):
            return self.simple("bool")
        return self.pick(
            f"{a} > {b}", f"{a} == {b}", f"not {self.simple('bool')}", f"{text} == 'cpu'", f"{text} in ('cpu', 'nvme')", f"isinstance({a}, int)", f"bool({a})", f"{text}.startswith('c')", f"{a} != {b}", f"({self.simple('bool')} and {self.simple('bool')})",
            f"({self.simple('bool')} or {a} < {b})", f"any([{self.simple('bool')}, False])", f"all([{self.simple('bool')}, True])", "'k' in {'k': 1}", f"{a} is None", f"{text} is not None", f"1 < {a} <= 16", f"not {text}", f"{text}.endswith('e')", f"'u' in {text}", f"type({a}) is int",
        )  # fmt: skip
