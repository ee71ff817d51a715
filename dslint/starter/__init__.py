"""Starter configs: `choice` decides on ZeRO stage and offload, `contents` collects values and reasons, `text` formats the file."""
