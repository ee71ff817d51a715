#!/usr/bin/env python3
"""Record the errors that the real DeepSpeed, transformers and Accelerate raise, and the rules that find the mistakes: rules/errors.json.

    python scripts/record_errors.py [--check]

There are three sources: the bad examples of all rules with effect crash; a value of every wrong type at every key of the key table; and for
errors that cannot be triggered here (they need a GPU, a checkpoint, Lightning), the text of the rule. With --check nothing is written: the
trials must be the recorded ones, and one in sixteen is run again. It takes some minutes, --check one.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dslint.config.context import Context  # noqa: E402
from dslint.config.infer import infer  # noqa: E402
from dslint.config.values import UNKNOWN  # noqa: E402
from dslint.diagnose.parse_log import read_error  # noqa: E402
from dslint.diagnose.search import ANYTHING, KnownError, of_row  # noqa: E402
from dslint.diagnostics import Diagnostic, Effect  # noqa: E402 - the checkout this script stands in
from dslint.facts import NEWEST, Facts, Integration  # noqa: E402
from dslint.job.arguments import DEFAULTS  # noqa: E402
from dslint.lint.document import lint_document  # noqa: E402
from dslint.registry.rules import loaded_rules  # noqa: E402
from dslint.rule import Example, Rule, path_of  # noqa: E402
from dslint.schemas.auto import FILLED  # noqa: E402
from dslint.schemas.key_table import KEYS  # noqa: E402
from dslint.source.parse import parse  # noqa: E402
from dslint.source.tree import Member, plain  # noqa: E402
from tests.engine.harness import Case, Engine, Upto  # noqa: E402
from tests.setup.beside import context_of  # noqa: E402

FILE = ROOT / "rules" / "errors.json"
DEEPSPEED = "DeepSpeed"
STRICT = "Python's json"
LOADERS = ("transformers", "Accelerate")
ASKED = {*DEFAULTS, "do_train", "do_eval", "fsdp"}
"""The training arguments that an example may give."""

WRONG: tuple[Any, ...] = ("x", None, True, -1, 0, 1.5, 1, [], ["x"], {}, "auto", "")
"""One wrong value of every type."""

AGAIN = "0"
"""The first digit of the digests of trials that --check runs again."""


class Trial(NamedTuple):
    """A mistake to try: which library should raise, its input, the rule that finds it, and the phase. `key` is the decisive key."""

    by: str
    asked: Case | list[Any]
    code: str
    phase: str
    key: str | None = None
    own: tuple[str, ...] = ()
    """Custom words of the config that the message may contain."""

    @property
    def source(self) -> str:
        """The origin of the trial: a rule or a key."""
        return self.key or self.code

    @property
    def digest(self) -> str:
        """A short digest of the trial."""
        asked = [self.asked.text, self.asked.world_size, self.asked.upto] if isinstance(self.asked, Case) else self.asked
        return hashlib.sha256(json.dumps([self.by, asked, self.code, self.phase]).encode()).hexdigest()[:8]


def main() -> int:
    """Write the file, or with --check compare it."""
    trials = [*of_examples(), *of_keys()]
    questions: dict[str, list[str]] = {}
    for trial in trials:
        questions.setdefault(trial.source, []).append(trial.digest)
    if "--check" in sys.argv[1:]:
        return check(trials, questions)
    rows = record(trials)
    rows += quoted({row.code for row in rows})
    FILE.write_text(written(questions, rows), encoding="utf-8")
    print(f"{len(rows)} errors written to {FILE.relative_to(ROOT)}: {len(trials)} trials were run")
    return 0


def check(trials: list[Trial], questions: dict[str, list[str]]) -> int:
    """Compare the file with the current trials, and with some results."""
    old = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"asked": {}, "errors": []}
    rows = [of_row(row) for row in old["errors"]]
    wrong = sorted(name for name in {*questions, *old["asked"]} if questions.get(name) != old["asked"].get(name))
    for row in record([trial for trial in trials if trial.digest.startswith(AGAIN)]):
        if not any(row_of(row)[:5] == row_of(other)[:5] and set(row.keys) <= set(other.keys) for other in rows):
            wrong.append(f"{row.code} ({row.kind}: {row.message})")
    raised = {row.code for row in rows if row.by}
    wrong += sorted({row.code for row in {*quoted(raised)} ^ {row for row in rows if not row.by}})
    if wrong:
        print(f"{FILE.name} is stale: run python scripts/generate.py errors. Differences: {', '.join(wrong[:20])}", file=sys.stderr)
    return int(bool(wrong))


def record(trials: list[Trial]) -> list[KnownError]:
    """The recorded errors. Errors in another phase than dslint claims are skipped: other tests cover them."""
    found: dict[KnownError, set[str]] = {}
    for trial, phase, text in answers(trials):
        if text is None or phase != trial.phase:
            continue
        kind, _, message = text.partition(": ")
        for word in trial.own:
            message = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", ANYTHING, message)
        for raised in read_error(kind, message):
            keys = found.setdefault(KnownError(raised.kind, raised.message, trial.code, trial.phase, trial.by), set())
            if trial.key:
                keys.add(trial.key)
    return sorted((known._replace(keys=tuple(sorted(keys))) for known, keys in found.items()), key=row_of)


def answers(trials: list[Trial]) -> Iterator[tuple[Trial, str | None, str | None]]:
    """Each trial with its phase and its error."""
    by_deepspeed = [(trial, trial.asked) for trial in trials if isinstance(trial.asked, Case)]
    with Engine() as engine:
        for (trial, _), outcome in zip(by_deepspeed, engine.ask(case for _, case in by_deepspeed), strict=True):
            yield trial, outcome.phase, outcome.error
    for trial in trials:
        if trial.by == STRICT and not isinstance(trial.asked, Case):
            yield trial, trial.phase, said_by_json(trial.asked[0])
    by_loaders = [trial for trial in trials if trial.by in LOADERS]
    if by_loaders:
        command = [sys.executable, "-m", "tests.setup.real"]
        text = json.dumps([trial.asked for trial in by_loaders])
        done = subprocess.run(command, cwd=ROOT, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        for trial, said in zip(by_loaders, json.loads(done.stdout), strict=True):
            yield trial, trial.phase, said


def said_by_json(text: str) -> str | None:
    """The error of Python's json for a text: every loader except DeepSpeed's uses it."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"JSONDecodeError: {error}"
    return None


