"""The setup of an example: its files read as they would be beside the config, from memory."""

from __future__ import annotations

from dataclasses import replace

from dslint.config.context import Context
from dslint.config.load import take
from dslint.diagnostics import Diagnostic
from dslint.evaluate.shell.script import read_script
from dslint.frameworks import huggingface
from dslint.frameworks.accelerate import read_accelerate
from dslint.frameworks.programs import read_python
from dslint.frameworks.registry import framework_of, in_flags, objects_of
from dslint.frameworks.training import read_training
from dslint.job.arguments import given_at
from dslint.job.model import Setup
from dslint.lint.document import lint_loaded
from dslint.registry.rules import loaded_rules
from dslint.rule import Example, Rule
from dslint.setups.command import read_command
from dslint.setups.gather import LoadedSetup, settle
from dslint.setups.hostfile import with_hostfile
from dslint.setups.launch_program import flags_of
from dslint.setups.launch_without_config import unread_flag
from dslint.source.edit import apply
from dslint.source.parse import parse
from dslint.source.yaml_tree import parse_yaml
from dslint.suppress.comments import apply_comments

CONFIG = "ds_config.json"


def context_of(example: Example) -> Context:
    """What is known beside an example, with the setup that its files make."""
    if not example.files:
        return example.context
    files = dict(example.files)
    setup = Setup(config=CONFIG)
    if "accelerate.yaml" in files:
        document = parse_yaml(files["accelerate.yaml"])
        accelerate = read_accelerate(document, "accelerate.yaml")
        setup = replace(setup, accelerate=accelerate, link=accelerate.config_file)
    if "train.yaml" in files:
        document = parse_yaml(files["train.yaml"])
        setup = replace(
            setup, arguments=read_training(document, "train.yaml", framework_of(document, lambda _: False) or huggingface.FRAMEWORK)
        )
        link = given_at(document, "train.yaml", ("deepspeed",), "", _value(document))
        if link is not None:
            setup = replace(setup, link=link, missing=(link,) if link.value != CONFIG else ())
    command = None
    if "run.sh" in files:
        script = read_script(files["run.sh"], "run.sh", "run.sh", {})
        command = read_command(script.launched[0], script)
        assert command is not None
    flags = flags_of(command) if command is not None else None
    program = next((name for name in ("train.py", "deepspeed.py") if name in files), None)
    found = read_python(files[program], program, flags=flags) if program is not None else None
    if found is not None:
        setup = replace(setup, program=found.program_of(found.calls[0]) if found.calls else found.program)
    if command is not None:
        megatron = in_flags(command.flags, "run.sh", command.program.raw if command.program else "")
        setup = replace(
            setup,
            launch=command.launch,
            of_framework=megatron,
            objects=objects_of(megatron),
            unread=unread_flag(command, found),
        )
        hosts = command.launcher_flags.get("hostfile")
        if hosts is not None:
            setup = with_hostfile(setup, hosts, "run.sh", decides=False, written=command.written["hostfile"])
    documents = found.documents if found is not None else {}
    gathered = LoadedSetup(setup, example.context, config=parse(example.text), documents=documents)
    return settle(gathered).context


def _value(document: object) -> object:
    found = document.lookup(("deepspeed",))  # type: ignore[attr-defined]
    return found.value.value if found is not None else None


def finding_of(rule: Rule, example: Example) -> Diagnostic:
    """What the rule finds in a bad example of its own."""
    document = parse(example.text)
    found = apply_comments(lint_loaded(take(document, context_of(example)), CONFIG, loaded_rules())).diagnostics
    return next(diagnostic for diagnostic in found if diagnostic.code == rule.code)


def fixed_text(found: Diagnostic, example: Example) -> str | None:
    """The text of the file that the fix changes, afterwards; None without a fix."""
    if found.fix is None:
        return None
    texts = {CONFIG: example.text, **dict(example.files)}
    return apply(texts[found.path], [(edit.start, edit.end, edit.content) for edit in found.fix.edits])
