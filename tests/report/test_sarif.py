"""SARIF, as its schema and GitHub would have it."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from dslint.config.context import Context
from dslint.diagnostics import Applicability, Diagnostic, Edit, Effect, Fix, Place, Range, Related
from dslint.lint.results import FileResult, Results, Suppressed, SuppressedBy
from dslint.report import sarif
from dslint.source.parse import parse

from . import readers
from .scenes import SCENES, files, findings, found, place, suppressed, written


def run_of(*diagnostics: Diagnostic, **more: object) -> Results:
    return Results(Context(), (FileResult("a.json", "ds_config", parse("{}"), diagnostics, **more),))  # type: ignore[arg-type]


@pytest.mark.parametrize("scene", SCENES)
def test_it_is_valid(scene: str) -> None:
    results = SCENES[scene]()
    run = readers.sarif(written(results, "sarif"))
    assert len(run["results"]) == len(results.diagnostics) + len(results.suppressed)


def test_a_region_is_what_the_finding_underlines() -> None:
    results = findings()
    document = results.files[0].document
    assert document is not None
    wrong_type = readers.sarif(written(results, "sarif"))["results"][3]
    region = wrong_type["locations"][0]["physicalLocation"]["region"]
    assert region["startLine"] == region["endLine"]
    assert document.line(region["startLine"])[region["startColumn"] - 1 : region["endColumn"] - 1] == '"1e8"'
    (change,) = wrong_type["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [{"deletedRegion": region, "insertedContent": {"text": "100000000"}}]


def test_columns_count_code_points() -> None:
    document = parse('{"😀": 1}')
    diagnostic = found("a.json", "DS103", "n", Effect.IGNORED, "m", range=place(document, "1"))
    run = readers.sarif(written(Results(Context(), (FileResult("a.json", "ds_config", document, (diagnostic,)),)), "sarif"))
    assert run["columnKind"] == "unicodeCodePoints"
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"]["startColumn"] == 7


def test_only_rules_with_results_are_described_and_in_their_own_words() -> None:
    run = readers.sarif(written(suppressed(), "sarif"))
    offload, product = run["tool"]["driver"]["rules"]
    assert (offload["id"], product["id"]) == ("DS501", "DS201")
    assert offload["shortDescription"]["text"] == "`offload_param` is given, but the ZeRO stage is below 3."
    assert offload["fullDescription"]["text"].endswith("\n\nParameters are only partitioned at stage 3.")
    assert "- https://www.deepspeed.ai/docs/config-json/" in offload["help"]["markdown"]
    assert offload["defaultConfiguration"] == {"level": "warning"}
    assert product["properties"] == {"tags": ["deepspeed", "crash", "parse"], "problem.severity": "error"}


def test_a_rule_that_is_not_known_is_described_by_its_name() -> None:
    run = readers.sarif(written(findings(), "sarif"))
    rule = next(rule for rule in run["tool"]["driver"]["rules"] if rule["id"] == "DS501")
    assert rule["fullDescription"]["text"] == "offload param below stage 3"
    assert rule["helpUri"] == "https://example.org/rules/DS501"


def test_suppressions_say_by_what_and_why() -> None:
    results = readers.sarif(written(suppressed(), "sarif"))["results"]
    assert [result.get("suppressions") for result in results] == [
        None,
        [{"kind": "inSource", "status": "accepted", "justification": "tried on the cluster, see [here] (http://x)"}],
        [{"kind": "external", "status": "accepted"}],
        [{"kind": "external", "status": "accepted", "justification": "an example"}],
    ]


def test_what_cannot_be_read_is_a_notification() -> None:
    (invocation,) = readers.sarif(written(files(), "sarif"))["invocations"]
    assert invocation["executionSuccessful"] is False
    note, error = invocation["toolExecutionNotifications"]
    assert (note["level"], note["descriptor"]["id"]) == ("note", "template")
    assert error["level"] == "error"
    assert error["message"]["text"] == "cannot be opened: Permission denied"
    assert error["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "x.json"
    (skipped,) = invocation["toolConfigurationNotifications"]
    assert skipped["message"]["text"].endswith("pass --world-size N (1)")


def test_related_places_are_linked_and_nothing_else_is() -> None:
    related = Related("b.json", r"see [this](http://evil) \o/", None, Range(Place(1, 1, 0), Place(1, 2, 1)))
    run = readers.sarif(written(run_of(found("a.json", "DS103", "n", Effect.SLOW, "[click](http://evil)", related=(related,))), "sarif"))
    (result,) = run["results"]
    assert result["message"]["text"].split("\n")[0] == "[click] (http://evil)"
    assert result["message"]["text"].endswith(r"See also: [see \[this\](http://evil) \\o/](1)")
    assert result["relatedLocations"][0]["message"]["text"] == r"see [this] (http://evil) \o/"


@pytest.mark.parametrize(
    ("applicability", "offered"), [(Applicability.SAFE, True), (Applicability.UNSAFE, True), (Applicability.DISPLAY, False)]
)
def test_a_fix_that_is_only_to_be_shown_is_not_offered(applicability: Applicability, offered: bool) -> None:
    fix = Fix("write it so", applicability, (Edit(0, 1, "["),))
    (result,) = readers.sarif(written(run_of(found("a.json", "DS103", "n", Effect.SLOW, "m", fix=fix)), "sarif"))["results"]
    assert ("fixes" in result) is offered
    assert "fix: write it so" in result["message"]["text"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("sub/ds config.json", {"uri": "work/sub/ds%20config.json", "uriBaseId": "%SRCROOT%"}),
        ("../100%#?é.json", {"uri": "100%25%23%3F%C3%A9.json", "uriBaseId": "%SRCROOT%"}),
        ("a:b.json", {"uri": "work/a%3Ab.json", "uriBaseId": "%SRCROOT%"}),
        ("\udce9.json", {"uri": "work/%E9.json", "uriBaseId": "%SRCROOT%"}),
        ("<stdin>", {"uri": "work/%3Cstdin%3E", "uriBaseId": "%SRCROOT%"}),
    ],
)
@pytest.mark.parametrize("given", [True, False])
def test_artifacts_are_addressed_from_the_root(
    path: str, expected: dict[str, str], given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    (repository / "work").mkdir(parents=True)
    monkeypatch.chdir(repository / "work" if given else repository)
    if given:
        monkeypatch.setenv("GITHUB_WORKSPACE", str(repository))
    else:
        path = path.removeprefix("../") if path.startswith("../") else f"work/{path}"
    results = Results(Context(), (FileResult(path, "ds_config", None, (found(path, "DS103", "n", Effect.SLOW, "m"),)),))
    (result,) = readers.sarif(written(results, "sarif"))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == expected


def test_outside_of_the_root_the_address_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    results = Results(
        Context(), (FileResult("../out x.json", "ds_config", None, (found("../out x.json", "DS103", "n", Effect.SLOW, "m"),)),)
    )
    (result,) = readers.sarif(written(results, "sarif"))["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert set(artifact) == {"uri"}
    assert artifact["uri"].startswith("file:///")
    assert readers.path_of(artifact["uri"]).endswith((tmp_path / "out x.json").as_posix())


def test_the_loudest_stay_and_what_went_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sarif.RESULTS == 25_000
    monkeypatch.setattr(sarif, "RESULTS", 5)
    effects = [Effect.SLOW, Effect.IGNORED, Effect.SILENT] * 3
    diagnostics = [found("a.json", f"DS10{number}", "n", effect, f"m{number}") for number, effect in enumerate(effects)]
    hidden = (Suppressed(found("a.json", "DS201", "n", Effect.SILENT, "m"), SuppressedBy.COMMENT),)
    run = readers.sarif(written(run_of(*diagnostics, suppressed=hidden), "sarif"))
    assert [result["message"]["text"][:2] for result in run["results"]] == ["m1", "m2", "m4", "m5", "m8"]
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["message"]["text"] == "5 findings omitted: GitHub accepts no more."
    assert notification["level"] == "warning"


@pytest.mark.slow
def test_it_stays_within_ten_megabytes_when_compressed() -> None:
    noise = random.Random(1)
    words = "".join(chr(noise.randrange(0x4E00, 0x9000)) for _ in range(3_000_000))
    messages = [words[start : start + 3_000] for start in range(0, len(words), 3_000)] * 2
    diagnostics = [found("a.json", "DS103", "n", Effect.SLOW, message + str(number)) for number, message in enumerate(messages)]
    text = written(run_of(*diagnostics), "sarif")
    assert len(gzip.compress(text.encode(), 6)) < 10_000_000
    run = readers.strict_json(text)["runs"][0]
    kept = len(run["results"])
    assert 100 < kept < len(diagnostics)
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["message"]["text"] == f"{len(diagnostics) - kept:,} findings omitted: GitHub accepts no more."


@pytest.mark.slow
def test_long_texts_and_many_places_are_cut() -> None:
    related = tuple(Related("a.json", f"r{number}") for number in range(2_000))
    many = tuple(FileResult(f"{number}.json", "unreadable", error="e") for number in range(1_500))
    results = run_of(found("a.json", "DS103", "n" * 2_000, Effect.SLOW, "x" * 100_000, related=related))
    run = readers.sarif(written(Results(Context(), (*results.files, *many)), "sarif"))
    (result,) = run["results"]
    assert len(result["relatedLocations"]) == 100
    assert result["message"]["text"].startswith("x" * 3_999 + "…\nSee also: [r0](1)")
    notifications = run["invocations"][0]["toolExecutionNotifications"]
    assert len(notifications) == 1_000
    assert notifications[-1]["message"]["text"] == "501 more notifications omitted."
