"""The text output of `dslint probe --calibrate`: estimated and measured memory of every experiment, and what estimates take from it."""

from __future__ import annotations

from typing import Any

from dslint.facts.gpus import GIB
from dslint.probe.calibrating import ExperimentResult, written_by
from dslint.report.style import Style, visible, wrap


def page(data: dict[str, Any], path: str, style: Style) -> str:
    """The report. `data` is the content of the file."""
    if "unable" in data:
        return "\n".join(wrap(f"The calibration could not run: {visible(data['unable'])}.", style.width))
    findings = written_by(data)
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    lines = [style.paint(visible(data["hardware"] or f"device {data['device']}"), "bold") + f"; {versions}", ""]
    lines += _table(findings, style)
    for found in findings:
        lines += wrap(f"{found.name}: {visible(found.problem)}", style.width) if found.problem else []
    lines += ["", *(part for sentence in _use(data, visible(path)) for part in wrap(sentence, style.width))]
    return "\n".join(lines)


def _table(findings: list[ExperimentResult], style: Style) -> list[str]:
    title = f"{'GiB':<32}{'estimated':>10}{'tensors':>10}{'reserved':>10}{'driver':>10}{'smallest':>10}"
    rows = [
        f"{found.name:<32}"
        + "".join(f"{_gib(size):>10}" for size in (found.estimated, found.allocated, found.reserved, found.driver, found.smallest))
        for found in findings
        if not found.problem
    ]
    return [style.paint(title, "bold"), *rows]


def _gib(size: int | None) -> str:
    return "-" if size is None else f"{size / GIB:.2f}"


def _use(data: dict[str, Any], path: str) -> list[str]:
    """What estimates take from the file."""
    found = data.get("measured")
    if found is None and data["device"] == "cuda":
        return [f"{path} is written. Too few experiments ran on this GPU: estimates do not use this file."]
    if found is None:
        nothing = f"The device {data['device']} has no allocator of a GPU: it says nothing about one, and estimates do not use this file."
        return [f"{path} is written. It compares estimates and tensors. {nothing}"]
    low, expected, high = found["context"]
    least, usual, most = map(_percent, found["reserved"])
    kept = "Larger trainings reserve a smaller share, so estimates keep that of job logs."
    sentences = [
        f"{path} is written. To use it, pass --calibration {path} or write `calibration` into the settings.",
        f"Context and libraries: {expected / GIB:.2f} GiB ({low / GIB:.2f} to {high / GIB:.2f}), if no other program used this GPU.",
        f"Reserved by PyTorch: {usual} more than tensors ({least} to {most}). {kept}",
    ]
    if found["expandable"]:
        sentences.append(f"With expandable segments: {_percent(found['expandable'][1])} more than tensors.")
    if found["full"]:
        sentences.append(f"On a nearly full GPU, steps pass with {_percent(found['full'])} more than tensors.")
    if found["pcie"]:
        sentences.append(f"PCIe: {found['pcie'] / 1e9:.1f} GB/s.")
    if found["adam"]:
        sentences.append(f"Adam on the CPU: {found['adam'] / 1e9:.1f} GB/s of host memory.")
    if data["torch_adam"]:
        sentences.append("DeepSpeed's fused Adam, which is compiled when it is first used, does not start here: torch's Adam ran instead.")
    return sentences


def _percent(share: float) -> str:
    return f"{100 * (share - 1):.0f} %"
