"""Shell scripts: what is static in them is evaluated, and nothing is executed."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.config.context import Context
from dslint.facts import Integration
from dslint.not_judged import Why
from dslint.setups.script import read_shell
from dslint.source.tree import plain
from dslint.source.unknown import UNKNOWN
from tests.setup.folder import Folder

CONFIG = '{"train_batch_size": 8, "zero_optimization": {"stage": 2}}'
LAUNCH = "deepspeed train.py --deepspeed_config"


def configs(folder: Folder, text: str, name: str = "run.sh", **environment: str) -> list[tuple[str | None, Any]]:
    """The config of each launch in a script: the file it is in, and its data."""
    folder.write({"ds.json": CONFIG, "conf/ds.json": CONFIG, name: text})
    found = read_shell(text, name, name, Context(environment=environment), named=True, make=name == "Makefile")
    assert found is not None
    return [(one.setup.config, plain(one.config.root)) for one in found.setups if one.config is not None and one.config.root is not None]


def reasons(folder: Folder, text: str) -> list[str]:
    folder.write({"run.sh": text})
    return [one.reason for one in folder.results("run.sh")["run.sh"].not_judged]


@pytest.mark.parametrize(
    "text",
    [
        f"C=ds.json\n{LAUNCH} $C\n",
        "python -u -m deepspeed.launcher.launch --world_info=$W --master_port 1 -- train.py --deepspeed --deepspeed_config ds.json\n",
        "torchrun --nproc_per_node 2 -- train.py --deepspeed --deepspeed_config ds.json\n",
        "deepspeed train.py --prompt '<image> a' --deepspeed_config ds.json\n",
        'deepspeed train.py --start "<s>" --end ">" --deepspeed_config ds.json > log 2>&1\n',
        f"{LAUNCH} ${{C:-ds.json}}\n",
        f"D=ds\n{LAUNCH} ${{D}}.json\n",
        f"C=ds.json.bak\n{LAUNCH} ${{C%.bak}}\n",
        f"C=old.json\n{LAUNCH} ${{C/old/ds}}\n",
        'ARGS=(--deepspeed_config ds.json)\nARGS+=(--x "a b")\ndeepspeed train.py "${ARGS[@]}"\n',
        'O=""\nO+=" --deepspeed_config"\nO+=" ds.json"\nCMD="deepspeed train.py $O $@"\neval $CMD\n',
        f'CMD="{LAUNCH} ds.json"\n$CMD\n',
        f'bash -c "{LAUNCH} ds.json"\n',
        f'bash -euo pipefail -c "{LAUNCH} ds.json"\n',
        f"srun bash -c '{LAUNCH} ds.json'\n",
        f"sbatch --wrap='{LAUNCH} ds.json'\n",
        f"ssh worker-1 'cd /data && {LAUNCH} ds.json'\n",
        "mpirun -n 4 python train.py --deepspeed --deepspeed_config ds.json\n",
        f'{LAUNCH} "$(dirname "$0")/ds.json"\n',
        f"{LAUNCH} `pwd`/ds.json\n",
        f"{LAUNCH} $PWD/ds.json\n",
        f"run() {{ {LAUNCH} $1; }}\nrun ds.json\n",
        f"for c in ds.json; do {LAUNCH} $c; done\n",
        f'if [ "$1" == "" ]; then C=ds.json; else C=$1; fi\n{LAUNCH} $C\n',
        f"C=ds.json\nwhile [[ $# -gt 0 ]]; do case $1 in -c) C=$2; shift;; esac; shift; done\n{LAUNCH} $C\n",
        f'[ -z "$TOKEN" ] && echo missing && exit 1\n{LAUNCH} ds.json\n',
        f"if [ -z $1 ]; then echo usage; exit 1; fi\n{LAUNCH} ds.json | tee log\n",
        f"(cd /tmp; true)\n{LAUNCH} ds.json 2>&1 > log &\n",
        f"DATA=<path to the data>\n{LAUNCH} ds.json\n",
        f"python serve.py --port <node1_port>\n\n# Then the training:\nGPUS=8 \\\n{LAUNCH} ds.json\n",
        f"python serve.py --hosts <node1_ip> <node2_ip> \\\n  --port <port>\n{LAUNCH} ds.json\n",
        f"python sort.py <names.txt >sorted.txt\n{LAUNCH} ds.json <yes.txt >log\n",
        f"python submit.py --gpus 8 -- {LAUNCH} ds.json\n",
        f'M=""\nwhile [[ $# -gt 0 ]]; do case $1 in -m) M=$2; shift;; esac; shift; done\nif [[ -z "$M" ]]; then exit 1; fi\n{LAUNCH} ds.json\n',
        f"while getopts m: o; do M=$OPTARG; done\n[ -z $M ] && exit 1\n{LAUNCH} ds.json\n",
        f'X=""\nfor a in "$@"; do X=$a; done\nif [ "$X" = "" ]; then {LAUNCH} ds.json; fi\n',
        f"if [ $# -lt 2 ]; then echo usage; exit 1; fi\n{LAUNCH} ds.json\n",
        f"(( $# < 1 )) && exit 1\n{LAUNCH} ds.json\n",
        "read -r -d '' ALL <<EOF\ntrain.py --deepspeed_config \\\n  ds.json\nEOF\ndeepspeed $ALL\n",
        'read -ra ALL <<< "--deepspeed_config ds.json"\ndeepspeed train.py "${ALL[@]}"\n',
        'D="${D:-$(command -v deepspeed)}"\nC=("$D" train.py --deepspeed_config ds.json)\n"${C[@]}"\n',
        f'if [ "$1" == "one" ]; then {LAUNCH} ds.json; elif [ "$1" == "two" ]; then python eval.py; fi\n',
        f'if [[ $2 == "1" ]]; then C="{LAUNCH} ds.json"; else C="python train.py"; fi\n$C --more\n',
        f"f() {{ echo $(($1 + $2)); }}\nif [ $(f 1 2) -eq 3 ]; then {LAUNCH} ds.json; fi\n",
        'A=(--num_gpus 2 train.py)\nC="deepspeed ${A[@]} --deepspeed_config ds.json"\n$C\n',
        'P=train.py\nC=" \\\n  $P \\\n  --deepspeed_config ds.json"\ndeepspeed $C\n',
        f"cat > job.sbatch <<EOF\n{LAUNCH} ds.json\nEOF\nsbatch --nodes=2 job.sbatch\n",
        f'while :; do case "$1" in -m) M=$2; shift 2;; --) break;; *) exit 1;; esac; done\n{LAUNCH} ds.json\n',
        f"while :; do P=$(shuf -i 1-9); nc -z localhost $P || break; done\n{LAUNCH} ds.json\n",
        f"while true; do P=$(shuf -i 1-9); if ! nc -z localhost $P; then break; fi; done\n{LAUNCH} ds.json\n",
        f"for ((;;)); do P=$(shuf -i 1-9); nc -z localhost $P || break; done\n{LAUNCH} ds.json\n",
        f'while :; do I=$((I + 1)); [ "$(qstat)" = done ] && break; if [ $I -gt 3 ]; then exit 1; fi; done\n{LAUNCH} ds.json\n',
        f"for c in no.json ds.json gone.json; do [ $c = no.json ] && continue; {LAUNCH} $c; break; done\n",
        f"if [[ $SKIP -eq 1 ]]; then C=gone.json; else C=ds.json; fi\n{LAUNCH} $C\n",
        "mpirun -n 4 uv run train.py --use_deepspeed --deepspeed_config_file ds.json\n",
        f"python submit.py --gpus 8 -- source env.sh \\&\\& {LAUNCH} ds.json\n",
        f"$(which deepspeed) {LAUNCH.partition(' ')[2]} ds.json\n",
        f"echo '{LAUNCH} ds.json' > job.sh\nssh worker-1 \"tmux new-session -d 'bash job.sh'\"\n",
    ],
)
def test_what_is_static_is_followed(folder: Folder, text: str) -> None:
    assert [name for name, _ in configs(folder, text)] == ["ds.json"]


@pytest.mark.parametrize(
    "text",
    [
        f"{LAUNCH} $C\n",
        f"{LAUNCH} $(pick)\n",
        f"C=ds.json\nwhile read line; do C=$line; done\n{LAUNCH} $C\n",
        f"C=ds.json\nif nvidia-smi; then C=other.json; fi\n{LAUNCH} $C\n",
        f"C=ds.json\nread C\n{LAUNCH} $C\n",
        f"C=ds.json\nwhile :; do test -f $HOME/x && break; C=other.json; done\n{LAUNCH} $C\n",
    ],
)
def test_unknown_stays_unknown(folder: Folder, text: str) -> None:
    assert configs(folder, text) == []
    assert len(reasons(folder, text)) == 1


def test_an_environment_that_is_given(folder: Folder) -> None:
    assert [name for name, _ in configs(folder, f"{LAUNCH} $C\n", C="ds.json")] == ["ds.json"]


def test_an_argument_that_is_given_by_number(folder: Folder) -> None:
    text = f"C=$2\n{LAUNCH} conf/$C.json\n"
    assert configs(folder, text) == []
    assert "--env 2=VALUE" in reasons(folder, text)[0]
    folder.write({"conf/ds.json": CONFIG})
    found = read_shell(text, "run.sh", "run.sh", Context(environment={"2": "ds"}), named=True)
    assert found is not None
    assert [one.setup.config for one in found.setups] == ["conf/ds.json"]


def test_an_argument_that_only_a_loop_sets_is_unknown_in_a_name_and_empty_alone(folder: Folder) -> None:
    loop = 'C=""\nMORE=""\nwhile [ $# -gt 0 ]; do C=$1; MORE="--x $1"; shift; done\n'
    folder.write({"conf/.json": CONFIG})
    assert configs(folder, loop + f"{LAUNCH} conf/$C.json\n") == []
    assert "--env C=VALUE" in reasons(folder, loop + f'ALL="conf/$C.json $MORE"\n{LAUNCH} $ALL\n')[0]
    assert [name for name, _ in configs(folder, loop + f"{LAUNCH} $MORE ds.json\n")] == ["ds.json"]


def test_cd_and_source(folder: Folder) -> None:
    folder.write({"env.sh": "C=conf/ds.json\n"})
    assert configs(folder, f"source env.sh\n{LAUNCH} $C\n")[0][0] == "conf/ds.json"
    assert configs(folder, f"cd conf\n{LAUNCH} ds.json\n")[0][0] == "conf/ds.json"


def test_a_here_document_is_judged_in_the_script(folder: Folder) -> None:
    text = f"""STAGE=3
