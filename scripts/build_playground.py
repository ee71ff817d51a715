#!/usr/bin/env python3
"""Build the playground: the page that lints in the browser.

    python scripts/build_playground.py [--out DIR] [--wheel DIR]

Builds dslint's wheel, puts it next to the libraries that a check imports and Pyodide, and bundles the page with esbuild. Needs node and
npm, which installs the versions in playground/package-lock.json; a browser then loads nothing from elsewhere. The page is written to
build/site/playground. With --wheel it is also packed as a wheel, the package of the extra `playground`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dslint import __version__  # noqa: E402
from dslint.cli.playground import PACKAGE  # noqa: E402
from dslint.facts import RELEASES, Integration  # noqa: E402
from dslint.facts.gpus import GPUS  # noqa: E402
from dslint.facts.known_models import PRESETS  # noqa: E402
from dslint.memory.plan import STATES  # noqa: E402

PLAYGROUND = ROOT / "playground"

LIBRARIES = {"click": "click", "yaml": "PyYAML"}
"""The libraries that the commands of the page import, by module, with their distribution. Pyodide's own builds come from a host that the
page does not contact; without its compiled part, PyYAML is pure Python."""

METADATA = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "deepspeed-lint-playground"
version = "{version}"
description = "The page of `dslint playground`: dslint with a Python for browsers."
license = "Apache-2.0"
license-files = ["LICENSE", "{package}/page/licenses.txt"]
requires-python = ">=3.11"

[tool.setuptools]
packages = ["{package}"]
package-data = {{ "*" = ["**"] }}
"""
"""The pyproject.toml of the package with the page."""

SOURCES = ("dslint", "rules", "schemas", "deepspeed_lint.py", "pyproject.toml", "setup.py", "README.md", "LICENSE")
"""What the wheel is built of."""

NOT_IN_A_BROWSER = re.compile(
    r"dslint/(probe|tune|mcp)/.*|dslint/server/(?!(__init__|about|keys|quantities)\.py).*|deepspeed_lint-[^/]*\.dist-info/RECORD"
)
"""What runs programs or serves others, which a page cannot, and the list of files for an installer: a first visit need not load them."""


class CannotBuild(Exception):
    """The page is not built. The text says why."""


class NotInstalled(CannotBuild):
    """Node or its package manager is missing."""


def main(arguments: list[str]) -> int:
    """Build the page."""
    parser = argparse.ArgumentParser(description="Build the playground.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site" / "playground", help="where to write the page")
    parser.add_argument("--wheel", type=Path, metavar="DIR", help="also write the wheel of the page into this folder")
    given = parser.parse_args(arguments)
    try:
        build(given.out.resolve())
        if given.wheel is not None:
            pack(given.out.resolve(), given.wheel.resolve())
    except CannotBuild as reason:
        print(f"The playground is not built: {reason}")
        return 1
    return 0


def build(out: Path) -> None:
    """Write the page into a folder, which is emptied first.

    Raises:
        NotInstalled: node or npm is missing.
        CannotBuild: one of their commands fails.
    """
    install_packages()
    shutil.rmtree(out, ignore_errors=True)
    (out / "python").mkdir(parents=True)
    build_wheel(out / "python")
    pack_libraries(out / "python" / "libraries.zip")
    with tempfile.TemporaryDirectory() as folder:
        menus = Path(folder, "menus.js")
        menus.write_text(f"export default {json.dumps(menu_entries())};\n", encoding="utf-8")
        licenses = Path(folder, "licenses.txt")
        licenses.write_text("\n".join(map(license_of, LIBRARIES.values())), encoding="utf-8")
        run("node", "build.mjs", str(out), str(menus), str(licenses))


def pack(page: Path, folder: Path) -> None:
    """Write the wheel of a built page, with the version of dslint.

    Raises:
        CannotBuild: pip cannot build it.
    """
    with tempfile.TemporaryDirectory() as source:
        package = Path(source, PACKAGE)
        shutil.copytree(page, package / "page")
        (package / "__init__.py").write_text(f'"""The page of `dslint playground`, of dslint {__version__}."""\n', encoding="utf-8")
        shutil.copy(ROOT / "LICENSE", source)
        Path(source, "pyproject.toml").write_text(METADATA.format(version=__version__, package=PACKAGE), encoding="utf-8")
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), source)


