"""Where a project says which DeepSpeed release it runs, and in which order it is believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dslint import api
from dslint.config.load import take
from dslint.facts import NEWEST, OLDEST, RELEASES, Release
from dslint.facts import find_release as releases
from dslint.lint.document import lint_loaded
from dslint.lint.group import for_report
from dslint.registry.rules import loaded_rules
from dslint.rule import Example, Rule
from dslint.source.parse import parse
from dslint.source.store import a_run
from tests.command import dslint
from tests.setup.beside import context_of

LOCK = '[[package]]\nname = "torch"\nversion = "2.4.0"\n\n[[package]]\nname = "deepspeed"\nversion = "{}"\nsource = {{ registry = "x" }}\n'

FILES = [
    ("uv.lock", LOCK.format("0.16.9"), "0.16.9", "uv.lock locks deepspeed 0.16.9"),
    ("poetry.lock", LOCK.format("0.14.0"), "0.14.0", "poetry.lock locks"),
    ("pylock.toml", '[[packages]]\nname = "deepspeed"\nversion = "0.15.4"\n', "0.15.4", "pylock.toml locks"),
    ("pylock.gpu.toml", "[[packages]]\nname = 'deepspeed'\nversion = '0.15.3'\n", "0.15.3", "pylock.gpu.toml locks"),
    ("requirements.txt", "torch\nDeepSpeed==0.12.6  # pinned\n", "0.12.6", "requirements.txt requires deepspeed 0.12.6"),
    ("requirements.txt", "deepspeed>=0.14,<0.16\n", "0.15.4", "the latest supported match"),
    ("requirements.txt", "deepspeed[sd]~=0.13.1 ; sys_platform == 'linux'\n", "0.13.5", "~=0.13.1"),
    ("requirements.txt", "deepspeed\n", str(NEWEST), "requirements.txt requires deepspeed, and"),
    ("requirements-train.txt", "deepspeed==0.17.1 --hash=sha256:ab\n", "0.17.1", "requirements-train.txt"),
    ("requirements.txt", "git+https://example.invalid/x/DeepSpeed.git@v0.14.2\n", "0.14.2", "the git tag"),
    ("requirements.txt", "deepspeed==0.16.9+cu121\n", "0.16.9", "0.16.9"),
    ("requirements.txt", "deepspeed==0.25.0\n", "0.25.0", "0.25.0"),
    ("requirements.txt", "deepspeed==0.6.1\n", "0.6.1", "requirements.txt requires deepspeed 0.6.1"),
    ("requirement.txt", "deepspeed==0.14.2\n", "0.14.2", "requirement.txt requires deepspeed 0.14.2"),
    ("requirements.txt", "torch=2.3.1\ndeepspeed=0.6.1\n", "0.6.1", "requirements.txt requires deepspeed 0.6.1"),
    ("requirements.txt", "deepspeed=0.15.4=pypi_0\n", "0.15.4", "requirements.txt requires deepspeed 0.15.4"),
    ("requirements.txt", "deepspeed<0.9\n", "0.8", "requires deepspeed <0.9"),
    ("requirements.txt", "deepspeed==0.7.*\n", "0.7", "requires deepspeed ==0.7.*"),
    ("requirements.txt", "deepspeed>=0.30\n", "0.30", "requires deepspeed >=0.30"),
    ("pyproject.toml", '[project]\nname = "x"\ndependencies = ["deepspeed==0.16.4"]\n', "0.16.4", "pyproject.toml"),
    ("pyproject.toml", '[project.optional-dependencies]\ntrain = ["deepspeed<0.15"]\n', "0.14.5", "<0.15"),
    ("pyproject.toml", '[dependency-groups]\ntrain = ["deepspeed==0.15.1", {include-group = "y"}]\n', "0.15.1", "pyproject.toml"),
    ("pyproject.toml", '[tool.poetry.dependencies]\ndeepspeed = "^0.14.2"\n', "0.14.5", "pyproject.toml"),
    (
        "pyproject.toml",
        '[tool.poetry.group.gpu.dependencies]\ndeepspeed = {version = "~0.13", optional = true}\n',
        "0.13.5",
        "pyproject.toml",
    ),
    ("environment.yml", "dependencies:\n  - python=3.11\n  - conda-forge::deepspeed=0.14\n", "0.14.5", "environment.yml"),
    ("environment.yaml", "dependencies:\n  - pip:\n      - deepspeed==0.10.3\n", "0.10.3", "environment.yaml"),
    ("setup.py", 'setup(extras_require={"deepspeed": ["deepspeed==0.14.2"]})\n', "0.14.2", "setup.py requires"),
    (
        "setup.py",
        'extras["deepspeed"] = more\nsetup(install_requires=["deepspeed-mii", "deepspeed==0.14.2"])\n',
        "0.14.2",
        "setup.py requires",
    ),
    ("setup.py", "# 'deepspeed==0.9.0'\nsetup(install_requires=['deepspeed'])\n", str(NEWEST), "setup.py requires"),
    ("setup.cfg", "[options]\ninstall_requires = deepspeed==0.14.2\n", "0.14.2", "setup.cfg requires"),
]

NOTHING = [
    ("requirements.txt", "deepspeed-mii==0.2\n# deepspeed==0.14\n"),
    ("requirements.txt", "deepspeed @ https://example.invalid/x.whl\n"),
    ("requirements.txt", "deepspeed===never\n"),
    ("uv.lock", '[[package]]\nname = "deepspeed-kernels"\nversion = "0.0.1"\n'),
    ("pyproject.toml", "deepspeed = not toml"),
    ("pyproject.toml", '[project]\nname = "deepspeed"\nversion = "0.16.0"\n'),
    ("pyproject.toml", '[tool.poetry.dependencies]\ndeepspeed = {git = "x"}\n'),
    ("environment.yml", "name: deepspeed\n"),
]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where no DeepSpeed is installed beside dslint, in a repository of its own."""
    monkeypatch.setattr(releases, "installed", lambda: None)
    (tmp_path / ".git").mkdir(exist_ok=True)


