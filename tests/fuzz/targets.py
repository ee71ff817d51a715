"""The targets: what is done with a mutated input, and what has to hold then. Whatever raises here is a failure."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.policy import breaches, load_policy
from dslint.diagnose.diagnose import diagnose
from dslint.diagnose.parse_log import errors_in
from dslint.diagnose.reading import LogSource
from dslint.diagnose.search import find as find_errors
from dslint.diagnostics import Applicability, Diagnostic
from dslint.errors import UserError
from dslint.facts import Facts, Integration, Release
from dslint.facts.checkpoint import describe
from dslint.facts.find_release import FILES
from dslint.facts.model_config import load_model
from dslint.fixes.apply import fix
from dslint.lint.document import lint_text
from dslint.lint.files import lint_given, lint_launch
from dslint.lint.results import FileResult, Results
from dslint.memory.families import ShapeError, read_shape
from dslint.registry.rules import own_rules
from dslint.report import diagnosis_page, write
from dslint.report.style import Style, printable
from dslint.settings import Finder, Settings, from_environment
from dslint.settings.sources import read_file
from dslint.settings.table import FORMATS, SETTINGS
from dslint.setups.hostfile import read_hostfile
from dslint.source.parse import parse
from dslint.source.tree import Document, plain
from dslint.source.yaml_tree import parse_yaml
from dslint.suppress import baseline
from dslint.suppress.comments import apply_comments
from dslint.suppress.run import suppress
from tests.fuzz import folders, seeds

FACTS = (
    Facts(),
    Facts(8, Integration.DEEPSPEED),
    Facts(8, Integration.TRANSFORMERS, nodes=2, gpu_memory=80 * 2**30, host_memory=2**40),
    Facts(16, Integration.ACCELERATE, tensor_parallel=2),
    Facts(1, Integration.LIGHTNING),
    Facts(4, deepspeed=Release(0, 14, 0)),
    Facts(8, deepspeed=Release(0, 15, 0), pipeline_parallel=2, sequence_parallel=2),
    Facts(8, upgrade_from=Release(0, 14, 0)),
)
SAFE, ALL = {Applicability.SAFE}, {Applicability.SAFE, Applicability.UNSAFE}
VARIABLES = [setting.variable for setting in SETTINGS.values() if setting.name != "plugins"]
SURROGATES = "surrogatepass"


@dataclass(frozen=True)
class Target:
    """What is fuzzed: the texts to start from, and the work on a mutated one; on the text itself where it would no longer be read."""

    seeds: Callable[[], list[str]]
    work: Callable[[str, Random], object]
    mutates: bool = True


def parser(text: str, rng: Random) -> None:
    """The parsers of configs: places are inside the text, and what has no problems is plain data."""
    for document in (parse(text), parse_yaml(text)):
        spans = [comment.span for comment in document.comments] + [problem.span for problem in document.problems]
        assert all(0 <= span.start <= span.end <= len(text) for span in spans)
        if document.root is not None:
            assert 0 <= document.root.span.start <= document.root.span.end <= len(text)
            plain(document.root)


def checker(text: str, rng: Random) -> None:
    """The rules on a config, and its comments: places are inside the text."""
    result = _lint(text, rng.choice(FACTS))
    for found in apply_comments(result).diagnostics:
        if found.range is not None and found.path == "ds_config.json" and result.document is not None:
            assert 0 <= found.range.start.offset <= found.range.end.offset <= len(result.document.text), found
    _assert_no_defect(result.diagnostics)


def fixer(text: str, rng: Random) -> None:
    """The fixes, the safe ones and all: the result has no more problems than before, keeps the comments, and is not fixed again."""
    facts = rng.choice(FACTS)
    for name, parsed in (("ds_config.json", parse), ("ds_config.yaml", parse_yaml)):
        if name.endswith(".yaml") and rng.random() < 0.7:
            continue

        def lint(fresh: str, name: str = name) -> FileResult:
            results = [_lint(fresh, facts)] if name.endswith(".json") else lint_given(fresh, name, Settings())
            return apply_comments(results[0]) if results else FileResult(name, FileKind.UNRELATED)

        for allowed in (SAFE, ALL):
            _assert_fixed_well(text, lint, allowed, parsed)


def _assert_fixed_well(
    text: str, lint: Callable[[str], FileResult], allowed: set[Applicability], parsed: Callable[[str], Document]
) -> None:
    done = fix(text, lint, allowed)
    if done.text == text:
        return
    before, after = parsed(text), parsed(done.text)
    assert len(after.problems) <= len(before.problems), ("more problems", done.text)
    again = fix(done.text, lint, allowed)
    assert again.text == done.text, ("fixed again", [d.code for d in again.fixed], done.text, again.text)
    lost = Counter(c.text.strip() for c in before.comments) - Counter(c.text.strip() for c in after.comments)
    drops = any(d.fix is not None and d.fix.applicability is Applicability.UNSAFE for d in done.fixed)
    assert not lost or drops, ("lost comments", lost, [d.code for d in done.fixed], done.text)


def settings(text: str, rng: Random) -> None:
    """A settings file, and all that is read from it; each variable."""
    name = rng.choice(("dslint.toml", "pyproject.toml"))
    with _folder({name: text.replace("[", "[tool.dslint.", 1) if name == "pyproject.toml" else text}), contextlib.suppress(UserError):
        layer = read_file(name)
        if layer is not None and not layer.values.get(
            "plugins"
        ):  # a plug-in that is missing is a defect that is reported, and stays loaded
            found = Settings([layer])
            assert found.context is not None
            assert found.rules is not None
            assert found.severity is not None
            suppress(lint_given(seeds.HOSTILE[0], "ds_config.json", found), Finder([layer], only=""))
    with contextlib.suppress(UserError):
        from_environment({rng.choice(VARIABLES): text[:200].replace("\0", "")})


def baselines(text: str, rng: Random) -> None:
    """A baseline, and its use."""
    with _folder({"known.json": text}), contextlib.suppress(UserError):
        known = baseline.load("known.json")
        files = baseline.apply(known, [_lint('{"zero_optimisation": {}}', FACTS[0])])
        baseline.shrunk(known, files)


def policies(text: str, rng: Random) -> None:
    """A policy, and a config that it judges."""
    with _folder({"policy.json": text}), contextlib.suppress(UserError):
        policy = load_policy("policy.json")
        config = rng.choice(({}, {"train_batch_size": 8, "fp16": {"enabled": True}}, {"zero_optimization": {"stage": 1}, "": [1, None]}))
        list(breaches(policy, config))
        lint_text('{"train_batch_size": 8}', "ds_config.json", Context(policy=policy), own_rules())


def hostfiles(text: str, rng: Random) -> None:
    """A hostfile."""
    read_hostfile(text)


def setup_files(*names: str) -> Callable[[str, Random], None]:
    """Files around a config that name one, each under one of the names."""

    def work(text: str, rng: Random) -> None:
        results = lint_given(text, rng.choice(names), Settings())
        for result in results:
            _assert_no_defect(apply_comments(result).diagnostics)

    return work


def commands(text: str, rng: Random) -> None:
    """A launch command."""
    for result in lint_launch(text, Settings()):
        _assert_no_defect(result.diagnostics)


def checkpoints(text: str, rng: Random) -> None:
    """A folder with files of these names, which form a checkpoint or not."""
    with TemporaryDirectory() as folder, contextlib.suppress(UserError):
        for line in text.split("\n")[:40]:
            steps = [step for step in line.replace("\0", "").split("/")[:3] if step not in ("", ".", "..")]
            with contextlib.suppress(OSError, UnicodeError):  # names that the file system refuses
                path = Path(folder, *steps)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(rng.choice((b"global_step1", b"", line.encode("utf-8", SURROGATES))))
        found = describe(folder)
        lint_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2}}', "ds.json", Context(FACTS[1], checkpoint=found), own_rules())


def releases(text: str, rng: Random) -> None:
    """Files that may name a release."""
    for _, _, reader in FILES:
        reader(text, "file")


def models(text: str, rng: Random) -> None:
    """A model's config.json, and the rules that read it."""
    with _folder({"config.json": text}), contextlib.suppress(UserError):
        model = load_model("config.json")
        with contextlib.suppress(ShapeError):
            read_shape(model.data, model.path)
        facts = FACTS[2]._replace(model=model)
        _assert_no_defect(_lint('{"train_batch_size": 8, "zero_optimization": {"stage": 3}}', facts).diagnostics)


