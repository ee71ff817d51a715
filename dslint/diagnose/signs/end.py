"""How a job ends that ends well."""

from __future__ import annotations

from dslint.diagnose.signs.sign import sign

SIGNS = (
    sign("finished", "train_runtime", r"['\"]?train_runtime['\"]?\s*[:=]"),
    sign(
        "finished",
        (
            "Training completed",
            "[after training is done]",
            "Finished Training",
            "Finished training",
            "Training finished",
            "Training complete",
            "***** predict metrics *****",
        ),
        r"Training completed|\[after training is done\]|Finished [Tt]raining|Training finished|Training complete\b|\*\*\*\*\* predict metrics",
    ),
    sign(
        "left",
        ("process group has NOT been destroyed", "destroy_process_group() was not called"),
        r"process group has NOT been destroyed|destroy_process_group\(\) was not called",
    ),
)