@pytest.mark.parametrize(("name", "text", "release", "evidence"), FILES)
def test_a_file_names_the_release(tmp_path: Path, name: str, text: str, release: str, evidence: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = releases.find(str(tmp_path))
    assert found is not None
    assert found.release == Release.parse(release)
    assert evidence in found.evidence


@pytest.mark.parametrize(("name", "text"), NOTHING)
def test_what_names_none(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert releases.find(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("line", "certain"),
    [
        ("git+https://example.invalid/EleutherAI/DeeperSpeed.git@eb7f5cf3#egg=deepspeed", False),
        ("git+https://example.invalid/x/DeeperSpeed.git", False),
        ("deepspeed==0.16.4", True),
    ],
)
def test_nothing_is_certain_with_the_fork_of_gpt_neox(tmp_path: Path, line: str, certain: bool) -> None:
    (tmp_path / "requirements.txt").write_text(line + "\n")
    found = releases.find(str(tmp_path))
    assert found is not None
    assert found.own_copy is not certain
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 0}')
    (one,) = api.check(tmp_path / "ds_config.json")
    assert one.certain is certain


_FORK = "git+https://example.invalid/EleutherAI/DeeperSpeed.git@eb7f5cf3"


@pytest.mark.parametrize(
    ("name", "text", "certain"),
    [
        ("setup.py", f'setup(install_requires=["torch", "deepspeed @ {_FORK}"])\n', False),
        ("setup.py", f'setup(dependency_links=["{_FORK}#egg=deepspeed"], install_requires=["deepspeed==0.16.4"])\n', False),
        ("setup.py", 'setup(install_requires=["deeperspeed"])\n', False),
        ("setup.py", 'setup(description="Not for DeeperSpeed", install_requires=["deepspeed==0.16.4"])\n', True),
        ("Dockerfile", f"FROM x\nRUN pip install torch \\\n    {_FORK}\n", False),
        ("Dockerfile", "FROM x\nRUN git clone https://example.invalid/x/DeeperSpeed && pip install ./DeeperSpeed\n", False),
        ("Dockerfile", "FROM x\n# pip install DeeperSpeed\nRUN pip install deepspeed==0.16.4\n", True),
        ("environment.yml", f"dependencies:\n  - pip:\n    - {_FORK}\n", False),
        ("setup.sh", f"pip install {_FORK}\n", False),
    ],
)
def test_the_fork_is_seen_wherever_it_is_installed(tmp_path: Path, name: str, text: str, certain: bool) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / ".git").mkdir(exist_ok=True)
    found = releases.find(str(tmp_path))
    assert found is not None
    assert found.own_copy is not certain


