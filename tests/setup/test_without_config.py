"""Programs for Accelerate whose DeepSpeed config nothing names."""

from __future__ import annotations

import pytest

from dslint.facts import Facts, Integration
from tests.setup.folder import Folder

PROGRAM = (
    "from accelerate import Accelerator\naccelerator = Accelerator()\n%s\n"
    'model = accelerator.prepare(model)\nif accelerator.is_main_process:\n    accelerator.save_state("out")\n'
)


@pytest.mark.parametrize(
    ("line", "facts", "codes"),
    [
        ("", Facts(integration=Integration.ACCELERATE), ["DS964"]),
        ("print(accelerator.state.deepspeed_plugin)", None, ["DS964"]),
        ("", None, []),
        ("", Facts(integration=Integration.TRANSFORMERS), []),
    ],
)
def test_its_calls_are_checked_where_deepspeed_is_used(folder: Folder, line: str, facts: Facts | None, codes: list[str]) -> None:
    folder.write({"train.py": PROGRAM % line})
    assert [code for code, _, _ in folder.found("train.py", facts=facts)] == codes
    if codes:
        [reason] = folder.results("train.py", facts=facts)["train.py"].not_judged
        assert "the DeepSpeed config for Accelerate is given at launch" in reason.reason
