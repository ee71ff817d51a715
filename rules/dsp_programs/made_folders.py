"""DSP: folders that every rank of a program makes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.ranks_of_writes import Site, Writes
from dslint.rules.helpers.syntax import related_to

_STAGE_2 = trained('"zero_optimization": {"stage": 2}')
_ENGINE = (
    "import os\nimport pathlib\nimport deepspeed\nimport torch\nnet = torch.nn.Linear(8, 8)\n"
    'engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
)
_IN_MAIN = (
    "import pathlib\nimport deepspeed\nimport torch\n\ndef prepare(root, name):\n    folder = pathlib.Path(root) / name\n"
    "    folder.mkdir(parents=True)\n    return folder\n\ndef main():\n    net = torch.nn.Linear(8, 8)\n"
    '    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
    "    out = prepare('runs', 'first')\n\nif __name__ == '__main__':\n    main()\n"
)


@rule(
    "DSP14",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "https://docs.python.org/3/library/os.html#os.makedirs",
        "https://docs.python.org/3/library/pathlib.html#pathlib.Path.mkdir",
    ),
    untried="raised by Python on the second rank",
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_ENGINE + "os.makedirs('runs/first')\n",
    integration="deepspeed",
    message="train.py:7 makes a folder with os.makedirs on every rank, and does not accept one that exists: all ranks but the first raise FileExistsError, unless each has another folder.",
)
@bad(
    _STAGE_2,
    at="",
    program=_IN_MAIN,
    integration="deepspeed",
    message="train.py:7 makes a folder with folder.mkdir on every rank, and does not accept one that exists: all ranks but the first raise FileExistsError, unless each has another folder.",
)
@bad(
    _STAGE_2,
    at="",
    program=_IN_MAIN.replace("parents=True", "exist_ok=False").replace("    main()\n", "    import fire\n    fire.Fire(main)\n"),
    integration="deepspeed",
    message="train.py:7 makes a folder with folder.mkdir on every rank, and does not accept one that exists: all ranks but the first raise FileExistsError, unless each has another folder.",
)
@bad(
    _STAGE_2,
    at="",
    program=_ENGINE + "import time\nfolder = os.path.join('runs', time.strftime('%Y%m%d-%H%M%S'))\nos.mkdir(folder)\n",
    integration="deepspeed",
    message="train.py:9 makes a folder with os.mkdir on every rank, and does not accept one that exists. Its name has the time: of ranks that read the same time all but the first raise FileExistsError, and the others have a folder each.",
)
@good(_STAGE_2, program=_ENGINE + "os.makedirs('runs/first', exist_ok=True)\n", integration="deepspeed")
@good(_STAGE_2, program=_ENGINE + "os.makedirs('runs/first', 0o755, True)\n", integration="deepspeed")
@good(_STAGE_2, program=_ENGINE + "os.makedirs('runs/first', exist_ok=again)\n", integration="deepspeed")
@good(_STAGE_2, program=_ENGINE + "if engine.global_rank == 0:\n    os.makedirs('runs/first')\n", integration="deepspeed")
@good(
    _STAGE_2,
    program=_ENGINE + "if torch.distributed.get_rank() != 0:\n    raise SystemExit\nos.makedirs('runs/first')\n",
    integration="deepspeed",
)
@good(_STAGE_2, program=_ENGINE + "if not os.path.exists('runs'):\n    os.makedirs('runs')\n", integration="deepspeed")
@good(_STAGE_2, program=_ENGINE + "try:\n    os.makedirs('runs')\nexcept FileExistsError:\n    pass\n", integration="deepspeed")
@good(
    _STAGE_2,
    program=_ENGINE + "import contextlib\nwith contextlib.suppress(FileExistsError):\n    os.makedirs('runs')\n",
    integration="deepspeed",
)
@good(_STAGE_2, program=_ENGINE + "os.makedirs(f'runs/{torch.distributed.get_rank()}')\n", integration="deepspeed")
@good(_STAGE_2, program=_ENGINE + "os.makedirs('runs/first')\n", integration="deepspeed", world_size=1)
@good(_STAGE_2, program=_ENGINE + "def unused():\n    os.makedirs('runs/first')\n", integration="deepspeed")
@good(_STAGE_2, program=_ENGINE + "import fsspec\nstore = fsspec.filesystem('s3')\nstore.mkdir('runs')\n", integration="deepspeed")
@good(_STAGE_2, program=_IN_MAIN.replace("parents=True", "parents=True, exist_ok=True"), integration="deepspeed")
@good(_STAGE_2, program=_IN_MAIN.replace("    out = ", "    if is_main_process():\n        out = "), integration="deepspeed")
def made_by_all_ranks(config: Config) -> Iterator[Finding]:
    """Every rank makes the same folder, and all but the first find that it exists.

    The launcher starts the whole program once per rank. `os.makedirs(path)`, `os.mkdir(path)` and `Path.mkdir()` raise FileExistsError if
    the folder exists, and on the other ranks it does. A name with the time in it is the same on all ranks that read it in the same second.

    dslint reports it where nothing in the function, or around its calls, asks for a rank or whether the folder exists, and nothing puts the
    rank, or something random, into the path.

    Pass `exist_ok=True`, or make the folder on rank 0, followed by a barrier.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.world_size == 1:
        return
    writes = Writes(config)
    for path, site, folder in _made(writes):
        what = ast.unparse(site.call.func)
        if not writes.is_reached_on_all_ranks(site, program.path) or not writes.is_one_file(site, folder, but=_TIME):
            continue
        place = f"{path}:{site.call.lineno}"
        is_timed = not writes.is_one_file(site, folder)
        outcome = (
            ". Its name has the time: of ranks that read the same time all but the first raise FileExistsError, and the others have a folder each."
            if is_timed
            else ": all ranks but the first raise FileExistsError, unless each has another folder."
        )
        how = f"with {what} " if len(what) <= _LONGEST else ""
        yield Finding(
            "",
            f"{place} makes a folder {how}on every rank, and does not accept one that exists{outcome}",
            help="Make the folder on rank 0 and send its name to the others."
            if is_timed
            else "Pass exist_ok=True, or make the folder on rank 0, followed by a barrier.",
            elsewhere=related_to(config, path, site.call),
            certain=False,  # a machine of its own may have another file system
        )
        return