cat <<EOF > new.json
{{
  "train_batch_size": $BATCH,
  "zero_optimization": {{"stage": $STAGE}},
  "fp16": {{"enabled": true}}, "bf16": {{"enabled": true}}
}}
EOF
{LAUNCH}=new.json
"""
    ((name, data),) = configs(folder, text)
    assert name == "run.sh"
    assert data["zero_optimization"] == {"stage": 3}
    assert data["train_batch_size"] is UNKNOWN
    assert [d.fix for d in folder.diagnostics("run.sh") if d.path == "run.sh" and d.fix] == []
    lines = {line for code, path, line in folder.found("run.sh") if path == "run.sh" and code.startswith("DS3")}
    assert lines == {6}


def test_sed_fills_in_a_template(folder: Folder) -> None:
    folder.write({"template.json": '{"train_batch_size": BATCH, "zero_optimization": {"stage": STAGE}}'})
    text = f'B=16\nsed "s/BATCH/$B/" template.json | sed "s/STAGE/1/" > made.json\n{LAUNCH} made.json\n'
    assert configs(folder, text) == [("template.json", {"train_batch_size": 16, "zero_optimization": {"stage": 1}})]


def test_a_template_is_judged_as_the_scripts_fill_it_in(folder: Folder) -> None:
    folder.write({"ds_template.json": '{\n  "train_batch_size": MY_BATCH,\n  "zero_optimization": {\n    "stage": ZERO_STAGE\n  }\n}\n'})
    whole = f'sed "s/MY_BATCH/8/" ds_template.json | sed "s/ZERO_STAGE/1/" > made.json\n{LAUNCH} made.json\n'
    folder.write({"whole.sh": whole, "part.sh": whole.replace("ZERO_STAGE", "OTHER")})
    assert folder.results("ds_template.json")["ds_template.json"].kind == "template"
    result = folder.results("ds_template.json", "whole.sh", "part.sh")["ds_template.json"]
    assert (result.kind, result.note, result.not_judged) == ("ds_config", None, ())
    (wrong,) = (one for one in result.diagnostics if one.code == "DS104")
    assert [(one.path, one.range and one.range.start.line) for one in wrong.related] == [("part.sh", 2)]


def test_a_template_that_another_script_passes_on_is_checked_where_one_fills_it_in(folder: Folder) -> None:
    bad = '{"train_batch_size": MY_BATCH, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 7}'
    fills = f'sed "s/MY_BATCH/8/" ds_template.json > made.json\n{LAUNCH} made.json\n'
    folder.write({"ds_template.json": bad, "a.sh": f"{LAUNCH} ds_template.json\n", "z.sh": fills})
    result = folder.results("ds_template.json", "a.sh", "z.sh")["ds_template.json"]
    assert (result.kind, [one.code for one in result.diagnostics]) == ("ds_config", ["DS202"])


def test_flags_of_deepspeed_chat(folder: Folder) -> None:
    text = "ZERO_STAGE=$1\nif [ -z $ZERO_STAGE ]; then\n    ZERO_STAGE=3\nfi\ndeepspeed main.py --zero_stage $ZERO_STAGE --offload --deepspeed{}\n"
    ((name, data),) = configs(folder, text.format(" --data_split 2,4,4"))
    assert name == "run.sh"
    zero = data["zero_optimization"]
    assert (zero["stage"], zero["offload_optimizer"], zero["offload_param"]) == (3, {"device": "cpu"}, {"device": "cpu"})
    assert data["train_micro_batch_size_per_gpu"] is UNKNOWN
    assert [code for code, *_ in folder.found("run.sh") if code == "DS204"] == []
    ((_, other),) = configs(folder, text.format(""))  # a program that may build another config from these flags
    assert other["zero_optimization"] == {"stage": 3}


def test_a_program_gets_the_flags(folder: Folder) -> None:
    program = """import argparse, deepspeed
parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, default=1)
args = parser.parse_args()
deepspeed.initialize(model=None, config={"train_batch_size": 8, "zero_optimization": {"stage": args.stage}})
"""
    folder.write({"train.py": program})
    ((name, data),) = configs(folder, "deepspeed train.py --stage 3\n")
    assert name == "train.py"
    assert data["zero_optimization"] == {"stage": 3}


def test_accelerate_launch_without_a_file(folder: Folder) -> None:
    text = "accelerate launch --use_deepspeed --zero_stage 3 --offload_param_device cpu --mixed_precision bf16 train.py\n"
    ((_, data),) = configs(folder, text)
    assert data["zero_optimization"] == {"stage": 3, "offload_param": {"device": "cpu"}}
    assert "DS915" not in [code for code, *_ in folder.found("run.sh")]


def test_a_makefile(folder: Folder) -> None:
    text = f"CONFIG ?= ds.json\ntrain: data\n\t@for c in $(CONFIG); do \\\n\t  {LAUNCH} $$c; \\\n\tdone\n"
    assert [name for name, _ in configs(folder, text, "Makefile")] == ["ds.json"]


def test_nothing_is_executed(folder: Folder) -> None:
    text = f"touch gone\necho x > gone\n$(touch gone)\n`touch gone`\neval 'touch gone'\nbash -c 'touch gone'\nX=$(<(touch gone))\n{LAUNCH} ds.json\n"
    assert [name for name, _ in configs(folder, text)] == ["ds.json"]
    assert not (folder.path / "gone").exists()


@pytest.mark.parametrize(
    "text",
    [
        "X=xxxxxxxxxx\n" + "X=$X$X\n" * 40 + f"{LAUNCH} ds.json\n",
        f"f() {{ f; f; }}\nf\n{LAUNCH} ds.json\n",
        f"for a in {{1..9}}; do for b in $a; do while true; do :; done; done; done\n{LAUNCH} ds.json\n",
        "eval " * 500 + "x\n",
        "if [ x; then\n((((\n${{{\n",
    ],
)
def test_hostile_scripts_end(folder: Folder, text: str) -> None:
    configs(folder, text)


def test_without_tree_sitter_a_script_says_that_it_is_not_read(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from dslint.evaluate.shell import syntax

    syntax._parser.cache_clear()
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    try:
        (reason,) = reasons(folder, f"{LAUNCH} ds.json\n")
    finally:
        syntax._parser.cache_clear()
    assert "tree-sitter" in reason


def test_xtuner_fills_auto_and_passes_its_optimizer(folder: Folder) -> None:
    config = (
        '{"gradient_accumulation_steps": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto",\n'
        '"fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}\n'
    )
    folder.write({"run.sh": "NPROC_PER_NODE=8 xtuner train base.py --deepspeed ds.json\n", "ds.json": config})
    result = folder.results("run.sh")["ds.json"]
    assert (result.facts.integration, result.facts.world_size) == (Integration.DEEPSPEED, 8)
    assert [d.code for d in result.diagnostics] == ["DS993", "DS525"]
    folder.write({"run.sh": "xtuner train base.py --deepspeed deepspeed_zero3\n"})
    results = folder.results("run.sh")
    assert not results["run.sh"].not_judged
    assert [d.code for d in results["<deepspeed_zero3 of xtuner>"].diagnostics] == ["DS993"]
    folder.write({"run.sh": "xtuner convert pth_to_hf base.py --deepspeed ds.json\n"})
    assert folder.results("run.sh", named=False) == {}


ACCELERATE = """cat > acc.yaml <<EOF
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: $N
deepspeed_config:
  {block}
