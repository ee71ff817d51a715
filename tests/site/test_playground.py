"""The playground of the built site in Chromium: it lints what is typed, and shares, estimates and diagnoses, without any other host."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command import dslint
from tests.site.playing import EXAMPLES, ROOT, Play, read

sys.path.insert(0, str(ROOT / "scripts"))
from playground_link import fragment

pytestmark = pytest.mark.site

ZERO3 = {"ds_config.json": read("zero3.json")}
FACTS = {"world-size": "8", "gpu": "a100-40gb", "model": "llama-3-8b"}


def test_a_mistake_is_underlined_explained_and_fixed(play: Play) -> None:
    play.open(fragment({"ds_config.json": ""}))
    play.page.locator(".cm-content").click()
    play.page.keyboard.insert_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2}}')
    mark = play.page.locator(".cm-lintRange-error", has_text="zero_optimisation")
    mark.hover()
    tooltip = play.page.locator(".cm-tooltip", has_text="DS102")
    tooltip.get_by_role("button", name='rename to "zero_optimization"').click()
    play.page.locator(".verdict.clean").wait_for()
    assert play.text() == '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
    assert "No problems found" in play.page.locator("#live").inner_text()
    play.page.keyboard.press("Control+z")
    assert play.findings() == ["DS102"]


def test_a_key_is_explained(play: Play) -> None:
    play.open(fragment({"ds_config.json": '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"overlap_comm": true}}'}))
    play.page.get_by_text('"overlap_comm"').hover()
    play.page.locator(".cm-tooltip", has_text="zero_optimization.overlap_comm").get_by_text("Effective value for DeepSpeed").wait_for()


def test_all_safe_fixes_at_once(play: Play) -> None:
    play.open(fragment({"ds_config.json": read("broken.json")}, {"integration": "transformers"}))
    assert {"DS002", "DS101", "DS109"} <= set(play.findings())
    play.page.locator("#fix-all").click()
    play.page.locator(".verdict.clean").wait_for()
    assert '"offload_optimizer"' in play.text()


def test_a_finding_leads_to_its_place_in_another_file(play: Play) -> None:
    play.open(fragment({"train.yaml": read("setups/train.yaml"), "ds_config.json": read("setups/ds_config.json")}))
    assert play.findings() == ["DS904"]
    assert play.text().startswith("# A training")
    play.page.locator(".place").click()
    assert play.text() == read("setups/ds_config.json")
    assert play.page.evaluate("getSelection().toString()") == "4"


def test_a_shared_link_brings_everything_back(play: Play) -> None:
    play.open(fragment({"ds_config.json": "{}"}))
    play.page.locator(".cm-content").click()
    play.page.keyboard.press("Control+a")
    play.page.keyboard.insert_text('{"train_micro_batch_size_per_gpu": 4, "bf16": true} // é😀')
    play.page.get_by_label("GPUs (world size)").fill("6")
    play.page.get_by_role("tab", name="Effective config").click()
    play.page.get_by_role("button", name="Copy link").click()
    play.page.wait_for_url(lambda url: "#" in url)
    play.page.reload()
    play.ready()
    assert play.text() == '{"train_micro_batch_size_per_gpu": 4, "bf16": true} // é😀'
    assert play.page.get_by_label("GPUs (world size)").input_value() == "6"
    assert play.page.get_by_role("tab", selected=True).inner_text() == "Effective config"
    play.page.locator(".cm-content").click()
    play.page.keyboard.press("End")
    play.page.keyboard.insert_text(" ")
    play.settled()
    assert play.page.evaluate("location.hash") == "", "the link is no longer that of the input"


def reported(tmp_path: Path, *words: str, files: dict[str, str] = ZERO3) -> Any:
    """What a command reports about a config, with the facts of the page."""
    (tmp_path / "ds_config.json").write_text(files["ds_config.json"], encoding="utf-8")
    options = [word for name, value in FACTS.items() for word in (f"--{name}", value)]
    command = (words[0], "ds_config.json", *options, *words[1:], "--output-format", "json")
    return json.loads(dslint(*command, cwd=tmp_path, env={"DSLINT_DEEPSPEED": "0.19.8"}).stdout)


def rows_of(play: Play, caption: str) -> list[list[str]]:
    """The cells of a table of the page."""
    table = play.page.get_by_role("table", name=caption)
    table.wait_for()
    return [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]


def test_the_effective_config_is_filtered_and_leads_to_the_text(play: Play, tmp_path: Path) -> None:
    keys = reported(tmp_path, "show")["keys"]
    play.open(fragment(ZERO3, FACTS, tab="show"))
    rows = rows_of(play, "The config that DeepSpeed uses")
    assert [row[0] for row in rows] == [".".join(key["path"]) for key in keys]
    assert [row[2].split()[0] for row in rows] == [key["origin"] for key in keys]
    play.page.get_by_role("button", name="Inferred").click()
    assert [row[:2] for row in rows_of(play, "The config that DeepSpeed uses")] == [["train_batch_size", "256"]]
    play.page.get_by_role("button", name="All").click()
    play.page.get_by_label("Find a key").fill("zero_optimization.stage")
    play.page.get_by_role("button", name="zero_optimization.stage", exact=True).click()
    assert play.page.locator(".cm-activeLine").inner_text().strip() == '"stage": 3,'
    play.page.get_by_label("Find a key").fill("")


def test_an_estimate_gives_the_figures_of_the_command(play: Play, tmp_path: Path) -> None:
    report = reported(tmp_path, "estimate", "--sequence-length", "1024")
    play.open(fragment(ZERO3, FACTS, tab="estimate", workload={"sequence-length": "1024"}))
    assert play.page.locator(".answer").inner_text() == report["answer"]
    rows = {name: sizes for name, *sizes in rows_of(play, "Memory of a GPU by part, in GiB")}
    for name, size in report["steady"]["parts"].items():
        assert float(rows[name][0]) == pytest.approx(size / 2**30, abs=0.06)
    assert all(words in play.page.locator("#results").inner_text() for words in report["assumed"])


def test_an_estimate_without_a_length_is_not_judged(play: Play, tmp_path: Path) -> None:
    stage2 = {"ds_config.json": '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}\n'}
    report = reported(tmp_path, "estimate", files=stage2)
    assert report["verdict"] == "not judged"
    play.open(fragment(stage2, FACTS, tab="estimate"))
    assert play.page.locator(".answer.unsure").inner_text() == report["answer"]


def test_fit_lists_ways_to_apply_and_a_table_to_sort(play: Play, tmp_path: Path) -> None:
    stage2 = {
        "ds_config.json": '{\n  "train_micro_batch_size_per_gpu": 1,\n  "bf16": {"enabled": true},\n  "zero_optimization": {"stage": 2}\n}\n'
    }
    report = reported(tmp_path, "fit", "--sequence-length", "1024", files=stage2)
    play.open(fragment(stage2, FACTS, tab="fit", workload={"sequence-length": "1024"}))
    assert play.page.locator(".answer.bad").inner_text() == report["answer"]
    assert play.page.locator(".way h3").first.inner_text().split("\n")[0] == ", ".join(report["ways"][0]["changes"])
    changes = [row[0].removesuffix(" *") for row in rows_of(play, "Each change on its own")]
    assert changes == [", ".join(way["changes"]) for way in report["singles"]]
    for _ in range(2):
        play.page.get_by_role("columnheader", name="Change").get_by_role("button").click()
    assert [row[0].removesuffix(" *") for row in rows_of(play, "Each change on its own")] == sorted(changes, key=str.lower, reverse=True)
    play.page.get_by_role("button", name="Apply to the config").first.click()
    play.settled()
    assert '"stage": 3' in play.text()


def test_an_estimate_is_drawn_for_what_the_menus_say(play: Play) -> None:
    play.open(fragment(ZERO3, {"world-size": "8"}, tab="estimate"))
    assert "no model given" in play.page.locator(".problem").inner_text()
    play.page.get_by_label("Model", exact=True).select_option("llama-3-8b")
    chart = play.page.locator(".chart svg")
    assert "llama-3-8b, 8 ranks" in (chart.locator("title").first.text_content() or "")
    play.page.get_by_label("GPU", exact=True).select_option("a100-40gb")
    chart.get_by_text("limit 39.4 GiB").wait_for()
    play.page.get_by_label("Compare").select_option("stage=0..3")
    chart.get_by_text("peak GPU memory by stage").first.wait_for(state="attached")


def test_a_pasted_log_is_diagnosed(play: Play) -> None:
    play.open(fragment(ZERO3))
    play.page.get_by_role("tab", name="Diagnose").click()
    play.page.get_by_label("The log of the job").fill(read("logs/out-of-memory.log"))
    play.page.locator(".answer").wait_for()
    (job,) = json.loads(dslint("diagnose", "examples/logs/out-of-memory.log", "--output-format", "json", cwd=ROOT).stdout)["jobs"]
    (cause,) = job["causes"]
    assert play.page.locator(".answer").inner_text() == cause["title"]
    panel = play.page.locator("#results")
    assert panel.locator(".log code").inner_text() == cause["evidence"][0]["text"][:480]
    assert [text.splitlines()[0] for text in panel.locator(".todo li").all_inner_texts()] == cause["advice"]
    assert '-    "train_micro_batch_size_per_gpu": 4,' in panel.locator(".todo .diff").inner_text()
    assert panel.get_by_role("link", name="DS501").get_attribute("href") == "../rules/DS501.html"
    assert len(rows_of(play, "Memory of a rank, in GiB")) == len(job["memory"])
    panel.get_by_text("What ran", exact=True).click()
    assert [row[:2] for row in rows_of(play, "What the log tells of the job")] == [[row["name"], row["value"]] for row in job["ran"]]


def test_the_evidence_of_a_diagnosis_leads_to_the_log(play: Play) -> None:
    log = read("logs/out-of-memory.log")
    play.open(fragment(ZERO3, tab="diagnose", log=log.replace("\n", "\r\n")))
    area = play.page.get_by_label("The log of the job")
    assert not area.is_visible(), "it is folded: the cause comes first"
    play.page.locator("#results").get_by_role("button", name="line 67").first.click()
    selected = area.evaluate("area => area.value.slice(area.selectionStart, area.selectionEnd)")
    assert selected == log.splitlines()[66]


def test_several_jobs_in_a_log_are_listed(play: Play) -> None:
    play.open(fragment(ZERO3, tab="diagnose", log=read("logs/out-of-memory.log") + read("logs/second-machine.log")))
    jobs = play.page.locator("#results .job")
    first, last = jobs.all_inner_texts()
    assert first.startswith("Job 1, failed: GPU 2 ran out of memory")
    assert "What to do" in last


def test_an_upgrade_lists_what_changes(play: Play) -> None:
    play.open(fragment(ZERO3, tab="upgrade", upgrade={"from": "0.14.0", "to": "0.19.8"}))
    assert play.findings() != []
    play.page.get_by_label("From DeepSpeed").select_option("0.19.7")
    play.page.locator(".verdict.clean").wait_for()


PASTED = {
    "#!/bin/bash\ndeepspeed train.py --deepspeed ds_config.json\n": "run.sh",
    "deepspeed --num_gpus 8 train.py --deepspeed ds_config.json": "run.sh",
    "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config={})\n": "train.py",
    "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n": "accelerate.yaml",
    "base_model: meta-llama/Llama-3.1-8B\ndeepspeed: ds.json\n": "axolotl.yaml",
    "model_name_or_path: x\ndeepspeed: ds.json\n": "train.yaml",
    '{"train_batch_size": 8}': "ds_config.json",
    "{\n  // a comment\n  train_batch_size: 8\n}": "ds_config.hjson",
    '{"model_type": "llama", "hidden_size": 8}': "config.json",
}
PASTE = """text => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  document.querySelector(".cm-content").dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}));
}"""


def paste(play: Play, text: str) -> None:
    """Paste a text in place of all that is in the editor."""
    play.page.locator(".cm-content").click()
    play.page.keyboard.press("ControlOrMeta+a")
    play.page.evaluate(PASTE, text)
    play.page.wait_for_timeout(100)
    play.settled()


def test_a_pasted_text_is_named_by_what_it_is(play: Play) -> None:
    for text, name in PASTED.items():
        play.open(fragment({"x.json": "{}"}))
        paste(play, text)
        assert play.page.locator(".files input").input_value() == name
        assert "DS001" not in play.findings()


def test_a_log_that_is_pasted_into_the_editor_is_diagnosed(play: Play) -> None:
    play.open(fragment({"ds_config.json": ""}))
    paste(play, read("logs/out-of-memory.log"))
    assert play.page.get_by_role("tab", name="Diagnose").get_attribute("aria-selected") == "true"
    play.page.locator("#results .why", has_text="The job failed").wait_for()


def test_a_broken_link_says_so(play: Play) -> None:
    play.page.evaluate("location.hash = 'bm90IGEgbGluaw'")
    play.page.get_by_role("alert").wait_for()
    assert "This link is broken" in play.page.get_by_role("alert").inner_text()
    play.open(fragment(ZERO3))
    play.page.get_by_role("alert").wait_for(state="hidden")


def test_dropped_files_are_opened(play: Play) -> None:
    play.open(fragment({"ds_config.json": "{}"}))
    play.drop("ds.hjson", "{zero_optimisation: {stage: 3}}")
    assert "DS102" in play.findings()
    assert play.text() == "{zero_optimisation: {stage: 3}}"
    play.drop("windows.json", '{\r\n  "train_micro_batch_size_per_gpu": 4,\r\n  "zero_optimisation": {"stage": 2}\r\n}\r\n')
    play.page.locator(".cm-lintRange-error", has_text="zero_optimisation").hover()
    play.page.locator(".cm-tooltip").get_by_role("button", name='rename to "zero_optimization"').click()
    assert play.text() == '{\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimization": {"stage": 2}\n}\n'
    play.drop("job.log", read("logs/second-machine.log"))
    play.page.locator("#results .why", has_text="The job failed").wait_for()


def test_scripts_are_said_to_be_unread(play: Play) -> None:
    play.open(fragment({"run.sh": read("setups/run.sh")}))
    play.page.locator(".notes", has_text="scripts are not read because tree-sitter").wait_for()


@pytest.mark.parametrize("code", ["DS501", "DS904"])
def test_the_example_of_a_rule_opens(play: Play, code: str) -> None:
    play.page.goto(f"{play.address}rules/{code}.html")
    play.page.get_by_role("link", name="Open in the playground").first.click()
    play.ready()
    assert any(code in found for found in play.findings())


def test_a_hostile_link_does_nothing(play: Play) -> None:
    attack = "<img src=x onerror='document.title=1'>"
    play.open(fragment({f"../../{attack}.json": f'{{"{attack}": 1}}'}, {"integration": attack, "gpu": attack}, log=attack))
    play.page.locator(".problem", has_text="--integration").wait_for()
    play.open(fragment({f"../../{attack}.json": f'{{"zero_optimization": {{"{attack}": 1}}}}'}))
    assert "DS101" in play.findings()
    assert play.page.title() == "dslint playground"
    assert play.page.locator("img[src=x]").count() == 0


def test_every_example_says_something(play: Play) -> None:
    menu = play.page.locator("#examples")
    for index in range(EXAMPLES):
        menu.select_option(str(index))
        play.page.locator("#results > *").first.wait_for()
        play.settled()
        assert play.page.locator(".problem").count() == 0
