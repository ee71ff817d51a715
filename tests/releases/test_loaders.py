"""Where a project pins the release of its loader, and what follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from dslint.config.context import Context
from dslint.facts import Integration, Release, find_release
from dslint.facts.find_loader import find_loader
from dslint.settings import Settings
from dslint.source.store import a_run
from tests.command import dslint

LOCK = '[[package]]\nname = "accelerate"\nversion = "{0}"\n\n[[package]]\nname = "transformers"\nversion = "{0}"\n'

PINS = [
    ("requirements.txt", "torch\ntransformers==4.46.3  # pinned\n", "requirements.txt requires transformers 4.46.3"),
    ("requirements.txt", "Transformers[torch] == 4.46.3 ; python_version > '3.8'\n", "requirements.txt requires"),
    ("requirements.txt", "transformers==4.46.3 --hash=sha256:ab\n", "requirements.txt requires"),
    ("requirements.txt", "transformers==4.46.3 \\\n    --hash=sha256:ab\n", "requirements.txt requires"),
    ("requirements.txt", "git+https://example.invalid/x/transformers.git@v4.46.3\n", "requirements.txt requires"),
    ("requirements/train.txt", "transformers===4.46.3\n", "requirements/train.txt requires"),
    ("uv.lock", LOCK.format("4.46.3"), "uv.lock locks transformers 4.46.3"),
    ("poetry.lock", LOCK.format("4.46.3"), "poetry.lock locks"),
    ("pylock.toml", LOCK.replace("package", "packages").format("4.46.3"), "pylock.toml locks"),
    (
        "pyproject.toml",
        '[project]\nkeywords = ["transformers"]\n[project.optional-dependencies]\na = ["transformers==4.46.3"]\n',
        "pyproject.toml requires",
    ),
    ("pyproject.toml", '[tool.poetry.dependencies]\ntransformers = "4.46.3"\n', "pyproject.toml requires"),
    ("pyproject.toml", '[tool.poetry.dependencies]\ntransformers = {version = "==4.46.3"}\n', "pyproject.toml requires"),
    ("environment.yml", "dependencies:\n  - conda-forge::transformers=4.46.3=pyh_0\n", "environment.yml requires"),
    ("environment.yml", "dependencies:\n  - pip:\n      - transformers==4.46.3\n", "environment.yml requires"),
    ("Dockerfile", "RUN cd transformers && pip install 'transformers==4.46.3' accelerate\n", "Dockerfile requires"),
    ("pdm.lock", LOCK.format("4.46.3"), "pdm.lock locks"),
    ("Pipfile.lock", '{"default": {"transformers": {"hashes": ["sha256:ab"], "version": "==4.46.3"}}}', "Pipfile.lock locks"),
    ("Pipfile", '[packages]\ntransformers = "==4.46.3"\n', "Pipfile requires"),
    ("requirements.txt", "transformers=4.46.3=pypi_0\n", "requirements.txt requires"),
    ("train_requirements.txt", "transformers==4.46.3\n", "train_requirements.txt requires"),
    ("setup.cfg", "[options]\ninstall_requires =\n  torch\n  transformers==4.46.3\n", "setup.cfg requires"),
    (
        "setup.cfg",
        "[isort]\nknown_third_party =\n  transformers\n[options]\ninstall_requires =\n  transformers==4.46.3\n",
        "setup.cfg requires",
    ),
    ("setup.cfg", "[options.extras_require]\ntrain =\n  transformers==4.46.3\n", "setup.cfg requires"),
    ("setup.py", "setup(name='transformers', install_requires=['torch', 'transformers==4.46.3'])\n", "setup.py requires"),
    ("run.sh", "set -e\npip install -q torch==2.1 \\\n  'transformers==4.46.3' accelerate==1.0.0\n", "run.sh requires"),
    ("job.sbatch", "#SBATCH -N 1\nuv pip install transformers[torch]==4.46.3 && srun python train.py\n", "job.sbatch requires"),
    ("train.ipynb", '{"source": ["!pip install transformers==4.46.3 peft==0.7.1\\n", "import torch"]}', "train.ipynb requires"),
    ("train.ipynb", '{"source": ["%pip install \\"transformers==4.46.3\\""]}', "train.ipynb requires"),
    ("job.yaml", "setup: |\n  pip install transformers==4.46.3\nrun: deepspeed train.py\n", "job.yaml requires"),
    ("run.sh", "pip install transformers==4.30.0\npip install transformers==4.46.3\n", "run.sh requires"),
    ("envs/requirements.txt", "transformers==4.46.3\n", "envs/requirements.txt requires"),
    ("conda/train_env.yaml", "dependencies:\n  - pip:\n      - transformers==4.46.3\n", "conda/train_env.yaml requires"),
    ("docker/Dockerfile", "RUN pip install accelerate \\\n  transformers==4.46.3 && rm -r x\n", "docker/Dockerfile requires"),
]

RANGES = [
    ("requirements.txt", "transformers>=4.46.3\n"),
    ("requirements.txt", "transformers==4.46.*\n"),
    ("requirements.txt", "transformers==4.46.3,<5\n"),
    ("requirements.txt", "transformers\n"),
    ("requirements.txt", "transformers==4.46.0.dev0\n"),
    ("requirements.txt", "transformers==4.46.3; sys_platform == 'linux'\ntransformers==4.40.0; sys_platform == 'darwin'\n"),
    ("requirements.txt", "sentence-transformers==4.46.3\ntransformers-stream==4.46.3\n# transformers==4.46.3\n"),
    ("requirements.txt", "git+https://example.invalid/x/transformers.git\n"),
    ("requirements.txt", "transformers==99999999.1\n"),
    ("pyproject.toml", '[tool.poetry.dependencies]\ntransformers = "^4.46.3"\n'),
    ("pyproject.toml", "transformers = not toml"),
    ("environment.yml", "dependencies:\n  - transformers=4.46\n"),
    ("setup.cfg", "[isort]\nknown_third_party =\n  transformers\n  transformers==4.46.3\n"),
    ("setup.py", "setup(install_requires=[\n  # 'transformers==4.46.3',\n  'x-transformers==4.46.3'])\n"),
    ("run.sh", "# pip install transformers==4.46.3\necho pip install transformers==4.46.3\n"),
    ("run.sh", "pip install transformers==4.46.3\npip install 'transformers>=4.46.3'  # nothing==1\n"),
    ("uv.lock", LOCK.replace("transformers", "x-transformers").format("4.46.3")),
]


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("name", "text", "evidence"), PINS)
def test_a_file_pins_the_loader(tmp_path: Path, name: str, text: str, evidence: str) -> None:
    _write(tmp_path, name, text)
    (tmp_path / "configs").mkdir()
    found = find_loader(str(tmp_path / "configs"), Integration.TRANSFORMERS)
    assert found is not None
    assert found.release == Release(4, 46, 3)
    assert found.evidence.startswith(evidence)
    assert find_loader(str(tmp_path), Integration.DEEPSPEED) is None


@pytest.mark.parametrize(("name", "text"), RANGES)
def test_what_pins_none(tmp_path: Path, name: str, text: str) -> None:
    _write(tmp_path, name, text)
    assert find_loader(str(tmp_path), Integration.TRANSFORMERS) is None


def test_scripts_that_install_different_releases_pin_none(tmp_path: Path) -> None:
    _write(tmp_path, "a.sh", "pip install transformers==4.46.3\n")
    _write(tmp_path, "b.sh", "pip install transformers==4.46.2\n")
    assert find_loader(str(tmp_path), Integration.TRANSFORMERS) is None


def test_two_numbers_are_the_first_patch(tmp_path: Path) -> None:
    _write(tmp_path, "requirements.txt", "accelerate==0.17\n")
    found = find_loader(str(tmp_path), Integration.ACCELERATE)
    assert found is not None
    assert found.release == Release(0, 17, 0)


def test_the_nearest_file_that_names_the_library_decides(tmp_path: Path) -> None:
    _write(tmp_path, "requirements.txt", "transformers==4.46.3\n")
    _write(tmp_path, "new/requirements.txt", "transformers>=4.50\n")
    assert find_loader(str(tmp_path / "new"), Integration.TRANSFORMERS) is None
    _write(tmp_path, "uv.lock", LOCK.format("4.51.0"))
    found = find_loader(str(tmp_path / "new"), Integration.TRANSFORMERS)
    assert found is not None
    assert found.release == Release(4, 51, 0)


OFFLOADING = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
ACCUMULATING = (
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
)
BETAS = (
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"betas": "auto"}}, "zero_optimization": {"stage": 2}}'
)


def _checked(folder: Path, text: str, *options: str) -> tuple[set[str], dict[str, str]]:
    """The codes for a config in a folder, and the evidence for what was inferred."""
    (folder / "ds.json").write_text(text, encoding="utf-8")
    done = dslint("check", "ds.json", "--output-format", "json", *options, cwd=folder)
    report = json.loads(done.stdout)
    return {d["code"] for d in report["diagnostics"]}, {one["fact"]: one["evidence"] for one in report["files"][0]["inferred"]}


def test_rules_about_a_release_speak_by_the_pin(tmp_path: Path) -> None:
    _write(tmp_path, "requirements.txt", "accelerate==0.17.1\n")
    codes, evidence = _checked(tmp_path, OFFLOADING, "--integration", "accelerate")
    assert "DS525" in codes
    assert evidence["loader_release"] == "requirements.txt requires accelerate 0.17.1"
    codes, evidence = _checked(tmp_path, OFFLOADING, "--integration", "accelerate==0.18.0")
    assert "DS525" not in codes
    assert "loader_release" not in evidence
    shown = dslint("check", "ds.json", "-v", "--integration", "accelerate", cwd=tmp_path).stdout
    assert "Inferred --integration accelerate==0.17.1: requirements.txt requires accelerate 0.17.1" in " ".join(shown.split())


def test_a_pair_of_releases_is_of_one_project(tmp_path: Path) -> None:
    _write(tmp_path, "requirements.txt", "accelerate==1.3.0\n")
    assert "DS952" not in _checked(tmp_path, ACCUMULATING, "--integration", "accelerate")[0]
    assert "DS952" in _checked(tmp_path, ACCUMULATING, "--integration", "accelerate", "--deepspeed", "0.16.4")[0]


def test_auto_pins_transformers_only_where_the_trainer_is_meant(tmp_path: Path) -> None:
    _write(tmp_path, "requirements.txt", "transformers==4.46.3\n")
    assert "loader_release" not in _checked(tmp_path, OFFLOADING)[1]
    evidence = _checked(tmp_path, BETAS)[1]
    assert evidence["integration"].startswith('"')
    assert evidence["loader_release"] == "requirements.txt requires transformers 4.46.3"


@pytest.mark.parametrize(
    ("kernel", "has_deepspeed", "found"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", True, True),
        ("5.15.167.4-microsoft-standard-WSL2", False, False),
        ("6.8.0-generic", True, False),
    ],
)
def test_wsl_is_known_by_its_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str, has_deepspeed: bool, found: bool) -> None:
    installed = find_release.FoundRelease(
        Release(0, 16, 9), "this environment has deepspeed 0.16.9", source=find_release.ReleaseSource.ENVIRONMENT
    )
    monkeypatch.setattr(find_release, "installed", lambda: installed if has_deepspeed else None)
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(release=kernel))
    monkeypatch.setattr("sys.platform", "linux")
    assert Settings((), str(tmp_path)).context.kernel == (kernel if found else None)
    assert Settings().context.kernel is None


def test_of_several_files_of_environments_none_counts(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "train_env.yml").write_text("dependencies:\n  - transformers=4.46.3\n")
    assert find_loader(str(tmp_path), Integration.TRANSFORMERS) is not None
    (tmp_path / "envs" / "eval_env.yml").write_text("dependencies:\n  - transformers=4.30.0\n")
    with a_run():
        assert find_loader(str(tmp_path), Integration.TRANSFORMERS) is None


@pytest.mark.parametrize(
    ("requirement", "oldest"),
    [
        ("trl>=1.9.1", Release(1, 9, 1)),
        ("trl>=1.9,<2", Release(1, 9, 0)),
        ("trl~=0.11.4", Release(0, 11, 4)),
        ("trl==0.11.4", Release(0, 11, 4)),
        ("trl>=1.9.0rc1", None),
        ("trl<2", None),
        ("trl!=1.9.1", None),
        ("trl", None),
        ("trl >= 1.9.1 ; python_version >= '3.12'", Release(1, 9, 1)),
    ],
)
def test_a_lower_bound_is_the_oldest_release_that_a_job_may_have(tmp_path: Path, requirement: str, oldest: Release | None) -> None:
    (tmp_path / "requirements.txt").write_text(requirement + "\n")
    context = Context(project=str(tmp_path))
    assert context.at_least("trl") == oldest
    assert context.pinned("trl") == (oldest if "==" in requirement.partition(";")[0] and oldest else None)


@pytest.mark.parametrize(
    ("requirements", "command", "release"),
    [
        ("", "pip install accelerate==0.27.2", "0.27.2"),
        ("accelerate\n", "pip install accelerate==0.27.2", "0.27.2"),
        ("accelerate>=0.30\n", "pip install accelerate==0.27.2", None),
        ("accelerate==1.1.0\n", "pip install accelerate==0.27.2", "1.1.0"),
        ("", "pip install accelerate==0.27.2\npip install accelerate==1.0.0", None),
        ("", "pip install accelerate", None),
    ],
)
def test_instructions_pin_a_library_that_no_file_requires(tmp_path: Path, requirements: str, command: str, release: str | None) -> None:
    (tmp_path / "README.md").write_text(f"accelerate==9.9.9 is too new\n\n```shell\n{command}\n```\n", encoding="utf-8")
    if requirements:
        (tmp_path / "requirements.txt").write_text(requirements, encoding="utf-8")
    found = find_loader(str(tmp_path), Integration.ACCELERATE)
    assert (str(found.release) if found is not None else None) == release
