"""Asks the real transformers, Accelerate and Lightning what they say of a setup; run as a program, cases as JSON on standard input.

Each case is a kind and its data; the answer is the error as "Type: text", or null where nothing was raised.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PATIENCE = 60
"""How many seconds a case may take before it is given up."""

Config = dict[str, Any] | str


def written(config: Config, folder: str) -> str:
    """The path of a config: a dict is written to a file, a text is a path already."""
    if isinstance(config, str):
        return config
    path = Path(folder) / "ds.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def trainer(config: Config, arguments: dict[str, Any], steps: int = 100, model: dict[str, Any] | None = None) -> None:
    """What the Trainer does with a config, up to and with the comparison."""
    from transformers import TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, deepspeed=written(config, folder), report_to=[], use_cpu=True, **arguments)
        config_of_model = SimpleNamespace(**_attributes({"hidden_size": 64} if model is None else model))
        args.deepspeed_plugin.set_mixed_precision(args.mixed_precision)  # as Accelerator does, which the Trainer makes first
        args.hf_deepspeed_config.trainer_config_finalize(args, SimpleNamespace(config=config_of_model), steps)


def _attributes(data: dict[str, Any]) -> dict[str, Any]:
    return {name: SimpleNamespace(**value) if isinstance(value, dict) else value for name, value in data.items()}


def init(config: dict[str, Any], arguments: dict[str, Any]) -> None:
    """What the Trainer says when it is made."""
    from torch.nn import Linear
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, deepspeed=config, report_to=[], use_cpu=True, **arguments)
        Trainer(model=Linear(2, 2), args=args)


def evaluate(config: dict[str, Any]) -> None:
    """What the Trainer says when it is to evaluate, and has not trained."""
    from torch.nn import Linear
    from transformers import Trainer, TrainingArguments
    from transformers.integrations.deepspeed import deepspeed_init

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, deepspeed=config, report_to=[], use_cpu=True)
        deepspeed_init(Trainer(model=Linear(2, 2), args=args), num_training_steps=0, inference=True)


def zero3(config: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Whether the Trainer takes a config for one of stage 3; an error if not."""
    from transformers import TrainingArguments
    from transformers.integrations import is_deepspeed_zero3_enabled

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, deepspeed=config, report_to=[], use_cpu=True, **arguments)
        if not is_deepspeed_zero3_enabled():
            raise ValueError("not stage 3 for transformers")
        assert args.hf_deepspeed_config is not None


def launched_trainer(text: str, arguments: dict[str, Any], steps: int = 100) -> None:
    """What the Trainer says under `accelerate launch` with a YAML file, and no config of its own."""
    from transformers import TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        _launched(text, folder)
        _be_a_rank()
        args = TrainingArguments(output_dir=folder, report_to=[], use_cpu=True, **arguments)
        plugin = args.deepspeed_plugin
        plugin.set_mixed_precision(args.mixed_precision)
        from accelerate import Accelerator
        from transformers.integrations.deepspeed import propagate_args_to_deepspeed

        accelerator = Accelerator(deepspeed_plugin=plugin, mixed_precision=args.mixed_precision)
        propagate_args_to_deepspeed(accelerator, args)
        config = accelerator.state.deepspeed_plugin.hf_ds_config
        config.trainer_config_finalize(args, SimpleNamespace(config=SimpleNamespace(hidden_size=64)), steps)


def plugin(config: dict[str, Any], environment: dict[str, str]) -> None:
    """What Accelerate's plugin does with a config, before anything is prepared."""
    from accelerate.utils import DeepSpeedPlugin

    os.environ.update(environment)
    with tempfile.TemporaryDirectory() as folder:
        made = DeepSpeedPlugin(hf_ds_config=written(config, folder))
        if "ACCELERATE_MIXED_PRECISION" in environment:
            made.set_mixed_precision(environment["ACCELERATE_MIXED_PRECISION"])


class _Reached(BaseException):
    """Accelerate has nothing more to say: it is DeepSpeed's turn."""


