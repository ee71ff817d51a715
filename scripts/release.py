"""Check, build and try a release.

    python scripts/release.py [--dist DIR] [--packages DIR] [--tag v1.2.3] [--python python3.12 ...]
    python scripts/release.py --oldest

It checks that the version is written everywhere and that generated files are up to date, builds the wheel and the source distribution in a
folder, checks both with twine, check-wheel-contents and validate-pyproject (`pip install ".[release]"`), and uses each as a user would, in
a fresh environment of each Python given. With --tag, the tag must be that of the version, and the changelog must have its date.

With --packages it also builds the wheel of the playground into the folder of the distributions, and into DIR what other places publish: the
editor extension, the conda recipe, the pre-commit mirror, the files for SchemaStore. This requires node, npm and pre-commit.

`--oldest` prints the oldest releases of the dependencies that dslint accepts, as constraints for pip.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import release_packages

ROOT = Path(__file__).resolve().parent.parent
GENERATED = (["scripts/build_rule_index.py", "--check"], ["scripts/docs_pages.py", "--check"], ["-m", "dslint.schemas.compile", "--check"])


class Unready(Exception):
    """The release cannot be made. The text says why."""


def version() -> str:
    """The version in dslint/__init__.py."""
    return release_packages.project_constant("dslint/__init__.py", "__version__")


def oldest() -> list[str]:
    """The lower bounds of the dependencies, as constraints."""
    return [re.sub(r"^([\w.-]+)>=([\w.]+).*", r"\1==\2", line) for line in release_packages.read_project()["dependencies"]]


def check_version(tag: str | None) -> None:
    """The version is in the changelog and in CITATION.cff, and the tag is its tag.

    Raises:
        Unready: something names another version.
    """
    number = version()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(rf"^## {re.escape(number)} - (.+)$", changelog, re.MULTILINE)
    if heading is None:
        raise Unready(f"CHANGELOG.md has no section {number}")
    if f"\nversion: {number}\n" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8"):
        raise Unready(f"CITATION.cff does not name version {number}")
    manifest = release_packages.EXTENSION / "package.json"
    if manifest.exists() and json.loads(manifest.read_text(encoding="utf-8"))["version"] != number:
        raise Unready(f"editors/vscode/package.json does not name version {number}")
    if tag is None:
        return
    if tag != f"v{number}":
        raise Unready(f"the tag is {tag}, and the version {number}")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", heading[1]):
        raise Unready(f"CHANGELOG.md has no date for {number}: {heading[1]}")


def check_generated() -> None:
    """Generated files are up to date.

    Raises:
        Unready: one is not.
    """
    for command in GENERATED:
        run([sys.executable, *command])


def build(dist: Path) -> None:
    """Build both distributions into an empty folder, and check them and pyproject.toml.

    Raises:
        Unready: the folder holds something, or a check fails.
    """
    dist.mkdir(parents=True, exist_ok=True)
    if list(dist.iterdir()):
        raise Unready(f"{dist} is not empty")
    run([sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)])
    files = sorted(map(str, dist.iterdir()))
    run([sys.executable, "-m", "twine", "check", "--strict", *files])
    run(
        [
            sys.executable,
            "-m",
            "check_wheel_contents",
            "--toplevel",
            "dslint,deepspeed_lint.py",
            *(file for file in files if file.endswith(".whl")),
        ]
    )
    run([sys.executable, "-m", "validate_pyproject", str(ROOT / "pyproject.toml")])


def try_out(dist: Path, python: str) -> None:
    """Install each distribution in a fresh environment, and check an example outside the checkout.

    Raises:
        Unready: it does not install, or does not find what it should.
    """
    for file in sorted(dist.iterdir()):
        with tempfile.TemporaryDirectory() as folder:
            run([python, "-m", "venv", f"{folder}/environment"])
            programs = Path(folder) / "environment" / ("Scripts" if os.name == "nt" else "bin")
            run([str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(file)])
            (Path(folder) / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4, "elasticity": {}}', encoding="utf-8")
            said = run([str(programs / "dslint"), "check", "ds_config.json", "--output-format", "concise"], cwd=folder, code=1)
            if "DS109" not in said:
                raise Unready(f"{file.name} with {python} does not find DS109: {said}")
            run([str(programs / "dslint"), "--version"], cwd=folder)


def build_playground(dist: Path) -> None:
    """Build the wheel of the playground, and serve its page as a user would.

    Raises:
        Unready: node is missing, it cannot be built, or the page is not found.
    """
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, str(ROOT / "scripts" / "build_playground.py"), "--out", f"{folder}/page", "--wheel", str(dist)])
        run([sys.executable, "-m", "venv", f"{folder}/environment"])
        python = f"{folder}/environment/{'Scripts' if os.name == 'nt' else 'bin'}/python"
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--find-links", str(dist)]
        run([*install, f"deepspeed-lint[playground]=={version()}"], cwd=folder)
        run([python, "-c", "from dslint.cli.playground import find_page; print(find_page(None))"], cwd=folder)


def make_packages(dist: Path, folder: Path) -> None:
    """Write what other places publish, and try it.

    Raises:
        Unready: something cannot be made, or does not work.
    """
    for name in ("node", "npm"):
        if shutil.which(name) is None:
            raise Unready(f"{name} is not installed")
    if folder.exists() and list(folder.iterdir()):
        raise Unready(f"{folder} is not empty")
    try:
        release_packages.write_conda(dist, folder / "conda", version())
        release_packages.write_schemastore(folder / "schemastore", run)
        release_packages.write_mirror(folder / "pre-commit", version())
        release_packages.try_mirror(folder / "pre-commit", dist, run)
        release_packages.write_extension(folder / "vscode", run)
    except (AssertionError, ValueError) as error:
        raise Unready(str(error)) from None


def run(command: list[str], *, cwd: str | Path = ROOT, code: int = 0, env: Mapping[str, str] = MappingProxyType({})) -> str:
    """Run a program and return its output.

    Raises:
        Unready: it ends with another exit code.
    """
    done = subprocess.run(command, cwd=cwd, env={**os.environ, "PYTHONPATH": "", **env}, capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise Unready(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def steps(given: argparse.Namespace, dist: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """What a release takes, in order."""
    yield "the version", lambda: check_version(given.tag)
    yield "generated files", check_generated
    yield "the distributions", lambda: build(dist)
    for python in given.python or [sys.executable]:
        yield f"in use, {python}", lambda python=python: try_out(dist, python)
    if given.packages is not None:
        yield "the playground", lambda: build_playground(dist)
        yield "the packages for other places", lambda: make_packages(dist, given.packages)


def absolute(word: str) -> Path:
    """A path of the command line, as it is from every working directory."""
    return Path(word).resolve()


def main(arguments: list[str]) -> int:
    """Run the steps until one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=absolute, help="where to write the distributions; by default a temporary folder")
    parser.add_argument("--packages", type=absolute, help="also make the packages for other places, into this folder")
    parser.add_argument("--tag", help="the tag of the release")
    parser.add_argument("--python", nargs="+", action="extend", default=[], help="the Pythons to try it with")
    parser.add_argument("--oldest", action="store_true", help="print the oldest dependencies, and do nothing else")
    given = parser.parse_args(arguments)
    if given.oldest:
        print("\n".join(oldest()))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        for name, step in steps(given, given.dist or Path(folder)):
            try:
                step()
            except Unready as error:
                print(f"{name}: {error}", file=sys.stderr)
                return 1
            print(f"{name}: as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