def test_the_order_of_files_and_of_folders(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    order = ["uv.lock", "poetry.lock", "pylock.toml", "requirements.txt", "pyproject.toml", "environment.yml"]
    texts = {name: text for name, text, _, _ in reversed(FILES)}
    for name in reversed(order):
        (tmp_path / name).write_text(texts[name], encoding="utf-8")
        assert name in releases.find(str(inner)).evidence  # type: ignore[union-attr]
    (tmp_path / "a" / "environment.yml").write_text(texts["environment.yml"], encoding="utf-8")
    assert "environment.yml" in releases.find(str(inner)).evidence  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("near", "above", "release"),
    [
        ("deepspeed>=0.9.0", "deepspeed==0.9.3", "0.9.3"),
        ("deepspeed", "deepspeed==0.14.5", "0.14.5"),
        ("deepspeed>=0.16", "deepspeed==0.9.3", str(NEWEST)),
        ("deepspeed==0.16.9", "deepspeed==0.9.3", "0.16.9"),
        ("deepspeed<0.15", "deepspeed<0.13", "0.14.5"),
    ],
)
def test_a_pin_above_a_requirement_that_allows_it(tmp_path: Path, near: str, above: str, release: str) -> None:
    inner = tmp_path / "training"
    inner.mkdir()
    (inner / "requirements.txt").write_text(f"{near}\n", encoding="utf-8")
    (tmp_path / "requirements.txt").write_text(f"{above}\n", encoding="utf-8")
    found = releases.find(str(inner))
    assert found is not None
    assert found.release == Release.parse(release)


def test_the_search_ends_at_the_repository(tmp_path: Path) -> None:
    inner = tmp_path / "project"
    (inner / ".git").mkdir(parents=True)
    (tmp_path / "requirements.txt").write_text("deepspeed==0.12.6\n", encoding="utf-8")
    assert releases.find(str(inner)) is None


def in_environment(release: Release) -> releases.FoundRelease:
    """What the environment of dslint has, if it has this release."""
    return releases.FoundRelease(release, f"this environment has deepspeed {release}", source=releases.ReleaseSource.ENVIRONMENT)


def test_what_is_installed_is_found_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    (tmp_path / "deepspeed-0.16.3.dist-info").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path / "missing"), str(tmp_path)])
    assert releases.installed.__wrapped__() == in_environment(Release(0, 16, 3))


@pytest.mark.parametrize(
    ("required", "release"),
    [(None, "0.16.9"), ("deepspeed", "0.16.9"), ("deepspeed>=0.15", "0.16.9"), ("deepspeed==0.9.0", "0.9.0"), ("deepspeed<0.15", "0.14.5")],
)
def test_the_environment_counts_where_the_project_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: str | None, release: str
) -> None:
    """An environment with a release that the project excludes is another one: a linter's own, or that of other work."""
    if required is not None:
        (tmp_path / "requirements.txt").write_text(f"torch\n{required}\n", encoding="utf-8")
    monkeypatch.setattr(releases, "installed", lambda: in_environment(Release(0, 16, 9)))
    found = releases.find(str(tmp_path))
    assert found is not None
    assert found.release == Release.parse(release)


@pytest.mark.slow
def test_the_summary_says_which_and_why(tmp_path: Path) -> None:
    program = "import dslint.facts.find_release as r; r.installed = lambda: None; from dslint.cli import main; main()"
    import subprocess
    import sys

    def run(*arguments: str) -> str:
        command = [sys.executable, "-c", program, "check", "-v", "ds.json", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4, "elasticity": {"enabled": false}}', encoding="utf-8")
    assert f"Assuming DeepSpeed {NEWEST} (latest supported): no version found" in " ".join(run().split())
    assert "DS109" in run()
    (tmp_path / "uv.lock").write_text(LOCK.format("0.16.9"), encoding="utf-8")
    assert "Detected DeepSpeed 0.16.9: uv.lock locks deepspeed 0.16.9" in run()
    assert "DS109" not in run()
    assert "Assuming DeepSpeed" not in run("--deepspeed", "0.19.8")
    (tmp_path / "uv.lock").write_text(LOCK.format("0.8.3"), encoding="utf-8")
    assert "Assuming DeepSpeed 0.9.0 in place of 0.8.3: uv.lock locks deepspeed 0.8.3; dslint knows 0.9.0 to" in " ".join(run().split())
    (tmp_path / "dslint.toml").write_text('deepspeed = "0.19"\n', encoding="utf-8")
    assert "DS109" in run()
    assert "DS109" in run("--isolated")


