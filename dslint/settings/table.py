"""All settings: name, kind, default, meaning. Their JSON Schema is generated from this table."""

from __future__ import annotations

from typing import Any

from dslint.diagnostics import Severity
from dslint.facts import NEWEST, Integration
from dslint.record import Record
from dslint.settings.kinds import (
    Choice,
    Count,
    DeepSpeedRelease,
    Entries,
    Environment,
    FileName,
    Flag,
    FolderName,
    GpuName,
    Loader,
    Packages,
    PlugIns,
    RuleWords,
    SettingKind,
    Size,
    Table,
    Words,
)


class Setting(Record):
    """A setting: its name in a settings file (from which variable and option are derived), kind, default and meaning."""

    name: str
    kind: SettingKind
    default: Any
    meaning: str

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return "DSLINT_" + self.name.replace("-", "_").upper()


FORMATS = ("full", "concise", "json", "jsonl", "github", "gitlab", "sarif", "junit", "markdown", "html")
"""The output formats, the default first; `dslint.report` has a module for each."""

_SEVERITIES = tuple(severity.value for severity in Severity)

SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("world-size", Count(), None, "The number of ranks (GPUs) of the whole job."),
        Setting(
            "integration",
            Loader(i.value for i in Integration),
            None,
            'The library that loads the config and fills "auto" values, optionally with its release: transformers==4.40.0.',
        ),
        Setting(
            "deepspeed",
            DeepSpeedRelease(),
            NEWEST,
            "The DeepSpeed release that runs the config, such as 0.16.9 (0.16: its last patch), or an upgrade OLD..NEW.",
        ),
        Setting(
            "package",
            Packages(),
            {},
            "The release of another package that the run has, such as torch==2.10.0; it counts more than what the project pins.",
        ),
        Setting("nodes", Count(), None, "The number of machines."),
        Setting("tensor-parallel", Count(), None, "The tensor parallel size."),
        Setting("pipeline-parallel", Count(), None, "The number of pipeline stages."),
        Setting("sequence-parallel", Count(), None, "The sequence parallel size."),
        Setting("gpu", GpuName(), None, "The GPU model: h100, a100-40gb, v100, ..."),
        Setting("gpu-memory", Size(), None, "The memory of one GPU, such as 80GiB, if it differs from that of --gpu."),
        Setting("host-memory", Size(), None, "The memory of one machine, such as 2TiB."),
        Setting("model", FileName(), None, "The model: its Hugging Face config.json, its folder, or a known name (llama-3-8b)."),
        Setting(
            "checkpoint", FolderName(), None, "The checkpoint to resume from: the folder with the file latest, or the folder of a tag."
        ),
        Setting(
            "calibration",
            FileName(),
            None,
            "A file of dslint probe --calibrate, or a folder with one for each GPU (h100.json); estimates use its figures.",
        ),
        Setting("env", Environment(), {}, "Values of environment variables that only the run knows, for launch scripts."),
        Setting("plugins", PlugIns(), (), "Plug-ins with more rules: names in the entry point group dslint.rules."),
        Setting("policy", FileName(), None, "A JSON Schema that every config must satisfy, such as a team's policy."),
        Setting("select", RuleWords(), ("ALL",), "The rules to run: codes, names, chapters (DS5), ALL."),
        Setting("ignore", RuleWords(), (), "Rules to skip. If a rule is also selected, the more specific word wins."),
        Setting("extend-select", RuleWords(), (), "Rules to run in addition to the selected ones."),
        Setting("extend-ignore", RuleWords(), (), "Rules to skip in addition to the ignored ones."),
        Setting("pedantic", Flag(), False, "Also report what experts disagree about, and what changes nothing."),  # noqa: FBT003 - a default
        Setting("severity", Table(Choice(_SEVERITIES), of_rules=True), {}, "The severity of the findings of a rule or chapter."),
        Setting("fail-on", Choice([*_SEVERITIES, "never"]), "warning", "The lowest severity that makes the exit code 1."),
        Setting("strict", Flag(), False, "Exit with 1 if a file was not checked, or only in part."),  # noqa: FBT003 - a default
        Setting(
            "include",
            Words(),
            (),
            "Patterns of the files to check in directories, instead of JSON, HJSON and YAML files, programs, notebooks and scripts.",
        ),
        Setting("exclude", Words(), (), "Patterns of files and directories to skip in directories, as in a .gitignore."),
        Setting("extend-exclude", Words(), (), "Patterns to skip in addition to exclude."),
        Setting("force-exclude", Flag(), False, "Skip excluded files even if they are named, as a pre-commit hook does."),  # noqa: FBT003 - a default
        Setting("per-file-ignores", Table(RuleWords()), {}, "Rules to skip in files that match a pattern."),
        Setting("output-format", Choice(FORMATS), "full", "The format of the report (as set for the working directory)."),
        Setting("baseline", FileName(), None, "The baseline: a file with known findings (as set for the working directory)."),
        Setting("ignores", Entries(), (), "Findings to suppress, by file, place and rule, each with a reason."),
    )
}
"""All settings by name, in the order in which they are shown."""

FACTS = (
    "world-size",
    "integration",
    "deepspeed",
    "package",
    "nodes",
    "tensor-parallel",
    "pipeline-parallel",
    "sequence-parallel",
    "gpu",
    "gpu-memory",
    "host-memory",
    "model",
)
"""The settings that are facts about the run of a config."""

EXTENDING = frozenset({"extend-select", "extend-ignore", "extend-exclude"})
"""Settings that accumulate from source to source."""

TABLES = frozenset({"severity", "per-file-ignores", "env", "package"})
"""Settings with entries that accumulate; a later entry replaces an earlier one of the same name."""


def json_schema() -> dict[str, Any]:
    """The JSON Schema of `dslint.toml`, and of `[tool.dslint]`."""
    properties = {s.name: {"description": s.meaning, **s.kind.schema(), **_default(s)} for s in SETTINGS.values()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "dslint",
        "description": "Settings of dslint, a linter for DeepSpeed configs: dslint.toml, or [tool.dslint] of pyproject.toml.",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _default(setting: Setting) -> dict[str, Any]:
    default = list(setting.default) if isinstance(setting.default, tuple) and setting.name != "deepspeed" else setting.default
    return {} if default is None else {"default": str(default) if setting.name == "deepspeed" else default}
