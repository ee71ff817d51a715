"""Rules that read a program's text themselves, and code about which Python warns."""

from __future__ import annotations

import warnings

from tests.setup.folder import Folder

_ODD = "digits = re.compile('\\d+')\n"


def test_no_rule_prints_what_python_says_of_a_program(folder: Folder) -> None:
    images = (
        "import re\nimport deepspeed\nfrom torchvision import datasets, transforms\n"
        f"{_ODD}data = datasets.CIFAR10('cifar', transform=transforms.ToTensor())\n"
        "engine, _, loader, _ = deepspeed.initialize(model=Net(), training_data=data, config='ds.json')\n"
        "for images, labels in loader:\n    engine.backward(criterion(engine(images), labels))\n"
    )
    two = (
        f"import re\nimport deepspeed\nimport torch\n{_ODD}"
        "judge, *_ = deepspeed.initialize(model=net_d, optimizer=torch.optim.Adam(net_d.parameters()), config='ds.json')\n"
        "maker, *_ = deepspeed.initialize(model=net_g, optimizer=torch.optim.Adam(net_g.parameters()), config='ds.json')\n"
        "for real in loader:\n    fake = maker(noise)\n    judge.backward(judge(real).mean() - judge(fake.detach()).mean())\n    judge.step()\n"
        "    maker.backward(judge(fake).mean())\n    maker.step()\n"
    )
    config = '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    for program, code in ((images, "DS336"), (two, "DS878")):
        folder.write({"train.py": program, "ds.json": config})
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            assert code in {found for found, _, _ in folder.found("train.py")}
        assert issued == []