EOF
accelerate launch --config_file acc.yaml train.py
"""


def test_an_accelerate_file_that_the_script_writes(folder: Folder) -> None:
    folder.write({"run.sh": ACCELERATE.format(block="zero_stage: 7\n  zero_stge: 3")})
    assert sorted(folder.found("run.sh")) == [("DS107", "run.sh", 7), ("DS915", "run.sh", 8)]
    both = 'cat > /tmp/ds.json <<EOF\n{"zero_optimization": {"stage": 9}}\nEOF\n' + ACCELERATE
    folder.write({"run.sh": both.replace("{block}", "deepspeed_config_file: /tmp/ds.json")})
    assert ("DS107", "run.sh", 2) in folder.found("run.sh")


def test_a_backslash_that_joins_nothing_hides_no_command(folder: Folder) -> None:
    """The grammar takes it for an error, and then gave up the substitution above and all that follows."""
    port = "PORT=`comm -23 <(seq 5000 6000 | sort) <(ss -Htan | awk '{print $4}' | cut -d':' -f2 | sort -u) | shuf | head -n 1`"
    script = f"export {port}\ndeepspeed train.py --deepspeed missing.json \\\n --bf16 True \\\n"
    folder.write({"run.sh": script})
    assert "DS919" in [code for code, *_ in folder.found("run.sh")]


@pytest.mark.parametrize(("flags", "codes"), [("", []), ("-r ", ["DS919"])])
def test_read_joins_lines_only_without_its_flag_r(folder: Folder, flags: str, codes: list[str]) -> None:
    folder.write({"ds.json": CONFIG, "train.py": ""})
    folder.write({"run.sh": f"read {flags}-d '' ARGS <<'EOF'\n--deepspeed \\\nds.json\nEOF\ndeepspeed train.py $ARGS\n"})
    assert [code for code, *_ in folder.found("run.sh") if code != "DS978"] == codes


PARSER = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--out")
parser.add_argument("--local_rank")
parser.add_argument("--deepspeed")
parser.parse_args()
"""
KALDI = r"""
while true; do
  case "$1" in
    --*) name=$(echo "$1" | sed s/^--//); eval $name=\"$2\"; shift 2 ;;
    *) break ;;
  esac
done
"""


