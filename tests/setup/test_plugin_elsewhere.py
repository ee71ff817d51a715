"""A launch with Accelerate's flags, whose program makes its plugin where it is not followed: a recipe names the class."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

PLUGIN = (
    "from accelerate import Accelerator, DeepSpeedPlugin\n\nclass Sharded:\n    def __init__(self, conf):\n"
    "        plugin = DeepSpeedPlugin(hf_ds_config=dict(conf.zero))\n        self.accelerator = Accelerator(deepspeed_plugin=plugin)\n"
)
FIT = "import hydra\n\nrunner = hydra.utils.instantiate(conf.runner)\nrunner.fit()\n"
RUN = "accelerate launch --use_deepspeed --num_processes 2 --zero_stage 2 fit.py\n"


@pytest.mark.parametrize(
    ("module", "own"),
    [
        (PLUGIN, True),
        (PLUGIN.replace("hf_ds_config=dict(conf.zero)", "zero_stage=conf.stage"), False),
        (PLUGIN.replace("hf_ds_config=dict(conf.zero)", "hf_ds_config=None"), False),
        ("class Sharded:\n    pass\n", False),
    ],
)
def test_the_flags_do_not_describe_a_config_that_a_module_passes(folder: Folder, module: str, own: bool) -> None:
    folder.write({"run.sh": RUN, "fit.py": FIT, "runners/sharded.py": module})
    result = folder.results("run.sh")["run.sh"]
    assert ("runners/sharded.py passes to DeepSpeedPlugin" in (result.note or "")) is own
    assert ("that its flags describe" in (result.note or "")) is not own
    assert bool(result.not_judged) is own
