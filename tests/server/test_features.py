"""What the server says of a file, function by function."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the language server requires pygls")

from lsprotocol import types

from dslint.config.context import Context
from dslint.errors import UserError
from dslint.server.actions import code_actions, ignored
from dslint.server.checking import check
from dslint.server.completion import complete
from dslint.server.diagnostics import diagnostics_of
from dslint.server.estimating import lenses, page, the_training
from dslint.server.hints import TIMES, hints
from dslint.server.hover import hover
from dslint.server.links import definition, document_links
from dslint.server.names import FIX_ALL, FIX_ALL_UNSAFE, IGNORE
from dslint.server.outline import folds, symbols
from dslint.server.requests import effective_config, explanation, facts
from dslint.source.parse import parse
from dslint.source.tree import plain
from tests.server.opened import Opened, edited, opened

CONFIG = """{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 8,
  "bf16": {"enabled": true},
  "zero_optimization": {
    "stage": 2,
    "reduce_bucket_size": 500000000,
    "offload_param": {"device": "cpu"}
  }
}
"""
TRAINING = """\
stage: sft
model_name_or_path: m
per_device_train_batch_size: 4
gradient_accumulation_steps: 8
bf16: true
learning_rate: 1e-5
output_dir: o
deepspeed: ds_config.json
"""


def labels(file: Opened, before: str, *, has_snippets: bool = True) -> list[str]:
    return [item.label for item in complete(file.checked, file.trainings, file.at(before), has_snippets=has_snippets)]


def chosen(file: Opened, before: str, label: str, *, has_snippets: bool = False) -> str:
    """The text after a completion."""
    items = complete(file.checked, file.trainings, file.at(before), has_snippets=has_snippets)
    edit = next(item.text_edit for item in items if item.label == label)
    assert isinstance(edit, types.TextEdit)
    return edited(file.checked.file.text, edit)


def said(file: Opened, before: str) -> str:
    found = hover(file.checked, file.trainings, file.at(before))
    assert found is not None
    assert isinstance(found.contents, types.MarkupContent)
    return found.contents.value


# ---------------------------------------------------------------- diagnostics


def test_diagnostics_are_tagged_and_related(tmp_path: Path) -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 1, "cpu_offload": true, "offload_param": {"device": "cpu"}}}'
    found = {one.code: one for one in diagnostics_of(opened(tmp_path, "ds_config.json", text, {"extend-select": ["DS111"]}).checked)}
    assert found["DS111"].tags == [types.DiagnosticTag.Deprecated]
    assert found["DS501"].tags == [types.DiagnosticTag.Unnecessary]
    duplicate = diagnostics_of(opened(tmp_path, "ds_config.json", '{"train_batch_size": 8, "train_batch_size": 9}').checked)
    (related,) = next(one.related_information or [] for one in duplicate if one.code == "DS003")
    assert related.location.range.start.character == 1


def test_settings_that_cannot_be_used_are_one_diagnostic(tmp_path: Path) -> None:
    (tmp_path / "dslint.toml").write_text("worldsize = 8\n", encoding="utf-8")
    (found,) = diagnostics_of(opened(tmp_path, "ds_config.json", CONFIG).checked)
    assert found.code == "settings"
    assert "worldsize" in found.message


def test_each_folder_has_its_settings(tmp_path: Path) -> None:
    for name, size in (("a", 8), ("b", 7)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dslint.toml").write_text(f"world-size = {size}\n", encoding="utf-8")
    codes = [{one.code for one in diagnostics_of(opened(tmp_path, f"{name}/ds_config.json", CONFIG).checked)} for name in ("a", "b")]
    assert "DS201" not in codes[0]
    assert "DS201" in codes[1]


def test_excluded_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "dslint.toml").write_text('exclude = ["ds_config.json"]\n', encoding="utf-8")
    assert diagnostics_of(opened(tmp_path, "ds_config.json", '{"bf16": true}').checked) == []


# ---------------------------------------------------------------- hover


def test_hover_explains_a_key_and_its_value(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", CONFIG)
    text = said(file, '"reduce_bucket')
    assert "elements (not bytes)" in text
    assert "`500000000` (written)" in text
    assert "954 MiB" in text
    assert "DS501" in said(file, '"offload_para')
    assert "DS501" not in said(file, '"device": "c')


def test_hover_knows_releases(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", '{"managed_gradient_accumulation": true, "train_batch_size": 8}', {"deepspeed": "0.16.9"})
    assert "DeepSpeed 0.16.9 does not read it: new in 0.19.4." in said(file, '"managed')


def test_hover_looks_up_the_type_of_an_optimizer(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", '{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}')
    assert "Learning rate." in said(file, '"l')


def test_hover_works_in_yaml_and_programs(tmp_path: Path) -> None:
    yaml = "output_dir: o\nlearning_rate: 1e-5\nbf16: true\ndeepspeed:\n  train_batch_size: 8\n  zero_optimization:\n    stage: 2\n"
    assert "What is partitioned" in said(opened(tmp_path, "train.yaml", yaml), "    sta")
    program = (
        "import deepspeed\nds = {'train_batch_size': 8, 'zero_optimization': {'stage': 2}}\ndeepspeed.initialize(model=model, config=ds)\n"
    )
    assert "What is partitioned" in said(opened(tmp_path, "train.py", program), "{'sta")


# ---------------------------------------------------------------- completion


def test_completion_offers_keys_of_the_section(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", CONFIG.replace('"stage": 2,\n', '"stage": 2,\n    "\n'))
    found = labels(file, '2,\n    "')
    assert "overlap_comm" in found
    assert "stage" not in found  # it is there already
    assert "train_batch_size" not in found
    assert "offload_optimizer: NVMe" in found


def test_completed_keys_and_values_make_a_config(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", '{"zero_optimization": {\n  \n}, "train_batch_size": 8}')
    nvme = plain_of(chosen(file, '{"zero_optimization": {\n  ', "offload_param: NVMe"))
    assert nvme["zero_optimization"]["offload_param"]["device"] == "nvme"
    assert "nvme_path" in nvme["zero_optimization"]["offload_param"]
    stage = chosen(file, '{"zero_optimization": {\n  ', "stage")
    assert plain_of(stage)["zero_optimization"] == {"stage": 0}
    inside = opened(tmp_path, "ds_config.json", '{"zero_optimization": {"stage": 2}, "train_batch_size": 8}')
    assert '"stage": 3}' in chosen(inside, '"stage": ', "3")


def test_a_whole_config_is_offered_in_an_empty_file(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", "{\n  \n}")
    label = "ZeRO stage 3, bf16, offload to NVMe"
    assert label in labels(file, "{\n  ")
    after = opened(tmp_path, "ds_config.json", chosen(file, "{\n  ", label), {"integration": "deepspeed"})
    assert after.checked.result is not None
    assert [found for found in after.checked.result.diagnostics if found.severity == "error"] == []


def test_completion_knows_releases(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", '{"train_batch_size": 8, "managed": 1}', {"deepspeed": "0.16.9"})
    items = {item.label: item for item in complete(file.checked, file.trainings, file.at('8, "'), has_snippets=False)}
    assert items["managed_gradient_accumulation"].detail == "not in DeepSpeed 0.16.9"
    assert (items["managed_gradient_accumulation"].sort_text or "") > (items["gradient_clipping"].sort_text or "")


def test_completion_in_yaml_and_programs(tmp_path: Path) -> None:
    yaml = "output_dir: o\nlearning_rate: 1e-5\nbf16: true\ndeepspeed:\n  train_batch_size: 8\n  zero_optimization:\n    stage: 2\n    \n"
    file = opened(tmp_path, "train.yaml", yaml)
    assert "overlap_comm" in labels(file, "stage: 2\n    ")
    assert "overlap_comm: true" in chosen(file, "stage: 2\n    ", "overlap_comm")
    broken = "import deepspeed\nds = {'train_batch_size': 8, 'zero_optimization': {'stage': 2, '\n"
    assert "overlap_comm" in labels(opened(tmp_path, "train.py", broken), "2, '")


def test_completion_in_braces_of_yaml(tmp_path: Path) -> None:
    text = "train_batch_size: 8\n# fp16: {\nzero_optimization: {stage: 2, over}\nzero_allow_untested_optimizer: true\n"
    file = opened(tmp_path, "ds_config.yaml", text)
    assert "overlap_comm" in labels(file, "2, over")
    assert '{stage: 2, "overlap_comm": true}' in chosen(file, "2, over", "overlap_comm")
    assert labels(file, "over}") == []
    assert "gradient_clipping" in labels(file, "\nzero_allow")
    several = "train_batch_size: 8\nzero_optimization: {\n  stage: 3,\n  offload_param: {\n    device: none\n  }\n}\n"
    assert "cpu" in "".join(labels(opened(tmp_path, "ds_config.yaml", several), "device: "))


def test_completion_of_ignore_comments(tmp_path: Path) -> None:
    text = '{\n  "train_batch_size": 8, // dslint: ignore[\n  "zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"}}\n}'
    file = opened(tmp_path, "ds_config.hjson", text)
    items = complete(file.checked, file.trainings, file.at("ignore["), has_snippets=False)
    first = min(items, key=lambda item: item.sort_text or "")
    assert first.label in {found.name for found in (file.checked.result.diagnostics if file.checked.result else ())}
    file = opened(tmp_path, "ds_config.hjson", text.replace("ignore[", ""))
    assert labels(file, "dslint: ") == ["ignore[rule] reason", "ignore-file[rule] reason"]


# ---------------------------------------------------------------- code actions


def actions(file: Opened, before: str, only: list[str] | None = None) -> dict[str, types.CodeAction]:
    position = file.at(before)
    found = code_actions(file.checked, file.workspace, types.Range(position, position), only, can_create=True)
    return {action.title: action for action in found}


def applied(file: Opened, action: types.CodeAction) -> str:
    """The text of the file after an action."""
    assert action.edit is not None
    assert action.edit.changes is not None
    text = file.checked.file.text
    for edit in sorted(action.edit.changes[file.checked.file.uri], key=lambda edit: edit.range.start, reverse=True):
        text = edited(text, edit)
    return text


def test_a_fix_is_an_action(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", '{"train_batch_size": 8, "fp16": {"enabled": true, "initial_scale_pwer": 16}}')
    found = actions(file, '"initial_scale')
    fix = next(action for action in found.values() if action.edit and "initial_scale_power" in action.title)
    assert fix.diagnostics
    assert plain_of(applied(file, fix))["fp16"] == {"enabled": True, "initial_scale_power": 16}
    assert any(title.startswith("Explain DS1") for title in found)


def test_fix_all_makes_what_check_fix_makes(tmp_path: Path) -> None:
    from dslint.api import fix

    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "cpu_offload": true, "stage3_max_live_parameters": 1e9},}'
    file = opened(tmp_path, "ds_config.json", text, {"extend-select": ["DS111"]})
    (action,) = actions(file, "{", [FIX_ALL]).values()
    release = str(file.trainings[0].config.release) if file.trainings[0].config else None
    assert applied(file, action) == fix(text, deepspeed=release, extend_select=["DS111"]).text


def test_only_safe_fixes_run_on_save(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", '{"train_batch_size": 8, "bf16": true}')
    on_save = actions(file, "{", ["source.fixAll"])
    assert all(action.kind == FIX_ALL for action in on_save.values())
    assert FIX_ALL_UNSAFE not in {action.kind for action in on_save.values()}


def test_a_finding_is_ignored_with_a_comment_or_in_the_settings(tmp_path: Path) -> None:
    text = '{\n  // the stage\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"}}\n}\n'
    file = opened(tmp_path, "ds_config.hjson", text)
    (ignore,) = (action for title, action in actions(file, '"offload_para').items() if title.startswith("Ignore DS501"))
    after = applied(file, ignore)
    assert "// dslint: ignore[offload-param-below-stage-3] TODO: why\n" in after
    codes = {one.code for one in diagnostics_of(opened(tmp_path, "ds_config.hjson", after).checked)}
    assert "DS501" not in codes
    strict = opened(tmp_path, "ds_config.json", CONFIG)
    (ignore,) = (action for title, action in actions(strict, '"offload_para').items() if title.startswith("Ignore DS501"))
    assert ignore.edit is not None
    assert ignore.edit.document_changes is not None
    create, change = ignore.edit.document_changes
    assert isinstance(create, types.CreateFile)
    assert isinstance(change, types.TextDocumentEdit)
    assert create.uri == (tmp_path / "dslint.toml").as_uri()
    (tmp_path / "dslint.toml").write_text(change.edits[0].new_text, encoding="utf-8")
    assert "DS501" not in {one.code for one in diagnostics_of(opened(tmp_path, "ds_config.json", CONFIG).checked)}


def test_an_editor_may_ask_for_the_reason(tmp_path: Path) -> None:
    text = '{\n  // the stage\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"}}\n}\n'
    file = opened(tmp_path, "ds_config.hjson", text)
    position = file.at('"offload_para')
    place = types.Range(position, position)
    found = code_actions(file.checked, file.workspace, place, None, can_create=True, asks_reason=True)
    command = next(action.command for action in found if action.title.startswith("Ignore DS501"))
    assert command is not None
    assert command.command == IGNORE
    _, code, start = command.arguments or ()
    edit = ignored(file.checked, file.workspace, code, types.Position(**start), "the stage is set later", can_create=True)
    (change,) = (edit.changes or {})[file.checked.file.uri]
    assert "ignore[offload-param-below-stage-3] the stage is set later" in edited(text, change)
    with pytest.raises(UserError):
        ignored(file.checked, file.workspace, code, types.Position(0, 0), "why", can_create=True)
    with pytest.raises(UserError):
        ignored(file.checked, file.workspace, code, types.Position(**start), "two\nlines", can_create=True)


# ---------------------------------------------------------------- hints, lenses, links, outline


def test_hints(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", CONFIG)
    found = {hint.position.line: hint.label for hint in hints(file.checked, file.trainings, file.whole)}
    assert found == {1: f"= 4 {TIMES} 8 {TIMES} 8", 7: "= 954 MiB"}
    (tmp_path / "train.yaml").write_text(TRAINING, encoding="utf-8")
    auto = CONFIG.replace("256", '"auto"').replace('"stage": 2', '"stage": 0')
    file = opened(tmp_path, "ds_config.json", auto, {"world-size": 8})
    found = {hint.position.line: hint.label for hint in hints(file.checked, file.trainings, file.whole)}
    assert found[1] == "filled by the Hugging Face Trainer"
    assert found[6] == "default"


def test_a_lens_shows_the_peak(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", CONFIG, {"world-size": 8, "gpu": "h100", "model": "llama-3-8b"})
    (lens,) = lenses(file.checked, file.trainings)
    assert lens.command is not None
    assert lens.command.title.startswith("peak ")
    assert " on h100" in lens.command.title
    assert lens.command.arguments == [file.checked.file.uri]
    answer = page(the_training(file.trainings))
    assert answer["summary"] == lens.command.title
    assert answer["svg"].startswith("<svg")
    assert "<svg" in answer["html"]
    assert lenses(*opened(tmp_path, "ds_config.json", CONFIG)[:2]) == []
    (tmp_path / "ds_config.json").write_text(CONFIG, encoding="utf-8")
    training = opened(tmp_path, "train.yaml", TRAINING, {"world-size": 8, "gpu": "h100", "model": "llama-3-8b"})
    assert [lens.range.start.line for lens in lenses(training.checked, training.trainings)] == [7]


def test_links_between_a_training_and_its_config(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "train.yaml").write_text(TRAINING, encoding="utf-8")
    training = opened(tmp_path, "train.yaml", TRAINING)
    (link,) = document_links(training.checked, training.trainings)
    assert link.target == (tmp_path / "ds_config.json").as_uri()
    (there,) = definition(training.checked, training.trainings, training.workspace, training.at("deepspeed: ds"))
    assert there.uri == link.target
    config = opened(tmp_path, "ds_config.json", CONFIG)
    (back,) = definition(config.checked, config.trainings, config.workspace, types.Position(0, 0))
    assert (back.uri, back.range.start.line) == ((tmp_path / "train.yaml").as_uri(), 7)


def test_outline_and_folds(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", CONFIG)
    found = symbols(file.checked, file.trainings)
    assert [one.name for one in found] == list(json.loads(CONFIG))
    assert [one.name for one in found[-1].children or ()] == ["stage", "reduce_bucket_size", "offload_param"]
    assert [(fold.start_line, fold.end_line) for fold in folds(file.checked, file.trainings)] == [(0, 9), (5, 8)]


# ---------------------------------------------------------------- requests of dslint


def test_the_effective_config(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", '{"train_batch_size": 8, "fp16": {"enabled": true}}', {"world-size": 8})
    answer = effective_config(file.trainings, everything=False)
    assert json.loads(answer["text"])["train_micro_batch_size_per_gpu"] == 1
    assert "train_micro_batch_size_per_gpu" in answer["table"]
    assert any(key["path"] == ["fp16", "enabled"] for key in answer["keys"])


def test_facts_are_set_and_taken_back(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", CONFIG)
    assert file.workspace.set_facts({"world-size": 8, "gpu": "h100"}) == []
    found = {fact["name"]: fact for fact in facts(file.workspace, None)}
    assert (found["world-size"]["value"], found["gpu"]["value"]) == (8, "h100")
    assert (found["world-size"]["shown"], found["integration"]["shown"]) == ("8", "")
    assert file.workspace.set_facts({"world-size": None}) == []
    assert {fact["name"]: fact["value"] for fact in facts(file.workspace, None)}["world-size"] is None
    assert len(file.workspace.set_facts({"world-size": -1, "select": ["DS1"]})) == 2


def test_a_size_is_shown_in_words(tmp_path: Path) -> None:
    file = opened(tmp_path, "ds_config.json", CONFIG, {"gpu-memory": "80GiB"})
    found = {fact["name"]: fact for fact in facts(file.workspace, file.checked)}
    assert (found["gpu-memory"]["value"], found["gpu-memory"]["shown"]) == (80 * 2**30, "80 GiB")


def test_a_changed_policy_or_requirement_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslint.facts.find_release.installed", cache(lambda: None))
    policy, requirements = tmp_path / "team.schema.json", tmp_path / "requirements.txt"
    policy.write_text('{"required": ["gradient_clipping"]}', encoding="utf-8")
    requirements.write_text("deepspeed==0.15.4\n", encoding="utf-8")
    (tmp_path / "dslint.toml").write_text('policy = "team.schema.json"\n', encoding="utf-8")
    file = opened(tmp_path, "ds_config.json", '{"train_batch_size": 8}')

    def again(changed: Path) -> tuple[set[str], str]:
        file.workspace.forget([str(changed)])
        result = check(file.checked.file, file.workspace).result
        assert result is not None
        return {one.code for one in result.diagnostics}, str(result.facts.deepspeed)

    assert "DS118" in again(tmp_path / "other.json")[0]
    policy.write_text("{}", encoding="utf-8")
    assert "DS118" in again(tmp_path / "other.json")[0]  # what no setting names is not read again
    assert "DS118" not in again(policy)[0]
    requirements.write_text("deepspeed==0.16.9\n", encoding="utf-8")
    assert again(requirements)[1] == "0.16.9"


def test_what_a_check_reads_while_files_change_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(tmp_path, "ds_config.json", CONFIG)
    read: list[str] = []

    def contexts(path: str, _given: Context) -> list[Context]:
        read.append(path)
        if len(read) == 1:
            file.workspace.forget()  # the editor says so while the thread reads
        return []

    monkeypatch.setattr("dslint.server.workspace.contexts_of", contexts)
    file.workspace.forget()
    for _ in range(3):
        file.workspace.evidence(file.checked.file, "ds_config.json", Context())
    assert len(read) == 2


def test_a_check_that_had_read_its_settings_before_they_changed_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds_config.json\n", encoding="utf-8")
    config = tmp_path / "ds_config.json"
    config.write_text(CONFIG, encoding="utf-8")
    file = opened(tmp_path, "ds_config.json", CONFIG)
    before = file.workspace.finder(str(tmp_path)).for_file(str(config)).context
    file.workspace.configure({"worldSize": 16})
    (of_script,) = file.workspace.evidence(file.checked.file, str(config), before)
    assert of_script.facts.world_size == 8
    result = check(file.checked.file, file.workspace).result
    assert result is not None
    assert result.facts.world_size == 16


def test_a_rule_is_explained() -> None:
    answer = explanation("DS501")
    assert answer["name"] == "offload-param-below-stage-3"
    assert answer["markdown"].startswith("# DS501")


def plain_of(text: str) -> dict[str, dict[str, dict[str, object]]]:
    document = parse(text)
    assert document.problems == []
    assert document.root is not None
    found = plain(document.root)
    assert isinstance(found, dict)
    return found
