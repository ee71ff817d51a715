"""The commands of generated scripts: assignments and launches, plain and in odd forms."""

from __future__ import annotations

from tests.judges.scripts.words import Words

LAUNCHERS = (
    "deepspeed",
    "torchrun",
    "accelerate launch",
    "python train.py",
    "python3 -m torch.distributed.run",
    "srun python",
    "deepspeed --num_gpus",
)


class Commands(Words):
    """Writes commands."""

    def assignment(self) -> None:
        roll = self.random.random()
        if roll < 0.25 or not self.texts + self.numbers:
            name = self.name("N")
            self.line(f"{name}={self.number()}")
            self.numbers.append(name)
        elif roll < 0.35:
            name = self.name("N")
            self.line(f"{name}=$(({self.arithmetic()}))")
            self.numbers.append(name)
        elif roll < 0.42 and self.numbers:
            name = self.random.choice(self.numbers)
            self.line(
                self.pick(f"(({name} += 2))", f"(({name}++))", f"let {name}={name}+1", f"{name}=$(({name} - 1))", f": $(({name} *= 2))")
            )
        elif roll < 0.50:
            free = [name for name in self.texts if name not in self.inside]  # a loop would not end
            name = self.random.choice(free) if free and self.random.random() < 0.5 else self.name("T")
            self.line(
                f"{name}{self.pick('+=', '=') if name in self.texts else '='}{self.pick(self.plain(), repr(self.plain()), self.reference())}"
            )
            self.texts += [name] if name not in self.texts else []
        elif roll < 0.60:
            name = self.pick("CUDA_VISIBLE_DEVICES", "MASTER_PORT", "OMP_NUM_THREADS", "DS_STAGE")
            self.line(f"export {name}={self.pick(self.number(), self.reference())}")
            self.texts += [name] if name not in self.texts else []
        else:
            name = self.name("T")
            value = self.pick(
                self.plain(),
                self.expansion(),
                self.substitution(),
                f'"{self.plain()} {self.plain()}"',
                f"'{self.plain()}'",
                f"{self.reference()}",
            )
            self.line(
                f"{self.pick('', '', 'export ', 'readonly ' if self.indent == 0 and not self.inside else '', 'declare ' if not self.inside else '')}{name}={value}"
            )
            self.texts.append(name)
            if "readonly" in self.lines[-1]:
                self.texts.remove(name)

    def array(self) -> None:
        name = self.name("A")
        self.line(f"{name}=({' '.join(self.word() for _ in range(self.random.randint(2, 4)))})")
        if self.random.random() < 0.4:
            self.line(f"{name}+=({self.word()} {self.plain()})")
        if self.random.random() < 0.2:
            self.line(f"{name}[0]={self.plain()}")
        self.arrays.append(name)

    def pieces(self) -> None:
        """Arguments that a string collects."""
        name = self.name("ARGS")
        self.line(f'{name}="--a {self.plain()}"')
        for _ in range(self.random.randint(1, 3)):
            self.line(
                self.pick(
                    f'{name}="${name} --b {self.reference().strip(chr(34))}"',
                    f'{name}+=" --c {self.plain()}"',
                    f'{name}="${{{name}}} \\\n  --d {self.number()}"',
                )
            )
        form = self.pick(
            f"deepspeed train.py ${name}",
            f'CMD="deepspeed x.py ${name}"\n{"    " * self.indent}$CMD',
            f'CMD="torchrun y.py ${name}"\n{"    " * self.indent}eval $CMD',
            f'eval "deepspeed ${name}"',
        )
        self.line(form)

    def launch(self) -> None:
        """A launch command."""
        prefix = self.pick(
            "",
            "",
            "",
            "",
            "CUDA_VISIBLE_DEVICES=0 ",
            f"OMP_NUM_THREADS={self.number()} ",
            "MASTER_PORT=1 NCCL_DEBUG=x ",
            "time ",
            "command ",
        )
        words = [self.random.choice(LAUNCHERS), *(self.word() for _ in range(self.random.randint(1, 6)))]
        joins = [self.pick(" ", " ", " \\\n" + "    " * (self.indent + 1)) for _ in words[1:]]
        text = prefix + words[0] + "".join(join + word for join, word in zip(joins, words[1:], strict=True))
        suffix = self.pick(
            "",
            "",
            "",
            "",
            "",
            " 2>&1 | tee log.txt",
            " > out.log 2>&1",
            " 2> err.log",
            "  # comment",
            " && echo done",
            " || exit 1",
            " >> out.log",
            ";",
            " &> all.log",
            " < /dev/null",
        )
        self.line(text + suffix)
        if suffix == " && echo done" and self.random.random() < 0.2:
            self.lines[-1] = self.lines[-1].replace(" && echo done", " &\n" + "    " * self.indent + "wait")

    def odd_launch(self) -> None:
        """Launches in other forms than a plain command."""
        text = self.reference().strip('"')
        indent = "    " * self.indent
        self.line(self.pick(
            f"deepspeed train.py \\\n{indent}    --a 1 \\\n{indent}    # --b 2 \\\n{indent}    --c 3",
            f"deepspeed train.py \\ \n{indent}echo --c 3",
            f"torchrun x.py \\\n\n{indent}: --c 3",
            f"nohup python train.py {self.word()} > nohup.out 2>&1 &\n{indent}wait",
            f"bash -c 'deepspeed \"$0\" $1' {self.plain()} b",
            f'bash -c "torchrun {text} --x"',
            f"env OMP_NUM_THREADS=4 python train.py {self.word()}",
            f"deepspeed train.py <<< {self.word()}",
            f'cat << EOF > cfg.json\n{{"a": {text}}}\nEOF\n{indent}deepspeed $(cat cfg.json | wc -l)',
            "deepspeed train.py --x \"$(cat << 'EOF'\nin here\nEOF\n)\"",
            f"python - << EOF\nprint({text})\nEOF",
            f'eval deepspeed "{text}" --n \\${self.random.choice(self.texts + self.numbers)}',
            f"D=3 E=$D\n{indent}deepspeed $D $E",
            f"deepspeed 2>&1 > log train.py {self.word()} >> log2",
            f"> out.txt deepspeed {self.word()}",
            f"if deepspeed {self.word()}; then\n{indent}    torchrun ok.py\n{indent}else\n{indent}    torchrun bad.py\n{indent}fi",
            "deepspeed a.py; torchrun b.py & wait",
            f"VAR={self.plain()} ; deepspeed $VAR${{VAR}}x \"$VAR\"'$VAR'",
            "P=train.py; P=${P%.py}_new.py; deepspeed $P ${P/new/old} ${P##*_}",
            f"set -- a 'b c' d\n{indent}deepspeed \"$@\" $# \"$2\" $*\n{indent}shift\n{indent}torchrun $1",
            f"printf -v PADDED '%03d' 7\n{indent}deepspeed run_$PADDED",
            'deepspeed ${UNDEFINED_A:-${UNDEFINED_B:-deep}} ${UNDEFINED_A:-"a b"}',
            f"LAST=$(for i in 1 2; do echo v$i; done)\n{indent}deepspeed $LAST",
            "deepspeed \"a\\\"b\" 'c'\\''d' \"\\$HOME\" \"back\\\\slash\"",
            f"[[ {self.plain()} = *a* ]] && M=1 || M=0; deepspeed $M",
            f'f_inline() {{ echo "got $1"; }}\n{indent}deepspeed $(f_inline {self.plain()}) "$(f_inline z)"',
            f"GLOBAL=one\n{indent}change() {{ GLOBAL=two; local INNER=x; deepspeed $INNER; }}\n{indent}change\n{indent}deepspeed $GLOBAL ${{INNER:-none}}",
            f"(GLOBAL2=sub; deepspeed $GLOBAL2)\n{indent}deepspeed ${{GLOBAL2:-unset}}",
            f"echo '{{\"stage\": 3}}' > ds.json\n{indent}deepspeed --config ds.json",
            f"declare -A MAP=([a]=1 [b]=2)\n{indent}deepspeed ${{MAP[a]}}",
            f"REF={self.random.choice(self.texts + self.numbers)}\n{indent}deepspeed ${{!REF}}",
        ))  # fmt: skip

    def quiet(self) -> None:
        """Statements that launch nothing."""
        self.line(self.pick(
            'echo "start $(date)"', "# a comment with 'quote", "", "mkdir -p logs/run", "pip install x", "cd .", "sleep 0", "echo a > f; cat f > /dev/null", ": noop",
            'printf "%s\\n" hi', "read X1 X2 <<< 'one two'\ndeepspeed $X1 --z $X2", 'cat > c.json << EOF\n{"a": 1}\nEOF', "unset NOTHING", "ulimit -c 0", "shopt -s nullglob", "alias ll='ls -l'",
            "IFS=, read -r P Q <<< 'a,b'\ntorchrun $P",
        ))  # fmt: skip
