"""A config that a launch names is looked for where the launch starts: dslint reports exactly those that a job does not find there."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.setup.folder import Folder

_CONFIG = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}}'
_PARSES = (
    "import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--local_rank')\n"
    "parser = deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\n"
    "engine, *_ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)\n"
)
_LAUNCHER = (
    "#!/bin/bash\n"
    'while [ $# -gt 0 ]; do case "$1" in *.py) program="$1";; --deepspeed_config) shift; config="$1";; esac; shift; done\n'
    '[ -f "$program" ] && [ ! -f "$config" ] && echo missing > "$FOUND"\ntrue\n'
)

_JOBS = {
    "beside each other": ("deepspeed train.py --deepspeed_config ds.json\n", "train.py", "ds.json"),
    "in a folder": ("deepspeed src/train.py --deepspeed_config configs/ds.json\n", "src/train.py", "configs/ds.json"),
    "beside the program only": ("deepspeed src/train.py --deepspeed_config ds.json\n", "src/train.py", "src/ds.json"),
    "after cd": ("cd src\ndeepspeed train.py --deepspeed_config configs/ds.json\n", "src/train.py", "configs/ds.json"),
    "after cd, from above": ("cd src\ndeepspeed train.py --deepspeed_config ../configs/ds.json\n", "src/train.py", "configs/ds.json"),
    "after cd, below": ("cd src\ndeepspeed train.py --deepspeed_config configs/ds.json\n", "src/train.py", "src/configs/ds.json"),
    "after cd and back": ("cd src\ncd ..\ndeepspeed src/train.py --deepspeed_config ds.json\n", "src/train.py", "ds.json"),
    "after cd to the script": ('cd "$(dirname "$0")"\ndeepspeed train.py --deepspeed_config ds.json\n', "train.py", "ds.json"),
    "in a subshell": ("(cd src; ls)\ndeepspeed src/train.py --deepspeed_config ds.json\n", "src/train.py", "ds.json"),
    "a variable": ("C=ds.json\ncd src\ndeepspeed train.py --deepspeed_config $C\n", "src/train.py", "ds.json"),
    "copied": ("cp configs/ds.json .\ndeepspeed train.py --deepspeed_config ds.json\n", "train.py", "configs/ds.json"),
    "written": ("cat > ds.json <<< '{}'\ndeepspeed train.py --deepspeed_config ds.json\n", "train.py", "configs/ds.json"),
    "edited": ("sed s/1/2/ configs/ds.json > ds.json\ndeepspeed train.py --deepspeed_config ds.json\n", "train.py", "configs/ds.json"),
    "by tee": ("cat configs/ds.json | tee ds.json\ndeepspeed train.py --deepspeed_config ds.json\n", "train.py", "configs/ds.json"),
    "after cd to a copy": ('cd "${COPY:-src}"\ndeepspeed train.py --deepspeed_config configs/ds.json\n', "src/train.py", "configs/ds.json"),
}


@pytest.mark.parametrize(("script", "program", "config"), _JOBS.values(), ids=_JOBS)
def test_bash_misses_the_configs_that_are_reported(
    folder: Folder, tmp_path_factory: pytest.TempPathFactory, script: str, program: str, config: str
) -> None:
    folder.write({"run.sh": script, program: _PARSES, config: _CONFIG, "src/x": "", "bin/deepspeed": _LAUNCHER})
    (folder.path / "bin/deepspeed").chmod(0o755)
    messages = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS919"]
    outcome, copy = folder.path / "outcome", tmp_path_factory.mktemp("copy")
    (copy / "train.py").write_text(_PARSES, encoding="utf-8")
    (copy / "configs").mkdir()
    (copy / "configs/ds.json").write_text(_CONFIG, encoding="utf-8")
    path = f"{folder.path / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "FOUND": str(outcome), "COPY": str(copy)}
    subprocess.run(["bash", "run.sh"], cwd=folder.path, env=environment, check=True, capture_output=True)
    assert bool(messages) if outcome.exists() else not any("does not exist there" in one for one in messages)


def test_the_message_names_the_folder_and_the_right_path(folder: Folder) -> None:
    script, program, config = _JOBS["after cd"]
    folder.write({"run.sh": script, program: _PARSES, config: _CONFIG})
    (finding,) = [one for one in folder.diagnostics("run.sh") if one.code == "DS919"]
    assert finding.message.startswith("run.sh starts train.py in src, and configs/ds.json does not exist there: the job raises")
    assert finding.help == "Write ../configs/ds.json, or start the job in the folder that the path is relative to."


def test_a_program_that_writes_files_may_write_the_config(folder: Folder) -> None:
    script, program, config = _JOBS["after cd"]
    written = f"import json\njson.dump({{}}, open('ds.json', 'w'))\n{_PARSES}"
    for text, found in ((_PARSES, True), (written, False)):
        folder.write({"run.sh": script, program: text, config: _CONFIG})
        messages = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS919"]
        assert any("does not exist there" in one for one in messages) is found


_YAML = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
_PREPARES = "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel = accelerator.prepare(model)\n"


@pytest.mark.parametrize(
    ("script", "places", "said"),
    [
        ("cd src\naccelerate launch --config_file acc.yaml train.py\n", ("src/acc.yaml", "src/ds.json"), ""),
        ("cd src\naccelerate launch --config_file ../conf/acc.yaml train.py\n", ("conf/acc.yaml", "src/ds.json"), ""),
        (
            "accelerate launch --config_file conf/acc.yaml src/train.py\n",
            ("conf/acc.yaml", "conf/ds.json"),
            "run.sh starts src/train.py in the working directory, and ds.json does not exist there",
        ),
        ("cd src\naccelerate launch --config_file acc.yaml train.py\n", ("src/acc.yaml", "other/ds.json"), "ds.json does not exist"),
    ],
)
def test_the_config_of_an_accelerate_file_is_looked_for_where_the_launch_starts(
    folder: Folder, script: str, places: tuple[str, str], said: str
) -> None:
    yaml, config = places
    folder.write({"run.sh": script, "src/train.py": _PREPARES, yaml: _YAML, config: _CONFIG})
    messages = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS919"]
    assert len(messages) == bool(said)
    assert all(one.startswith(said) for one in messages)
    assert any(result.path == config for result in folder.results("run.sh").values()) is not config.startswith("other")
