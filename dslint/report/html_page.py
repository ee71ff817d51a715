"""One page for a whole repository: findings by file or by rule, with a filter, and what was not checked.

The page needs nothing else: style and script are in it, its policy forbids it to load anything, and without the script it shows all
findings. Text from files may have been sent by anyone: it is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import TextIO

from dslint.diagnostics import Diagnostic, Severity
from dslint.lint.results import FileResult, Results
from dslint.report.full import excerpts, remarks
from dslint.report.html_memory import memory_table
from dslint.report.html_shell import footer, head, prose, text
from dslint.report.style import Style, printable
from dslint.report.words import count, fixable, hidden, inferred_facts, page_of, skipped_rules, verdict
from dslint.source.tree import Document

COLUMNS = 100
"""The width of an excerpt in characters; longer lines scroll."""

STYLE = """
article { border: 1px solid var(--line); border-left: 4px solid var(--severity); border-radius: 4px; margin: 0.75rem 0; padding: 0.75rem; }
article p { margin: 0.25rem 0; overflow-wrap: anywhere; white-space: pre-line; }
.error { --severity: var(--error); } .warning { --severity: var(--warning); } .info { --severity: var(--info); }
.severity { color: var(--severity); font-weight: 600; }
.place { color: var(--dim); }
dl { display: grid; gap: 0 0.75rem; grid-template-columns: max-content 1fr; margin: 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; white-space: pre-line; }
form { background: var(--page); border-bottom: 1px solid var(--line); padding: 0.5rem 0; position: sticky; top: 0; }
form:not([hidden]) { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; }
form label { max-width: 100%; }
input[type=search], select { font: inherit; max-width: 100%; min-width: 12rem; padding: 0.25rem; }
@media (max-width: 30rem) { form { position: static; } dl { grid-template-columns: 1fr; } }
"""

SCRIPT = """
const form = document.forms[0], list = document.getElementById('findings');
const articles = [...list.querySelectorAll('article')];
form.hidden = false;
function show() {
  const words = form.text.value.toLowerCase().split(/\\s+/).filter(Boolean);
  const severities = [...form.querySelectorAll('input[type=checkbox]:checked')].map(box => box.value);
  let shown = 0;
  for (const article of articles) {
    const text = article.textContent.toLowerCase() + ' ' + article.dataset.file.toLowerCase();
    article.hidden = !(severities.includes(article.dataset.severity)
      && (!form.rule.value || form.rule.value === article.dataset.rule) && words.every(word => text.includes(word)));
    shown += !article.hidden;
  }
  for (const section of list.children) section.hidden = ![...section.querySelectorAll('article')].some(article => !article.hidden);
  document.getElementById('shown').textContent = shown + ' of ' + articles.length + ' shown';
}
function group() {
  const key = form.by.value, sections = new Map();
  for (const article of articles) {
    const name = article.dataset[key];
    if (!sections.has(name)) {
      const section = document.createElement('section'), head = document.createElement('h2');
      head.textContent = key === 'rule' ? name + ' ' + article.dataset.name : name;
      section.append(head);
      sections.set(name, section);
    }
    sections.get(name).append(article);
  }
  list.replaceChildren(...sections.values());
  show();
}
form.addEventListener('input', event => event.target === form.by ? group() : show());
form.addEventListener('submit', event => event.preventDefault());
show();
"""


def write(results: Results, out: TextIO, style: Style) -> None:  # noqa: ARG001 - a page has neither colours nor a width
    """Write the results as a page."""
    out.writelines(f"{printable(line)}\n" for line in _page(results))


def _page(results: Results) -> Iterator[str]:
    said = verdict(results)
    yield head(f"dslint: {said}", STYLE)
    yield "<main>"
    yield f"<h1>{text(said)}</h1>"
    for sentence in (fixable(results), hidden(results)):
        if sentence:
            yield f"<p>{text(sentence)}</p>"
    findings = [diagnostic for file in results.files for diagnostic in file.diagnostics]
    if findings:
        yield from _form(findings)
    documents = {file.path: file.document for file in results.files if file.document is not None}
    yield '<div id="findings">'
    for file in results.files:
        if file.diagnostics or file.error is not None:
            yield from _file(file, documents)
    yield "</div>"
    yield from memory_table(results)
    yield from _not_judged(results)
    remarks_on_run = [*inferred_facts(results), *skipped_rules(results)]
    if remarks_on_run:
        yield "<h2>About this run</h2>\n<ul>"
        yield from (f"<li>{text(remark)}</li>" for remark in remarks_on_run)
        yield "</ul>"
    yield "</main>"
    yield footer(count(len(results.files), "file"))
    yield f"<script>{SCRIPT}</script>" if findings else ""
    yield "</body>\n</html>"


def _form(findings: list[Diagnostic]) -> Iterator[str]:
    """The filter; shown by the script that makes it work."""
    yield '<form hidden>\n<label>Filter <input type="search" name="text" placeholder="words, keys, files"></label>'
    for severity in sorted(Severity, key=lambda one: -one.rank):
        number, word = sum(finding.severity is severity for finding in findings), severity.value
        yield f'<label class="{word}"><input type="checkbox" value="{word}" checked> {word} ({number})</label>'
    rules = Counter((finding.code, finding.name) for finding in findings)
    yield '<label>Rule <select name="rule"><option value="">all</option>'
    for (code, name), number in sorted(rules.items()):
        yield f'<option value="{text(code)}">{text(code)} {text(name)} ({number})</option>'
    yield "</select></label>"
    yield '<label>By <select name="by"><option value="file">file</option><option value="rule">rule</option></select></label>'
    yield '<output id="shown" class="dim"></output>\n</form>'


def _file(file: FileResult, documents: dict[str, Document]) -> Iterator[str]:
    yield f"<section>\n<h2>{text(file.path)}</h2>"
    if file.error is not None:
        yield f'<p class="error"><span class="severity">error</span> {text(file.error)}</p>'
    for diagnostic in file.diagnostics:
        yield from _finding(diagnostic, documents)
    yield "</section>"


def _finding(diagnostic: Diagnostic, documents: dict[str, Document]) -> Iterator[str]:
    severity, code, name = diagnostic.severity.value, text(diagnostic.code), text(diagnostic.name)
    file = text(diagnostic.path)
    yield f'<article class="{severity}" data-severity="{severity}" data-rule="{code}" data-name="{name}" data-file="{file}">'
    head = f"{severity}[{_linked(code, page_of(diagnostic))}]"
    yield f'<h3><span class="severity">{head}</span> {name}</h3>\n<p>{prose(diagnostic.message)}</p>'
    _, lines = excerpts(diagnostic, documents, Style(color=False, width=COLUMNS))
    yield f'<pre tabindex="0">{escape(chr(10).join(lines))}</pre>\n<dl>'
    told = [*remarks(diagnostic, documents)]
    yield from (f"<dt>{label}</dt><dd>{_linked(prose(said), page_of(diagnostic) if label == 'see' else None)}</dd>" for label, said in told)
    yield "</dl>\n</article>"


def _linked(shown: str, url: str | None) -> str:
    return f'<a href="{escape(url)}">{shown}</a>' if url else shown


def _not_judged(results: Results) -> Iterator[str]:
    rows = [(file.path, part.reason) for file in results.files for part in file.not_judged]
    if rows:
        yield '<h2>Not checked</h2>\n<div class="wide"><table>\n<tr><th>File</th><th>Reason</th></tr>'
        yield from (f"<tr><td>{text(path)}</td><td>{text(reason)}</td></tr>" for path, reason in rows)
        yield "</table></div>"
