"""YAML files of programs that share words with a DeepSpeed config: `optimizer`, `checkpoint`, `seed`."""

from __future__ import annotations

import pytest

from dslint.config.detect import FileKind, detect_kind
from dslint.source.yaml_tree import parse_yaml
from tests.setup.folder import Folder

HYDRA = "seed: 42\noptimizer:\n  _target_: torch.optim.AdamW\n  lr: 1e-5\ncheckpoint:\n  enabled: true\nmodel:\n  _target_: package.Model\n"
IN_YAML = "train_batch_size: 8\noptimizer: {type: AdamW, params: {lr: 1.0e-5}}\n"


@pytest.mark.parametrize(("text", "kind"), [(HYDRA, FileKind.UNRELATED), (IN_YAML, FileKind.DS_CONFIG)])
@pytest.mark.parametrize("named", [True, False])
def test_only_a_key_of_deepspeeds_makes_a_config(text: str, kind: FileKind, *, named: bool) -> None:
    assert detect_kind(parse_yaml(text), named=named)[0] is kind


def test_the_config_of_a_program_behind_accelerates_file(folder: Folder) -> None:
    folder.write(
        {
            "run.sh": "accelerate launch --config_file accelerate.yaml train.py --config distil.yaml\n",
            "accelerate.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\nmixed_precision: bf16\n",
            "distil.yaml": HYDRA,
            "train.py": "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        }
    )
    assert "distil.yaml" not in {path for _, path, _ in folder.found("run.sh", "train.py", "accelerate.yaml")}
