"""Keeps a probe from writing outside of its scratch folder and from sending data."""

from __future__ import annotations

import os
from typing import Any

OUTPUTS = (
    ("zero_optimization", "offload_optimizer", "nvme_path"),
    ("zero_optimization", "offload_param", "nvme_path"),
    ("tensorboard", "output_path"),
    ("csv_monitor", "output_path"),
    ("flops_profiler", "output_file"),
    ("nebula", "persistent_storage_path"),
    ("autotuning", "results_dir"),
    ("autotuning", "exps_dir"),
    ("autotuning", "metric_path"),
    ("autotuning", "model_info_path"),
    ("data_efficiency", "data_sampling", "curriculum_learning", "data_cluster_path"),
)
"""The keys with paths that DeepSpeed writes to. It creates a missing `nvme_path` wherever it points."""

MONITORS = ("tensorboard", "csv_monitor")
"""Monitors that write to the home folder without an output_path, and use job_name as part of a path."""

ENVIRONMENT = {
    "WANDB_MODE": "offline",
    "COMET_MODE": "DISABLED",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
"""Variables that keep libraries offline."""

UNDONE = 3.0
"""Seconds that an interrupted child has before it is killed. While torch compiles an op of DeepSpeed, it holds a file as a lock in its
folder of extensions, and removes it when it is interrupted. One that is left there makes every later DeepSpeed of this user wait forever
(seen on an H100: `fused_adam/lock` after a killed probe).
"""

FOLDERS = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "COMET_OFFLINE_DIRECTORY", "TRITON_CACHE_DIR", "TMPDIR")
"""Variables with folders that libraries write to."""


def environment(scratch: str) -> dict[str, str]:
    """The variables for a process that must write only to the folder `scratch`."""
    return {**ENVIRONMENT, **dict.fromkeys(FOLDERS, scratch)}


def redirect(config: dict[str, Any], scratch: str) -> list[tuple[str, str]]:
    """Redirect every output path of the config to `scratch`, and disable what ends the process or sends data.

    The config is changed in place. Values of a wrong type stay, so that DeepSpeed reports them.

    Returns:
        The dotted keys and their old values, as text.
    """
    changed = []
    for path in OUTPUTS:
        section = _section(config, path[:-1])
        if section is not None and isinstance(section.get(path[-1]), str) and section[path[-1]]:
            changed.append((".".join(path), section[path[-1]]))
            section[path[-1]] = os.path.join(scratch, "-".join(path))  # noqa: PTH118 - a string of the config
    for name in MONITORS:
        section = _section(config, (name,))
        if section is None:
            continue
        if section.get("output_path", "") is None:
            changed.append((f"{name}.output_path", "null"))
            section["output_path"] = os.path.join(scratch, name)  # noqa: PTH118 - a string of the config
        job = section.get("job_name")
        if isinstance(job, str) and (set(job) & {"/", "\\"} or job == ".."):
            changed.append((f"{name}.job_name", job))
            section["job_name"] = "job"
    for name, key, off in (("autotuning", "enabled", False), ("comet", "online", False)):
        section = _section(config, (name,))
        if section is not None and section.get("enabled") is True and section.get(key) is not off:
            changed.append((f"{name}.{key}", str(section.get(key)).lower()))
            section[key] = off
    return changed


def override(config: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set a value at a path of the config and create missing sections; None removes the key. A parent that is not a section stays."""
    section: Any = config
    for step in path[:-1]:
        if value is None and step not in section:
            return
        section = section.setdefault(step, {})
        if not isinstance(section, dict):
            return
    if value is None:
        section.pop(path[-1], None)
    else:
        section[path[-1]] = value


def _section(config: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
    found: Any = config
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None
