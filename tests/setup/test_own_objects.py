"""A section of a config for which a program of the project passes an object, where nothing links the two."""

from __future__ import annotations

from dslint.config.context import Context
from dslint.diagnostics import Severity
from dslint.frameworks.loader import with_loaders
from dslint.lint.document import lint_text
from dslint.registry.rules import default_rules
from tests.cases import table
from tests.setup.folder import Folder

CONFIG = '{"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "max_grad_norm": 1.0}}}'
ENGINE = "import deepspeed\n\ndef build(args, net, opt):\n    return deepspeed.initialize(%s)\n"


def severity(folder: Folder, call: str, name: str = "lib/engine.py", config: str = CONFIG) -> tuple[Severity, str]:
    folder.write({"ds.json": config, name: ENGINE % call})
    context = with_loaders(Context())._replace(project=str(folder.path))
    result = lint_text(config, "ds.json", context, default_rules())
    assert result is not None
    (found,) = [one for one in result.diagnostics if one.code == "DS601"]
    return found.severity, found.message


@table(
    "call",
    [
        "args=args, model=net, optimizer=opt",
        "args, net, opt",
        "args=args, model=net,\n        optimizer=opt, mpu=None",
        "args, net, opt, None",
    ],
)
def test_an_optimizer_that_a_module_passes_may_replace_the_section(folder: Folder, call: str) -> None:
    found, message = severity(folder, call)
    assert found is Severity.WARNING
    assert message.endswith("unless the training passes its own optimizer to deepspeed.initialize, as lib/engine.py:4 does.")


@table(
    "call",
    ["args=args, model=net", "args, net, None, net.parameters()", "args=args, model=net, optimizer=None", "args, net, lr_scheduler=opt"],
)
def test_a_project_that_passes_none_leaves_the_section(folder: Folder, call: str) -> None:
    assert severity(folder, call)[0] is Severity.ERROR


def test_a_test_of_the_project_trains_nothing(folder: Folder) -> None:
    folder.write({"tests/test_engine.py": "import pytest, deepspeed\n\ndef test_it(net, opt):\n    deepspeed.initialize(None, net, opt)\n"})
    assert severity(folder, "args, net")[0] is Severity.ERROR


def test_what_raises_while_parsing_raises_with_any_program(folder: Folder) -> None:
    _, message = severity(folder, "args, net, opt", config=CONFIG.replace("1.0", '"1"'))
    assert message.endswith("while parsing.")