@pytest.mark.parametrize(
    ("before", "codes"),
    [
        ("", ["DS973"]),
        ("while [[ $# -gt 0 ]]; do case $1 in --out) OUT=$2; shift ;; esac; shift; done", []),
        (KALDI, []),
        ("source options.sh", []),
        (". tools/parse_options.sh || exit 1", []),
    ],
)
def test_an_empty_variable_that_something_else_sets_is_the_value_of_a_flag(folder: Folder, before: str, codes: list[str]) -> None:
    folder.write({"ds.json": CONFIG, "train.py": PARSER, "options.sh": KALDI})
    folder.write({"run.sh": f"OUT=\n{before}\ndeepspeed train.py --out $OUT --deepspeed ds.json\n"})
    assert [code for code, *_ in folder.found("run.sh")] == codes


@pytest.mark.parametrize("redirect", ["> log 2>&1", "2> errors.txt", "&> log", ">> log"])
def test_arguments_behind_a_redirection(folder: Folder, redirect: str) -> None:
    folder.write({"ds.json": '{"train_batch_size": "8"}', "run.sh": f"deepspeed train.py {redirect} --deepspeed_config ds.json --seed 1\n"})
    assert ("DS104", "ds.json", 1) in folder.found("run.sh")


def test_statements_in_thousands_of_others_are_not_judged(folder: Folder) -> None:
    depth = 3000
    folder.write({"run.sh": "if true; then\n" * depth + "deepspeed train.py --deepspeed_config ds.json\n" + "fi\n" * depth})
    (reason,) = folder.results("run.sh")["run.sh"].not_judged
    assert "nesting" in reason.reason
    assert reason.range is not None


def test_a_loop_that_is_not_followed_to_its_end_is_named(folder: Folder) -> None:
    run = "deepspeed train.py --deepspeed_config ds.json"
    folder.write({"ds.json": '{"train_batch_size": 8}', "run.sh": f"cd .\nfor ((i = 0; i < 100; i++)); do\n  {run}\ndone\n{run}\n"})
    (reason,) = (one for one in folder.results("run.sh")["run.sh"].not_judged if one.why is Why.TOO_LONG_SCRIPT)
    assert "line 2" in reason.reason
    assert reason.range is not None
    assert reason.range.start.line == 2


CONTINUED = "deepspeed train.py \\\n  --lr 1e-5 \\{}\n  --deepspeed_config ds.json\n"


@pytest.mark.parametrize(("between", "what"), [("\n  # --fp16 \\", "a comment line"), (" ", "a blank"), ("\n", "an empty line")])
def test_arguments_that_bash_does_not_pass(folder: Folder, between: str, what: str) -> None:
    (reason,) = reasons(folder, CONTINUED.format(between))
    assert what in reason
    assert "--deepspeed_config in run.sh" in reason


