"""Runs inside the fence: each program in a folder of its own, with stand-ins for every module that is not in the standard library.

The question is {"yaml": folder, "programs": [{"files": {name: text}, "argv": [...], "environment": {...}}]}; the answer a list of
{"calls": [[name, file, line, arguments, keywords]], "error"}. A stand-in answers to any name, and notes the calls that take a config.
"""

import argparse
import contextlib
import dataclasses
import importlib.abc
import importlib.machinery
import json
import os
import resource
import runpy
import shutil
import sys
import types

SINKS = {"initialize", "TrainingArguments", "DeepSpeedPlugin", "DeepSpeedStrategy", "HfDeepSpeedConfig"}
FOLDER = "/tmp/work"
LONGEST = 4


class Base:
    """The base of classes that inherit from a stand-in."""

    def __init__(self, *arguments, **keywords):
        self.__dict__.update(keywords)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name)


class Anything:
    """Answers to any name and any call."""

    def __init__(self, name):
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything(f"{self._name}.{name}")

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def __call__(self, *arguments, **keywords):
        short = self._name.rpartition(".")[2]
        if short in SINKS:
            note(self._name, arguments, keywords)
        if short == "initialize":
            return tuple(Anything(f"engine.{index}") for index in range(4))
        if len(arguments) == 1 and not keywords and isinstance(arguments[0], (types.FunctionType, type)):
            return arguments[0]
        made = Anything(f"{self._name}()")
        if short in SINKS:
            for name, value in keywords.items():
                object.__setattr__(made, name, value)
        return made

    def __mro_entries__(self, bases):
        return (Base,)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def __bool__(self):
        return True

    def __getitem__(self, _):
        return Anything(f"{self._name}[]")


class HfArgumentParser:
    """Reads dataclasses from the command line."""

    def __init__(self, kinds):
        self.kinds = kinds if isinstance(kinds, (list, tuple)) else [kinds]

    def parse_args_into_dataclasses(self, args=None):
        parser = argparse.ArgumentParser()
        for kind in self.kinds:
            for one in dataclasses.fields(kind):
                default = one.default if one.default is not dataclasses.MISSING else None
                if one.default_factory is not dataclasses.MISSING:
                    default = one.default_factory()
                read = type(default) if default is not None else str
                parser.add_argument(f"--{one.name}", type=(lambda text: text.lower() == "true") if read is bool else read, default=default)
        found = vars(parser.parse_args(args))
        return tuple(kind(**{one.name: found[one.name] for one in dataclasses.fields(kind)}) for kind in self.kinds)


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module for every name that nothing else has."""

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or os.path.exists(f"{FOLDER}/{name.replace('.', '/')}.py"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        pass


class Module(types.ModuleType):
    """A stand-in of a module."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "HfArgumentParser":
            return HfArgumentParser
        return Anything(f"{self.__name__}.{name}")


CALLS = []


def note(name, arguments, keywords):
    """Note a call with the place of its first line."""
    frame = sys._getframe(2)
    CALLS.append(
        [
            name,
            os.path.basename(frame.f_code.co_filename),
            frame.f_lineno,
            [encoded(one) for one in arguments],
            {key: encoded(one) for key, one in keywords.items()},
        ]
    )


def encoded(value, depth=0):
    """A value as JSON, in which objects are only called that."""
    if depth > 20:
        return {"deep": True}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encoded(one, depth + 1) for key, one in value.items()}}
    if isinstance(value, (list, tuple)):
        return {"list": [encoded(one, depth + 1) for one in value]}
    if isinstance(value, argparse.Namespace):
        return {"object": {key: encoded(one, depth + 1) for key, one in vars(value).items() if not isinstance(one, dict)}}
    return {"object": {}}


def child(asked, out):
    """Run one program and write what it called."""
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
    resource.setrlimit(resource.RLIMIT_AS, (1024 * 2**20, 1024 * 2**20))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name, text in asked["files"].items():
        path = os.path.join(FOLDER, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
    os.chdir(FOLDER)
    os.environ.clear()
    os.environ.update(asked.get("environment", {}))
    sys.argv = ["train.py", *asked.get("argv", [])]
    sys.path.insert(0, FOLDER)
    sys.dont_write_bytecode = True
    silent = os.fdopen(os.open("/dev/null", os.O_WRONLY), "w")
    sys.stdout = sys.stderr = silent
    error = ""
    try:
        runpy.run_path("train.py", run_name="__main__")
    except SystemExit as ended:
        error = "" if not ended.code else f"exit {ended.code}"
    except BaseException as raised:  # noqa: BLE001 - whatever ends the program is the answer
        error = f"{type(raised).__name__}: {raised}"
    with os.fdopen(out, "w") as file:
        json.dump({"calls": CALLS, "error": error}, file)
    os._exit(0)


def run(asked):
    """Run one program in a child."""
    back, out = os.pipe()
    child_id = os.fork()
    if child_id == 0:
        os.close(back)
        child(asked, out)
    os.close(out)
    with os.fdopen(back) as file:
        text = file.read()
    os.waitpid(child_id, 0)
    return json.loads(text) if text else {"calls": [], "error": "killed"}


question = json.load(sys.stdin)
sys.path.insert(0, question["yaml"])
with contextlib.suppress(ImportError):
    import yaml  # noqa: F401 - programs find it loaded
sys.path.remove(question["yaml"])
sys.meta_path.append(StandIns())
json.dump([run(one) for one in question["programs"]], sys.stdout)
