"""Generated launch commands: `deepspeed`, `torchrun` and `accelerate launch`, with hostfiles, files of Accelerate and variables."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import yaml

CONFIG = '{"train_batch_size": 8, "zero_optimization": {"stage": 2}}'


LAUNCHERS = ("pdsh", "openmpi", "mpich", "impi", "slurm", "mvapich")
"""What DeepSpeed's launcher can start several machines with."""


class Case(NamedTuple):
    """A command: its words, the variables before it, the other files of its folder, and the GPUs of a machine."""

    words: list[str]
    environment: dict[str, str]
    files: dict[str, str]
    gpus: int


def case(seed: int) -> Case:
    """The command of a seed."""
    random = Random(seed)
    made = random.choice((_deepspeed, _deepspeed, _torchrun, _accelerate, _accelerate))(random)
    return made._replace(files={**made.files, "ds.json": CONFIG})


def _program(random: Random) -> list[str]:
    words = ["train.py"]
    for _ in range(random.randint(0, 3)):
        words += random.choice(
            (["--lr", "1e-4"], ["--output_dir=out"], ["--bf16"], ["data"], ["--num_gpus", "3"], ["--epochs", "3"], ["--name", "a b"])
        )
    return [*words, "--deepspeed_config", "ds.json"]


def _flag(random: Random, name: str, value: object) -> list[str]:
    return random.choice(([f"--{name}", str(value)], [f"--{name}={value}"]))


def _deepspeed(random: Random) -> Case:
    words, environment, files = ["deepspeed"], {}, {}
    gpus = random.choice((1, 2, 4, 8))
    hosts = {f"work{number}": random.choice((1, 2, 4)) for number in range(random.randint(1, 3))} if random.random() < 0.5 else {}
    if hosts:
        files["hosts"] = "".join(
            f"{name} slots={slots}{random.choice(('', ' max_slots=8'))}\n" + random.choice(("", "# a comment\n"))
            for name, slots in hosts.items()
        )
        words += [random.choice(("--hostfile", "-H")), "hosts"]
    names = hosts or {"localhost": gpus}
    roll = random.random()
    if roll < 0.3:
        words += _flag(random, random.choice(("num_gpus", "num_gpus", "num_accelerators")), random.randint(1, gpus))
    elif roll < 0.45:
        parts = [
            name + random.choice(("", f":{random.randrange(slots)}", ":" + ",".join(map(str, range(slots)))))
            for name, slots in names.items()
            if random.random() < 0.8
        ]
        words += [random.choice(("--include", "-i")), "@".join(parts or list(names)[:1])]
    elif roll < 0.6:
        name, slots = random.choice(list(names.items()))
        words += [random.choice(("--exclude", "-e")), name + random.choice(("", f":{random.randrange(slots)}"))]
    elif roll < 0.75:
        words += _flag(random, "num_nodes", random.randint(1, max(len(hosts), 1)))
        words += _flag(random, "num_gpus", random.randint(1, 4)) if random.random() < 0.5 else []
    elif roll < 0.85 and not hosts:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, sorted(random.sample(range(gpus), random.randint(1, gpus)))))
    if random.random() < 0.2:
        words += _flag(random, "master_port", 29501)
    if random.random() < 0.1:
        words.append("--no_local_rank")
    if hosts and random.random() < 0.4:
        words += _flag(random, "launcher", random.choice(LAUNCHERS))
        words += ["--force_multi"] if random.random() < 0.3 else []
    return Case([*words, *_program(random)], environment, files, gpus)


def _torchrun(random: Random) -> Case:
    words = ["torchrun"] if random.random() < 0.7 else ["python", "-m", "torch.distributed.run"]
    each = random.choice((1, 2, 3, 4, 8, 8, "gpu", "auto"))
    words += random.choice((_flag(random, "nproc_per_node", each), _flag(random, "nproc-per-node", each), []))
    if random.random() < 0.4:
        words += _flag(random, random.choice(("nnodes", "nnodes")), random.choice(("1", "2", "4", "1:2")))
        words += _flag(random, "node_rank", 0) if random.random() < 0.5 else []
    words += ["--standalone"] if random.random() < 0.15 and not any("nnodes" in word for word in words) else []
    words += random.choice(
        ([], _flag(random, "master_port", 29502), ["--master_addr", "localhost"], _flag(random, "max_restarts", 0), ["--log_dir", "logs"])
    )
    if random.random() < 0.3:
        words += _flag(random, random.choice(("rdzv_backend", "rdzv-backend")), random.choice(("c10d", "static")))
        words += _flag(random, "rdzv_endpoint", "localhost:29400")
        words += _flag(random, "rdzv_id", 7) if random.random() < 0.5 else []
    words += random.choice(
        ([], [], ["--tee", "3"], ["-t", "3"], _flag(random, "monitor_interval", 5), _flag(random, "role", "train"), ["--no-python"])
    )
    environment: dict[str, str] = {}
    if random.random() < 0.3:
        environment["PET_NPROC_PER_NODE"] = random.choice(("1", "2", "4", "gpu"))
    if random.random() < 0.3:
        environment["PET_NNODES"] = random.choice(("1", "2", "1:2"))
    return Case([*words, *_program(random)], environment, {}, 8)


def _accelerate(random: Random) -> Case:
    words, files = ["accelerate", "launch"], {}
    machines = random.choice((1, 1, 1, 2))
    if random.random() < 0.5:
        made: dict[str, object] = {
            "compute_environment": "LOCAL_MACHINE", "distributed_type": random.choice(("DEEPSPEED", "DEEPSPEED", "MULTI_GPU")), "num_machines": machines, "machine_rank": 0,
            "num_processes": machines * random.randint(1, 4), "mixed_precision": "no", "main_training_function": "main", "use_cpu": False,
        }  # fmt: skip
        if made["distributed_type"] == "DEEPSPEED":
            made["deepspeed_config"] = {"deepspeed_config_file": "ds.json", "zero3_init_flag": False}
        if machines > 1:
            made |= {"main_process_ip": "10.0.0.1", "main_process_port": 29500}
            if made["distributed_type"] == "DEEPSPEED":
                made["deepspeed_config"]["deepspeed_multinode_launcher"] = "standard"  # type: ignore[index]
        files["acc.yaml"] = yaml.safe_dump(made)
        words += _flag(random, "config_file", "acc.yaml")
    elif random.random() < 0.7:
        words += random.choice((["--use_deepspeed"], ["--multi_gpu"]))
        words += ["--deepspeed_config_file", "ds.json"] if words[-1] == "--use_deepspeed" else []
        words += _flag(random, "num_machines", 1)
    if random.random() < (0.4 if files else 0.7):
        words += random.choice(
            (
                _flag(random, "num_processes", machines * random.randint(1, 4) if files else random.randint(1, 8)),
                _flag(random, "num-processes", machines * 2 if files else 2),
            )
        )
    words += random.choice(
        ([], [], _flag(random, "main_process_port", 29503), _flag(random, "mixed_precision", "no"), ["--num_cpu_threads_per_process", "2"])
    )
    return Case([*words, *_program(random)], {}, files, 8)
