"""DS8: a program that is named like a library which it imports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import basename

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.setups.project import project_of

LIBRARIES = ("deepspeed", "torch", "transformers", "accelerate", "peft", "trl", "datasets", "lightning", "pytorch_lightning")

_SAFE_PATH = r"PYTHONSAFEPATH|\bpython[\d.]*\s+-\w*[PI]"
"""What keeps the folder of the program out of the path of Python."""

_CONFIG = '{"train_micro_batch_size_per_gpu": 4}'
_PROGRAM = "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n"


@rule(
    "DS877",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=("https://docs.python.org/3/library/sys.html#sys.path", "https://github.com/deepspeedai/DeepSpeed/issues/7121"),
    untried="is about the name of a program",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    named_deepspeed=_PROGRAM,
    message="deepspeed.py imports deepspeed and has its name: run by its path, Python imports the program in place of the library, and may raise AttributeError (\"has no attribute 'initialize'\") or ImportError.",
)
@bad(
    _CONFIG,
    at="",
    named_deepspeed=_PROGRAM,
    launch="deepspeed --num_gpus 2 deepspeed.py\n",
    integration="deepspeed",
    message="deepspeed.py imports deepspeed and has its name: run by its path, Python imports the program in place of the library, and raises AttributeError (\"has no attribute 'initialize'\") or ImportError.",
)
@good(_CONFIG, program=_PROGRAM)
@good(_CONFIG, named_deepspeed="import torch\nmodel = torch.nn.Linear(2, 2)\n")
@good(_CONFIG, named_deepspeed="import sys\nsys.path.pop(0)\n" + _PROGRAM)
@good(
    _CONFIG,
    named_deepspeed="import deepspeed\ndef engine_of(model):\n    return deepspeed.initialize(model=model, config='ds_config.json')\n",
)
def script_shadows_library(config: Config) -> Iterator[Finding]:
    """A program is named like a library that it imports, so Python imports the program in its place.

    Python searches the folder of the program first: in `deepspeed.py`, `import deepspeed` gets the program itself, which has no `initialize`.
    The launcher of DeepSpeed, started in the same folder, does not find its own modules, either ("'deepspeed' is not a package").

    Give the program another name.
    """
    setup = config.setup
    program = setup.program if setup is not None else None
    if setup is None or program is None:
        return
    name = basename(program.path).removesuffix(".py")
    document = setup.documents.get(program.path)
    if name not in LIBRARIES or document is None or basename(program.path) == name:
        return
    found = re.search(rf"^(import|from)[ \t]+{name}\b.*", document.text, re.MULTILINE)
    used = next((one for one in program.events.of(rf"{name}\..*") if one.at.path == program.path and one.always), None)
    others = [one.text for one in setup.documents.values() if one is not document]
    otherwise = re.compile(rf"(-m|--module)[\s\"',=]+[\w.]*\b{name}([\s\"',]|$)|{_SAFE_PATH}")
    if found is None or used is None or "sys.path" in document.text or any(map(otherwise.search, others)):
        return
    if setup.launch is None and _is_of_package(program.path, document.text):
        return
    yield Finding(
        "",
        f"{program.path} imports {name} and has its name: run by its path, Python imports the program in place of the library, and raises "
        f"AttributeError (\"has no attribute '{used.called.rpartition('.')[2]}'\") or ImportError.",
        help="Give the program another name.",
        elsewhere=used.at.related(""),
        certain=setup.launch is not None,
    )


def _is_of_package(path: str, text: str) -> bool:
    """Whether a file is a module that others import: it imports from its own package, or is in one and does nothing when it is run."""
    if re.search(r"^[ \t]*from[ \t]+\.", text, re.MULTILINE):
        return True
    return project_of(path).is_in_package(path) and "__main__" not in text
