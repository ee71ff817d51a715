"""What an installation of dslint knows: for reports of defects and false alarms."""

from __future__ import annotations

import platform

from dslint.facts import NEWEST, OLDEST
from dslint.project import COMPARED, COMPARED_WITH, DISTRIBUTION
from dslint.registry.plugins import GROUP
from dslint.registry.rules import all_rules

TRIED = ("deepspeed", "torch", "transformers", "accelerate", "lightning", "pydantic", "tree-sitter")
"""Installed packages that matter to what dslint does."""


def page() -> str:
    """The releases covered, the date of the data, plug-ins, and the versions installed next to dslint."""
    from importlib.metadata import PackageNotFoundError, entry_points, version

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "not installed"

    others = ", ".join(f"{name} {release}" for name, release in COMPARED_WITH.items())
    plugins = ", ".join(f"{point.name} ({point.value})" for point in entry_points(group=GROUP)) or "none"
    lines = [
        ("DeepSpeed", f"{OLDEST} to {NEWEST}"),
        ("rules", f"{len(all_rules())}"),
        ("compared", f"{COMPARED}, with {others}"),
        ("plug-ins", plugins),
        ("distribution", f"{DISTRIBUTION} {installed(DISTRIBUTION)}"),
        ("Python", f"{platform.python_version()} on {platform.system()}"),
        *((name, installed(name)) for name in TRIED),
    ]
    return "\n".join(f"  {name:<13} {text}" for name, text in lines)
