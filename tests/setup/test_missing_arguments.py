"""Arguments that a program reads and no parser sets: dslint reports a read exactly where Python raises AttributeError."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from types import ModuleType

import pytest

from tests.setup.folder import Folder

_HEAD = (
    "import argparse, os, sys\nimport deepspeed\nparser = argparse.ArgumentParser()\n"
    'parser.add_argument("--local_rank", type=int, default=-1)\nparser.add_argument("--lora", action="store_true")\n'
    'parser.add_argument("--mode", default="full")\n'
)
_ENGINE = "engine, *_ = deepspeed.initialize(args=args, model=object(), config='ds.json')\n"
_PARSE = "args = parser.parse_args()\n"
_CONFIG = '{"train_micro_batch_size_per_gpu": 1}'

_PROGRAMS = {
    "never set": f"{_PARSE}x = args.rank\n",
    "set before": f"{_PARSE}args.rank = 1\nx = args.rank\n",
    "set with a flag": f"{_PARSE}if args.lora:\n    args.rank = 1\nx = args.rank\n",
    "set in a function": f"def prepare(a):\n    if a.mode == 'full':\n        a.rank = 1\n{_PARSE}prepare(args)\nx = args.rank\n",
    "added with a flag": f'if parser.parse_known_args()[0].lora:\n    parser.add_argument("--rank", default=8)\n{_PARSE}x = args.rank\n',
    "read with a flag": f"{_PARSE}x = args.rank if args.lora else 0\n",
    "read in a condition": f"{_PARSE}x = args.lora and args.rank\n",
    "read in a class": f"class Run:\n    def __init__(self, args):\n        self.rank = args.rank\n{_PARSE}Run(args)\n",
    "looked for": f"{_PARSE}x = hasattr(args, 'rank') and args.rank\n",
    "looked for and set": f"{_PARSE}if not hasattr(args, 'rank'):\n    args.rank = 1\nx = args.rank\n",
    "handled": f"{_PARSE}try:\n    x = args.rank\nexcept AttributeError:\n    x = 1\n",
    "behind an exit": f"{_PARSE}if args.mode == 'full':\n    sys.exit(0)\nx = args.rank\n",
    "set by its name": f"{_PARSE}setattr(args, 'rank', 1)\nx = args.rank\n",
    "set in the dict": f"{_PARSE}vars(args).update(rank=1)\nx = args.rank\n",
    "named otherwise": f'parser.add_argument("--rank", dest="lora_rank", default=1)\n{_PARSE}x = args.rank\n',
    "named by dest": f'parser.add_argument("--lora-rank", dest="rank", default=1)\n{_PARSE}x = args.rank\n',
    "a default": f"parser.set_defaults(rank=1)\n{_PARSE}x = args.rank\n",
    "a given namespace": "args = parser.parse_args(namespace=argparse.Namespace(rank=1))\nx = args.rank\n",
    "a group": f'parser.add_argument_group("g").add_argument("--rank", default=1)\n{_PARSE}x = args.rank\n',
    "an action that sets it": "class Sets(argparse.Action):\n    def __call__(self, parser, namespace, values, option=None):\n"
    f'        namespace.rank = 1\nparser.add_argument("words", nargs="*", action=Sets)\n{_PARSE}x = args.rank\n',
    "set by a library": f"import functools\n{_PARSE}functools.reduce(lambda one, name: setattr(one, name, 1) or one, ['rank'], args)\nx = args.rank\n",
    "added by a library": f"import functools\nfunctools.partial(argparse.ArgumentParser.add_argument, parser)('--rank')\n{_PARSE}x = args.rank\n",
    "set in a list": f"{_PARSE}list(map(lambda one: setattr(one, 'rank', 1), [args]))\nx = args.rank\n",
    "set in a loop": f"{_PARSE}for one in [args]:\n    one.rank = 1\nx = args.rank\n",
    "set in its dict": f"{_PARSE}args.__dict__['rank'] = 1\nx = args.rank\n",
    "set by a method of object": f"{_PARSE}object.__setattr__(args, 'rank', 1)\nx = args.rank\n",
    "printed before": f"import logging\n{_PARSE}print(args)\nlogging.getLogger().debug(args)\nx = args.rank\n",
    "suppressed": f"import contextlib\n{_PARSE}with contextlib.suppress(AttributeError):\n    x = args.rank\n",
    "a flag added by the program": f"sys.argv.append('--lora')\n{_PARSE}if args.lora:\n    args.rank = 1\nx = args.rank\n",
    "of DeepSpeed": f"parser = deepspeed.add_config_arguments(parser)\n{_PARSE}x = args.deepspeed, args.deepscale\n",
}


def _raises(program: str, flags: list[str], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether Python raises AttributeError for the arguments."""
    library = ModuleType("deepspeed")

    def add_config_arguments(parser: ArgumentParser) -> ArgumentParser:
        for name in ("--deepspeed", "--deepscale"):
            parser.add_argument(name, action="store_true")
        return parser

    library.__dict__.update(add_config_arguments=add_config_arguments, initialize=lambda **_: (None,) * 4)
    monkeypatch.setitem(sys.modules, "deepspeed", library)
    monkeypatch.setattr(sys, "argv", ["train.py", "--local_rank=0", *flags])
    try:
        exec(compile(program, "train.py", "exec"), {"__name__": "__main__"})
    except AttributeError as error:
        return "'Namespace' object has no attribute" in str(error)
    except SystemExit:
        pass
    return False


@pytest.mark.parametrize("flags", ["", "--lora", "--mode lora"])
@pytest.mark.parametrize("program", _PROGRAMS.values(), ids=_PROGRAMS)
def test_python_raises_where_a_read_is_reported(folder: Folder, monkeypatch: pytest.MonkeyPatch, program: str, flags: str) -> None:
    text = _HEAD + program + _ENGINE
    folder.write({"train.py": text, "ds.json": _CONFIG, "run.sh": f"deepspeed --num_gpus 2 train.py {flags}\n"})
    found = {code for code, *_ in folder.found("run.sh")}
    assert ("DS944" in found) is _raises(text, flags.split(), monkeypatch)
