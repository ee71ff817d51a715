"""Checkpoints as the real DeepSpeed writes and loads them, on a few CPU ranks."""