@pytest.mark.parametrize("start", ["swift sft --model Qwen/Qwen2.5-0.5B", "torchrun --nproc_per_node 4 train.py", "python train.py"])
def test_a_launch_whose_config_bash_does_not_pass(folder: Folder, start: str) -> None:
    """The rest is no command, and no launch by a word in it."""
    folder.write({"run.sh": f"{start} \\\n  # --lr 1e-5 \\\n  --model_author swift \\\n  --deepspeed zero3\n"})
    (found,) = folder.diagnostics("run.sh")
    assert (found.code, found.range.start.line if found.range else 0) == ("DS978", 2)
    assert found.message.endswith(
        "bash starts the training without --model_author and what follows it. This loses the DeepSpeed config, too."
    )


@pytest.mark.parametrize(("start", "found"), [("!", False), ("%%bash\n", True)])
def test_a_cell_of_a_notebook_that_python_refuses(folder: Folder, *, start: str, found: bool) -> None:
    """Behind `!` the lines that are left over are Python, and nothing of the cell runs. bash runs what a cell for it has."""
    cell = f"{start}deepspeed train.py \\\n  --deepspeed_config ds.json\n  --lr 1e-5\n"
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": cell}
    notebook = {"cells": [code], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    folder.write({"ds.json": CONFIG, "train.ipynb": json.dumps(notebook)})
    assert ("DS978" in [one.code for one in folder.diagnostics("train.ipynb")]) is found


def test_a_launch_whose_config_stands_behind_a_blank(folder: Folder) -> None:
    folder.write({"run.sh": "torchrun train.py \\ \n  --lr 1e-5 --deepspeed ds.json\n"})
    (found,) = folder.diagnostics("run.sh")
    assert "This loses the DeepSpeed config, too." in found.message


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("deepspeed train.py --deepspeed_config ds.json # the config \\\n  --lr 1e-5\n", "A comment line ends the command before --lr"),
        ("deepspeed train.py \\\n  # the config\n  ds.json --deepspeed_config ds.json\n", "ends the command before ds.json"),
        ("torchrun train.py \\\n  # x\n  --deepspeed-config ds.json\n", "This loses the DeepSpeed config, too."),
    ],
)
def test_more_that_bash_does_not_pass(folder: Folder, text: str, lost: str) -> None:
    folder.write({"run.sh": text, "ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0}'})
    assert any(lost in one.message for one in folder.diagnostics("run.sh") if one.code == "DS978")


@pytest.mark.parametrize(
    ("line", "program", "found"),
    [
        ("export CUDA_VISIBLE_DEVICE=0,1", "", True),
        ("export CUDA__VISIBLE_DEVICES=0,1", "", True),
        ("CUDA_VISIBLE_DEVICE=0,1", "", False),  # no variable of the program
        ("export CUDA_VISIBLE_DEVICE=0,1 CUDA_VISIBLE_DEVICES=0,1", "", False),
        ("export CUDA_VISIBLE_DEVICE=0\necho ${CUDA_VISIBLE_DEVICE}", "", False),
        ("export CUDA_DEVICE_MAX_CONNECTIONS=1 CUDA_DEVICE_ORDER=PCI_BUS_ID", "", False),
        ("export CUDA_VISIBLE_DEVICE=0", "import os, deepspeed\nos.environ['CUDA_VISIBLE_DEVICE']\ndeepspeed.initialize(model=m)\n", False),
    ],
)
def test_a_variable_that_misspells_the_one_for_the_gpus(folder: Folder, line: str, program: str, found: bool) -> None:
    folder.write(
        {
            "run.sh": f"{line}\ndeepspeed train.py --deepspeed_config ds.json\n",
            "ds.json": CONFIG,
            "train.py": program or "import deepspeed\n",
        }
    )
    assert ("DS942" in {one.code for one in folder.diagnostics("run.sh")}) is found


def test_a_mismatch_that_follows_from_a_lost_flag(folder: Folder) -> None:
    """The config and the script say bf16, and only the missing backslash makes them differ."""
    flags = "--output_dir o --per_device_train_batch_size 2 --do_train"
    folder.write({"ds.json": '{"train_batch_size": "auto", "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'})
    folder.write({"run.sh": f"deepspeed --num_gpus 4 train.py --deepspeed ds.json {flags} \\\n  --learning_rate 1e-4\n  --bf16\n"})
    (found,) = (one for one in folder.diagnostics("run.sh") if one.code == "DS904")
    assert "because bash does not pass --bf16)" in found.message
    assert (found.help, found.fix) == ("Repair the command first (DS978).", None)


def test_a_mismatch_with_several_launches_is_one_finding(folder: Folder) -> None:
    """One value of the config is to blame, and one fix repairs all launches."""
    config = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
    launch = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir o --do_train --per_device_train_batch_size"
    folder.write({"ds.json": config, **{f"run{size}.sh": f"{launch} {size}\n" for size in (1, 2, 4)}})
    said = json.loads(CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).stdout)["diagnostics"]
    (found,) = (one for one in said if one["code"] == "DS904")
    assert {one["path"] for one in found["related"]} == {"run1.sh", "run2.sh"}


def test_a_command_behind_a_blank_is_one_of_its_own(folder: Folder) -> None:
    config = '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0}'
    folder.write({"run.sh": "deepspeed train.py --lr 1 \\ \ndeepspeed eval.py --deepspeed_config ds.json\n", "ds.json": config})
    results = folder.results("run.sh")
    assert "ds.json" in results
    assert [one.code for one in results["run.sh"].diagnostics] == []


def test_a_program_that_a_launcher_loses_is_not_launched(folder: Folder) -> None:
    folder.write({"run.sh": "deepspeed --num_gpus 2 \\ \n  src/train.py --deepspeed ds.json\n", "ds.json": "{}"})
    results = folder.results("run.sh")
    assert results["run.sh"].note == "deepspeed launches no program on 2 ranks."
    assert "ds.json" not in results


def test_arguments_that_a_launch_without_deepspeed_loses(folder: Folder) -> None:
    assert reasons(folder, "torchrun train.py \\\n  # --lr 1e-5 \\\n  --epochs 3\n") == [
        "no command in this file launches a DeepSpeed training; not checked."
    ]


MISSING = "deepspeed train.py \\\n  --lr 1e-5\n  --deepspeed_config ds.json\n"


def test_a_line_of_flags_without_a_backslash_before_it(folder: Folder) -> None:
    (reason,) = reasons(folder, MISSING)
    assert "a missing backslash ends the command before --deepspeed_config in run.sh" in reason


@pytest.mark.parametrize(
    "script",
    [
        "deepspeed train.py \\\n  --lr 1e-5\necho --deepspeed_config\n",
        'args=(\n  --lr 1e-5 \\\n  --epochs 1\n  --fp16\n)\ndeepspeed train.py \\\n  "${args[@]}"\n',
        "case $1 in\n  --one)\n    deepspeed train.py \\\n      --lr 1e-5\n  ;;\n  --two) true ;;\nesac\n",
        "args='--lr 1e-5 \\\n  --epochs 1\n  --fp16'\ndeepspeed train.py $args\n",
    ],
)
def test_lines_that_bash_does_pass(folder: Folder, script: str) -> None:
    assert not [reason for reason in reasons(folder, script) if "backslash" in reason]


@pytest.mark.parametrize("words", ["trainer=deepspeed_stage_2", "--strategy deepspeed_stage_2_offload", "fit --trainer.strategy=deepspeed"])
def test_a_strategy_of_lightning_in_a_command_is_a_launch_of_deepspeed(folder: Folder, words: str) -> None:
    (reason,) = reasons(folder, f"python train.py {words}\n")
    assert "uses DeepSpeed, names no config" in reason


@pytest.mark.parametrize(
    ("import_", "said"), [("import hydra\n@hydra.main()\n", "takes its config from --config-name big"), ("", "names no config")]
)
def test_a_launch_whose_config_hydra_reads(folder: Folder, import_: str, said: str) -> None:
    program = f"import deepspeed\n{import_}def main(cfg):\n    deepspeed.init_distributed()\nmain()\n"
    folder.write({"train.py": program, "run.sh": "deepspeed --num_gpus 4 train.py --config-name=big\n"})
    (left,) = folder.results("run.sh")["run.sh"].not_judged
    assert said in left.reason


@pytest.mark.parametrize(("start", "found"), [("", ["DS988"]), ("srun ", [])])
def test_a_job_whose_other_script_starts_the_tasks(folder: Folder, start: str, found: list[str]) -> None:
    folder.write(
        {
            "job.sh": "#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\nbash launch.sh\n",
            "launch.sh": f"{start}torchrun --nnodes 4 --nproc_per_node 8 train.py --deepspeed ds.json\n",
            "ds.json": "{}",
        }
    )
    assert [code for code, _, _ in folder.found("job.sh") if code == "DS988"] == found


_TRAINS = "train.py --deepspeed ds.json --output_dir out"


@pytest.mark.parametrize(
    "command",
    [
        "uv add deepspeed torch",
        "uv pip install deepspeed torch",
        "sudo pip3 install -U deepspeed torch",
        "poetry add deepspeed torch",
        "micromamba install -y deepspeed torch",
        "docker build -t deepspeed folder",
        "grep -r deepspeed src",
        "du -sh deepspeed out",
    ],
)
def test_a_command_that_only_names_the_launcher(folder: Folder, command: str) -> None:
    folder.write({"run.sh": f"{command}\ntorchrun --nproc_per_node 2 {_TRAINS}\n", "ds.json": "{}", "train.py": "import transformers\n"})
    result = folder.results("run.sh")["run.sh"]
    assert not result.not_judged
    assert result.note is not None
    assert "deepspeed launches" not in result.note


@pytest.mark.parametrize("before", ["uv run --extra deepspeed", "srun --job-name deepspeed", "docker run --name deepspeed image"])
def test_a_name_before_the_launch_is_no_launcher(folder: Folder, before: str) -> None:
    folder.write(
        {
            "run.sh": f"{before} torchrun --nproc_per_node 2 {_TRAINS}\n",
            "ds.json": '{"train_batch_size": 8}',
            "train.py": "import transformers\n",
        }
    )
    note = folder.results("run.sh")["run.sh"].note
    assert note is not None
    assert note.startswith("torchrun launches train.py on 2 ranks")


@pytest.mark.parametrize("before", ["uv run", "uv run --extra deepspeed", "sudo -E", "poetry run", "mamba run -n deepspeed", "uv tool run"])
def test_the_launcher_behind_another_command(folder: Folder, before: str) -> None:
    folder.write(
        {
            "run.sh": f"{before} deepspeed --num_gpus 2 {_TRAINS}\n",
            "ds.json": '{"train_batch_size": 8}',
            "train.py": "import transformers\n",
        }
    )
    note = folder.results("run.sh")["run.sh"].note
    assert note is not None
    assert note.startswith("deepspeed launches train.py on 2 ranks")


@pytest.mark.parametrize(
    "prefix",
    [
        "conda run -n ds",
        "CUDA_VISIBLE_DEVICES=0,1 conda run --no-capture-output --name deepspeed",
        "conda run --live-stream -p ./env bash -c '",
    ],
)
def test_a_launch_in_an_environment_of_conda(folder: Folder, prefix: str) -> None:
    """The name of the environment may be that of a launcher."""
    quote = "'" if prefix.endswith("'") else ""
    launch = f"{prefix.removesuffix(quote)} {quote}torchrun --nproc_per_node 2 {_TRAINS}{quote}\n"
    folder.write({"run.sh": launch, "ds.json": '{"train_batch_size": 8}', "train.py": "import transformers\n"})
    note = folder.results("run.sh")["run.sh"].note
    assert note is not None
    assert note.startswith("torchrun launches train.py on 2 ranks")


@pytest.mark.parametrize(
    "script",
    [
        f"${{launcher}} {_TRAINS}\n",
        f'L="$1"\nNCCL_DEBUG=INFO $L --flag {_TRAINS}\n',
        (
            'N=$(nvidia-smi -L | wc -l)\nif (( N > 1 )); then\n  L="torchrun --nproc_per_node $N"\nelse\n  L="deepspeed --num_gpus 1"\nfi\n'
            f"exec $L {_TRAINS}\n"
        ),
    ],
)
def test_a_launcher_that_only_the_run_knows(folder: Folder, script: str) -> None:
    """A program behind a variable may be launched, so nothing says that no command launches a training."""
    folder.write({"run.sh": script, "ds.json": '{"train_batch_size": 8}', "train.py": "import transformers\n"})
    reasons = [one.reason for one in folder.results("run.sh")["run.sh"].not_judged]
    assert len(reasons) == 1
    assert "which is set at run time" in reasons[0]


@pytest.mark.parametrize("command", ["bash -n", "sh -en", "bash -o noexec", "bash -n -c"])
def test_a_script_that_bash_only_reads_launches_nothing(folder: Folder, command: str) -> None:
    folder.write(
        {
            "ds.json": '{"zero_optimization": {"stages": 2}}',
            "run.sh": f"{LAUNCH} ds.json\n",
            "test.sh": f"if {command} run.sh 2>/dev/null; then echo fine; fi\n",
        }
    )
    assert folder.found("test.sh") == []


@pytest.mark.parametrize(
    "command",
    ["bash", "bash -x", "bash -euo pipefail", "bash -o pipefail", "bash +e", "bash --norc", "bash -O extglob", "bash --rcfile own.rc"],
)
def test_a_script_that_bash_runs_with_options(folder: Folder, command: str) -> None:
    folder.write({"ds.json": '{"zero_optimization": {"stages": 2}}', "run.sh": f"{LAUNCH} ds.json\n", "test.sh": f"{command} run.sh\n"})
    assert [code for code, *_ in folder.found("test.sh")] == ["DS204", "DS101"]