def test_an_upgrade_says_only_what_changes(tmp_path: Path) -> None:
    config = '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {}, "elasticity": {"enabled": false}, "gradient_clipping": 1.0}'
    (tmp_path / "ds.json").write_text(config, encoding="utf-8")

    def codes(upgrade: str) -> list[str]:
        done = dslint("check", "ds.json", "--deepspeed", upgrade, "--output-format", "json", cwd=tmp_path)
        return [d["code"] for d in json.loads(done.stdout)["diagnostics"]]

    assert codes("0.14.5..0.19.8") == ["DS109", "DS116"]
    assert codes("0.14.5..") == ["DS109", "DS116"]
    assert codes("0.14.5..0.19.7") == ["DS116"]
    assert codes("0.16.9..0.19.7") == []
    assert dslint("check", "ds.json", "--deepspeed", "0.19.8..0.14.5", cwd=tmp_path).returncode == 2
    assert dslint("check", "ds.json", "--deepspeed", "0.8.0..0.14.5", cwd=tmp_path).returncode == 2


def test_what_a_release_newer_than_the_newest_known_refuses_is_only_warned_of(tmp_path: Path) -> None:
    config = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "brand_new_key": 1}, "gradient_cliping": 1.0}'
    (tmp_path / "ds.json").write_text(config, encoding="utf-8")
    done = dslint("check", "ds.json", "--deepspeed", "0.25.0", "--output-format", "json", cwd=tmp_path)
    found = {d["code"]: d["severity"] for d in json.loads(done.stdout)["diagnostics"]}
    assert found == {"DS101": "warning", "DS102": "warning"}


UNKNOWN = [("0.6.1", "0.9.0 in place of 0.6.1"), ("0.99", f"{NEWEST} in place of 0.99"), ("1.2.0", f"{NEWEST} in place of 1.2.0")]


@pytest.mark.parametrize(("release", "said"), UNKNOWN)
def test_a_release_outside_of_the_known_ones_makes_nothing_certain(tmp_path: Path, release: str, said: str) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "train_micro_batch_size_per_gpu": -1}', encoding="utf-8")
    known = dslint("check", "ds.json", "--deepspeed", str(OLDEST if "0.9.0" in said else NEWEST), cwd=tmp_path)
    done = dslint("check", "ds.json", "--deepspeed", release, cwd=tmp_path)
    assert known.stdout.startswith("error[")
    assert done.stdout.startswith("warning[")
    assert f"Assuming DeepSpeed {said}." in " ".join(done.stdout.split())
    assert "DeepSpeed crashes" not in done.stdout
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    assert dslint("check", "ds.json", "--deepspeed", release, cwd=tmp_path).returncode == 0
    assert dslint("check", "ds.json", "--deepspeed", release, "--strict", cwd=tmp_path).returncode == 1


def test_no_defect_of_a_release_is_reported_for_an_unknown_one(tmp_path: Path) -> None:
    text = '{"train_micro_batch_size_per_gpu": 1, "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, "cycle_first_stair_count": 4}}}'
    (tmp_path / "ds.json").write_text(text, encoding="utf-8")
    assert "DS977" in dslint("check", "ds.json", "--deepspeed", "0.9.0", cwd=tmp_path).stdout
    assert "DS977" not in dslint("check", "ds.json", "--deepspeed", "0.8.3", cwd=tmp_path).stdout


@pytest.mark.parametrize(("release", "code", "said"), [("0.6.1", "DS102", ""), ("0.8.0", "DS101", 'raises "extra fields not permitted"')])
def test_sections_are_judged_by_the_model_of_the_release_that_runs(tmp_path: Path, release: str, code: str, said: str) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stag": 2}}', encoding="utf-8")
    done = dslint("check", "ds.json", "--deepspeed", release, "--output-format", "json", cwd=tmp_path)
    (found,) = json.loads(done.stdout)["diagnostics"]
    assert (found["code"], found["severity"], found["fix"]["applicability"]) == (code, "warning", "unsafe")
    assert said in found["message"]
    assert found["message"].endswith(f"dslint judges DeepSpeed {release} as 0.9.0, and {release} may not do so.")


