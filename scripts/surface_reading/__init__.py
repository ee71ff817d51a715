"""Reads a DeepSpeed source release, without importing it, for what its config accepts. `scripts/surface.py` is the program."""