def logs(text: str, rng: Random) -> None:
    """The output of a failed program: the errors in it, and the diagnosis of its jobs."""
    for raised in errors_in(text):
        find_errors(raised)
    source = LogSource("job.log", BytesIO(text.encode("utf-8", SURROGATES)))
    page = diagnosis_page.page(diagnose([source]), Style(color=False, width=rng.choice((40, 100))))
    _assert_inert(printable(page), "diagnosis")


def reports(text: str, rng: Random) -> None:
    """All reports on a file with any name: nothing in them controls a terminal or a runner."""
    name = rng.choice(("ds_config.json", "a\x1b[31m\n::error::x.json", "::error::x.json", text[:80].replace("\0", "") or "x"))
    result = _lint(text, rng.choice(FACTS))._replace(path=name)
    result = apply_comments(result._replace(diagnostics=tuple(d._replace(path=name) for d in result.diagnostics)))
    results = Results(result.context, (result,), verbose=rng.random() < 0.5)
    for output_format in FORMATS:
        out = StringIO()
        write(results, output_format, out, color=False, width=rng.choice((1, 40, 100)))
        written = re.sub(r"(?m)^::(error|warning|notice) file=[^,:\n]*", "", out.getvalue())  # GitHub needs the name as it is
        if output_format == "github":
            written = re.sub(r"(?ms)^::stop-commands::(\w+)\n.*^::\1::$", "", written)
        _assert_inert(written, output_format)


