"""The frame of every page that dslint writes: it loads nothing, follows the system's light or dark theme, and fits a phone.

The colours are those of the playground and of the site.
"""

from __future__ import annotations

import re
import shlex
import sys
from html import escape

from dslint import __version__
from dslint.project import DISTRIBUTION
from dslint.report.style import visible, visible_lines

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

STYLE = """
:root { color-scheme: light dark; --page: #fff; --line: #dcdfe6; --soft: #f5f6f9; --text: #1c2129; --dim: #5c6470;
  --accent: #3546ab; --error: #b42318; --warning: #8a5a00; --info: #1f5fa8; --good: #1a7431; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171d; --line: #343b47; --soft: #1c2129; --text: #e4e8ef; --dim: #9aa4b2;
    --accent: #9fb0ff; --error: #ff8a80; --warning: #f0b84b; --info: #7db7ff; --good: #6fd08c; }
}
* { box-sizing: border-box; }
body { background: var(--page); color: var(--text); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  margin: 0 auto; max-width: 72rem; padding: 1rem; }
.mark { align-items: center; display: flex; font-weight: 650; gap: 0.5rem; margin: 0 0 1rem; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; }
h2 { font-size: 1.1rem; margin: 1.5rem 0 0.5rem; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 0; }
a { color: var(--accent); }
code, pre { font: 0.85rem/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { background: var(--soft); border-radius: 4px; margin: 0.5rem 0; overflow-x: auto; padding: 0.5rem; }
p code, dd code, li code, footer code { background: var(--soft); border-radius: 3px; overflow-wrap: anywhere; padding: 0.05em 0.25em; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid var(--line); padding: 0.25rem 0.75rem 0.25rem 0; text-align: left; vertical-align: top; }
td.number { text-align: right; white-space: nowrap; }
.wide { overflow-x: auto; }
p, li, dd { overflow-wrap: anywhere; }
.dim, footer { color: var(--dim); }
footer { border-top: 1px solid var(--line); font-size: 0.85rem; margin-top: 2rem; overflow-wrap: anywhere; padding-top: 0.5rem; }
"""

MARK = (
    '<p class="mark"><svg viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">'
    '<rect width="32" height="32" rx="7" fill="#3546ab"/>'
    '<path d="M7 12h18M7 18h10" stroke="#fff" stroke-width="2.5" stroke-linecap="round"/>'
    '<path d="M7 24c1.5-2.5 3-2.5 4.5 0s3 2.5 4.5 0 3-2.5 4.5 0 3 2.5 4.5 0" fill="none" stroke="#ffb74d" stroke-width="2.5" '
    'stroke-linecap="round"/></svg> dslint</p>'
)
"""The mark of the site and the playground (playground/icon.svg)."""

_CODE = re.compile(r"`([^`\n]+)`")


def head(title: str, style: str = "") -> str:
    """The beginning of a page, up to its body."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n{MARK}"
    )


def footer(*more: str) -> str:
    """Which release wrote the page, and the command, if this is the command line."""
    command = _command()
    parts = [f"dslint {__version__}", *map(text, more), *([f"<code>{text(command)}</code>"] if command else [])]
    return f"<footer>{' &middot; '.join(parts)}</footer>"


def _command() -> str | None:
    """The command that the user typed. Values of variables may be secrets: they are left out."""
    program = re.split(r"[/\\\\]", sys.argv[0])[-1].removesuffix(".exe")
    if program not in ("dslint", DISTRIBUTION):
        return None
    words = [re.sub(r"^(--env=)?(\w+)=.*", r"\1\2=...", word) if before == "--env" or word.startswith("--env=") else word
             for before, word in zip(sys.argv, sys.argv[1:], strict=False)]  # fmt: skip
    return shlex.join(["dslint", *words])


def text(written: str) -> str:
    """A text for a page: control characters are visible, and nothing in it is markup."""
    return escape(visible_lines(written) if "\n" in written else visible(written))


def prose(written: str) -> str:
    """A sentence for a page, in which backticks mark code."""
    return _CODE.sub(r"<code>\1</code>", text(written))
