"""What functions of libraries return that a config is built with. They are followed, never called.

A module here stands for a library, or for functions of Python of one kind. It says of each function by its full name, with the decorator
`follows`, what a call returns and what it does to the values it is given. To teach dslint a function, write it there, and its form in
`tests/judges/programs`, whose judge is Python.
"""

from dslint.evaluate.python.libraries import (
    argparse,
    builtins,
    class_parsers,
    collections,
    copy,
    dataclasses,
    datasets,
    files,
    functools,
    json,
    numbers,
    os,
    processes,
    yaml,
)
from dslint.evaluate.python.libraries.table import FUNCTIONS

__all__ = [
    "FUNCTIONS",
    "argparse",
    "builtins",
    "class_parsers",
    "collections",
    "copy",
    "dataclasses",
    "datasets",
    "files",
    "functools",
    "json",
    "numbers",
    "os",
    "processes",
    "yaml",
]