def test_a_key_that_the_oldest_known_release_ignores_stays_for_an_older_one(tmp_path: Path) -> None:
    text = '{"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true, "opt_level": "O1"}, "zero_optimization": {"stage": 3, "buffer_size": 5}}'
    (tmp_path / "ds.json").write_text(text, encoding="utf-8")
    done = dslint("check", "ds.json", "--deepspeed", "0.3.16", "--output-format", "json", cwd=tmp_path)
    found = json.loads(done.stdout)["diagnostics"]
    assert sorted((one["code"], one["fix"]) for one in found) == [("DS102", None), ("DS103", None)]
    assert all(one["message"].endswith("dslint judges DeepSpeed 0.3.16 as 0.9.0, and 0.3.16 may not do so.") for one in found)


@pytest.mark.slow
def test_what_only_the_oldest_release_does_is_reported_of_no_older_one() -> None:
    def found(rule: Rule, example: Example, release: Release, outside: Release | None = None) -> bool:
        context = context_of(example).but(deepspeed=release)._replace(outside=outside, oldest=None)
        return bool(lint_loaded(take(parse(example.text), context), "ds.json", [rule]).diagnostics)

    examples = [(rule, one) for rule in loaded_rules() for one in rule.bad if context_of(one).facts.upgrade_from is None]
    tied = [(rule, one) for rule, one in examples if found(rule, one, OLDEST) and not found(rule, one, RELEASES[1])]
    assert tied
    assert [rule.code for rule, one in tied if found(rule, one, OLDEST, Release(0, 8, 3))] == []


@pytest.mark.parametrize(
    ("pins", "severities"),
    [
        ("transformers==4.40.0\n", {"fp16": "warning", "csv_monitor": "error"}),
        ("transformers==4.40.0\ndeepspeed==0.19.8\n", {"fp16": "error", "csv_monitor": "error"}),
        ("deepspeed==0.19.8\n", {"fp16": "error", "csv_monitor": "error"}),
    ],
)
def test_an_assumed_release_proves_nothing_beside_a_pinned_integration(tmp_path: Path, pins: str, severities: dict[str, str]) -> None:
    config = '{"train_batch_size": "auto", "fp16": {"enabled": true, "x": 1}, "csv_monitor": {"y": 1}, "zero_optimization": {"stage": 1}}'
    launch = "deepspeed --num_gpus 2 train.py --deepspeed ds.json --fp16\n"
    for name, text in (("requirements.txt", pins), ("ds.json", config), ("run.sh", launch)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = json.loads(dslint("check", ".", "--output-format", "json", "--select", "DS101", cwd=tmp_path).stdout)["diagnostics"]
    assert {one["pointer"].split("/")[1]: one["severity"] for one in found} == severities


def test_a_release_that_the_project_pins_later_counts_in_the_same_process(tmp_path: Path) -> None:
    config = tmp_path / "ds_config.json"
    config.write_text(
        '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}, "amp": {"enabled": true}}', encoding="utf-8"
    )
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("deepspeed==0.19.8\ntransformers==4.40.0\n", encoding="utf-8")
    assert "DS109" in [one.code for one in api.check(config)]
    requirements.write_text("deepspeed==0.16.4\ntransformers==4.40.0\n", encoding="utf-8")
    assert "DS109" not in [one.code for one in api.check(config)]


def test_one_run_reads_the_files_of_a_project_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.4\n", encoding="utf-8")
    inner = tmp_path / "inner"
    inner.mkdir()
    read: list[str] = []
    real = releases.read_bytes
    monkeypatch.setattr(releases, "read_bytes", lambda path, largest: read.append(path) or real(path, largest))
    with a_run():
        for _ in range(3):
            assert releases.find(str(inner)).release == Release(0, 16, 4)  # type: ignore[union-attr]
    assert read == [str(tmp_path / "requirements.txt")]


@pytest.mark.parametrize(
    ("requires", "installed", "severities", "words"),
    [
        ("", None, {"DS101": "warning", "DS107": "error"}, f"DeepSpeed {NEWEST} is assumed; an older release may not do so."),
        (
            "",
            Release(0, 19, 2),
            {"DS101": "error", "DS107": "error"},
            "This environment has DeepSpeed 0.19.2; an older release may not do so.",
        ),
        (
            "deepspeed>=0.10\n",
            None,
            {"DS101": "warning", "DS107": "error"},
            f"DeepSpeed {NEWEST} is assumed; an older release may not do so.",
        ),
        (
            "deepspeed>=0.10\n",
            Release(0, 19, 2),
            {"DS101": "error", "DS107": "error"},
            "This environment has DeepSpeed 0.19.2; an older release may not do so.",
        ),
        ("deepspeed>=0.19\n", Release(0, 19, 2), {"DS101": "error", "DS107": "error"}, ""),
        ("deepspeed>=0.19\n", None, {"DS101": "error", "DS107": "error"}, ""),
        ("deepspeed==0.19.1\n", None, {"DS101": "error", "DS107": "error"}, ""),
    ],
)
def test_an_error_that_an_older_release_does_not_make_rests_on_the_assumed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requires: str, installed: Release | None, severities: dict[str, str], words: str
) -> None:
    """Releases before 0.17 read no keys of fp16 but their own, and every release refuses a stage of 4."""
    own = in_environment(installed) if installed else None
    monkeypatch.setattr(releases, "installed", lambda: own)
    if requires:
        (tmp_path / "requirements.txt").write_text(requires)
    config = tmp_path / "ds_config.json"
    config.write_text(
        '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "opt_level": "O1"}, "zero_optimization": {"stage": 4}}'
    )
    found = {one.code: one for one in api.check(config)}
    assert {code: found[code].severity for code in severities} == severities
    assert found["DS101"].message.endswith(words or '"Extra inputs are not permitted".')
    assert "release may" not in found["DS107"].message
    config.write_text('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "opt_level": "O1", "level": 1, "x": 2}}')
    grouped = [one.message for file in api.check(config).files for one in for_report(file).diagnostics]
    assert ["release may" in message for message in grouped] == [bool(words)] * len(grouped)


