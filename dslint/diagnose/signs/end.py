"""How a job ends that ends well."""

from __future__ import annotations

from dslint.diagnose.signs.sign import sign

SIGNS = (
    # With include_num_input_tokens_seen the Trainer logs it with the loss of each step, too
    sign("finished", "train_runtime", r"^(?!.*['\"]loss['\"]\s*:).*?['\"]?train_runtime['\"]?\s*[:=]"),
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
    # the report that LSF writes below the output of a job
    sign("lsf", " in cluster <", r"^Subject: Job \S+: <.*> in cluster <.*> (?P<how>Exited|Done)\b"),
    sign("lsf_killed", "TERM_", r"^TERM_[A-Z_]+: (?P<reason>job killed\b.*?)\.?\s*$"),
    sign("lsf_errors", "> for stderr output of this job", r"Read file <(?P<path>.+)> for stderr output of this job"),
)
