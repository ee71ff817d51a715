"""The pre-commit hook: which files it looks at, and that it works from a clone."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
HOOK = next(hook for hook in HOOKS if hook["id"] == "dslint")

CONFIGS = [
    "ds_config.json",
    "ds_config_zero3.json",
    "DS_config.json",
    "deepspeed_config.json",
    "deepspeed.json",
    "my_deepspeed_zero2.json",
    "ds_z3_offload.json",
    "ds_stage2.json",
    "llama2_ds_zero3_config.json",
    "sp-alst.ds-config.json",
    "zero2.json",
    "zero3_offload.json",
    "zero3pp.json",
    "zero_stage1_config.json",
    "zero_config_pretrain.json",
    "stage3.json",
    "stage3-offload.json",
    "ds_zero_stage_1_config.hjson",
    "z2.json",
    "configs/deepspeed/bf16.json",
    "deepspeed_configs/mine.json",
    "train/ds_configs/a/b.json",
    "examples/ds_config.jsonc",
    "adam_zero1_bf16.json",
]

OTHERS = [
    "package.json",
    "tsconfig.json",
    "tokenizer_config.json",
    "config.json",
    "odds_config.json",
    "ads_config.json",
    "data/train.json",
    "zeros.json",
    "words.json",
    "kids_list.json",
    "model.safetensors.index.json",
    "deepspeed.py",
    "ds_config.yaml",
    "ds_config.json.bak",
    "fields.json",
    "thresholds.json",
    "z3.py",
    "dz10.json",
    "bids_and_asks.json",
]


@pytest.mark.parametrize("name", CONFIGS)
def test_names_of_configs_match(name: str) -> None:
    assert re.search(HOOK["files"], name)


@pytest.mark.parametrize("name", OTHERS)
def test_other_names_do_not(name: str) -> None:
    assert not re.search(HOOK["files"], name)


@pytest.mark.parametrize("name", ["train.yaml", "accelerate_configs/zero3.yml", "run.sh", "jobs/a.slurm"])
def test_setups_have_a_hook_of_their_own(name: str) -> None:
    (hook,) = (hook for hook in HOOKS if hook["id"] == "dslint-setups")
    assert re.search(hook["files"], name)
    assert not re.search(hook["files"], "ds_config.json")
    assert not re.search(HOOK["files"], name)


def test_every_hook_is_whole() -> None:
    for hook in HOOKS:
        assert hook.keys() >= {"id", "name", "description", "entry", "language", "files"}
        assert hook["language"] == "python"
        assert shlex.split(hook["entry"])[:5] == ["python", "-I", "-m", "deepspeed_lint", "check"]


def tracked(target: Path) -> Path:
    """A repository of its own with what this checkout tracks, as it is in the working tree."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        source, copy = ROOT / name, target / name
        if os.path.lexists(source):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], cwd=target, check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that pre-commit makes of a clone: the folder of its programs. Dependencies are those of this environment."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    folder = tmp_path_factory.mktemp("hook")
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(tracked(folder / "origin")), str(clone)], check=True, capture_output=True)
    environment = folder / "venv"
    venv.create(environment, with_pip=False, system_site_packages=True)
    programs = environment / ("Scripts" if sys.platform == "win32" else "bin")
    here = next(environment.rglob("site-packages"))
    (here / "outer.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")), encoding="utf-8")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(programs / "python"),
            "install",
            "-q",
            "--no-index",
            "--no-deps",
            "--no-build-isolation",
            "--ignore-installed",
            str(clone),
        ],
        check=True,
        capture_output=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ""},
    )
    shutil.rmtree(clone)
    return programs


@pytest.mark.build
def test_the_hook_works_from_a_clone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {}}', encoding="utf-8")
    (tmp_path / "zero2.json").write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', encoding="utf-8")
    (tmp_path / "stage1.json").write_text('{"title": "of a rocket", "thrust": 7}', encoding="utf-8")
    environment = {**os.environ, "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": ""}

    def hook(*names: str) -> subprocess.CompletedProcess[str]:
        command = [str(installed / "python"), *shlex.split(HOOK["entry"])[1:], *names]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    failed = hook("ds_config.json", "zero2.json", "stage1.json")
    assert failed.returncode == 1, failed.stderr
    assert "DS102" in failed.stdout
    passed = hook("zero2.json", "stage1.json")
    assert passed.returncode == 0, passed.stdout
    # What was installed is complete: the models and the exported schema are in it, and it is not this checkout that answered.
    program = "import dslint.schemas.root, dslint.rules, pathlib; print(pathlib.Path(dslint.__file__))"
    where = subprocess.run(
        [str(installed / "python"), "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert str(ROOT) not in where.stdout
    assert (Path(where.stdout.strip()).parent / "schemas" / "ds_config.schema.json").is_file()


@pytest.mark.build
def test_with_the_real_pre_commit(tmp_path: Path) -> None:
    """A scratch repository, and pre-commit itself: it makes its own environment of a clone of this checkout."""
    pytest.importorskip("pre_commit")
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    origin, project = tracked(tmp_path / "origin"), tmp_path / "project"
    project.mkdir()
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    revision = subprocess.run([*git, "rev-parse", "HEAD"], cwd=origin, check=True, capture_output=True, text=True).stdout.strip()
    hooks = {
        "repos": [
            {
                "repo": origin.as_uri(),
                "rev": revision,
                "hooks": [{"id": one, "args": ["--integration=transformers"]} for one in ("dslint", "dslint-fix")],
            }
        ]
    }
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump(hooks), encoding="utf-8")
    (project / "dslint.toml").write_text('exclude = ["old/"]\n', encoding="utf-8")
    (project / "package.json").write_text('{"name": "x", "zero_optimisation": {}}', encoding="utf-8")
    (project / "old").mkdir()
    for name in ("ds_config.json", "old/ds_config.json"):
        (project / name).write_text('{"train_micro_batch_size_per_gpu": "auto", "zero_optimisation": {}}', encoding="utf-8")
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run([*git, *command], cwd=project, check=True, capture_output=True)
    environment = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home"), "PYTHONPATH": "", "NO_COLOR": "1"}

    def commit(hook: str = "dslint") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pre_commit", "run", hook, "--all-files", "--color=never"]
        return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=300)

    failed = commit()
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert failed.stdout.count("error DS102 [misspelt-key-dropped]") == 1
    mended = ["{", '  "train_micro_batch_size_per_gpu": "4", // four', '  "zero_optimization": {"stage": 1}', "}"]
    (project / "ds_config.json").write_text("\n".join(mended), encoding="utf-8")
    failed = commit("dslint-fix")
    assert failed.returncode == 1
    assert "files were modified by this hook" in failed.stdout
    text = (project / "ds_config.json").read_text(encoding="utf-8")
    assert text == "\n".join(mended).replace('"4"', "4")
    (project / "ds_config.json").write_text(text.replace(" // four", ""), encoding="utf-8")
    passed = commit()
    assert passed.returncode == 0, passed.stdout
    assert "Passed" in passed.stdout
