"""Generated Makefiles: variables of every kind, conditionals, recipes that are continued, variables of single targets."""

from __future__ import annotations

import re

from tests.judges.scripts.commands import Commands


class Makefile(Commands):
    """Writes one Makefile. The first target makes all others, in the order of the file."""

    def write(self) -> dict[str, str]:
        """The files; the first is the Makefile."""
        self.made: list[str] = []
        if self.random.random() < 0.3:
            self.line(self.pick("SHELL := /bin/bash", "# how to train", ".PHONY: all", "export NCCL_DEBUG=INFO"))
        for _ in range(self.random.randint(2, 6)):
            self.variable()
        targets = [self.name("train") for _ in range(self.random.randint(1, 4))]
        self.line("all: " + " ".join(targets))
        for index, target in enumerate(targets):
            if self.random.random() < 0.3:
                self.line(f"{target}: {self.name('OWN')} {self.pick('=', ':=')} {self.plain()}")
                self.made.append(self.lines[-1].split()[1])
            if self.random.random() < 0.3:
                self.variable()
            needs = targets[:index] if self.random.random() < 0.3 else []
            self.line(f"{target}:{''.join(' ' + one for one in needs)}" + self.pick("", "", "  # a comment"))
            for _ in range(self.random.randint(1, 3)):
                self.recipe()
            if self.random.random() < 0.4:
                self.line("")
        if self.random.random() < 0.3:
            self.variable()
        return {"Makefile": "\n".join(self.lines) + "\n"}

    def used(self) -> str:
        """A variable of make in a text."""
        name = self.random.choice(self.made) if self.made and self.random.random() < 0.97 else "NOT_SET"
        return self.pick(f"$({name})", f"${{{name}}}")

    def value(self) -> str:
        return self.pick(
            self.plain(),
            self.number(),
            f"--x {self.plain()}",
            self.used(),
            f"{self.used()}/{self.plain()}",
            f"'{self.plain()} b'",
            f"{self.plain()} # said",
        )

    def variable(self) -> None:
        """An assignment, alone or in a conditional."""
        name = self.random.choice(self.made) if self.made and self.random.random() < 0.4 else self.name("V")
        value = self.value()
        if re.search(rf"\b{name}\b", value) or self.random.random() < 0.02:
            value = "plain"  # a variable that names itself is an error
        sign = self.pick("=", ":=", "?=", ":=", "+=")
        refers = "$" in value
        line = f"{self.pick('', '', '', 'export ')}{name} {':=' if refers and sign in ('=', '?=') and name in self.made else sign} {value}"
        if self.random.random() < 0.2:
            test = self.pick(
                f"ifeq ({self.used()},{self.plain()})",
                f"ifneq ($({name}),)",
                f"ifdef {name}",
                "ifdef NOT_SET",
                f'ifeq "{self.used()}" "{self.number()}"',
            )
            self.line(test)
            self.line(line)
            if self.random.random() < 0.5:
                self.line("else")
                self.line(f"{name} := other")
            self.line("endif")
        elif self.random.random() < 0.15:
            self.line(f"{name} := --one \\\n    --two {self.plain()} \\\n  --three")
        else:
            self.line(line)
        if name not in self.made:
            self.made.append(name)

    def recipe(self) -> None:
        """A line of a recipe."""
        launcher = self.pick(
            "deepspeed", "torchrun", "python train.py", "accelerate launch", "OMP_NUM_THREADS=2 deepspeed", "CUDA_VISIBLE_DEVICES=0 python"
        )
        words = " ".join(
            self.pick(
                self.used(),
                self.used(),
                self.plain(),
                "$@",
                "--lr 1e-4",
                "'a b'",
                "--n=$$((1 + 2))",
                "train.py",
                "--bf16",
                *(["$(shell echo 3)", "$(if x,y)"] if self.random.random() < 0.2 else []),
            )
            for _ in range(self.random.randint(1, 4))
        )
        command = f"{launcher} {words}"
        self.line("\t" + self.pick("", "", "@", "-", "@-") + self.pick(
            command, command, f"export NCCL_DEBUG=WARN; {command}", f"GPUS=4; {launcher} $$GPUS", f"GPUS=4\n\t{launcher} $${{GPUS:-none}}", f"cd . && {command}",
            f"{command} \\\n\t\t--more {self.plain()} \\\n\t\t--last", f'if [ -n "{self.used()}" ]; then {command}; fi', f"for i in 1 2; do {launcher} $$i; done",
            f"echo start\n\t{command}", f"mkdir -p out\n\t# {command}\n\t{launcher} x", f"{command} > log 2>&1", f'{launcher} "{self.used()}"',
        ))  # fmt: skip
