"""Write the settings of dslint into the VS Code extension, and the JSON Schema of dslint.toml.

    python scripts/vscode_settings.py [--check]

`world-size` of dslint.toml is `dslint.worldSize` in VS Code. With --check nothing is written; the exit code is 1 if a file is stale.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dslint import __version__, project  # noqa: E402 - of this repository, found through the line above
from dslint.settings.table import SETTINGS, json_schema  # noqa: E402

MANIFEST = ROOT / "editors" / "vscode" / "package.json"
SCHEMA = ROOT / "docs" / "settings.schema.json"
NOT_IN_AN_EDITOR = frozenset({"fail-on", "strict", "output-format", "baseline", "ignores", "force-exclude", "env"})
"""Settings about reports, exit codes and the command line, and those that only a file can hold well."""

LONGEST_LIST = 50
"""The most values of a setting that the manifest lists."""

OWN: dict[str, Any] = {
    "dslint.interpreter": {
        "type": "string",
        "default": "",
        "scope": "machine-overridable",
        "markdownDescription": "The Python that has dslint (`${workspaceFolder}` is the first folder). Default: the environment that the "
        "Python extension has, else the Python of the system.",
    },
    "dslint.trace.server": {
        "type": "string",
        "enum": ["off", "messages", "verbose"],
        "default": "off",
        "scope": "window",
        "description": "Log the messages between VS Code and the language server.",
    },
}
"""Settings of the extension itself."""


def camel(name: str) -> str:
    """`world-size` to `worldSize`."""
    return re.sub(r"-(.)", lambda match: match[1].upper(), name)


def properties() -> dict[str, Any]:
    """The settings in the form of VS Code, without defaults: what is not set is left to dslint.toml."""
    mirrored = {
        f"dslint.{camel(setting.name)}": {
            **_shortened(setting.kind.schema()),
            "scope": "resource",
            "markdownDescription": f"{setting.meaning} In `dslint.toml`: `{setting.name}`.",
        }
        for setting in SETTINGS.values()
        if setting.name not in NOT_IN_AN_EDITOR
    }
    return OWN | mirrored


def _shortened(schema: Any) -> Any:
    """A schema without long lists of values, such as the codes of all rules: VS Code reads the manifest at every start."""
    if isinstance(schema, list):
        return list(map(_shortened, schema))
    if not isinstance(schema, dict):
        return schema
    if any(len(branch.get("enum", ())) > LONGEST_LIST for branch in schema.get("anyOf", [schema])):
        return {"type": "string"}
    return {key: _shortened(value) for key, value in schema.items()}


def manifest(text: str) -> str:
    """The manifest with the settings, the version and the address of dslint."""
    content = json.loads(text)
    content["version"] = re.match(r"\d+\.\d+\.\d+", __version__)[0]  # type: ignore[index] # a version starts with three numbers
    content.pop("repository", None)
    if project.REPOSITORY:
        content["repository"] = {"type": "git", "url": project.REPOSITORY}
    content["contributes"]["configuration"]["properties"] = properties()
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the manifest and the schema of the settings, or compare them."""
    written = {
        MANIFEST: manifest(MANIFEST.read_text(encoding="utf-8")),
        SCHEMA: json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n",
    }
    stale = [path for path, text in written.items() if path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in arguments:
            print(f"stale: {path.relative_to(ROOT)}", file=sys.stderr)
        else:
            path.write_text(written[path], encoding="utf-8")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
