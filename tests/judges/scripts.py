"""Generated shell scripts, with what real launch scripts hold: variables and arrays, conditions, loops, functions, here-documents, quoting."""

from __future__ import annotations

from collections.abc import Callable
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
LAUNCHERS = (
    "deepspeed",
    "torchrun",
    "accelerate launch",
    "python train.py",
    "python3 -m torch.distributed.run",
    "srun python",
    "deepspeed --num_gpus",
)


class Script:
    """Writes one script. What it knows are the variables that are set in every run up to the statement that is written."""

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

    def write(self) -> dict[str, str]:
        """The files of the script; it begins with `run.sh`."""
        if self.random.random() < 0.5:
            self.line("#!/bin/bash")
        if self.random.random() < 0.2:
            self.line("#SBATCH --nodes=2")
            self.line("#SBATCH --gpus-per-node=8  # comment")
        if self.random.random() < 0.3:
            self.line(self.pick("set -e", "set -x", "set -o pipefail", "trap 'echo bye' EXIT", "export NCCL_DEBUG=INFO"))
        self.assignment()
        self.assignment()
        self.block(self.random.randint(3, 9), depth=0)
        self.launch()
        return {"run.sh": "\n".join(self.lines) + "\n", **self.files}

    # ------------------------------------------------------------------ helpers

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def block(self, statements: int, depth: int) -> None:
        kinds: list[tuple[int, Callable[[int], None]]] = [
            (4, lambda _: self.assignment()),
            (4, lambda _: self.launch()),
            (3, self.condition),
            (2, self.loop),
            (2, self.listed),
            (1, self.case),
            (2 if depth == 0 else 0, self.function),
            (2, lambda _: self.call()),
            (1, lambda _: self.array()),
            (1, self.group),
            (1 if depth == 0 else 0, self.other_file),
            (1, lambda _: self.quiet()),
            (1, lambda _: self.pieces()),
            (1, lambda _: self.odd_launch()),
            (1, self.parsed),
        ]
        for _ in range(statements):
            if depth > 2:
                self.random.choice((self.launch, self.assignment))()
                continue
            self.random.choices([one for _, one in kinds], [weight for weight, _ in kinds])[0](depth + 1)

    def inner(self, statements: int, depth: int) -> None:
        """A block whose variables are not known after it."""
        known = list(self.texts), list(self.numbers), list(self.arrays)
        self.indent += 1
        begin = len(self.lines)
        self.block(statements, depth)
        if not any(line.strip() and not line.strip().startswith("#") for line in self.lines[begin:]):
            self.line(":")  # a block must hold a command
        self.indent -= 1
        self.texts, self.numbers, self.arrays = known

    # ------------------------------------------------------------------ words

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
        )

    def arithmetic(self) -> str:
        """An arithmetic expression, without the parentheses."""
        operand = lambda: self.pick(self.number(), *([self.random.choice(self.numbers)] if self.numbers else []), self.number())  # noqa: E731
        left, right = operand(), operand()
        return self.pick(
            f"{left} + {right}", f"{left} * {right}", f"({left} + 1) * {right}", f"{left} - {right}", f"{left} / 3", f"{left} % 4",
            f"{left} > {right} ? 1 : 2", f"2 ** 3 + {left}", f"-{left} + {right}", f"{left} << 1", f"!{left}", f"{left} == {right}",
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

    # ------------------------------------------------------------------ statements

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

    def parsed(self, depth: int) -> None:
        """A function that reads flags with getopts or a loop."""
        name = self.name("parse_")
        if self.random.random() < 0.5:
            self.line(
                f'{name}() {{\n    local OPTIND=1 opt\n    while getopts \'n:c:v\' opt; do\n        case $opt in\n            n) NODES=$OPTARG ;;\n            c) CONFIG="$OPTARG" ;;\n            v) VERBOSE=1 ;;\n        esac\n    done\n    shift $((OPTIND - 1))\n    deepspeed --num_nodes ${{NODES:-1}} ${{CONFIG:-none}} "$@"\n}}'
            )
        else:
            self.line(
                f'{name}() {{\n    while [[ $# -gt 0 ]]; do\n        key="$1"\n        case $key in\n            -n|--nodes) NODES="$2"; shift; shift ;;\n            --config=*) CONFIG="${{key#*=}}"; shift ;;\n            *) break ;;\n        esac\n    done\n    deepspeed --num_nodes ${{NODES:-1}} ${{CONFIG:-none}} "$@"\n}}'
            )
        self.line(f"{name} {self.pick('', '-n 2', '-n 3 rest', '-n 4 -c x.json a b', '--config=y.json', '--nodes 2 --config=z tail')}")

    def test(self) -> str:
        """A condition."""
        text, number = (
            (self.random.choice(self.texts) if self.texts else "N1"),
            (self.random.choice(self.numbers) if self.numbers else None),
        )
        unset = self.name("UNSET")
        tests = [
            f'[ "${text}" = "{self.plain()}" ]', f"[[ ${text} == {self.plain()[:2]}* ]]", f'[ -n "${text}" ]', f'[ -z "${text}" ]', f"[[ -n ${text} ]]",
            f'[ "${text}" != x ]', f"[[ ${text} =~ ^[a-z]+$ ]]", f'test -n "${text}"', f'! [ "${text}" = x1 ]', f'[[ ! -z "${text}" && "${text}" != a ]]', "true", "false",
            f'[ -z "${unset}" ]', f'[ -n "${{{unset}:-}}" ]', "[ -f missing.txt ]", "[ -d nothere ]", f"[[ -z ${unset} || ${text} == b ]]", f'[ "${text}" ]', f'[[ "${text}" > "b" ]]',
        ]  # fmt: skip
        if number:
            value = self.number()
            tests += [f"[ ${number} -gt {value} ]", f"[[ ${number} -le {value} ]]", f"(( {number} > {value} ))", f'[ "${number}" -eq {value} ]', f"(( {number} % 2 == 0 ))", f"[ ${number} -ge 1 -a ${number} -lt 9 ]"] * 2  # fmt: skip
        return self.random.choice(tests)

    def condition(self, depth: int) -> None:
        test = self.test()
        if self.random.random() < 0.2:
            test += self.pick(" && ", " || ") + self.test()
        self.line(f"if {test}; then")
        self.inner(self.random.randint(1, 2), depth)
        if self.random.random() < 0.3:
            self.line(f"elif {self.test()}; then")
            self.inner(1, depth)
        if self.random.random() < 0.5:
            self.line("else")
            self.inner(1, depth)
        self.line("fi")

    def listed(self, depth: int) -> None:
        """Lists with redirects, exits and defaults."""
        name = self.name("T")
        launch = f"deepspeed {self.word()} {self.word()}"
        form = self.pick(
            f'{self.test()} && echo "x" >&2 && exit 1',
            f"{self.test()} && {launch}",
            f"{self.test()} || {launch}",
            f"{self.test()} && {name}=yes || {name}=no",
            f"{self.test()} && {launch} || torchrun other.py",
            f'{self.test()} && {{ echo "bad" >&2; exit 2; }}',
            f"{launch} && torchrun next.py",
            f"mkdir -p out && {launch}",
            f"mkdir -p out || exit 1; {launch}",
            f"{{ {launch}; }} > log 2>&1",
            f"( {launch} ) 2>&1 | tee log",
            f"! {self.test()} && {launch}" if not self.inside else launch,
            f"{self.test()} && {self.test()} && {launch}",
            f"echo {self.word()} > file.txt && {launch}",
        )
        self.line(form)
        if f"{name}=yes" in form:
            self.texts.append(name)

    def group(self, depth: int) -> None:
        opening, closing = self.random.choice((("(", ")"), ("{", "}")))
        self.line(opening)
        self.inner(2, depth)
        self.line(closing)

    def loop(self, depth: int) -> None:
        name = self.name("I")
        items = self.pick(
            "1 2 3",
            "a b",
            "$(seq 1 3)",
            "{1..3}",
            '"x y" z',
            *([f'"${{{self.random.choice(self.arrays)}[@]}}"'] if self.arrays else []),
            self.reference(),
        )
        head = self.pick(
            f"for {name} in {items}; do", f"for {name} in {items}\ndo", f"for (({name} = 0; {name} < 3; {name}++)); do",
            f"{name}=0\nwhile [ ${name} -lt 2 ]; do", f"{name}=3\nuntil (( {name} == 0 )); do", f"while read -r {name}; do",
        ).replace("\n", "\n" + "    " * self.indent)  # fmt: skip
        self.line(head)
        self.texts.append(name)
        self.inside.append(name)
        if "while [" in head:
            self.line(f"    {name}=$(({name} + 1))")
        elif "until" in head:
            self.line(f"    (({name}--))")
        if self.random.random() < 0.15 and "for" in head:
            self.line(f'    [ "${name}" = {self.pick("2", "a", "b")} ] && {self.pick("continue", "break")}')
        self.inner(self.random.randint(1, 2), depth)
        self.inside.pop()
        self.texts.remove(name)
        self.line(
            "done" if "read" not in head else "done <<< 'one two'" if self.random.random() < 0.5 else "done << END\nline one\nsecond\nEND"
        )

    def case(self, depth: int) -> None:
        name = self.random.choice(self.texts + self.numbers)
        self.line(f"case {self.pick('', chr(34))}${name} in".replace('"$' + name, f'"${name}"'))
        for pattern in (self.pick("a*|b*)", "[0-9]*)", "alpha)", f"{self.plain()})"), "*)")[: self.random.randint(1, 2)]:
            self.line(f"    {pattern}")
            self.indent += 1
            self.inner(1, depth)
            self.line("    ;;")
            self.indent -= 1
        self.line("esac")

    def function(self, depth: int) -> None:
        name = self.name("launch_")
        self.line(self.pick(f"{name}() {{", f"function {name} {{", f"function {name}() {{"))
        self.inside.append(name)
        known = list(self.texts)
        self.line("    local first=$1")
        self.line(f"    local second=${{2:-{self.plain()}}}")
        self.texts += ["first", "second"]
        if self.random.random() < 0.3:
            self.line(
                '    while [ $# -gt 0 ]; do\n        case "$1" in\n            --gpus) GPUS="$2"; shift 2 ;;\n            *) REST="$1"; shift ;;\n        esac\n    done'
            )
            self.line('    deepspeed --num_gpus "${GPUS:-none}" "${REST:-nothing}"')
        if self.random.random() < 0.3:
            self.line("    [ $# -lt 2 ] && return 1")
        self.line(
            self.pick(
                '    deepspeed "$@"',
                "    torchrun $first --x $second",
                '    accelerate launch $# "$*"',
                "    python train.py ${@:2}",
                '    shift; deepspeed "$1" "$@"',
            )
        )
        self.inner(1, depth)
        self.inside.pop()
        self.texts = known
        self.line("}")
        self.functions.append(name)
        self.call()

    def call(self) -> None:
        if self.functions:
            words = " ".join(self.pick(self.word(), "--gpus 4") for _ in range(self.random.randint(0, 3)))
            self.line(f"{self.random.choice(self.functions)} {words}" + self.pick("", "", " || true", " 2>&1 | tee f.log"))

    def other_file(self, depth: int) -> None:
        """A script that this one writes or has beside it, and then runs or sources."""
        name = f"part{self.count}.sh"
        self.count += 1
        body = f'deepspeed inner.py "$1" {self.plain()} ${{2:-two}}\nFROM_{name[:-3]}=set_there'
        if self.random.random() < 0.5:
            self.files[name] = body + "\n"
        else:
            self.line(f"cat > {name} << 'EOF'\n{body}\nEOF")
        self.line(
            self.pick(
                f"bash {name} {self.word()}",
                f"source ./{name}\n{'    ' * self.indent}deepspeed $FROM_{name[:-3]}",
                f". {name}",
                f"bash ./{name} a b",
                f"sh {name} z",
            )
        )

    def quiet(self) -> None:
        """Statements that launch nothing."""
        self.line(self.pick(
            'echo "start $(date)"', "# a comment with 'quote", "", "mkdir -p logs/run", "pip install x", "cd .", "sleep 0", "echo a > f; cat f > /dev/null", ": noop",
            'printf "%s\\n" hi', "read X1 X2 <<< 'one two'\ndeepspeed $X1 --z $X2", 'cat > c.json << EOF\n{"a": 1}\nEOF', "unset NOTHING", "ulimit -c 0", "shopt -s nullglob", "alias ll='ls -l'",
            "IFS=, read -r P Q <<< 'a,b'\ntorchrun $P",
        ))  # fmt: skip


def script(seed: int) -> dict[str, str]:
    """The files of the script of a seed."""
    return Script(Random(seed)).write()