def test_a_finding_with_the_error_of_another_rule_names_the_release_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "installed", lambda: in_environment(Release(0, 19, 8)))
    config = tmp_path / "ds_config.json"
    optimizer, fp16 = '{"type": "AdamW", "params": {"lr": 1e-4}}', '{"enabled": false, "fp16_master_weights_and_grads": true}'
    misspelt = f'"bf16": {{"enabled": true}}, "zero_optimizations": {{"stage": 2}}, "fp16": {fp16}'
    config.write_text(f'{{"train_micro_batch_size_per_gpu": 4, "optimizer": {optimizer}, {misspelt}}}')
    (found,) = (one for one in api.check(config) if one.code == "DS102")
    assert found.message.count("an older release may not do so.") == 1


@pytest.mark.parametrize(("requires", "said"), [("0.12", "Require DeepSpeed 0.16.4 or later, and use"), ("0.16.4", "Use `aio.intra")])
def test_a_key_that_an_older_release_of_the_range_lacks_is_said_to_need_a_newer_one(tmp_path: Path, requires: str, said: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"deepspeed>={requires},<0.17\n")
    config = tmp_path / "ds_config.json"
    nvme = '"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"}}'
    config.write_text(f'{{"train_micro_batch_size_per_gpu": 4, "aio": {{"thread_count": 4}}, {nvme}}}')
    (found,) = (one for one in api.check(config) if one.code == "DS110")
    assert (found.help or "").startswith(said)


