"""The libraries of this environment, by which a project shows whether it trains here."""

from __future__ import annotations

import os
import sys
from functools import cache

from dslint.facts.release import Release, final_release

COMPARED = ("transformers", "accelerate", "lightning", "pytorch_lightning", "torch")
"""Packages of which a training has one release."""


@cache
def libraries_here() -> dict[str, Release]:
    """The releases of these packages in this environment. Only folder names are read; nothing is imported."""
    found: dict[str, Release] = {}
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            package, _, version = name.removesuffix(".dist-info").partition("-")
            package = package.lower().replace("-", "_")
            if name.endswith(".dist-info") and package in COMPARED and (release := final_release(version.partition("+")[0])) is not None:
                found.setdefault(package, release)
    return found
