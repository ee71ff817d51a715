"""The output of `dslint rule`: the page of a rule, and the list of all rules."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Table
from contextlib import suppress
from itertools import groupby

from dslint.config.context import Context
from dslint.diagnostics import Effect, Severity, severity_of
from dslint.facts import NOT_NEEDED, Facts
from dslint.facts.gpus import in_words
from dslint.project import rule_url
from dslint.report.style import Style, columns, wrap
from dslint.report.words import COLORS, consequence, flag, listed, option
from dslint.rule import Example, Rule, RuleInfo
from dslint.source.parse import parse
from dslint.source.tree import Document, Mapping, Member, Node, Sequence, dotted, path_of

CHAPTER_TITLES = {
    "DS0": "Files and syntax",
    "DS1": "Keys, types and releases",
    "DS2": "Batch and world size",
    "DS3": "Precision",
    "DS4": "ZeRO and communication",
    "DS5": "Offload and NVMe",
    "DS6": "Optimizer, scheduler and gradient clipping",
    "DS7": "Activation checkpointing and memory",
    "DS8": "Checkpoints, parallelism, monitors and other sections",
    "DS9": "Integrations and training setups",
    "DSP": "Programs",
}


def render(rule: Rule, *, color: bool, width: int) -> str:
    """The page of a rule: what it finds, why it matters, examples, what it needs, references."""
    style = Style(color=color, width=width)
    blocks = [list(_head(rule, style)), list(_documentation(rule.documentation, width))]
    for title, examples in groupby((*rule.bad, *rule.good), key=_title):
        blocks.append([*(style.paint(line, "bold") for line in wrap(f"{title}:", width)), *_examples(examples, width)])
    if rule.needs:
        blocks.append(wrap(f"Requires {listed(flag(fact) for fact in rule.needs)}; otherwise the rule is skipped.", width))
    if rule.references:
        blocks.append([style.paint("References:", "bold"), *("  " + reference for reference in rule.references)])
    page = rule_url(rule.code) if rule.is_builtin else None
    blocks.append([*([f"Page: {page}"] if page else []), f"Source: {source_of(rule)}"])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def source_of(rule: Rule) -> str:
    """The file and line of a rule's function, from the top of the repository; of a plug-in, its module and line."""
    inside = rule.module.removeprefix("dslint.")
    path = inside.replace(".", "/") + ".py" if inside != rule.module else rule.module
    return f"{path}:{rule.line}"


def _head(rule: Rule, style: Style) -> Iterator[str]:
    yield style.paint(rule.code, "bold") + " " + style.paint(rule.name, "bold")
    happens = consequence(rule.effect, rule.phase, code=rule.code) or "DeepSpeed runs the config as written; this is advice"
    head, *rest = wrap(f"{rule.severity.value}: {happens}{other_severities(rule)}", style.width)
    yield style.paint(rule.severity.value, COLORS[rule.severity], "bold") + head.removeprefix(rule.severity.value)
    yield from rest


def other_severities(rule: Rule) -> str:
    """That some findings have another severity than the rule, as the end of a sentence; "" if none has. Its function says so."""
    with suppress(OSError, SyntaxError, TypeError):  # the source of a plug-in may not be there
        tree = ast.parse(textwrap.dedent(inspect.getsource(rule.check)))
        calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "Finding"]
        found = {one for call in calls for one in _severities(rule, {word.arg: word.value for word in call.keywords})}
        others = [_PLURAL[one] for one in Severity if one in found - {rule.severity}]
        return f"; {'some' if rule.severity in found else 'its'} findings are {' or '.join(others)}" if others else ""
    return ""


_PLURAL = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.INFO: "info"}


def _severities(rule: Rule, given: Table[str | None, ast.expr]) -> Iterator[Severity]:
    """The severities that a finding with these arguments can have if it is certain."""
    effect, costly = given.get("effect"), given.get("costly")
    names = {one.attr for one in ast.walk(effect) if isinstance(one, ast.Attribute)} if effect is not None else set()
    effects = {Effect[name] for name in names & Effect.__members__.keys()}
    if effect is None or any(isinstance(one, ast.Constant) and one.value is None for one in ast.walk(effect)) or not effects:
        effects.add(rule.effect)
    is_sure = isinstance(costly, ast.Constant) and costly.value is True
    for one in effects:
        for is_costly in (True,) if is_sure else (True, False) if costly is not None else (False,):
            yield severity_of(one, certain=True, costly=is_costly)