def test_a_finding_that_is_not_certain_rests_on_the_assumed_release_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases up to 0.17.0 do not drop an "auto" of fp16, but read it as true."""
    monkeypatch.setattr(releases, "installed", lambda: None)
    config = tmp_path / "ds_config.json"
    config.write_text('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": "auto"}}')
    for requires, rests in (("deepspeed>=0.10", True), ("deepspeed>=0.18", False)):
        (tmp_path / "requirements.txt").write_text(requires)
        (found,) = api.check(config)
        assert (found.code, found.severity) == ("DS901", "warning")
        assert found.message.endswith(f"DeepSpeed {NEWEST} is assumed; an older release may not do so.") == rests


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.sh", 'set -e\npip install torch \\\n  "deepspeed==0.15.4"\ndeepspeed train.py\n'),
        ("setup.sbatch", "python -m pip install -q deepspeed==0.15.4 && srun deepspeed train.py\n"),
        ("train.ipynb", '{"cells": [{"cell_type": "code", "source": ["!pip install -q deepspeed==0.15.4\\n", "import torch"]}]}'),
        ("job.yaml", "setup: |\n  pip install deepspeed==0.15.4\nrun: deepspeed train.py\n"),
    ],
)
def test_a_command_that_installs_names_the_release(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = releases.find(str(tmp_path))
    assert found is not None
    assert str(found.release) == "0.15.4"
    assert found.evidence == f"{name} requires deepspeed 0.15.4"
    (tmp_path / "requirements.txt").write_text("deepspeed==0.14.0\n", encoding="utf-8")
    with a_run():
        assert str((releases.find(str(tmp_path)) or releases.NOTHING).release) == "0.14.0", "a file of requirements counts more"


@pytest.mark.parametrize(
    "texts",
    [
        {"a.sh": "# pip install deepspeed==0.15.4\necho deepspeed==0.15.4\n"},
        {"a.sh": 'echo "pip install deepspeed==0.15.4"\n'},
        {"a.sh": "pip install deepspeed-kernels==0.1\npip uninstall deepspeed\n"},
    ],
)
def test_what_installs_no_one_release(tmp_path: Path, texts: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "installed", lambda: None)
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert releases.find(str(tmp_path)) is None


def test_scripts_that_install_different_releases_leave_it_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "installed", lambda: None)
    (tmp_path / "a.sh").write_text("pip install deepspeed==0.9.0\npip install deepspeed==0.15.4\n", encoding="utf-8")
    (tmp_path / "b.sh").write_text("pip install deepspeed==0.14.0\n", encoding="utf-8")
    found = releases.find(str(tmp_path))
    assert found is not None
    assert (str(found.release), str(found.oldest)) == ("0.15.4", "0.14.0")
    assert found.evidence == "b.sh requires deepspeed 0.14.0 and a.sh requires deepspeed 0.15.4, and this is the newer one"


@pytest.mark.parametrize(("in_repository", "release"), [(True, "0.15.4"), (False, None)])
def test_a_script_around_the_working_directory_counts_only_in_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_repository: bool, release: str | None
) -> None:
    monkeypatch.setattr(releases, "installed", lambda: None)
    folder = tmp_path / "jobs" / "one"
    folder.mkdir(parents=True)
    (tmp_path / "base.sh").write_text("pip install deepspeed==0.15.4\n", encoding="utf-8")
    if not in_repository:
        (tmp_path / ".git").rmdir()
    monkeypatch.chdir(folder)
    found = releases.find(str(folder))
    assert (str(found.release) if found is not None else None) == release


_README = "# Setup\nReleases before 0.14 do not work: pip install deepspeed==0.13.1\n```bash\nconda create -n train\n%s\n```\n"


@pytest.mark.parametrize(
    ("requirements", "command", "release"),
    [
        ("", "pip install deepspeed==0.15.4", "0.15.4"),
        ("", "pip install torch accelerate \\\n  deepspeed==0.15.4", "0.15.4"),
        ("deepspeed\n", "pip install deepspeed==0.15.4", "0.15.4"),
        ("deepspeed>=0.14\n", "pip install deepspeed==0.15.4", "0.15.4"),
        ("deepspeed==0.16.3\n", "pip install deepspeed==0.15.4", "0.16.3"),
        ("deepspeed<0.15\n", "pip install deepspeed==0.15.4", "0.14.5"),
        ("", "pip install deepspeed==0.15.4\npip install deepspeed==0.9.5", None),
        ("", "pip install deepspeed", None),
        ("", "pip install 'deepspeed>=0.15'", None),
        ("", "# pip install deepspeed==0.15.4", None),
    ],
)
def test_instructions_name_the_release_where_no_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirements: str, command: str, release: str | None
) -> None:
    monkeypatch.setattr(releases, "installed", lambda: None)
    (tmp_path / "configs").mkdir()
    (tmp_path / "README.md").write_text(_README % command, encoding="utf-8")
    if requirements:
        (tmp_path / "requirements.txt").write_text(requirements, encoding="utf-8")
    found = releases.find(str(tmp_path / "configs"))
    assert (str(found.release) if found is not None else None) == release
    if release == "0.15.4":
        assert found is not None
        assert found.evidence == "README.md requires deepspeed 0.15.4"
