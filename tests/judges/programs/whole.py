"""Whole generated programs: arguments, classes, functions, helper modules, what only the run knows, and the call that takes the config."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from tests.judges.programs.dicts import KEYS, Dicts
from tests.judges.programs.forms import FORMS, PLACE, Form
from tests.judges.programs.values import FLOATS, INTS, TEXTS

KINDS = ("int", "float", "text", "bool")

OPEN = (
    'int(os.environ.get("RANK", "0"))',
    "random.randint(1, 4)",
    "time.time()",
    "torch.cuda.device_count()",
    'os.environ.get("JOB_ID")',
    "len(os.listdir('.'))",
    "hash('x')",
)
"""Expressions that only the run knows."""


class Made(NamedTuple):
    """A program: its files, of which the first is `train.py`, and its command line."""

    files: dict[str, str]
    argv: Sequence[str] = ()


class Program(Dicts):
    """Writes one program, in which one call takes a config."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.argv: list[str] = []

    def write(self) -> Made:
        """The files of the program, and its command line."""
        self.imports |= {"import os", "import torch", "import deepspeed"}
        self.arguments()
        for _ in range(self.random.randint(1, 3)):
            self.variable()
        if self.chance(0.3):
            self.dataclass()
        if self.chance(0.25):
            self.helper()
        in_main = self.chance(0.5)
        if in_main:
            self.line("\n\ndef main():")
            self.indent += 1
        self.new_dict()
        for _ in range(self.random.randint(2, 7)):
            self.statement()
        self.sink()
        if in_main:
            self.indent -= 1
            self.line(self.pick('\n\nif __name__ == "__main__":\n    main()', "\n\nmain()"))
        head = sorted(self.imports)
        return Made({"train.py": "\n".join([*head, "", *self.lines]) + "\n", **self.files}, self.argv)

    def write_form(self, form: Form) -> Made:
        """A program with one form, and a call that takes its dicts."""
        self.imports |= {"import os", "import torch", "import deepspeed"}
        self.line('start = {"first": 1, "steps_per_print": 3}')
        self.made["start"] = []
        self.form(form)
        self.line(f"deepspeed.initialize({', '.join(f'{name}={name}' for name in self.made)})")
        return Made({"train.py": "\n".join([*sorted(self.imports), "", *self.lines]) + "\n", **self.files})

    def statement(self) -> None:
        """A statement that can stand in any block."""
        kinds: list[tuple[float, Callable[[], None]]] = [
            (0.7, self.opened), (0.2, self.generator), (3, self.variable), (6, self.change), (2, self.new_dict), (2, self.function), (1, self.made_by_class), (1, self.closure), (1, self.decorated), (1, self.block), (1, self.many), (9, self.form),
        ]  # fmt: skip
        self.random.choices([one for _, one in kinds], [weight for weight, _ in kinds])[0]()

    def form(self, form: Form | None = None) -> None:
        """A form, one of those of `forms.txt` if none is given."""
        form = form or self.random.choice(FORMS)
        names: dict[str, str] = {}

        def put(place: re.Match[str]) -> str:
            kind = place[1]
            if kind in KINDS:
                return self.of(kind)
            if kind in ("lit", "open"):
                return self.random.choice(INTS if kind == "lit" else OPEN)
            if kind not in names:
                self._name_place(kind, names)
            return names[kind]

        text = PLACE.sub(put, form.text)
        self.imports |= {f"import {name}" for name in form.uses} | {"import random", "import time"}
        outside, self.names = self.names, {kind: [] for kind in self.names}
        for name, lines in form.files.items():
            self.files[PLACE.sub(put, name)] = PLACE.sub(put, lines)
        self.names = outside
        self.line(text)
        if "new" in names:
            self.made[names["new"]] = []
        if "cfg" in names:
            self.made[names["cfg"]] = []
        for kind, name in form.sets:
            self.names[kind].append(PLACE.sub(put, name))

    def _name_place(self, kind: str, names: dict[str, str]) -> None:
        """What stands for a dict, a name, a module, or a key with its value."""
        if kind == "cfg":
            names[kind] = self.a_dict()
        elif kind.startswith(("key", "value")):
            names[f"key{kind[-1]}"], names[f"value{kind[-1]}"] = self.pair()
        else:
            names[kind] = self.name({"new": "cfg", "m": "module"}.get(kind.rstrip("123456789"), "x"))

    def variable(self) -> None:
        """A variable of a kind."""
        kind = self.pick(*self.names)
        name = self.name(kind[0])
        value = self.of(kind)
        form = self.random.random()
        if form < 0.6:
            self.line(f"{name} = {value}")
        elif form < 0.7:
            self.line(f"if {self.bool()}:\n    {name} = {value}\nelse:\n    {name} = {self.of(kind)}")
        elif form < 0.78:
            other = self.name("o")
            self.line(f"{name}, {other} = {value}, {self.int()}")
            self.names["int"].append(other)
        elif form < 0.85 and kind == "int":
            self.line(f"{name} = {value}\n{name} {self.pick('+=', '*=', '-=')} {self.int()}")
        elif form < 0.92 and kind == "int":
            self.line(f"{name} = 0\nfor step in range({self.pick('2', '3')}):\n    {name} += step + 1")
        else:
            self.line(
                f"try:\n    {name} = {value}\nexcept {self.pick('ValueError', 'Exception', '(KeyError, TypeError)')}:\n    {name} = {self.of(kind)}"
            )
        self.names[kind].append(name)

    def arguments(self) -> None:
        """Flags of the command line, which is empty."""
        roll = self.random.random()
        if roll < 0.35:
            self.imports.add("import argparse")
            self.line("parser = argparse.ArgumentParser()")
            for _ in range(self.random.randint(2, 5)):
                self.flag()
            self.line('parser.add_argument("--local_rank", type=int, default=-1)')
            self.line(self.pick("args = parser.parse_args()", "args, rest = parser.parse_known_args()"))
        elif roll < 0.5:
            self.imports |= {"from dataclasses import dataclass, field", "from transformers import HfArgumentParser"}
            name = self.name("Args")
            self.line(f"@dataclass\nclass {name}:")
            for kind, read in (("int", "int"), ("float", "float"), ("text", "str"), ("bool", "bool")):
                one = self.name("field")
                default = self.literal_of(kind)
                self.line(f"    {one}: {read} = {default if self.chance(0.6) else f'field(default={default})'}")
                self.names[kind].append(f"args.{one}")
                self.give(one, "true" if kind == "bool" else self.plain_of(kind))
            self.line(f"\n\nparser = HfArgumentParser(({name},))\n(args,) = parser.parse_args_into_dataclasses()")

    def flag(self) -> None:
        """A flag of argparse, which the command line may give."""
        kind = self.pick("int", "float", "text")
        name, read, default = self.name("flag"), {"int": "int", "float": "float", "text": "str"}[kind], self.literal_of(kind)
        form = self.random.randint(0, 7)
        if form == 0:
            self.line(f'parser.add_argument("-{name[-1]}{self.count}", "--{name}", type={read}, default={default})')
        elif form == 1:
            self.line(f'parser.add_argument("--{name}", dest="{name}_x", type={read}, default={default})')
            self.names[kind].append(f"args.{name}_x")
        elif form == 2:
            self.line(f'parser.add_argument("--{name.replace("_", "-")}", default={default}, type={read}, help="a flag")')
        elif form == 3:
            self.line(f'parser.add_argument("--{name}", action="{self.pick("store_true", "store_false")}")')
        elif form == 4:
            self.line(f'parser.add_argument("--{name}", action=argparse.BooleanOptionalAction, default={self.pick("True", "False")})')
        elif form == 5:
            self.line(f'parser.add_argument("--{name}", type=int, nargs="+", default=[1, 2])')
            self.names["int"] += [f"args.{name}[0]", f"len(args.{name})"]
        else:
            self.line(f'parser.add_argument("--{name}", type={read}, default={default})')
        if form in (3, 4):
            self.names["bool"].append(f"args.{name}")
            self.argv += [f"--{name}"] if self.chance(0.4) else []
        elif form == 5:
            self.argv += [f"--{name}", "3", "4", "5"] if self.chance(0.4) else []
        else:
            self.names[kind] += [f"args.{name}"] if form != 1 else []
            self.give(name.replace("_", "-") if form == 2 else name, self.plain_of(kind))

    def give(self, name: str, value: str) -> None:
        """Give a flag on the command line, or do not."""
        if self.chance(0.4):
            self.argv += self.random.choice(([f"--{name}", value], [f"--{name}={value}"]))

    def plain_of(self, kind: str) -> str:
        """A value on the command line."""
        return self.random.choice({"int": INTS, "float": FLOATS, "text": TEXTS}[kind])

    def literal_of(self, kind: str) -> str:
        saved, self.names[kind] = self.names[kind], []
        value = self.simple(kind)
        self.names[kind] = saved
        return value

    def dataclass(self) -> None:
        """A dataclass, its object, and its dict."""
        self.imports |= {"from dataclasses import dataclass, asdict, field"}
        kind, name = self.name("Settings"), self.name("settings")
        fields = {self.name("f"): one for one in ("int", "text", "bool", "float")}
        derived: list[str] = []
        self.line(f"@dataclass\nclass {kind}:")
        for field, one in fields.items():
            self.line(f"    {field}: {'str' if one == 'text' else one} = {self.literal_of(one)}")
        if self.chance(0.5):
            first = next(iter(fields))
            self.line(
                f"\n    @property\n    def doubled(self):\n        return self.{first} * 2\n\n    def __post_init__(self):\n        self.derived = self.{first} + 1"
            )
            derived = [f"{name}.doubled", f"{name}.derived"]
        given = ", ".join(f"{field}={self.simple(one)}" for field, one in fields.items() if self.chance(0.5))
        self.line(f"\n\n{name} = {kind}({given})")
        if self.chance(0.3):
            field, one = self.random.choice(list(fields.items()))
            self.line(f"{name}.{field} = {self.of(one)}")
        self.names["int"] += derived
        for field, one in fields.items():
            self.names[one].append(f"{name}.{field}")
        if self.chance(0.5):
            table = self.name("cfg")
            self.line(f"{table} = " + self.pick(f"asdict({name})", f"dict(vars({name}))", f"dict({name}.__dict__)"))
            self.made[table] = []

    def helper(self) -> None:
        """A module beside the program."""
        module = self.name("helper")
        other = Dicts(self.random)
        other.count = self.count
        number, text = other.int(), other.text()
        literal, _ = other.literal()
        self.count = other.count
        body = f"import os\n\nBASE = {literal}\nNUMBER = {number}\n\n\ndef make(stage, name={text!s}, **more):\n    made = {{'zero_optimization': {{'stage': stage}}, 'communication_data_type': name}}\n    made.update(more)\n    return made\n"
        self.files[f"{module}.py"] = body
        form = self.pick(f"from {module} import BASE, NUMBER, make", f"import {module}", f"import {module} as h")
        at = "" if form.startswith("from") else "h." if form.endswith(" h") else f"{module}."
        self.line(form)
        self.names["int"].append(f"{at}NUMBER")
        table = self.name("cfg")
        self.line(
            f"{table} = "
            + self.pick(
                f"{at}make({self.int()})",
                f"{at}make({self.int()}, name={self.text()}, steps_per_print={self.int()})",
                f"dict({at}BASE)",
                f"{at}BASE",
            )
        )
        self.made[table] = []

    def function(self) -> None:
        """A function that makes or changes a config."""
        name, table, result = self.name("build"), self.a_dict(), self.name("cfg")
        key, value = self.pair()
        pad = "    "
        form = self.random.randint(0, 6)
        if form == 0:
            self.line(
                f"def {name}(cfg, number={self.int()}):\n{pad}cfg['{key}'] = {value}\n{pad}cfg['steps_per_print'] = number\n\n\n{name}({table}{self.pick('', ', 3', ', number=5')})"
            )
            return
        if form == 1:
            self.line(
                f"def {name}(base, *rest, **more):\n{pad}made = dict(base)\n{pad}made['count'] = len(rest)\n{pad}made.update(more)\n{pad}return made\n\n\n{result} = {name}({table}, {self.int()}, 2, {key}={value})"
            )
        elif form == 2:
            self.line(
                f"def {name}(stage, /, *, offload=None):\n{pad}zero = {{'stage': stage}}\n{pad}if offload is not None:\n{pad}{pad}zero['offload_optimizer'] = {{'device': offload}}\n{pad}return {{'zero_optimization': zero}}\n\n\n{result} = {name}({self.int()}{self.pick('', ', offload=' + self.text())})"
            )
        elif form == 3:
            self.line(
                f"def {name}(x):\n{pad}if x > 4:\n{pad}{pad}return {{'{key}': {value}}}\n{pad}return {{'steps_per_print': x}}\n\n\n{result} = {name}({self.int()})"
            )
        elif form == 4:
            self.line(
                f"def {name}(cfg):\n{pad}found = {{}}\n{pad}for k, v in cfg.items():\n{pad}{pad}found[k] = {name}(v) if isinstance(v, dict) else v\n{pad}return found\n\n\n{result} = {name}({table})"
            )
        elif form == 5:
            number = self.name("n")
            self.line(
                f"{number} = {self.int()}\n\n\ndef {name}():\n{pad}{'nonlocal' if self.indent else 'global'} {number}\n{pad}{number} += 1\n{pad}return {{'{key}': {number}}}\n\n\n{result} = {name}()\n{result} = {name}()"
            )
            self.names["int"].append(number)
        else:
            self.line(
                f"{name} = lambda k, v={self.int()}: {{k: v}}\n{result} = {name}('{key}')\n{result}.update({name}('steps_per_print', {self.int()}))"
            )
        self.made[result] = []

    def made_by_class(self) -> None:
        """A class that holds a config."""
        kind, thing, result = self.name("Config"), self.name("thing"), self.name("cfg")
        key, value = self.pair()
        table = self.a_dict()
        bases = self.random.randint(0, 2)
        self.line(
            f"class {kind}:\n    stage = {self.int()}\n\n    def __init__(self, base, micro={self.int()}):\n        self.base = base\n        self.micro = micro\n\n    def to_dict(self):\n        made = {{**self.base}}\n        made['train_micro_batch_size_per_gpu'] = self.micro\n"
            f"        made['zero_optimization'] = {{'stage': self.stage}}\n        return made\n\n    @classmethod\n    def small(cls, base):\n        return cls(base, 1)\n\n    @staticmethod\n    def number():\n        return {self.int()}\n\n"
        )
        if bases:
            child = self.name("Config")
            self.line(
                f"class {child}({kind}):\n    stage = {self.int()}\n\n    def to_dict(self):\n        made = super().to_dict()\n        made['{key}'] = {value}\n        return made\n\n"
            )
            kind = child
        self.line(f"{thing} = " + self.pick(f"{kind}({table})", f"{kind}({table}, micro={self.int()})", f"{kind}.small({table})"))
        if self.chance(0.3):
            self.line(f"{thing}.{self.pick('micro', 'stage')} = {self.int()}")
        self.line(f"{result} = {thing}.to_dict()")
        self.names["int"] += [f"{thing}.micro", f"{kind}.stage", f"{thing}.number()"]
        self.made[result] = []

    def closure(self) -> None:
        maker, result = self.name("maker"), self.name("cfg")
        key, value = self.pair()
        self.line(
            f"def {maker}(number):\n    def inner(extra=1):\n        return {{'{key}': {value}, 'steps_per_print': number + extra}}\n    return inner\n\n\n{result} = {maker}({self.int()})({self.pick('', '2')})"
        )
        self.made[result] = []

    def decorated(self) -> None:
        wrapper, name, result = self.name("wrap"), self.name("make"), self.name("cfg")
        key, value = self.pair()
        self.imports.add("import functools")
        roll = self.random.randint(0, 2)
        if roll == 0:
            self.line(
                f"def {wrapper}(function):\n    @functools.wraps(function)\n    def inner(*given, **more):\n        made = function(*given, **more)\n        made['steps_per_print'] = {self.int()}\n        return made\n    return inner\n\n\n@{wrapper}\ndef {name}():\n    return {{'{key}': {value}}}\n\n"
            )
        elif roll == 1:
            self.line(f"@functools.lru_cache(maxsize=None)\ndef {name}():\n    return {{'{key}': {value}}}\n\n")
        else:
            self.line(
                f"def {wrapper}(times):\n    def outer(function):\n        def inner():\n            return {{**function(), 'steps_per_print': times}}\n        return inner\n    return outer\n\n\n@{wrapper}({self.int()})\ndef {name}():\n    return {{'{key}': {value}}}\n\n"
            )
        self.line(f"{result} = {name}()")
        self.made[result] = []

    def block(self) -> None:
        """A condition, a loop or a `with` around other statements."""
        known = {kind: list(names) for kind, names in self.names.items()}, {name: list(one) for name, one in self.made.items()}
        head = self.pick(
            f"if {self.bool()}:",
            f"for turn in range({self.pick('1', '2')}):",
            "with torch.no_grad():",
            'if int(os.environ.get("LOCAL_RANK", 0)) == 0:',
            f"if {self.bool()} and {self.bool()}:",
            "try:",
        )
        self.line(head)
        self.indent += 1
        for _ in range(self.random.randint(1, 2)):
            self.random.choice((self.change, self.change, self.variable, self.new_dict))()
        self.indent -= 1
        if head == "try:":
            self.line("except KeyError:\n    raise")
        elif head.startswith("if") and self.chance(0.4):
            self.names, self.made = {kind: list(names) for kind, names in known[0].items()}, {name: [] for name in known[1]}
            self.line("else:")
            self.indent += 1
            self.change()
            self.indent -= 1
        self.names = known[0]
        self.made = {name: [section for section in sections if section in self.made.get(name, [])] for name, sections in known[1].items()}

    def opened(self) -> None:
        """Something that only the run knows, in a dict."""
        value = self.pick(*OPEN)
        self.imports |= {"import random", "import time"}
        table = self.a_dict()
        key = self.pick(*KEYS, "opened")
        form = self.random.randint(0, 2)
        if form == 0:
            self.line(f'{table}["{key}"] = {value}')
        elif form == 1:
            name = self.name("open")
            self.line(f'{name} = {value}\n{table}["{key}"] = {name}')
        else:
            self.line(f'{table}.update({{"{key}": {value}, "steps_per_print": {self.int()}}})')

    def generator(self) -> None:
        name, table = self.name("each"), self.a_dict()
        self.line(
            f"def {name}():\n    for number in range(2):\n        yield 'k' + str(number), number\n\n\nfor key, value in {name}():\n    {table}[key] = value"
        )

    def many(self) -> None:
        """A dict of dicts, of which one is selected."""
        table, result = self.name("presets"), self.name("cfg")
        a, b = self.section(), self.section()
        self.line(
            f'{table} = {{"a": {{"{a[0]}": {a[1]}}}, "b": {{"{b[0]}": {b[1]}}}}}\n{result} = {table}[{self.pick(chr(34) + "a" + chr(34), f"{chr(34)}a{chr(34)} if {self.bool()} else {chr(34)}b{chr(34)}")}]'
        )
        self.made[result] = []

    # ------------------------------------------------------------------ the call

    def sink(self) -> None:
        """The call that takes the config."""
        table = self.a_dict()
        kind = self.random.random()
        if kind < 0.5:
            self.imports.add("import json")
            forms = [
                f"engine, optimizer, _, _ = deepspeed.initialize(model=torch.nn.Linear(1, 1), config={table})", f"engine = deepspeed.initialize(model=torch.nn.Linear(1, 1), config={table})[0]",
                f"engine, *_ = deepspeed.initialize(None, torch.nn.Linear(1, 1), config={table})", f"kwargs = dict(model=None, config={table})\ndeepspeed.initialize(**kwargs)",
                f"def start(config):\n    return deepspeed.initialize(model=None, config=config)\n\n\nstart({table})", f"class Runner:\n    def __init__(self, config):\n        self.config = config\n\n    def run(self):\n        deepspeed.initialize(model=None, config=self.config)\n\n\nRunner({table}).run()",
                f"if {table}:\n    deepspeed.initialize(model=None, config={table})",
            ]  # fmt: skip
            self.line(self.random.choice(forms))
        elif kind < 0.75:
            self.imports.add("from transformers import Trainer, TrainingArguments")
            self.line(
                f"training_args = TrainingArguments(output_dir={self.text()}, per_device_train_batch_size={self.int()}, learning_rate={self.float()}, bf16={self.bool()}, deepspeed={table})\nTrainer(model=None, args=training_args).train()"
            )
        elif kind < 0.88:
            self.imports.add("from accelerate import Accelerator, DeepSpeedPlugin")
            self.line(
                f"plugin = DeepSpeedPlugin(hf_ds_config={table}, gradient_accumulation_steps={self.int()})\naccelerator = Accelerator(deepspeed_plugin=plugin)"
            )
        else:
            self.imports |= {"import lightning", "from lightning.pytorch.strategies import DeepSpeedStrategy"}
            self.line(f"strategy = DeepSpeedStrategy(config={table})\nlightning.Trainer(strategy=strategy, precision={self.text()})")
