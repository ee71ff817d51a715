"""What MkDocs does beside its own work: see mkdocs.yml.

The documents are written to be read in the repository. Three things make a site of them: the README is its home, the navigation lists the
pages of rules and keys and leaves out what there is no page of, and links that lead out of docs/ lead to a copy of what they mean.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
"""Documents outside of docs/ that are pages, and where they are."""

_LINK = re.compile(r"(\]\()(?![a-z]+:|#|<)([^)\s#]+)")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_CHAPTER = re.compile(r"^## (.+)$", re.MULTILINE)
_CODE = re.compile(r"\]\((DS\d{3}\.md)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the folders of the navigation, and leave out pages that there are none of."""
    config.nav = _filled(config.nav, Path(config.docs_dir))
    return config


def _filled(entries: Any, docs: Path) -> list[Any]:
    filled: list[Any] = []
    for entry in entries:
        ((title, what),) = entry.items() if isinstance(entry, dict) else [(None, entry)]
        if isinstance(what, list):
            filled.append({title: _filled(what, docs)})
        elif what.endswith("/"):
            filled.append({title: _folder(docs, what)})
        elif what in PAGES.values() or (docs / what).exists():
            filled.append(entry)
    return filled


def _folder(docs: Path, folder: str) -> list[Any]:
    """The index of a folder, and its pages in the order in which the index names them; the rules stand under its headings."""
    index = (docs / folder / "README.md").read_text(encoding="utf-8")
    if folder != "rules/":
        named = dict.fromkeys(re.findall(r"\]\(([\w.\-]+\.md)(?:#[^)]*)?\)", index))
        return [folder + "README.md", *({_title(docs / folder / name): folder + name} for name in named)]
    chapters = re.split(_CHAPTER, index)
    return [folder + "README.md"] + [
        {title: [{_title(docs / folder / name): folder + name} for name in _CODE.findall(body)]}
        for title, body in zip(chapters[1::2], chapters[2::2], strict=True)
    ]


def _title(page: Path) -> str:
    found = _TITLE.search(page.read_text(encoding="utf-8"))
    return found[1] if found else page.stem


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/, and the files that links lead to."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for file in files.documentation_pages():
        for link in _LINK.findall(file.content_string):
            target = _in_repository(file.src_uri, link[1])
            if _on_site(target) == target and (ROOT / target).is_file() and files.get_file_from_path(target) is None:
                files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs passes all by name
    """Mend the links that are written for the repository."""
    source = page.file.src_uri
    if source == "index.md":
        page.meta["hide"] = ["navigation"]  # the outputs in the README are a hundred columns wide

    def mended(match: re.Match[str]) -> str:
        target = _in_repository(source, match[2])
        return match[1] + posixpath.relpath(_on_site(target), posixpath.dirname(source) or ".")

    return _LINK.sub(mended, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs passes all by name
    """In the table of contents of a section of the config, a key goes by its last name: the list is narrow."""
    if page.file.src_uri.startswith("keys/"):
        entries = list(page.toc)
        while entries:
            entry = entries.pop()
            entry.title = entry.title.rpartition(".")[2]
            entries += entry.children
    return html


def _in_repository(source: str, link: str) -> str:
    """What a link of a page means, as a path from the top of the repository."""
    written = next((name for name, page in PAGES.items() if page == source), f"docs/{source}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(written), link))


def _on_site(target: str) -> str:
    """Where a file of the repository is on the site."""
    return PAGES.get(target) or target.removeprefix("docs/")