def of_examples() -> Iterator[Trial]:
    """The bad examples that DeepSpeed or a loader can run."""
    for rule in loaded_rules():
        for example in rule.bad if rule.effect is Effect.CRASH else ():
            context = context_of(example)
            facts = context.facts
            crash = next((d for d in crashes(example.text, context) if d.code == rule.code), None)
            if crash is None or crash.phase is None or facts.deepspeed != NEWEST:
                continue
            if crash.phase == "load":
                yield from of_loader(rule, example, context)
            elif not (rule.untried or example.files or (facts.integration in FILLED and '"auto"' in example.text)):
                case = Case("", text=example.text, world_size=facts.world_size or 1, upto="step", optimizer=True)
                yield Trial(DEEPSPEED, case, rule.code, crash.phase, own=own_words(example))


def own_words(example: Example) -> tuple[str, ...]:
    """The key and the string at the place of the finding, which DeepSpeed may quote."""
    path = path_of(example.at or "")
    document = parse(example.text)
    found = document.lookup(path)
    value = plain(found.value) if isinstance(found, Member) else None
    unknown = path and ".".join(map(str, path)) not in KEYS and isinstance(path[-1], str)
    return tuple(word for word in (path[-1] if unknown else None, value) if isinstance(word, str) and word not in ("", "auto"))


