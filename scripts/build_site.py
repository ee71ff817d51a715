#!/usr/bin/env python3
"""Build the documentation site.

    python scripts/build_site.py [--site-dir DIR] [--no-playground]

Collects the pages in build/pages (the documents of the repository, and the generated pages of rules, keys and coverage), writes
build/mkdocs.yml (mkdocs.yml with its navigation filled in), and runs `mkdocs build --strict` on them. The site is written to build/site.
The playground is a part of it if node is installed.
"""

from __future__ import annotations

import argparse
import json
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from build_playground import NotInstalled, build  # noqa: E402 - a script, found through the line above
from docs_pages import site_pages  # noqa: E402

from dslint import project  # noqa: E402
from dslint.schemas import catalog, export  # noqa: E402

ELSEWHERE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "docs/coverage.tsv": "coverage.md"}
"""Files of the repository that have another path on the site."""

PLAYGROUND = "playground/index.html"

WIDE = "hide:\n  - navigation\n"
"""Front matter of the home page: the README's outputs are too wide to stand next to a list of pages."""

BOOSTS = {"rules/": 1, "coverage": 1, "keys/": 4, "contributing": 4, "suppressing": 16}
"""What a word on a page counts for in the search, by how its name begins: a topic comes before the many rules and the list of mistakes."""

BOOST = 8
"""The same for all other pages."""

SKILL = "skills/deepspeed-config/SKILL.md"

_LINK = re.compile(r"(\]\()(?![a-z]+:|#|<)([^)\s#]+)")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_CHAPTER = re.compile(r"^## (.+)$", re.MULTILINE)
_CODE = re.compile(r"\]\((DS\w\d\d\.md)\)")