def prepare(config: dict[str, Any], model: dict[str, Any] | None = None, *, optimizer: str = "torch", schedule: str = "none") -> None:
    """What Accelerate says of a program that prepares a model, a data loader, an optimizer and a schedule ("torch", "dummy" or "none")."""
    import torch
    from accelerate import Accelerator
    from accelerate.utils import DeepSpeedPlugin, DummyOptim, DummyScheduler

    _be_a_rank()
    with tempfile.TemporaryDirectory() as folder:
        accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=written(config, folder)))
        network: Any = torch.nn.Linear(2, 2)
        if model is not None:
            network.config = SimpleNamespace(**_attributes(model))
        loader = torch.utils.data.DataLoader(torch.zeros(4, 2), batch_size=1)
        made: Any = {"torch": torch.optim.AdamW, "dummy": DummyOptim, "none": None}[optimizer]
        optimizers = [made(network.parameters(), lr=1e-4)] if made else []
        one: Any = {"torch": torch.optim.lr_scheduler.ConstantLR, "dummy": DummyScheduler, "none": None}[schedule]
        if schedule == "torch" and optimizer == "dummy":  # torch's schedules need a real optimizer
            schedules = [one(torch.optim.AdamW(network.parameters(), lr=1e-4))]
        else:
            schedules = [one(optimizers[0])] if one else []
        try:
            accelerator.prepare(network, loader, *optimizers, *schedules)
        except _Reached:
            return


def _be_a_rank() -> None:
    """Put into the environment what a launcher puts there for the only rank of a job."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"})
    os.environ.update({"ACCELERATE_USE_DEEPSPEED": "true", "DS_ACCELERATOR": "cpu"})
    import deepspeed

    # The attribute `torch` of deepspeed.comm is torch itself, so the module is looked up by its name.
    backend = importlib.import_module("deepspeed.comm.torch")
    backend.build_shm_op = lambda: None  # type: ignore[attr-defined]  # would be compiled at first use

    def initialize(**_: object) -> None:
        raise _Reached

    deepspeed.initialize = initialize


def launch(text: str) -> None:
    """What `accelerate launch` does with a YAML file, up to starting the ranks, and what each rank then reads."""
    from accelerate.utils import DeepSpeedPlugin

    with tempfile.TemporaryDirectory() as folder:
        _launched(text, folder)
        DeepSpeedPlugin()


def _launched(text: str, folder: str) -> None:
    """Put into the environment what `accelerate launch` puts there for its ranks."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    path = Path(folder) / "accelerate.yaml"
    path.write_text(text, encoding="utf-8")
    os.chdir(folder)
    config = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}
    Path("ds_config.json").write_text(json.dumps(config), encoding="utf-8")
    arguments = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    arguments, defaults, precision_is_from_file = _validate_launch_command(arguments)
    fields = [*defaults.deepspeed_config.keys(), *(["mixed_precision"] if precision_is_from_file else [])]
    arguments.deepspeed_fields_from_accelerate_config = ",".join(fields)
    _, environment = prepare_deepspeed_cmd_env(arguments)
    os.environ.update({name: value for name, value in environment.items() if name.startswith("ACCELERATE_")})


def lightning(config: dict[str, Any], arguments: dict[str, Any]) -> None:
    """What Lightning's strategy says of a config, and of the Trainer's arguments beside it."""
    from lightning.pytorch.strategies import DeepSpeedStrategy

    strategy = DeepSpeedStrategy(config=config)
    loop = SimpleNamespace(_data_source=SimpleNamespace(is_defined=lambda: False))
    trainer = SimpleNamespace(fit_loop=loop, **{"accumulate_grad_batches": 1, "gradient_clip_val": None, **arguments})
    strategy._lightning_module = SimpleNamespace(trainer=trainer)  # type: ignore[assignment]
    strategy._format_config()


KINDS = {kind.__name__: kind for kind in (trainer, init, evaluate, zero3, launched_trainer, plugin, prepare, launch, lightning)}


def main() -> None:
    """Answer every case in a process of its own: the environment is theirs."""
    cases = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the libraries print is no answer
    answers = []
    for kind, data in cases:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            error: str | None = None
            signal.alarm(PATIENCE)
            try:
                KINDS[kind](**data)
            except BaseException as raised:  # noqa: BLE001 - whatever it is, it is the answer
                error = f"{type(raised).__name__}: {raised}"
            os.write(writer, json.dumps(error).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            answers.append(json.loads(pipe.read() or b'"no answer"'))
        os.waitpid(child, 0)
    json.dump(answers, out)
    out.close()


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    import accelerate  # noqa: F401 - once, for all the children
    from transformers import Trainer, TrainingArguments  # noqa: F401

    main()
