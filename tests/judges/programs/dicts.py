"""The dicts of generated programs: how a config is written, changed, copied, merged, read from files and computed."""

from __future__ import annotations

import json

from tests.judges.programs.values import Values

KEYS: dict[str, str] = {
    "train_micro_batch_size_per_gpu": "int", "gradient_accumulation_steps": "int", "gradient_clipping": "float", "steps_per_print": "int", "wall_clock_breakdown": "bool",
    "zero_allow_untested_optimizer": "bool", "prescale_gradients": "bool", "communication_data_type": "text", "seq_parallel_communication_data_type": "text",
}  # fmt: skip
SECTIONS: dict[str, dict[str, str]] = {
    "zero_optimization": {
        "stage": "int",
        "overlap_comm": "bool",
        "reduce_bucket_size": "int",
        "contiguous_gradients": "bool",
        "stage3_max_live_parameters": "float",
    },
    "bf16": {"enabled": "bool"},
    "fp16": {"enabled": "bool", "loss_scale": "int", "initial_scale_power": "int"},
    "optimizer": {"type": "text"},
    "activation_checkpointing": {"partition_activations": "bool", "number_checkpoints": "int"},
    "flops_profiler": {"enabled": "bool", "profile_step": "int", "output_file": "text"},
}


class Dicts(Values):
    """Writes statements that make and change dicts. `made` are the dicts that can be used here, with the sections that they have."""

    def __init__(self, random: object) -> None:
        super().__init__(random)  # type: ignore[arg-type]
        self.made: dict[str, list[str]] = {}

    def pair(self) -> tuple[str, str]:
        """A key of a config and an expression."""
        key = self.pick(*KEYS)
        return key, self.of(KEYS[key])

    def section(self) -> tuple[str, str]:
        """A section as a literal."""
        name = self.pick(*SECTIONS)
        inner = [f'"{key}": {self.of(kind)}' for key, kind in SECTIONS[name].items() if self.chance(0.7)]
        if name == "zero_optimization" and self.chance(0.3):
            inner.append(f'"offload_optimizer": {{"device": {self.text()}, "pin_memory": {self.bool()}}}')
        if name == "optimizer":
            inner.append(f'"params": {{"lr": {self.float()}, "betas": [{self.float()}, 0.999]}}')
        return name, "{" + ", ".join(inner) + "}"

    def literal(self) -> tuple[str, list[str]]:
        """A config as a literal, with the names of its sections."""
        pairs = dict(self.pair() for _ in range(self.random.randint(1, 4)))
        sections = dict(self.section() for _ in range(self.random.randint(1, 3)))
        inner = [f'"{key}": {value}' for key, value in {**pairs, **sections}.items()]
        self.random.shuffle(inner)
        if self.chance(0.5):
            blank = "    " * (self.indent + 1)
            return "{\n" + "".join(f"{blank}{one},\n" for one in inner) + "    " * self.indent + "}", list(sections)
        return "{" + ", ".join(inner) + "}", list(sections)

    def plain(self) -> dict[str, object]:
        """A config as a value, for a file."""
        values = {
            "int": lambda: self.random.randint(1, 9),
            "float": lambda: self.random.choice((1e-4, 0.5)),
            "text": lambda: self.pick("cpu", "auto"),
            "bool": lambda: self.chance(0.5),
        }
        found: dict[str, object] = {key: values[kind]() for key, kind in KEYS.items() if self.chance(0.3)}
        for name, keys in SECTIONS.items():
            if self.chance(0.4):
                found[name] = {key: values[kind]() for key, kind in keys.items()}
        return found or {"steps_per_print": 7}

    def a_dict(self) -> str:
        return self.random.choice(list(self.made))

    def new_dict(self) -> None:
        """A statement that makes a dict, which may be used from then on."""
        name = self.name("cfg")
        kinds = [self._literal, self._literal, self._from_file, self._from_text, self._from_pairs, self._deep]
        if self.made:
            kinds += [self._copy, self._merged, self._filtered, self._alias]
        sections = self.random.choice(kinds)(name)
        self.made[name] = sections

    def _literal(self, name: str) -> list[str]:
        text, sections = self.literal()
        self.lines += ("    " * self.indent + f"{name} = {text}").split("\n")
        return sections

    def _from_file(self, name: str) -> list[str]:
        value = self.plain()
        file = f"{self.pick('ds', 'conf/zero', 'conf')}_{self.count}"
        if self.chance(0.25):
            self.imports.add("import yaml")
            self.files[f"{file}.yaml"] = json.dumps(value, indent=1).replace("1e-04", "0.0001").replace("0.0001", "0.25")
            self.line(f'with open("{file}.yaml") as file:\n    {name} = yaml.safe_load(file)')
        else:
            self.imports.add("import json")
            self.files[f"{file}.json"] = json.dumps(value, indent=2)
            self.line(self.pick(
                f'with open("{file}.json") as file:\n    {name} = json.load(file)', f'{name} = json.load(open("{file}.json"))', f'{name} = json.loads(open("{file}.json").read())',
                f'{name} = json.loads(pathlib.Path("{file}.json").read_text())', f'file = open("{file}.json", "r")\n{name} = json.load(file)\nfile.close()',
            ))  # fmt: skip
            self.imports.add("import pathlib")
        return [key for key, one in value.items() if isinstance(one, dict)]

    def _from_text(self, name: str) -> list[str]:
        value = self.plain()
        self.imports.add("import json")
        self.line(f"{name} = json.loads('''{json.dumps(value)}''')")
        return [key for key, one in value.items() if isinstance(one, dict)]

    def _from_pairs(self, name: str) -> list[str]:
        keys = self.random.sample(list(KEYS), 3)
        pairs = ", ".join(f'("{key}", {self.of(KEYS[key])})' for key in keys)
        self.line(self.pick(
            f"{name} = dict([{pairs}])", f"{name} = {{key: value for key, value in [{pairs}]}}", f"{name} = dict({keys[0]}={self.of(KEYS[keys[0]])}, bf16=dict(enabled={self.bool()}))",
            f"{name} = {{}}\nfor key, value in ({pairs}):\n    {name}[key] = value", f"{name} = dict(zip({keys!r}, [{', '.join(self.of(KEYS[key]) for key in keys)}]))",
            f'{name} = {{section: {{"enabled": section == "bf16"}} for section in ("bf16", "fp16")}}', f"{name} = dict.fromkeys({keys!r}, {self.int()})",
        ))  # fmt: skip
        return []

    def _deep(self, name: str) -> list[str]:
        self.line(
            f'{name} = {{}}\n{name}["zero_optimization"] = {{}}\n{name}["zero_optimization"]["stage"] = {self.int()}\n{name}["bf16"] = {{"enabled": {self.bool()}}}'
        )
        return ["zero_optimization", "bf16"]

    def _copy(self, name: str) -> list[str]:
        other = self.a_dict()
        self.imports.add("import copy")
        self.line(
            f"{name} = "
            + self.pick(f"{other}.copy()", f"copy.deepcopy({other})", f"dict({other})", f"{{**{other}}}", f"copy.copy({other})")
        )
        return list(self.made[other])

    def _merged(self, name: str) -> list[str]:
        one, other = self.a_dict(), self.a_dict()
        key, value = self.pair()
        self.line(
            f"{name} = "
            + self.pick(
                f"{{**{one}, **{other}}}",
                f"{one} | {other}",
                f'{{**{one}, "{key}": {value}}}',
                f"dict({one}, {key}={value})",
                f'{{"{key}": {value}, **{other}}}',
            )
        )
        return []

    def _filtered(self, name: str) -> list[str]:
        other = self.a_dict()
        self.line(f"{name} = " + self.pick(
            f'{{key: value for key, value in {other}.items() if key != "steps_per_print"}}', f"{{key: {other}[key] for key in {other}}}", f"{{k: v for k, v in {other}.items() if not isinstance(v, dict)}}",
            f"{{k: v for k, v in {other}.items() if v is not None}}", f"dict(sorted({other}.items()))",
        ))  # fmt: skip
        return []

    def _alias(self, name: str) -> list[str]:
        other = self.a_dict()
        self.line(f"{name} = {other}")
        self.change(name)
        return list(self.made[other])

    def change(self, name: str = "") -> None:
        """A statement that changes a dict."""
        name = name or self.a_dict()
        key, value = self.pair()
        more, other = self.pair()
        section, literal = self.section()
        forms = [
            f'{name}["{key}"] = {value}', f'{name}.update({{"{key}": {value}, "{more}": {other}}})', f"{name}.update({key}={value})", f'{name}.setdefault("{key}", {value})', f'{name} |= {{"{key}": {value}}}',
            f'{name}["{section}"] = {literal}', f'{name}.pop("{key}", None)', f'if "{key}" in {name}:\n    del {name}["{key}"]', f'{name}.setdefault("{section}", {{}})["added"] = {self.int()}', f'{name}["{key}"] = {name}.get("{key}", {value})',
            f'for key in ["{key}", "{more}"]:\n    {name}[key] = {self.int()}', f'for index, key in enumerate(("{key}", "{more}")):\n    {name}[key] = index + {self.int()}', f'{name}["{key}"], {name}["{more}"] = {value}, {other}',
            f'if "{section}" not in {name}:\n    {name}["{section}"] = {literal}', f'for key in list({name}):\n    if key == "{key}":\n        {name}.pop(key)', f'try:\n    del {name}["{key}"]\nexcept KeyError:\n    pass',
            f'try:\n    {name}["{key}"] = {name}["no_such_key"]\nexcept KeyError:\n    {name}["{more}"] = {other}', f'{name}.update(**{{"{key}": {value}}})', f'if {self.bool()}:\n    {name}["{key}"] = {value}\nelse:\n    {name}["{more}"] = {other}',
            f'if {self.bool()}:\n    {name}["{section}"] = {literal}', f'while {name}.get("{key}") is None:\n    {name}["{key}"] = {value}', f'if ({self.name("w")} := {self.int()}) > 2:\n    {name}["{key}"] = {value}',
        ]  # fmt: skip
        for known in self.made.get(name, []):
            inner, kind = self.random.choice(list(SECTIONS[known].items()))
            forms += [
                f'{name}["{known}"]["{inner}"] = {self.of(kind)}', f'part = {name}["{known}"]\npart["{inner}"] = {self.of(kind)}', f'{name}["{known}"].update({inner}={self.of(kind)})', f'{name}["{known}"].setdefault("extra", {self.int()})',
                f'{name}.get("{known}", {{}})["{inner}"] = {self.of(kind)}', f'{name}["{known}"] = {{**{name}["{known}"], "{inner}": {self.of(kind)}}}',
            ]  # fmt: skip
        form = self.random.choice(forms)
        self.line(form)
        if ".pop(" in form or "del " in form or f'{name}["{section}"] = ' in form:
            self.made[name] = []