def of_loader(rule: Rule, example: Example, context: Context) -> Iterator[Trial]:
    """The input for a loader, if the example is complete."""
    files = dict(example.files)
    document = parse(example.text)
    if document.departures or document.problems:
        yield Trial(STRICT, [example.text], rule.code, "load")
    elif set(files) == {"accelerate.yaml"}:
        yield Trial("Accelerate", ["launch", {"text": files["accelerate.yaml"]}], rule.code, "load")
    elif context.facts.integration is Integration.ACCELERATE and not files:
        yield Trial("Accelerate", ["plugin", {"config": json.loads(example.text), "environment": {}}], rule.code, "load")
    elif context.facts.integration is Integration.TRANSFORMERS and set(files) <= {"train.yaml"}:
        given = context.setup.arguments.values if context.setup and context.setup.arguments else {}
        arguments = {"save_strategy": "no"}  # so that evaluation needs nothing either
        arguments |= {name: value.value for name, value in given.items() if name in ASKED and value.value is not UNKNOWN}
        for kind in ("trainer", "init"):
            yield Trial("transformers", [kind, {"config": json.loads(example.text), "arguments": arguments}], rule.code, "load")


def of_keys() -> Iterator[Trial]:
    """For every key, a config for each type of value that makes DeepSpeed raise because of this value."""
    for key in KEYS:
        seen: set[tuple[str, str, str]] = set()
        for value in WRONG:
            text = json.dumps({"train_micro_batch_size_per_gpu": 4, **holding(key, value)})
            found = crashes(text, Facts(integration=Integration.DEEPSPEED))
            if len(found) != 1 or found[0].phase is None:
                continue
            kind = (found[0].code, found[0].phase.value, type(value).__name__)
            if kind not in seen:
                seen.add(kind)
                upto: Upto = "parse" if found[0].phase == "parse" else "step"
                own = ("x", "X") if value in ("x", ["x"]) else ()
                yield Trial(DEEPSPEED, Case("", text=text, upto=upto, optimizer=True), found[0].code, found[0].phase, key, own)


def holding(key: str, value: Any) -> dict[str, Any]:
    """A config with this value at a key; a section with custom keys gets one, a list one item."""
    for name in reversed(key.split(".")):
        value = {"mine" if name == "*" else name.removesuffix("[]"): [value] if name.endswith("[]") else value}
    assert isinstance(value, dict)
    return value


def crashes(text: str, context: Context) -> list[Diagnostic]:
    """The findings of effect crash in a config."""
    document = parse(text)
    found = lint_document(document, "c.json", infer(document, context), loaded_rules()).diagnostics
    return [diagnostic for diagnostic in found if diagnostic.effect is Effect.CRASH and diagnostic.certain]


def quoted(raised: Iterable[str]) -> list[KnownError]:
    """The errors quoted by rules without a recorded error, without the library that raises them."""
    rows: dict[KnownError, None] = {}
    for rule in loaded_rules():
        if rule.effect is not Effect.CRASH or rule.code in raised:
            continue
        said = [" ".join(rule.documentation.split())]
        said += [d.message for example in rule.bad for d in crashes(example.text, context_of(example)) if d.code == rule.code]
        for text in said:
            for kind, message in errors_quoted(text):
                read = read_error(kind, message)
                rows |= dict.fromkeys(KnownError(one.kind, one.message, rule.code, rule.phase or "", "") for one in read)
    return sorted(rows, key=row_of)


def errors_quoted(text: str) -> Iterator[tuple[str, str]]:
    """The errors in a rule's text: `ValueError: text` in backquotes, or: raises ValueError "text"."""
    for kind, message in re.findall(r"(?<!`)(?:``|`)(\w+(?:Error|Exception)): ((?:(?!`` ?|`(?!\w)).)+)", text):
        yield kind, message.rstrip("`. ").replace("...", ANYTHING)
    for kind, message in re.findall(r'rais(?:es|ing) (?:an? )?`?(?:(\w+(?:Error|Exception))`? )?"([^"]+)"', text):
        yield kind, message.rstrip(". ").replace("...", ANYTHING)


def row_of(one: KnownError) -> list[Any]:
    """The row of an error in the file."""
    return list(one._asdict().values())


def written(questions: dict[str, list[str]], rows: list[KnownError]) -> str:
    """The text of the file: a line for each source of trials and for each error."""
    asked = ",\n".join(f"  {json.dumps(name)}: {json.dumps(digests)}" for name, digests in questions.items())
    errors = ",\n".join("  " + json.dumps(row_of(row)) for row in rows)
    return f'{{\n"asked": {{\n{asked}\n}},\n"errors": [\n{errors}\n]\n}}\n'


if __name__ == "__main__":
    sys.exit(main())
