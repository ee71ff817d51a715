"""The blocks of generated scripts: conditions, lists, loops, functions, other files."""

from __future__ import annotations

from collections.abc import Callable

from tests.judges.scripts.commands import Commands


class Script(Commands):
    """Writes one script."""

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
        end = self.pick(*["\n"] * 12, "", " \\\n", " \\") if self.lines[-1].count("#") == 0 else "\n"
        return {"run.sh": "\n".join(self.lines) + end, **self.files}

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