def _documentation(text: str, width: int) -> Iterator[str]:
    """A docstring with its paragraphs wrapped; what is indented or fenced keeps its lines, and a list item begins a line."""
    paragraph: list[str] = []
    fenced = False
    for line in text.split("\n"):
        fence = line.startswith("```")
        kept = fenced or fence or line.startswith((" ", "\t")) or not line.strip()
        if (kept or line.startswith(("- ", "* "))) and paragraph:
            yield from wrap(" ".join(paragraph), width)
            paragraph = []
        if kept:
            yield line
        else:
            paragraph.append(line.strip())
        fenced ^= fence
    if paragraph:
        yield from wrap(" ".join(paragraph), width)


def _title(example: Example) -> str:
    """The heading of an example: whether and where the rule finds something, and with which options."""
    where = dotted(path_of(example.at or ""))
    words = ["No finding" if example.at is None else "Found", f"at {where}" if where else "", flags(example.context)]
    return " ".join(word for word in words if word)


def _examples(examples: Iterable[Example], width: int) -> Iterator[str]:
    for number, example in enumerate(examples):
        if number:
            yield ""
        yield from ("    " + line for line in laid_out(example.text, width - 4))
        for name, text in files_of(example):
            yield f"  with {name}:"
            yield from ("    " + line for line in text.rstrip("\n").split("\n"))


def files_of(example: Example) -> Iterator[tuple[str, str]]:
    """The files beside an example, by name, with the config.json of the model that it describes."""
    yield from example.files
    model = example.facts.model
    if model is not None and model.data:
        yield model.path.rpartition("/")[2], json.dumps(model.data)


def flags(context: Context) -> str:
    """The options that give the facts of an example; defaults are left out."""
    facts, usual = context.facts, Context()
    implied = {*NOT_NEEDED} | ({"gpu_memory"} if facts.gpu is not None and facts.gpu.memory == facts.gpu_memory else set())
    names = (*(name for name in Facts._fields if name not in implied), "policy", "checkpoint")
    given = ((name, context.get(name)) for name in names)
    release = {"integration": f"=={facts.loader_release}"} if facts.loader_release else {}
    words = ((name, in_words(value).replace(" ", "") if name.endswith("_memory") and value else value) for name, value in given)
    flags = " ".join(f"{option(name)} {value}{release.get(name, '')}" for name, value in words if value != usual.get(name))
    kernel = context.kernel and f"on a machine with the kernel {context.kernel}"
    return " ".join(filter(None, (kernel, flags and f"with {flags}")))


def laid_out(text: str, width: int) -> list[str]:
    """An example in lines that fit: strict JSON is broken between members, its literals as written; other texts keep their lines."""
    document = parse(text)
    if document.root is None or document.problems or document.departures or "\n" in text:
        return text.split("\n")
    return list(_node(document, document.root, "", "", width))


def _node(document: Document, node: Node, before: str, after: str, width: int) -> Iterator[str]:
    """The lines of a node, with `before` in front and `after` behind it."""
    whole = before + document.text[slice(*node.span)] + after
    inner = node.members if isinstance(node, Mapping) else node.items if isinstance(node, Sequence) else []
    if columns(whole) <= width or not inner:
        yield whole
        return
    yield before + ("{" if isinstance(node, Mapping) else "[")
    indent = " " * (len(before) - len(before.lstrip()) + 2)
    for child in inner:
        comma = "," if child is not inner[-1] else ""
        if isinstance(child, Member):
            yield from _node(document, child.value, f"{indent}{child.key.raw}: ", comma, width)
        else:
            yield from _node(document, child, indent, comma, width)
    yield indent[2:] + ("}" if isinstance(node, Mapping) else "]") + after


def index(rules: Iterable[RuleInfo], *, color: bool, width: int) -> str:
    """All rules by chapter, a line each: code, severity, name, effect."""
    style = Style(color=color, width=width)
    rules = sorted(rules, key=lambda rule: rule.code)
    names = max((len(rule.name) for rule in rules), default=0)
    blocks = [
        "\n".join(
            [style.paint(f"{code}  {CHAPTER_TITLES.get(code, '')}".rstrip(), "bold"), *(_row(rule, names, style) for rule in chapter)]
        )
        for code, chapter in groupby(rules, key=lambda rule: rule.code[:3])
    ]
    return "\n\n".join([*blocks, "To explain a rule: dslint rule CODE"])


def _row(rule: RuleInfo, names: int, style: Style) -> str:
    severity = style.paint(f"{rule.severity.value:<7}", COLORS[rule.severity], "bold")
    return f"  {rule.code}  {severity}  {rule.name:<{names}}  {style.paint(rule.effect.value, 'dim')}"
