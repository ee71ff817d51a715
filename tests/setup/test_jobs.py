"""Job files that wrap a launch, and ConfigMaps that hold a config: what is found in them, at which line."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder, folder

__all__ = ["folder"]

BOTH = '{"train_batch_size": 8, "fp16": {"enabled": true}, "bf16": {"enabled": true}}'

KUBERNETES = """apiVersion: v1
kind: Service
metadata: {name: deepspeed}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
            - name: pytorch
              image: trainer
              env: [{name: CONFIG, value: ds.json}]
              command: [bash, -c]
              args:
                - |
                  cd /work
                  deepspeed train.py --deepspeed_config $CONFIG
"""
WORDS = """kind: Job
spec:
  template:
    spec:
      containers:
        - image: trainer
          command: [deepspeed, train.py, --deepspeed_config, ds.json]
"""
AZURE = """$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
code: src
environment: azureml:trainer@latest
command: >-
  deepspeed train.py --data ${{inputs.data}}
  --deepspeed_config ds.json
"""
SKY = """resources: {accelerators: A100:8}
envs: {CONFIG: ds.json}
run: |
  deepspeed train.py --deepspeed_config $CONFIG
"""
DETERMINED = """searcher: {name: single}
entrypoint: python3 -m determined.launch.deepspeed -- deepspeed train.py --deepspeed_config ds.json
"""


@pytest.mark.parametrize("text", [KUBERNETES, WORDS, AZURE, SKY, DETERMINED], ids=["kubernetes", "words", "azure", "sky", "determined"])
def test_a_job_leads_to_its_config(folder: Folder, text: str) -> None:
    folder.write({"job.yaml": text, "ds.json": BOTH})
    assert any(code.startswith("DS3") and path == "ds.json" for code, path, _ in folder.found("job.yaml"))


def test_a_config_map_is_judged_in_place(folder: Folder) -> None:
    text = f"kind: ConfigMap\ndata:\n  ds_config.json: |\n    {BOTH}\n"
    folder.write({"map.yaml": text})
    assert {line for code, path, line in folder.found("map.yaml") if code.startswith("DS3") and path == "map.yaml"} == {4}


def test_a_job_without_deepspeed_is_not_read(folder: Folder) -> None:
    folder.write({"job.yaml": SKY.replace("deepspeed train.py --deepspeed_config", "python train.py --config")})
    assert folder.results("job.yaml", named=False) == {}
