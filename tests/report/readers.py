"""How others read the formats: each function raises an AssertionError (or a parser's own error) for what they would refuse."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element, fromstring, parse

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parent / "schemas"
XS = "{http://www.w3.org/2001/XMLSchema}"


def strict_json(text: str) -> Any:
    """The data of a JSON text that every reader accepts."""
    assert text.isascii()
    data = json.loads(text, parse_constant=lambda word: 1 / 0)
    json.dumps(data, ensure_ascii=False).encode("utf-8")
    return data


SARIF = Draft202012Validator(json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8")))


def sarif(text: str) -> Any:
    """The run of a SARIF log, valid by the schema and by what GitHub asks beyond it."""
    log = strict_json(text)
    SARIF.validate(log)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert all(rule[key]["text"] for key in ("shortDescription", "fullDescription", "help"))
        assert max(len(rule[key]["text"]) for key in ("shortDescription", "fullDescription")) <= 1024
        assert len(rule["properties"]["tags"]) <= 10
    assert {rule["id"] for rule in rules} == {result["ruleId"] for result in run["results"]}
    prints = [result["partialFingerprints"]["dslint/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        related = result.get("relatedLocations", [])
        (location,) = result["locations"]
        assert location["physicalLocation"]["region"]["startLine"] >= 1
        links = re.findall(r"(?<!\\)(?:\\\\)*\]\((.*?)\)", result["message"]["text"])
        assert links == [str(other["id"]) for other in related] == [str(number) for number in range(1, len(related) + 1)]
    for place in _every("physicalLocation", run):
        uri = urlsplit(place["artifactLocation"]["uri"])
        assert uri.scheme == ("" if "uriBaseId" in place["artifactLocation"] else "file")
        assert re.fullmatch(r"[\w.~%/:-]*", place["artifactLocation"]["uri"], re.ASCII)
        region = place.get("region", {})
        if "endLine" in region:
            assert (region["startLine"], region["startColumn"]) <= (region["endLine"], region["endColumn"])
    return run


def path_of(uri: str) -> str:
    """The path that an artifact's address stands for."""
    return unquote(uri, errors="surrogateescape")


def _every(key: str, data: Any) -> Any:
    if isinstance(data, dict):
        if key in data:
            yield data[key]
        data = list(data.values())
    if isinstance(data, list):
        for value in data:
            yield from _every(key, value)


def gitlab(text: str) -> list[Any]:
    """The findings of a Code Quality report, with all the fields that GitLab's documentation requires."""
    findings = strict_json(text)
    assert isinstance(findings, list)
    for finding in findings:
        assert set(finding) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert finding["description"]
        assert isinstance(finding["check_name"], str)
        assert re.fullmatch("[0-9a-f]{32}", finding["fingerprint"])
        assert finding["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert set(finding["location"]) == {"path", "lines"}
        assert not finding["location"]["path"].startswith("./")
        assert finding["location"]["lines"]["begin"] >= 1
    assert len({finding["fingerprint"] for finding in findings}) == len(findings)
    return findings


def junit(text: str) -> Element:
    """The suites of a JUnit report, valid by the schema of Jenkins' xUnit plugin, the counts right and the tests of a suite all different."""
    assert text.isascii()
    root = fromstring(text)
    conforms(root, parse(SCHEMAS / "junit-10.xsd").getroot())
    for suite in root:
        cases = suite.findall("testcase")
        assert cases
        assert suite.get("tests") == str(len(cases))
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert suite.get(count) == str(sum(case.find(tag) is not None for case in cases))
        assert len({case.get("name") for case in cases}) == len(cases)
        assert all(len(case) <= 1 for case in cases)
    for count in ("tests", "failures", "errors"):
        assert root.get(count) == str(sum(int(suite.get(count, "")) for suite in root))
    return root


def conforms(element: Element, schema: Element) -> None:
    """As much of XML Schema as junit-10.xsd needs: the names of elements and attributes, which must be there, and where text may stand."""
    declared = schema.find(f"{XS}element[@name='{element.tag}']")
    assert declared is not None, element.tag
    kind = declared.find(f"{XS}complexType")
    attributes = {} if kind is None else {one.get("name"): one for one in kind.findall(f"{XS}attribute")}
    assert set(element.attrib) <= set(attributes)
    assert {name for name, one in attributes.items() if one.get("use") == "required"} <= set(element.attrib)
    for name, one in attributes.items():
        if one.get("type") == "SUREFIRE_TIME":
            pattern = schema.find(f"{XS}simpleType//{XS}pattern")
            assert pattern is not None
            assert re.fullmatch(pattern.get("value", ""), element.get(name or "", ""))
    inside = set() if kind is None else {one.get("ref") for one in kind.iter(f"{XS}element")}
    assert {child.tag for child in element} <= inside
    if kind is not None and kind.get("mixed") != "true":
        assert not "".join([element.text or "", *(child.tail or "" for child in element)]).strip()
    for child in element:
        conforms(child, schema)


INERT = re.compile(r"(?:[^\\`*\[\]<>|~&$]|&#\d+;|<wbr>|<br>)*")
"""Markdown in which nothing is markup but what breaks a word or a line."""

LINKED = re.compile(r"[@#:]\S|www\.|\w-\d|\b(?!\d+\b)[0-9a-f]{7,40}\b|!\d", re.IGNORECASE)
"""What GitHub and GitLab would make something of in a piece of text."""

ROW = re.compile(r"\| (?:\d+:\d+)? \| (?:error|warning|info) \| (.*) \| (.*) \|")
OURS = {
    "",
    "| Place | Severity | Code | Finding |",
    "| --- | --- | --- | --- |",
    "<details>",
    "</details>",
}


def markdown(text: str) -> list[str]:
    """The findings in the tables of a Markdown report as they are read, when all of it is ours or inert text."""
    findings: list[str] = []
    first, *lines = text.split("\n")
    assert re.fullmatch(r"### dslint: (found|no) .*\.", first)
    for line in lines:
        if line in OURS or re.fullmatch(r"<summary>[\d,]+ remarks</summary>|[\d,]+ findings? omitted: .*", line):
            continue
        if row := ROW.fullmatch(line):
            texts = [row[1], row[2]]
            findings.append(_read(row[2]))
        else:
            head, _, rest = line.partition(" ")
            assert head in ("####", "-"), line
            texts = [rest]
        for inert in texts:
            assert INERT.fullmatch(inert), inert
            assert inert.isprintable()
            pieces = [html.unescape(piece) for piece in re.split("<br>|<wbr>", inert)]
            assert not any(LINKED.search(piece) for piece in pieces), pieces
    return findings


def _read(inert: str) -> str:
    return html.unescape(inert.replace("<wbr>", "").replace("<br>", "\n"))