def install_packages() -> None:
    """Install the packages of the lock file, unless they are installed. They appear whole or not at all: another build may be running.

    Raises:
        NotInstalled: node or npm is missing.
        CannotBuild: the installation fails.
    """
    if not shutil.which("node") or not shutil.which("npm"):
        raise NotInstalled("node and npm are not installed.")
    lock, target = PLAYGROUND / "package-lock.json", PLAYGROUND / "node_modules"
    copy = target / "package-lock.json"
    if copy.exists() and copy.read_bytes() == lock.read_bytes():
        return
    with tempfile.TemporaryDirectory(dir=PLAYGROUND, prefix="node_modules-") as folder:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PLAYGROUND / name, folder)
        run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", folder=Path(folder))
        shutil.copy(lock, Path(folder, "node_modules"))
        shutil.rmtree(target, ignore_errors=True)
        with contextlib.suppress(OSError):  # the other build was faster
            Path(folder, "node_modules").rename(target)


def run(*command: str, folder: Path = PLAYGROUND) -> None:
    """Run a command in a folder.

    Raises:
        CannotBuild: the command fails.
    """
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise CannotBuild(f"{' '.join(command[:2])} failed.\n{(done.stdout + done.stderr).strip()[-2000:]}")


def build_wheel(folder: Path) -> None:
    """Build dslint's wheel, from a copy: setuptools would add files of earlier builds.

    Raises:
        CannotBuild: pip cannot build it.
    """
    with tempfile.TemporaryDirectory() as copy:
        for name in SOURCES:
            source, target = ROOT / name, Path(copy, name)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), copy)
    for wheel in folder.glob("deepspeed_lint-*.whl"):
        _pack_tighter(wheel)


def _pack_tighter(path: Path) -> None:
    """Compress the files of the wheel as small as possible, which pip does fast, without those that a page does not use."""
    with zipfile.ZipFile(path) as archive:
        entries = [one for one in archive.infolist() if not NOT_IN_A_BROWSER.fullmatch(one.filename)]
        files = [(entry, _for_a_page(entry.filename, archive.read(entry))) for entry in entries]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for entry, data in files:
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=9)


def _for_a_page(name: str, data: bytes) -> bytes:
    """A file of the wheel without what only its readers need.

    That is the README in the metadata, and comments and docstrings of modules. Rules keep theirs, which `dslint rule` prints, and so do
    commands, for their help.
    """
    if name.endswith(".dist-info/METADATA"):
        return data.partition(b"\n\n")[0] + b"\n"
    if not name.endswith(".py") or name.startswith(("dslint/rules/", "dslint/cli/")):
        return data
    tree = ast.parse(data)
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list) and statements:
                kept = [one for one in statements if not _is_text(one)]
                setattr(node, field, kept or [ast.Pass()])
    return ast.unparse(tree).encode()


def _is_text(statement: ast.AST) -> bool:
    """Whether a statement is a docstring, of a module, a class, a function or a variable."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)


def pack_libraries(path: Path) -> None:
    """Pack the Python modules of the libraries as they are installed here."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for module in LIBRARIES:
            spec = importlib.util.find_spec(module)
            assert spec is not None, f"dslint depends on {module}"
            folder = Path(str(spec.origin)).parent
            for file in sorted(folder.rglob("*.py")):
                entry = zipfile.ZipInfo(f"{module}/{file.relative_to(folder).as_posix()}")
                archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)


def menu_entries() -> dict[str, object]:
    """What the menus of the page offer, the newest release first."""
    return {
        "integrations": [one.value for one in Integration],
        "releases": [str(release) for release in reversed(RELEASES)],
        "gpus": [{"name": gpu.name, "memory": gpu.sold} for gpu in GPUS.values()],
        "models": list(PRESETS),
        "optimizers": sorted(STATES),
    }


def license_of(distribution: str) -> str:
    """The name, version and license of an installed library, as the page lists them."""
    found = metadata.distribution(distribution)
    files = [file for file in found.files or [] if "licen" in file.name.lower()]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return f"{found.name} {found.version}\nhttps://pypi.org/project/{found.name}\n\n{text}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
