"""The packages of a release for other places than the package index: the editor extension, the conda recipe, the pre-commit mirror, and the
files for SchemaStore. `scripts/release.py --packages DIR` writes and tries them; CONTRIBUTING.md says which account publishes each.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXTENSION = ROOT / "editors" / "vscode"

Run = Callable[..., str]
"""Runs a command, and raises if it fails."""

RECIPE = """\
schema_version: 1

context:
  version: "{version}"

package:
  name: deepspeed-lint
  version: ${{{{ version }}}}

source:
  url: https://pypi.org/packages/source/d/deepspeed-lint/deepspeed_lint-${{{{ version }}}}.tar.gz
  sha256: {sha256}

build:
  number: 0
  noarch: python
  script: ${{{{ PYTHON }}}} -m pip install . -vv --no-deps --no-build-isolation
  python:
    entry_points:
{entry_points}

requirements:
  host:
    - python ${{{{ python_min }}}}.*
    - pip
    - setuptools >=77
  run:
    - python >=${{{{ python_min }}}}
{dependencies}

tests:
  - python:
      imports:
        - dslint
        - deepspeed_lint
      pip_check: true
      python_version: ${{{{ python_min }}}}.*
  - script:
      - dslint --version
      - deepspeed-lint --version

about:
  license: Apache-2.0
  license_file: LICENSE
  summary: {summary}
{homepage}
extra:
  recipe-maintainers:
    - {maintainer}
"""

MIRROR = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "dslint-pre-commit"
version = "{version}"
description = "The pre-commit hooks of dslint, which install its wheel."
requires-python = ">=3.11"
dependencies = ["deepspeed-lint=={version}"]

[tool.setuptools]
py-modules = []
"""

MAINTAINER = "MAINTAINER"
"""In place of the account on GitHub that maintains the feedstock."""


def read_project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def project_constant(path: str, name: str) -> str:
    """A string that a module assigns to a name, without importing it."""
    found = re.search(rf'^{name} = "([^"]*)"', (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def recipe(sdist: Path, version: str) -> str:
    """The recipe for conda-forge of a source distribution."""
    project = read_project()
    homepage = f"  homepage: {address}\n" if (address := project_constant("dslint/project.py", "REPOSITORY")) else ""
    return RECIPE.format(
        version=version,
        sha256=hashlib.sha256(sdist.read_bytes()).hexdigest(),
        entry_points="\n".join(f"      - {name} = {target}" for name, target in project["scripts"].items()),
        dependencies="\n".join(f"    - {re.sub('(?=[<>=])', ' ', line, count=1)}" for line in project["dependencies"]),
        summary=json.dumps(project["description"]),
        homepage=homepage,
        maintainer=MAINTAINER,
    )


def write_conda(dist: Path, folder: Path, version: str) -> None:
    """Write the recipe, and render it as conda-forge's tools do."""
    (sdist,) = dist.glob("deepspeed_lint-*.tar.gz")
    text = recipe(sdist, version)
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    render(text)


def render(text: str) -> None:
    """Parse and render a recipe; raises if it is not one. Without rattler-build it is not tried."""
    try:
        from rattler_build import VariantConfig
        from rattler_build.stage0 import Stage0Recipe
    except ModuleNotFoundError:
        return
    rendered = Stage0Recipe.from_yaml(text).render(VariantConfig({"python_min": ["3.11"]}))
    assert len(rendered) == 1, "one package for all platforms and Pythons"


def write_extension(folder: Path, run: Run) -> None:
    """Package the editor extension, which the Marketplace and Open VSX both take."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as copy:
        target = Path(copy, "editors", "vscode")
        shutil.copytree(EXTENSION, target, ignore=shutil.ignore_patterns("node_modules", "dist", "*.vsix", "LICENSE"))
        shutil.copy(ROOT / "LICENSE", copy)
        run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=target)
        run(["npm", "run", "package", "--", "--out", str(folder.resolve())], cwd=target)


def write_mirror(folder: Path, version: str) -> None:
    """Write a repository for pre-commit that installs the wheel, so that a hook does not build the package from its source."""
    folder.mkdir(parents=True)
    for name in (".pre-commit-hooks.yaml", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    (folder / "pyproject.toml").write_text(MIRROR.format(version=version), encoding="utf-8")


def try_mirror(folder: Path, dist: Path, run: Run) -> None:
    """Run the hook of the mirror on a config with a mistake, with the wheel that was built; raises if it does not find the mistake."""
    with tempfile.TemporaryDirectory() as work:
        mirror, project = Path(work, "mirror"), Path(work, "project")
        shutil.copytree(folder, mirror)
        project.mkdir()
        (project / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4, "elasticity": {}}', encoding="utf-8")
        for repository in (mirror, project):
            run(["git", "init", "--quiet"], cwd=repository)
            run(["git", "add", "."], cwd=repository)
            run(["git", "-c", "user.name=dslint", "-c", "user.email=dslint@localhost", "commit", "--quiet", "-m", "All"], cwd=repository)
        command = [sys.executable, "-m", "pre_commit", "try-repo", str(mirror), "dslint", "--all-files"]
        said = run(command, cwd=project, code=1, env={"PIP_FIND_LINKS": str(dist.resolve()), "PRE_COMMIT_HOME": str(Path(work, "cache"))})
        assert "DS109" in said, said


def write_schemastore(folder: Path, run: Run) -> None:
    """Write the files of the pull request to SchemaStore."""
    folder.mkdir(parents=True)
    run([sys.executable, str(ROOT / "scripts" / "schemastore.py"), str(folder)], env={"PYTHONPATH": str(ROOT)})
