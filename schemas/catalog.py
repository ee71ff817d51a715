"""The entry for a catalog of JSON Schemas such as SchemaStore: which files the schema is for, and where it is published."""

from __future__ import annotations

from typing import Any

from dslint import project

FILE_NAMES = (
    "ds_config*.json",
    "ds-config*.json",
    "*_ds_config*.json",
    "*.ds-config.json",
    "ds_*_config.json",
    "ds_*_config_*.json",
    "ds_stage[0-3]*.json",
    "ds_z[0-3]*.json",
    "ds_zero*.json",
    "ds_*_z[0-3]*.json",
    "ds_offload*.json",
    "deepspeed*.json",
    "*_deepspeed_config*.json",
    "zero[0-3]*.json",
    "zero_stage[0-3]*.json",
    "zero_config*.json",
    "*_zero[0-3]*.json",
    "**/deepspeed/*.json",
    "**/deepspeed_config*/*.json",
    "**/ds_config*/*.json",
)
"""Patterns of file names that, in public repositories, DeepSpeed configs have and other files do not. A config under a common name such as
`config.json` is matched by its folder only."""

SITE_PATH = "schemas/ds_config.draft-07.schema.json"
"""Where the site has the schema of the newest release. SchemaStore recommends draft 07, which every editor reads."""


def entry() -> dict[str, Any]:
    """The entry, with the address of the schema if the site has one."""
    address = {"url": f"{project.SITE}/{SITE_PATH}"} if project.SITE else {}
    return {
        "name": "DeepSpeed config",
        "description": "Training config of DeepSpeed (ds_config.json)",
        "fileMatch": list(FILE_NAMES),
        **address,
    }
