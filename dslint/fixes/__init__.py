"""Fixes: which can be applied together, and files that are written whole or not at all."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """Names of earlier versions."""
    from dslint.moved import moved_name

    return moved_name(__name__, name)
