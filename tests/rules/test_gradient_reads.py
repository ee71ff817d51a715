"""Where a program reads gradients, and how it is written (DS661)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import dslint

_FILE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 4\n"
    "deepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 1\n"
)
_HEAD = (
    "import torch\nfrom accelerate import Accelerator\nfrom net import Net, load\n"
    "class Loop:\n    def __init__(self):\n        self.accelerator = Accelerator()\n        model = Net()\n"
    "        optimizer = torch.optim.AdamW(model.parameters())\n"
    "        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, load())\n"
    "        self.args = load()\n"
)


def _run(body: str, before: str = "") -> str:
    return (
        f"{before}{_HEAD}    def run(self):\n        for step, batch in enumerate(self.loader):\n            loss = self.model(batch)\n{body}"
        "            self.optimizer.step()\nLoop().run()\n"
    )


_BACKWARD = "            self.accelerator.backward(loss)\n"
_NORM = (
    "def grad_norm(parameters):\n    total = 0.0\n    for p in parameters:\n        if p.grad is not None:\n            total += p.grad.norm() ** 2\n"
    "    return total\n"
)


@pytest.mark.parametrize(
    ("program", "place"),
    [
        (_run(f"{_BACKWARD}            print(grad_norm(self.model.parameters()))\n", _NORM), "train.py:5"),
        (
            _run(
                f"{_BACKWARD}            for n, p in [(n, p) for n, p in self.model.named_parameters()]:\n                print(n)\n"
                "            norms = [torch.norm(p.grad.detach()) for p in filter(lambda p: p.requires_grad, self.model.parameters())]\n"
            ),
            "train.py:17",
        ),
        (
            _run(
                f"{_BACKWARD}            if step % self.args.log_every == 0 and self.accelerator.is_main_process:\n"
                "                for i, (n, p) in enumerate(self.model.named_parameters()):\n                    print(n, p.grad.abs().mean())\n"
            ),
            "train.py:17",
        ),
        (
            _run(
                f"{_BACKWARD}            grads = self.accelerator.unwrap_model(self.model).embed.weight.grad\n            grads.data[:10] = 0\n"
            ),
            "train.py:15",
        ),
        (
            _run(
                f"{_BACKWARD}            for group in self.optimizer.param_groups:\n                for p in group['params']:\n                    p.grad *= 0.5\n"
            ),
            "train.py:17",
        ),
        (
            _run(
                f"{_BACKWARD}            unused = [n for n, p in self.model.named_parameters() if p.grad is None]\n            print(unused)\n"
            ),
            "train.py:15",
        ),
        # what reads nothing, or something else
        (
            _run(
                f"{_BACKWARD}            self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)\n",
                _NORM.replace("grad_norm", "clip_grad_norm_"),
            ),
            "",
        ),
        (_run(f"{_BACKWARD}            for p in self.model.parameters():\n                p.grad = None\n"), ""),
        (_run(f"{_BACKWARD}            for p in self.model.parameters():\n                p.grad.zero_()\n"), ""),
        (_run(f"{_BACKWARD}            print(batch.grad.norm())\n"), ""),
        (_run("            for p in self.model.parameters():\n                print(p.grad)\n" + _BACKWARD), ""),
        # weights of another model
        (_run(f"{_BACKWARD}            for p in self.critic.parameters():\n                print(p.grad.norm())\n"), ""),
        (_run(f"{_BACKWARD}            print(probe.weight.grad.norm())\n"), ""),
        (_run(f"{_BACKWARD}            print(grad_norm(critic.parameters()))\n", _NORM), ""),
        # who tells the ways of training apart, or has a flag for it
        (
            _run(
                f"{_BACKWARD}            if not self.args.use_deepspeed:\n                for p in self.model.parameters():\n                    print(p.grad.norm())\n"
            ),
            "",
        ),
        (
            _run(
                f"{_BACKWARD}            if self.args.debug:\n                for p in self.model.parameters():\n                    print(p.grad.norm())\n"
            ),
            "",
        ),
        (
            _run(
                f"            if load():\n    {_BACKWARD}            else:\n                loss.backward()\n"
                "            for p in self.model.parameters():\n                print(p.grad)\n"
            ),
            "",
        ),
    ],
)
def test_reads_after_the_backward_pass_of_accelerate(tmp_path: Path, program: str, place: str) -> None:
    assert _places(tmp_path, program) == place


_TRAINER = "from transformers import AutoModel, Trainer, TrainerCallback, TrainingArguments\narguments = TrainingArguments('out')\n"


@pytest.mark.parametrize(
    ("program", "place"),
    [
        (
            (
                "class Own(Trainer):\n    def training_step(self, model, inputs, num_items_in_batch=None):\n        loss = super().training_step(model, inputs)\n"
                "        self.norm = grad_norm(model.parameters())\n        for p in model.parameters():\n            print(p.grad)\n        return loss\n"
                "Own(AutoModel.from_pretrained('m'), arguments).train()\n"
            ),
            "train.py:8",
        ),
        (
            (
                "class Norms(TrainerCallback):\n    def on_step_end(self, args, state, control, **kwargs):\n"
                "        for p in kwargs['model'].parameters():\n            print(p.grad.norm())\n"
                "trainer = Trainer(AutoModel.from_pretrained('m'), arguments)\ntrainer.add_callback(Norms())\ntrainer.train()\n"
            ),
            "train.py:6",
        ),
        # a callback that nothing makes, and one that runs before the pass
        (
            (
                "class Norms(TrainerCallback):\n    def on_step_end(self, args, state, control, model, **kwargs):\n"
                "        print([p.grad for p in model.parameters()])\nTrainer(AutoModel.from_pretrained('m'), arguments).train()\n"
            ),
            "",
        ),
        (
            (
                "class Norms(TrainerCallback):\n    def on_step_begin(self, args, state, control, model, **kwargs):\n"
                "        print([p.grad for p in model.parameters()])\nTrainer(AutoModel.from_pretrained('m'), arguments, callbacks=[Norms()]).train()\n"
            ),
            "",
        ),
    ],
)
def test_reads_in_classes_of_the_trainer(tmp_path: Path, program: str, place: str) -> None:
    assert _places(tmp_path, _TRAINER + program) == place


def _places(folder: Path, program: str) -> str:
    (folder / "accelerate.yaml").write_text(_FILE)
    (folder / "train.py").write_text(program)
    (folder / "net.py").write_text("def load():\n    return open('data')\n")
    (folder / "run.sh").write_text("accelerate launch --config_file accelerate.yaml train.py\n")
    done = dslint("check", ".", "--output-format", "json", "--select", "DS661", cwd=folder)
    found = [one for one in json.loads(done.stdout)["diagnostics"] if one["code"] == "DS661"]
    return " ".join(one["message"].partition(" ")[0] for one in found)


_OWN_LOOP = (
    "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds.json')\n"
    "for batch in loader:\n    engine.backward(engine(batch))\n    print([p.grad for p in engine.module.parameters()])\n    engine.step()\n"
)


@pytest.mark.parametrize(("stage", "summed", "found"), [(1, None, True), (1, "fp32", False), (2, "fp32", True)])
def test_the_optimizer_for_bf16_leaves_the_gradients(tmp_path: Path, stage: int, summed: str | None, *, found: bool) -> None:
    config = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
    config |= {"gradient_accumulation_steps": 1} | ({"data_types": {"grad_accum_dtype": summed}} if summed else {})
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "train.py").write_text(_OWN_LOOP, encoding="utf-8")
    done = dslint("check", ".", "--output-format", "concise", cwd=tmp_path)
    assert ("DS661" in done.stdout) is found
