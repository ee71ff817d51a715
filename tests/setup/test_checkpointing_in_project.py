"""The section activation_checkpointing of a project that calls what it configures (DS701)."""

from __future__ import annotations

from dslint.config.context import Context
from dslint.frameworks.loader import with_loaders
from dslint.lint.document import lint_text
from dslint.registry.rules import default_rules
from tests.cases import table
from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": 1, "activation_checkpointing": {"cpu_checkpointing": true}}'


def finds(folder: Folder, program: str, name: str = "net/blocks.py") -> bool:
    folder.write({name: program})
    context = with_loaders(Context())._replace(project=str(folder.path))
    result = lint_text(CONFIG, "ds.json", context, default_rules())
    (folder.path / name).unlink()
    assert result is not None
    return any(one.code == "DS701" for one in result.diagnostics)


@table(
    "program",
    [
        "import deepspeed\n\ndef run(block, x):\n    return deepspeed.checkpointing.checkpoint(block, x)\n",
        "import deepspeed\n\nrun = deepspeed.checkpointing.checkpoint if on else plain\n",
        "from deepspeed import checkpointing\n\ndef run(block, x):\n    return checkpointing.checkpoint(block, x)\n",
        "from deepspeed.runtime.activation_checkpointing import checkpointing\n",
        "from deepspeed.runtime.activation_checkpointing.checkpointing import checkpoint\n",
    ],
)
def test_a_model_of_the_project_may_use_the_section(folder: Folder, program: str) -> None:
    assert not finds(folder, program)


@table(
    "program",
    [
        "import deepspeed\n",
        "from torch.utils.checkpoint import checkpoint\nimport deepspeed\n",
        "import deepspeed\n\ndef resume(engine):\n    engine.load_checkpoint('out')  # not checkpointing.checkpoint\n",
    ],
)
def test_other_checkpoints_leave_the_section_without_effect(folder: Folder, program: str) -> None:
    assert finds(folder, program)
