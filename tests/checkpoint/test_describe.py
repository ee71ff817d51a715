"""What is read out of a checkpoint's folder, and what is said of one that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.errors import UserError
from dslint.facts.checkpoint import describe
from tests.command import dslint

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'


def folder(root: Path, *names: str, latest: str | None = None) -> Path:
    """A folder with empty files of these names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    if latest is not None:
        (root / "latest").write_text(latest, encoding="utf-8")
    return root


def test_the_latest_tag_is_read(tmp_path: Path) -> None:
    folder(tmp_path, "global_step9/mp_rank_00_model_states.pt", "global_step10/mp_rank_00_model_states.pt", latest="global_step9\n")
    assert describe(str(tmp_path)).tag == "global_step9"
    assert describe(f"{tmp_path}/global_step10").place == str(tmp_path).replace("\\", "/") + "/global_step10"


def test_without_latest_it_is_the_highest_step(tmp_path: Path) -> None:
    folder(tmp_path, "global_step9/mp_rank_00_model_states.pt", "global_step10/mp_rank_00_model_states.pt")
    found = describe(str(tmp_path))
    assert (found.tag, found.latest, found.dangling) == ("global_step10", False, None)


def test_a_tag_that_is_not_there(tmp_path: Path) -> None:
    found = describe(str(folder(tmp_path, "global_step9/mp_rank_00_model_states.pt", latest="global_step10")))
    assert (found.tag, found.dangling) == ("global_step9", "global_step10")


def test_ranks_and_what_they_lack(tmp_path: Path) -> None:
    names = [
        f"t/bf16_zero_pp_rank_{data}_mp_rank_{model:02d}_optim_states.pt"
        for data in range(4)
        for model in range(2)
        if (data, model) != (2, 1)
    ]
    found = describe(str(folder(tmp_path, *names, "t/mp_rank_00_model_states.pt", "t/mp_rank_01_model_states.pt", latest="t")))
    assert (found.zero, found.data_parallel, found.model_parallel, found.bf16) == ((1, 2), 4, 2, True)
    assert found.missing == ("bf16_zero_pp_rank_2_mp_rank_01_optim_states.pt",)


def test_a_pipeline(tmp_path: Path) -> None:
    found = describe(str(folder(tmp_path, "t/layer_00-model_00-model_states.pt", "t/mp_rank_00_model_states.pt", latest="t")))
    assert found.pipeline


def test_a_universal_checkpoint(tmp_path: Path) -> None:
    folder(
        tmp_path, "t/mp_rank_00_model_states.pt", "t_universal/mp_rank_00_model_states.pt", "t_universal/zero/0.weight/fp32.pt", latest="t"
    )
    (tmp_path / "latest_universal").write_text("t_universal", encoding="utf-8")
    found = describe(str(tmp_path))
    assert (found.tag, found.universal) == ("t", "t_universal")


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ((), "contains no DeepSpeed checkpoint"),
        (("model.safetensors",), "DeepSpeed checkpoint"),
        (("checkpoint-9/trainer_state.json", "checkpoint-10/trainer_state.json"), "such as"),
    ],
)
def test_a_folder_that_is_no_checkpoint(names: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        describe(str(folder(tmp_path, *names)))


def test_the_newest_of_the_trainers_checkpoints_is_proposed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"checkpoint-10\.$"):
        describe(str(folder(tmp_path, "checkpoint-9/a", "checkpoint-10/a")))


def test_a_file_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file"):
        describe(str(tmp_path / "file"))
    with pytest.raises(UserError, match="does not exist"):
        describe(str(tmp_path / "nothing"))


def test_the_option_and_the_setting(tmp_path: Path) -> None:
    """A checkpoint is given by an option, by a variable, or in the settings, from the folder of the settings file on."""
    folder(tmp_path / "run", "t/mp_rank_00_model_states.pt", latest="t")
    config = tmp_path / "c.json"
    config.write_text(CONFIG, encoding="utf-8")
    how = [("--checkpoint", str(tmp_path / "run")), ()]
    for arguments in how:
        done = dslint("check", config, "--select", "DS826", "--output-format", "concise", *arguments)
        assert (done.returncode, "DS826" in done.stdout) == (1, True), done
        (tmp_path / "dslint.toml").write_text('checkpoint = "run"', encoding="utf-8")


def test_what_is_no_checkpoint_is_bad_usage(tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    config.write_text(CONFIG, encoding="utf-8")
    done = dslint("check", config, "--checkpoint", tmp_path)
    assert done.returncode == 2
    assert "contains no DeepSpeed checkpoint" in done.stderr