def main(arguments: list[str]) -> int:
    """Collect the pages and run MkDocs."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--site-dir", type=Path, default=ROOT / "build" / "site", help="where to write the site")
    parser.add_argument("--no-playground", action="store_true", help="leave the playground out")
    chosen = parser.parse_args(arguments)
    playground = ROOT / "build" / "playground"
    has_playground = not chosen.no_playground and build_playground(playground)
    pages = collect(ROOT / "build" / "pages", playground if has_playground else None)
    config = write_config(ROOT / "build" / "mkdocs.yml", pages, chosen.site_dir.resolve())
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == 0:
        repair_search(chosen.site_dir / "assets" / "javascripts" / "workers")
    return code


def repair_search(workers: Path) -> None:
    """Make the search find all words that begin with a given letter.

    Lunr, which mkdocs-material brings, folds equal ends of words by a text of each node: `label + id` for each edge, without a mark
    between them. With digits as labels two different nodes have one text, words that no page has appear in the index (`adam_beta16`),
    and each search that meets one ends in "No matching documents".

    Raises:
        SystemExit: the search of this release of mkdocs-material reads otherwise.
    """
    ambiguous, clear = "e=e+s+o.id}return e}", 'e=e+s+o.id+";"}return e}'
    for path in workers.glob("search.*.js"):
        text = path.read_text(encoding="utf-8")
        if text.count(ambiguous) != 1:
            raise SystemExit(f"{path.name} of mkdocs-material has changed: see repair_search in scripts/build_site.py")
        path.write_text(text.replace(ambiguous, clear), encoding="utf-8")


def collect(folder: Path, playground: Path | None = None) -> dict[str, str]:
    """Write the pages of the site, linked files and the built playground into an empty folder; returns the pages by their path."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "assets", folder / "assets")
    shutil.copy(ROOT / "playground" / "icon.svg", folder / "assets")
    sources = ["README.md", "CONTRIBUTING.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]
    (folder / catalog.SITE_PATH).parent.mkdir()
    (folder / catalog.SITE_PATH).write_text(json.dumps(export.json_schema(draft="07")), encoding="utf-8")
    linked: set[str] = set()
    pages = {on_site(source): relink(source, (ROOT / source).read_text(encoding="utf-8"), linked) for source in sources}
    pages |= site_pages(playground=playground is not None)
    pages = {name: front_matter(name) + text for name, text in pages.items()}
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for target in sorted(linked):
        if on_site(target) not in pages and (ROOT / target).is_file():
            (folder / on_site(target)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / target, folder / on_site(target))
    (folder / "llms.txt").write_text(for_assistants(pages), encoding="utf-8")
    if playground is not None:
        shutil.copytree(playground, folder / posixpath.dirname(PLAYGROUND))
        pages[PLAYGROUND] = ""
    return pages


def for_assistants(pages: dict[str, str]) -> str:
    """The file llms.txt of the site: what an assistant should know and run, then the pages, as https://llmstxt.org lays it out."""
    _, _, skill = (ROOT / SKILL).read_text(encoding="utf-8").split("---\n", 2)
    _, _, about = skill.strip().partition("\n")
    address = f"{project.SITE}/" if project.SITE else ""
    listed = [name for name in pages if name.endswith(".md") and name.partition("/")[0] not in ("rules", "keys")]
    listed += ["rules/README.md", "keys/README.md"]
    links = "\n".join(f"- [{title_of(pages[name])}]({address}{on_disk(name)})" for name in listed)
    return f"# dslint\n\n> A linter for DeepSpeed configs: it finds mistakes before the job is queued.\n{about}\n\n## Pages\n\n{links}\n"


def on_disk(name: str) -> str:
    """The path of a page in the built site."""
    folder, _, file = name.rpartition("/")
    built = "index.html" if file in ("README.md", "index.md") else f"{file.removesuffix('.md')}.html"
    return f"{folder}/{built}" if folder else built


def build_playground(folder: Path) -> bool:
    """Build the playground; False without node: the site is built without it."""
    try:
        build(folder)
    except NotInstalled as reason:
        print(f"The site has no playground: {reason}")
        return False
    return True


def front_matter(name: str) -> str:
    """What MkDocs is told about a page."""
    boost = next((boost for folder, boost in BOOSTS.items() if name.startswith(folder)), BOOST)
    return f"---\nsearch:\n  boost: {boost}\n{WIDE if name == 'index.md' else ''}---\n\n"


def on_site(target: str) -> str:
    """The path on the site of a file of the repository."""
    return ELSEWHERE.get(target) or target.removeprefix("docs/")


def relink(source: str, text: str, linked: set[str]) -> str:
    """A document with its relative links rewritten for the site; their targets are added to `linked`."""
    folder = posixpath.dirname(on_site(source)) or "."

    def rewritten(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        linked.add(target)
        return match[1] + posixpath.relpath(on_site(target), folder)

    return _LINK.sub(rewritten, text)


def write_config(path: Path, pages: dict[str, str], site_dir: Path) -> Path:
    """Write MkDocs' configuration for the collected pages."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    config |= {"docs_dir": "pages", "site_dir": str(site_dir), "nav": filled(config["nav"], pages)}
    config |= {name: address for name, address in (("site_url", project.SITE), ("repo_url", project.REPOSITORY)) if address}
    path.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def filled(entries: list[Any], pages: dict[str, str]) -> list[Any]:
    """The navigation with each `folder/` replaced by the pages in it, and without the playground if it was not built."""
    found: list[Any] = []
    for entry in entries:
        ((title, what),) = entry.items()
        if what == PLAYGROUND and what not in pages:
            continue
        found.append({title: filled(what, pages) if isinstance(what, list) else list_folder(what, pages) if what.endswith("/") else what})
    return found


def list_folder(folder: str, pages: dict[str, str]) -> list[Any]:
    """The index of a folder and its pages, in the order of the index; rules stand under the headings of their chapters."""
    index = pages[folder + "README.md"]
    if folder != "rules/":
        named = dict.fromkeys(re.findall(r"\]\(([\w.\-]+\.md)(?:#[^)]*)?\)", index))
        return [folder + "README.md", *({title_of(pages[folder + name]): folder + name} for name in named)]
    chapters = re.split(_CHAPTER, index)
    return [folder + "README.md"] + [
        {title: [{title_of(pages[folder + name]): folder + name} for name in _CODE.findall(body)]}
        for title, body in zip(chapters[1::2], chapters[2::2], strict=True)
    ]


def title_of(page: str) -> str:
    """The text of a page's first heading."""
    found = _TITLE.search(page)
    assert found is not None, page[:80]
    return found[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
