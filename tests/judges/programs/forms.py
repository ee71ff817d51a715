"""Forms of statements for generated programs, read from `forms.txt`.

A form begins with a line `%%`, which may name the variables that it sets: `%% int: @x1`. In it stand for something else: `@cfg` a dict
that is there, `@new` a new dict, `@x1` a new name, `@m1` a new module, `@key1` and `@value1` a key with its value, `@int`, `@float`,
`@text` and `@bool` an expression, `@lit` a number, `@open` what only the run knows. Behind `@@file NAME` follow the lines of another file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Form(NamedTuple):
    """A form: its lines, those of its other files, and the variables that it sets, each with its kind."""

    text: str
    files: dict[str, str]
    sets: list[tuple[str, str]]

    @property
    def uses(self) -> set[str]:
        """The modules that its lines use by their names."""
        return set(re.findall(r"(?<![\w.])(contextlib|copy|functools|json|os|pathlib|time)\.", self.text))


PLACE = re.compile(r"@(cfg|new|int|float|text|bool|lit|open|[xm]\d|key\d|value\d)\b")
"""What stands for something else."""

OF_FILE = "@@file "


def _form(written: str) -> Form:
    head, _, body = written.partition("\n")
    sets = [(kind, name) for kind, _, name in (one.strip().partition(": ") for one in head.split(",")) if name]
    text, *others = re.split(rf"^{OF_FILE}", body, flags=re.MULTILINE)
    files = {name: lines for name, _, lines in (one.partition("\n") for one in others)}
    return Form(text.rstrip("\n"), files, sets)


FORMS = [_form(one) for one in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split("%%")[1:]]
