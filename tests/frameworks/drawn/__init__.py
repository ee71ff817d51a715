"""Jobs drawn by a seed: arguments, a config, a launch, an environment and a program that could belong together."""

from __future__ import annotations

from tests.frameworks.drawn import accelerate, huggingface, lightning, trl, yaml_files
from tests.frameworks.drawn.configs import Draw
from tests.frameworks.jobs import Job

FRAMEWORKS = {
    "accelerate": accelerate.accelerate,
    "axolotl": yaml_files.axolotl,
    "lightning": lightning.lightning,
    "llamafactory": yaml_files.llama_factory,
    "ms-swift": yaml_files.ms_swift,
    "transformers": huggingface.transformers,
    "trl": trl.trl,
}


def draw(framework: str, seed: int) -> Job:
    """The job of a seed."""
    rng = Draw(f"{framework} {seed}")
    rng.mistakes = rng.choice([0, 0, 0, 0, 1, 1, 1, 2])
    return FRAMEWORKS[framework](rng, f"{framework}-{seed}")