def whole_folders(text: str, rng: Random) -> None:
    """A folder of files, links and traps, checked by the command: nothing in what it prints controls a terminal."""
    said = folders.work(text, rng)
    _assert_inert(re.sub(r"(?m)^::.*$", "", said.replace("\r\n", "\n")), "folder")  # a diff keeps the line ends


TARGETS: dict[str, Target] = {
    "parser": Target(seeds.configs, parser),
    "checker": Target(seeds.configs, checker),
    "fixer": Target(seeds.configs, fixer),
    "reports": Target(seeds.configs, reports),
    "settings": Target(lambda: seeds.SETTINGS, settings),
    "baselines": Target(lambda: seeds.BASELINES, baselines),
    "policies": Target(lambda: seeds.POLICIES, policies),
    "hostfiles": Target(lambda: seeds.HOSTFILES, hostfiles),
    "scripts": Target(lambda: [*seeds.SCRIPTS, seeds.setups()["run.sh"]], setup_files("run.sh", "Makefile", "job.slurm")),
    "commands": Target(lambda: seeds.SCRIPTS, commands),
    "yaml": Target(lambda: [*seeds.YAMLS, seeds.setups()["train.yaml"]], setup_files("accelerate.yaml", "train.yml")),
    "programs": Target(lambda: [*seeds.PROGRAMS, seeds.setups()["pretrain.py"]], setup_files("train.py")),
    "modules": Target(seeds.modules, setup_files("train.py"), mutates=False),
    "checkpoints": Target(lambda: seeds.CHECKPOINTS, checkpoints),
    "releases": Target(lambda: seeds.RELEASES, releases),
    "models": Target(lambda: seeds.MODELS, models),
    "logs": Target(lambda: seeds.LOGS, logs),
    "folders": Target(lambda: [*seeds.configs(), *seeds.SCRIPTS, *seeds.YAMLS, *seeds.PROGRAMS, *seeds.SETTINGS], whole_folders),
}
"""By name; a run takes them in turn."""


def _lint(text: str, facts: Facts) -> FileResult:
    result = lint_text(text, "ds_config.json", facts, own_rules())
    assert result is not None
    return result


def _assert_inert(text: str, name: str) -> None:
    """No character of a text controls a terminal, and no line of it a runner."""
    controls = {*re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028\u2029]", text)}
    assert not controls, (name, controls)
    assert not re.search(r"(?m)^[ \t]*::[^:]", text), name


def _assert_no_defect(diagnostics: tuple[Diagnostic, ...]) -> None:
    assert not any(found.code == "DS000" for found in diagnostics)


@contextlib.contextmanager
def _folder(files: dict[str, str]) -> Iterator[None]:
    """The files in the working folder of the run; they are gone afterwards."""
    for name, text in files.items():
        Path(name).write_bytes(text.encode("utf-8", SURROGATES))
    try:
        yield
    finally:
        for name in files:
            if name in seeds.written_around():
                Path(name).write_text(seeds.written_around()[name], encoding="utf-8")
            else:
                Path(name).unlink()
