"""Launches that name another file for Hydra: `--config-name large`."""

from __future__ import annotations

from typing import Any

import pytest

from dslint.facts import Facts
from dslint.frameworks.loader import with_loaders
from dslint.setups.open import open_text
from dslint.source.tree import plain
from tests.setup.folder import Folder

_PROGRAM = (
    "import deepspeed\nimport hydra\nfrom omegaconf import OmegaConf\n"
    "@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
    "def main(cfg):\n    deepspeed.initialize(model=model, config=OmegaConf.to_container(cfg.ds))\nmain()\n"
)
_FILES = {
    "train.py": _PROGRAM,
    "conf/config.yaml": "ds:\n  train_batch_size: 8\n  gradient_clipping: 1.0\n",
    "conf/large.yaml": "defaults:\n  - config\n  - _self_\nds:\n  train_batch_size: 64\n",
}
_SMALL, _LARGE = {"train_batch_size": 8, "gradient_clipping": 1.0}, {"train_batch_size": 64, "gradient_clipping": 1.0}


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("", _SMALL),
        ("--config-name large", _LARGE),
        ("--config-name=large", _LARGE),
        ("--config-name large.yaml", _LARGE),
        ("-cn large", _LARGE),
        ("--config-name config", _SMALL),
        ("--config-name missing", None),
        ("--config-name $NAME", None),
        ("--config-dir other --config-name large", None),
        ("--config-path other", None),
        ("--multirun", None),
    ],
)
def test_the_file_that_the_command_names(folder: Folder, flags: str, found: dict[str, Any] | None) -> None:
    folder.write({**_FILES, "run.sh": f"torchrun --nproc_per_node 4 train.py {flags}\n"})
    script = folder.path / "run.sh"
    subject = open_text(script.read_text(encoding="utf-8"), str(script), with_loaders(Facts()))
    roots = [one.loaded.document.root for one in subject.configs] if subject is not None else []
    values = [plain(root) for root in roots if root is not None]
    assert values == ([found] if found is not None else [])
