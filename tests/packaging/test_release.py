"""A release can be made of this checkout, and the files around the code agree with it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from dslint import __version__
from dslint.facts import NEWEST
from dslint.project import COMPARED
from tests.command import dslint
from tests.hooks.test_hooks import tracked

ROOT = Path(__file__).resolve().parents[2]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
MATCHER = json.loads((ROOT / ".github" / "dslint-problems.json").read_text(encoding="utf-8"))


@pytest.mark.build
def test_a_release_is_built_and_works(tmp_path: Path) -> None:
    for tool in ("twine", "check_wheel_contents", "validate_pyproject", "build"):
        pytest.importorskip(tool)
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    source, dist, packages = tracked(tmp_path / "source"), tmp_path / "dist", tmp_path / "packages"
    others = all(map(shutil.which, ("node", "npm"))) and importlib.util.find_spec("pre_commit") is not None
    pythons = [sys.executable, *(found for name in ("python3.12", "python3.13", "python3.14") if (found := working(name)))]
    command = [sys.executable, "scripts/release.py", "--dist", "../dist", "--python", *pythons]
    command += ["--packages", "../packages"] if others else []
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = {re.sub(r"-\d.*?(?=\.tar|-py3)", "", path.name) for path in dist.iterdir()}
    ours = {"deepspeed_lint-py3-none-any.whl", "deepspeed_lint.tar.gz"}
    assert names == (ours | {"deepspeed_lint_playground-py3-none-any.whl"} if others else ours)
    if others:
        found = {path.relative_to(packages).as_posix() for path in packages.glob("*/*")}
        assert found > {"conda/recipe.yaml", "pre-commit/.pre-commit-hooks.yaml", "schemastore/src", f"vscode/dslint-{__version__}.vsix"}
    again = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "is not empty" in again.stderr


def working(name: str) -> str | None:
    """The path of a Python, if it is one that starts."""
    found = shutil.which(name)
    return found if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0 else None


def release(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "scripts/release.py"), *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """As much of the checkout as the first check reads."""
    for name in ("scripts", "dslint"):
        (tmp_path / name).mkdir()
    for name in (
        "scripts/release.py",
        "scripts/release_packages.py",
        "dslint/__init__.py",
        "CHANGELOG.md",
        "CITATION.cff",
        "pyproject.toml",
    ):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_tag_of_another_version_is_refused(copy: Path) -> None:
    done = release(copy, "--tag", "v9.9.9")
    assert done.returncode == 1
    assert "v9.9.9" in done.stderr


def test_a_version_without_a_date_is_not_tagged(copy: Path) -> None:
    text = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    (copy / "CHANGELOG.md").write_text(
        re.sub(r"^## .*$", f"## {__version__} - unreleased", text, count=1, flags=re.MULTILINE), encoding="utf-8"
    )
    done = release(copy, "--tag", f"v{__version__}")
    assert done.returncode == 1
    assert "no date" in done.stderr


def test_a_version_that_the_changelog_lacks_is_refused(copy: Path) -> None:
    text = (copy / "dslint/__init__.py").read_text(encoding="utf-8")
    (copy / "dslint/__init__.py").write_text(text.replace(__version__, "9.9.9"), encoding="utf-8")
    assert "no section 9.9.9" in release(copy).stderr


def test_the_oldest_dependencies_are_constraints(copy: Path) -> None:
    lines = release(copy, "--oldest").stdout.splitlines()
    assert "click==8.1.7" in lines
    assert all(re.fullmatch(r"[\w.-]+==[\d.]+", line) for line in lines)


def test_the_conda_recipe_has_the_dependencies_and_renders(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    import release_packages

    (tmp_path / "deepspeed_lint-1.2.3.tar.gz").write_bytes(b"sdist")
    text = release_packages.recipe(tmp_path / "deepspeed_lint-1.2.3.tar.gz", "1.2.3")
    data = yaml.safe_load(text)
    assert data["source"]["sha256"] == hashlib.sha256(b"sdist").hexdigest()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [line.replace(" ", "") for line in data["requirements"]["run"][1:]] == project["dependencies"]
    assert len(data["build"]["python"]["entry_points"]) == len(project["scripts"])
    release_packages.render(text)


def test_the_pre_commit_mirror_installs_the_release(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    import release_packages

    release_packages.write_mirror(tmp_path / "mirror", "1.2.3")
    metadata = tomllib.loads((tmp_path / "mirror/pyproject.toml").read_text(encoding="utf-8"))
    assert metadata["project"]["dependencies"] == ["deepspeed-lint==1.2.3"]
    assert (tmp_path / "mirror/.pre-commit-hooks.yaml").read_bytes() == (ROOT / ".pre-commit-hooks.yaml").read_bytes()


def test_the_version_and_what_it_knows() -> None:
    assert dslint("--version").stdout == f"dslint {__version__}\n"
    said = dslint("--version", "-v").stdout
    assert COMPARED in said
    assert "0.9.0 to 0.19.8" in said
    assert "plug-ins" in said
    done = dslint("-v", "check", "x.json")
    assert done.returncode == 2
    assert "dslint check -v" in done.stderr


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_issue_forms_are_forms(form: Path) -> None:
    data = yaml.safe_load(form.read_text(encoding="utf-8"))
    if form.name == "config.yml":
        assert set(data) == {"blank_issues_enabled"}
        return
    assert data.keys() >= {"name", "description", "body"}
    asked = [field for field in data["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in asked}) == len(asked)
    assert all(field["type"] in ("input", "textarea") and field["attributes"]["label"] for field in asked)


def test_the_problem_matcher_reads_concise_lines(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4, "elasticity": {}, "x_1": 2}', encoding="utf-8")
    options = ("--output-format", "concise", "--deepspeed", str(NEWEST))
    lines = dslint("check", "ds_config.json", *options, cwd=tmp_path).stdout.splitlines()
    patterns = {matcher["severity"]: matcher["pattern"][0] for matcher in MATCHER["problemMatcher"]}
    found = {severity: [re.fullmatch(pattern["regexp"], line) for line in lines] for severity, pattern in patterns.items()}
    (error,) = filter(None, found["error"])
    assert error[patterns["error"]["file"]] == "ds_config.json"
    assert (error[patterns["error"]["line"]], error[patterns["error"]["column"]]) == ("1", "39")
    assert "DS109" in error[patterns["error"]["code"]]
    (info,) = filter(None, found["warning"])
    assert "DS103" in info[patterns["warning"]["code"]]


def test_the_gitlab_component_names_its_inputs() -> None:
    spec, job = yaml.safe_load_all((ROOT / "templates" / "dslint.yml").read_text(encoding="utf-8"))
    used = set(re.findall(r"\$\[\[ inputs\.(\w+) \]\]", yaml.safe_dump(job)))
    assert used == set(spec["spec"]["inputs"])


@pytest.mark.slow
def test_hadolint_finds_nothing_in_the_container_file() -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([program, "--no-color", str(ROOT / "Containerfile")], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0
