"""The parts of the metadata that depend on the project's address, which dslint/project.py holds. All else is in pyproject.toml."""

import re
import runpy
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
PROJECT = runpy.run_path(str(ROOT / "dslint" / "project.py"))
REPOSITORY, SITE = PROJECT["REPOSITORY"], PROJECT["SITE"]


def readme() -> str:
    """README.md with absolute links, or without links to files as long as the repository has no address."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    link = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
    if not REPOSITORY:
        return link.sub(lambda found: "" if found[1] else found[2], text)
    return link.sub(lambda found: f"{found[1]}[{found[2]}]({REPOSITORY}/{'raw' if found[1] else 'blob'}/main/{found[3]})", text)


def addresses() -> dict[str, str]:
    """The links of the project on a package index."""
    if not REPOSITORY:
        return {}
    return {
        "Homepage": SITE or REPOSITORY,
        "Documentation": SITE or f"{REPOSITORY}/tree/main/docs",
        "Source": REPOSITORY,
        "Issues": f"{REPOSITORY}/issues",
        "Changelog": f"{REPOSITORY}/blob/main/CHANGELOG.md",
    }


setup(long_description=readme(), long_description_content_type="text/markdown", project_urls=addresses())