_LONGEST = 40
"""The most characters of a function that a message quotes."""

_TIME = re.compile("time|now|date", re.IGNORECASE)
_ACCEPTS = {"makedirs": 2, "mkdir": 2}
"""Where `exist_ok` stands without its name: in `os.makedirs(name, mode, exist_ok)`, `Path.mkdir(mode, parents, exist_ok)`."""

_PATH = re.compile(r"\b(pathlib\.)?Path\(|\s/\s|\.parent\b")
_CAUGHT = re.compile(r"\b(FileExistsError|OSError|IOError|EnvironmentError|Exception|BaseException)\b")
_ASKS_FOR_FOLDER = re.compile(r"exist|is_?dir|listdir|glob|scandir", re.IGNORECASE)


def _made(writes: Writes) -> Iterator[tuple[str, Site, ast.expr]]:
    """The calls that make a folder and raise if it exists, each with its file and the path of the folder."""
    for path, site in writes.calls_of(*_ACCEPTS):
        call, function = site.call, ast.unparse(site.call.func)
        if function in ("os.makedirs", "os.mkdir") and call.args:
            folder: ast.expr = call.args[0]
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "mkdir" and writes.is_of(site, call.func.value, _PATH):
            folder = call.func.value
        else:
            continue
        if not _accepts_existing(call, function) and not _is_guarded(site):
            yield path, site, folder


def _accepts_existing(call: ast.Call, function: str) -> bool:
    """Whether a call accepts a folder that exists, or may."""
    if function == "os.mkdir":
        return False
    given = [one.value for one in call.keywords if one.arg in ("exist_ok", None)] + call.args[2:3]
    return any(not (isinstance(one, ast.Constant) and one.value is False) for one in given)


def _is_guarded(site: Site) -> bool:
    """Whether something around a call catches the error, or asks whether the folder exists."""
    for one in site.around:
        if isinstance(one, ast.Try) and any(handler.type is None or _CAUGHT.search(ast.unparse(handler.type)) for handler in one.handlers):
            return True
        if isinstance(one, ast.With | ast.AsyncWith) and any(_CAUGHT.search(ast.unparse(item)) for item in one.items):
            return True
        if isinstance(one, ast.If | ast.While | ast.IfExp) and _ASKS_FOR_FOLDER.search(ast.unparse(one.test)):
            return True
    before = (one for one in ast.walk(site.function) if isinstance(one, ast.If | ast.While | ast.Assert) and one.lineno < site.call.lineno)
    return any(_ASKS_FOR_FOLDER.search(ast.unparse(one.test)) for one in before)
