"""The words of generated scripts: quoting, variables, expansions, arithmetic, substitutions."""

from __future__ import annotations

from random import Random

WORDS = (
    "--bf16",
    "--lr",
    "1e-4",
    "--output_dir",
    "out",
    "train.py",
    "ds_config.json",
    "a",
    "--epochs",
    "3",
    "--deepspeed",
    "x.y",
    "7",
    "data/train",
)
ODD = (
    "'a b'",
    '"c  d"',
    r"e\ f",
    "$'t\\tab'",
    '"it\'s"',
    "''",
    '""',
    "'<in>'",
    '"<x"',
    "'*'",
    '"a;b"',
    "--k='v w'",
    'p"q"r',
    "'$HOME'",
    r"\$X",
    "'#no'",
    "a#b",
)


class Words:
    """Writes words. What it knows are the variables that are set in every run up to the statement that is written."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.indent = 0
        self.texts: list[str] = []
        self.numbers: list[str] = []
        self.arrays: list[str] = []
        self.functions: list[str] = []
        self.count = 0
        self.inside: list[str] = []
        self.files: dict[str, str] = {}

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def number(self) -> str:
        return str(self.random.randint(0, 20))

    def reference(self) -> str:
        """A variable that is set."""
        name = self.random.choice(self.texts + self.numbers)
        return self.pick(f"${name}", f"${{{name}}}", f'"${name}"', f'"${{{name}}}"')

    def expansion(self) -> str:
        """An operation on a variable."""
        name = self.random.choice(self.texts + self.numbers)
        unset = self.name("UNSET")
        return self.pick(
            f"${{{unset}:-{self.plain()}}}",
            f'"${{{unset}-{self.plain()}}}"',
            f"${{{name}:-other}}",
            f'"${{{name}:+set}}"',
            f'"${{{name}%.*}}"',
            f'"${{{name}##*/}}"',
            f'"${{{name}%%a*}}"',
            f'"${{{name}#?}}"',
            f'"${{{name}/a/b}}"',
            f'"${{{name}//e/_}}"',
            f'"${{{name}:1}}"',
            f'"${{{name}:0:2}}"',
            f"${{#{name}}}",
            f'"${{{name}^^}}"',
            f'"${{{name},}}"',
            f'"${{{name}/#a/b}}"',
            f'"${{{name}/%n/b}}"',
            f'"${{{name}//[^e.]/}}"',
            f'"${{{name}/a\\/b/c}}"',
        )

    def arithmetic(self) -> str:
        """An arithmetic expression, without the parentheses."""
        operand = lambda: self.pick(self.number(), *([self.random.choice(self.numbers)] if self.numbers else []), self.number())  # noqa: E731
        left, right = operand(), operand()
        return self.pick(
            f"{left} + {right}", f"{left} * {right}", f"({left} + 1) * {right}", f"{left} - {right}", f"{left} / 3", f"{left} % 4",
            f"{left} > {right} ? 1 : 2", f"$(echo {right}) + {left}", f"${{#{self.random.choice(self.texts + self.numbers)}}} * {left}",
            f"${{{self.name('UNSET')}:-{right}}} + 1", f"$(echo 0,1,2 | tr , '\\n' | wc -l) * {left}", f"2 ** 3 + {left}", f"-{left} + {right}", f"{left} << 1", f"!{left}", f"{left} == {right}",
        )  # fmt: skip

    def substitution(self) -> str:
        return self.pick(
            f'"$(echo {self.plain()} {self.reference()})"',
            f"$(echo {self.reference()})",
            f"$(basename {self.plain()}.sh .sh)",
            f'"$(dirname a/b/{self.plain()})"',
            "$(seq -s, 1 3)",
            "`echo back`",
            f"$(printf '%s-%s' a {self.plain()})",
            f'"$(cat <<< {self.plain()})"',
            "$(echo a b c | cut -d' ' -f2)",
            "$(echo a-b | tr - _)",
            "$(echo one | sed s/o/0/)",
            "$(echo 0,1,2,3 | tr ',' '\\n' | wc -l)",
            'n$(echo "0,1" | grep -o "," | wc -l)',
            "$(echo 0,1,2 | tr -d ,)",
            "$(tr -cd , <<< 0,1,2 | wc -c)",
        )

    def plain(self) -> str:
        return self.random.choice(("alpha", "beta.json", "x1", "zero3", "run-2", "v1.5"))

    def word(self) -> str:
        """An argument of a command."""
        roll = self.random.random()
        if roll < 0.40:
            return self.random.choice(WORDS)
        if roll < 0.52:
            return self.random.choice(ODD)
        if roll < 0.75:
            return self.reference()
        if roll < 0.82:
            return self.expansion()
        if roll < 0.87:
            return f"$(({self.arithmetic()}))"
        if roll < 0.91:
            return self.substitution()
        if roll < 0.96 and self.arrays:
            name = self.random.choice(self.arrays)
            return self.pick(
                f'"${{{name}[@]}}"', f"${{{name}[@]}}", f'"${{{name}[*]}}"', f"${{{name}[0]}}", f'"${{{name}[1]}}"', f"${{#{name}[@]}}", f'"${{{name}[@]:1}}"', f'"${{{name}[-1]}}"',
            )  # fmt: skip
        return self.pick(
            f"--o={self.reference()}", f"{self.reference()}/{self.plain()}", "{a,b}.txt", "f{1..3}", f"--name=$(({self.arithmetic()}))"
        )
