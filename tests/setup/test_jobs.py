"""Job files that wrap a launch, and ConfigMaps that hold a config: what is found in them, at which line."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

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


CONTAINER = """      template:
        spec:
          containers:
            - image: trainer
              command: [{command}]
              resources: {{limits: {{{limit}}}}}
"""
KUBEFLOW = "kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n" + "".join(
    f"    {role}:\n      replicas: {count}\n{CONTAINER}" for role, count in (("Master", 1), ("Worker", 3))
)
ON_AZURE = "code: src\ncommand: {command}\ndistribution: {{type: pytorch, process_count_per_instance: 4}}\n"
ON_SLOTS = "resources: {{slots_per_trial: 8}}\nentrypoint: python3 -m determined.launch.deepspeed python {command}\n"
ON_SKY = "resources: {{accelerators: {accelerators}}}\nnum_nodes: {nodes}\nrun: {command}\n"
TRAIN = "train.py --deepspeed ds.json"


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (ON_AZURE.format(command=f"python {TRAIN}"), 4),
        (ON_AZURE.format(command=f"python {TRAIN}") + "resources: {instance_count: 2}\n", 8),
        (ON_AZURE.format(command=f"torchrun --nproc_per_node 2 {TRAIN}"), 2),
        (ON_SLOTS.format(command=TRAIN), 8),
        (ON_SKY.format(accelerators="A100:8", nodes=1, command=f"deepspeed {TRAIN}"), 8),
        (ON_SKY.format(accelerators="{A100: 2}", nodes=1, command=f"deepspeed {TRAIN}"), 2),
        (ON_SKY.format(accelerators="A100:8", nodes=2, command=f"deepspeed {TRAIN}"), None),
        (ON_SKY.format(accelerators="A100:8", nodes=1, command=f"deepspeed --hostfile hosts {TRAIN}"), None),
        (ON_SKY.format(accelerators="A100:8", nodes=1, command=f"python {TRAIN}"), None),
    ],
)
def test_the_ranks_of_a_job(folder: Folder, text: str, ranks: int | None) -> None:
    folder.write({"job.yaml": text, "ds.json": BOTH})
    assert folder.results("job.yaml")["ds.json"].facts.world_size == ranks


TRAIN_JOB = """kind: TrainJob
spec:
  runtimeRef: {{name: torch}}
  trainer:
    {sizes}
    command: [{command}]
"""
MPI_JOB = """kind: MPIJob
spec:
  slotsPerWorker: 4
  mpiReplicaSpecs:
    Launcher: {{template: {{spec: {{containers: [{{image: trainer, command: [{command}]}}]}}}}}}
    Worker: {{replicas: 2, template: {{spec: {{containers: [{{image: trainer}}]}}}}}}
"""
_WORDS = ", ".join(TRAIN.split())


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (KUBEFLOW.format(command=f"torchrun, --nproc_per_node=4, {_WORDS}", limit="memory: 4Gi"), 16),
        (KUBEFLOW.format(command=f"torchrun, --nnodes=2, --nproc_per_node=4, {_WORDS}", limit="memory: 4Gi"), 8),
        (KUBEFLOW.format(command=f"torchrun, {_WORDS}", limit="memory: 4Gi").replace("spec:", "spec:\n  nprocPerNode: '2'", 1), 8),
        (KUBEFLOW.format(command=f"torchrun, {_WORDS}", limit="memory: 4Gi").replace("spec:", "spec:\n  nprocPerNode: auto", 1), None),
        (
            KUBEFLOW.format(command=f"torchrun, --nproc_per_node=4, {_WORDS}", limit="memory: 4Gi").replace(
                "spec:", "spec:\n  elasticPolicy: {minReplicas: 1, maxReplicas: 4}", 1
            ),
            None,
        ),
        (TRAIN_JOB.format(sizes="numNodes: 2\n    numProcPerNode: 4", command=f"torchrun, {_WORDS}"), 8),
        (TRAIN_JOB.format(sizes="numNodes: 2", command=f"torchrun, {_WORDS}"), None),
        (TRAIN_JOB.format(sizes="numProcPerNode: 2", command=f"torchrun, {_WORDS}"), None),
        (TRAIN_JOB.format(sizes="numNodes: 2", command=f"torchrun, --nproc_per_node=8, {_WORDS}"), 16),
        (MPI_JOB.format(command=f"mpirun, -np, '8', python, {_WORDS}"), 8),
        (MPI_JOB.format(command=f"mpirun, python, {_WORDS}"), None),
        (MPI_JOB.format(command=f"deepspeed, {_WORDS}"), None),
    ],
)
def test_the_ranks_that_an_operator_sets(folder: Folder, text: str, ranks: int | None) -> None:
    folder.write({"job.yaml": text, "ds.json": BOTH})
    assert folder.results("job.yaml")["ds.json"].facts.world_size == ranks


@pytest.mark.parametrize(
    ("text", "differ"),
    [
        (ON_SKY.format(accelerators="A100:4", nodes=1, command=f"torchrun --nproc_per_node 8 {TRAIN}"), True),
        (ON_SKY.format(accelerators="A100:4", nodes=2, command=f"torchrun --nnodes 2 --nproc_per_node 4 {TRAIN}"), False),
        (KUBEFLOW.format(command=f"torchrun, --nnodes=4, --nproc_per_node=8, {', '.join(TRAIN.split())}", limit="nvidia.com/gpu: 4"), True),
        (
            KUBEFLOW.format(command=f"torchrun, --nnodes=4, --nproc_per_node=4, {', '.join(TRAIN.split())}", limit="nvidia.com/a40: 4"),
            False,
        ),
        (KUBEFLOW.format(command=f"torchrun, --nnodes=4, --nproc_per_node=8, {', '.join(TRAIN.split())}", limit="memory: 4Gi"), False),
    ],
)
def test_the_gpus_of_a_job(folder: Folder, text: str, differ: bool) -> None:
    folder.write({"job.yaml": text, "ds.json": '{"train_batch_size": "auto"}'})
    assert any(code == "DS930" for code, _, _ in folder.found("job.yaml")) is differ


def test_a_job_for_the_first_node(folder: Folder) -> None:
    command = f'|\n  if [ "${{SKYPILOT_NODE_RANK}}" == "0" ]; then\n    deepspeed --hostfile hosts {TRAIN}\n  fi'
    folder.write({"job.yaml": ON_SKY.format(accelerators="A100:8", nodes=2, command=command), "ds.json": BOTH})
    assert any(path == "ds.json" for _, path, _ in folder.found("job.yaml"))


def test_a_job_with_a_program_that_is_elsewhere_says_so(folder: Folder) -> None:
    job = KUBEFLOW.format(command="torchrun, /train_deepspeed.py", limit="nvidia.com/gpu: 1")
    folder.write({"job.yaml": job})
    for named in (True, False):
        (reason,) = folder.results("job.yaml", named=named)["job.yaml"].not_judged
        assert "torchrun /train_deepspeed.py" in reason.reason
        assert reason.range is not None
        assert reason.range.start.line == job.splitlines().index("              command: [torchrun, /train_deepspeed.py]") + 1


def test_a_script_at_its_place_in_the_container(folder: Folder) -> None:
    folder.write({"src/start.sh": f"torchrun --nproc_per_node 2 {TRAIN}\n", "ds.json": BOTH})
    folder.write({"k8s/job.yaml": KUBEFLOW.format(command="bash, /workspace/src/start.sh", limit="nvidia.com/gpu: 2") + "# DeepSpeed\n"})
    assert any(path == "ds.json" for _, path, _ in folder.found("k8s/job.yaml"))
