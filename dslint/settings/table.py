"""All settings that there are: name, kind, default, meaning. Their JSON Schema is made from them."""

from __future__ import annotations

from typing import Any, NamedTuple

from dslint.diagnostics import Severity
from dslint.facts import NEWEST, Integration
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
    PlugIns,
    RuleWords,
    SettingKind,
    Size,
    Table,
    Words,
)


class Setting(NamedTuple):
    """A setting: its name in a settings file (variable and option are made of it), its kind, its default, and what it means."""

    name: str
    kind: SettingKind
    default: Any
    meaning: str

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return "DSLINT_" + self.name.replace("-", "_").upper()


FORMATS = ("full", "concise", "json", "jsonl", "github", "gitlab", "sarif", "junit", "markdown")
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
            'Who loads the config, and so replaces "auto"; with its release, if you like: transformers==4.40.0.',
        ),
        Setting("deepspeed", DeepSpeedRelease(), NEWEST, "The DeepSpeed release that will run it, such as 0.16.9; 0.16 is its last patch."),
        Setting("nodes", Count(), None, "The number of machines that the ranks are on."),
        Setting("tensor-parallel", Count(), None, "The number of ranks that share a layer (tensor parallelism)."),
        Setting("pipeline-parallel", Count(), None, "The number of stages of the pipeline."),
        Setting("sequence-parallel", Count(), None, "The number of ranks that share a sequence."),
        Setting("gpu", GpuName(), None, "The kind of GPU: h100, a100-40gb, v100, ..."),
        Setting("gpu-memory", Size(), None, "The memory of one GPU, such as 80GiB, where it is not that of --gpu."),
        Setting("host-memory", Size(), None, "The memory of one machine, such as 2TiB."),
        Setting("model", FileName(), None, "The model's config.json (of Hugging Face), or its folder."),
        Setting("checkpoint", FolderName(), None, "The checkpoint to resume from: the folder with the file latest, or that of a tag."),
        Setting("env", Environment(), {}, "Values of environment variables that only the run knows, for launch scripts."),
        Setting("plugins", PlugIns(), (), "Plug-ins to load rules from: names in the entry point group dslint.rules."),
        Setting("policy", FileName(), None, "A JSON Schema of the team's own, which every config has to satisfy."),
        Setting("select", RuleWords(), ("ALL",), "The rules to ask: codes, names, chapters (DS5), ALL."),
        Setting("ignore", RuleWords(), (), "Rules to leave out. Where a rule is selected too, the more precise word counts."),
        Setting("extend-select", RuleWords(), (), "Rules to ask beside the selected ones."),
        Setting("extend-ignore", RuleWords(), (), "Rules to leave out beside the ignored ones."),
        Setting("pedantic", Flag(), False, "Ask the rules too that experts disagree about."),  # noqa: FBT003 - a default
        Setting("severity", Table(Choice(_SEVERITIES), of_rules=True), {}, "The severity of a rule's findings, or a chapter's."),
        Setting("fail-on", Choice([*_SEVERITIES, "never"]), "warning", "The least severity that makes the exit code 1."),
        Setting("strict", Flag(), False, "Exit with 1 if a file was not judged, or only in part."),  # noqa: FBT003 - a default
        Setting(
            "include",
            Words(),
            (),
            "Patterns of the files to look at in directories, instead of *.json, *.jsonc, *.json5, *.hjson, *.yaml and *.yml.",
        ),
        Setting("exclude", Words(), (), "Patterns of files and directories to leave out of directories, as in a .gitignore."),
        Setting("extend-exclude", Words(), (), "Patterns to leave out beside those of exclude."),
        Setting("force-exclude", Flag(), False, "Leave excluded files out even when they are named, as a pre-commit hook names them."),  # noqa: FBT003 - a default
        Setting("per-file-ignores", Table(RuleWords()), {}, "Rules to leave out of the files that match a pattern."),
        Setting("output-format", Choice(FORMATS), "full", "How findings are printed (as set for the working directory)."),
        Setting("baseline", FileName(), None, "The file that holds the findings of old (as set for the working directory)."),
        Setting("ignores", Entries(), (), "Findings not to hear of, by file, place and rule, each with a reason."),
    )
}
"""All settings by name, in the order in which they are shown."""

EXTENDING = frozenset({"extend-select", "extend-ignore", "extend-exclude"})
"""Settings that add up from source to source."""

TABLES = frozenset({"severity", "per-file-ignores", "env"})
"""Settings whose entries add up, a later one replacing an earlier one of the same name."""


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
