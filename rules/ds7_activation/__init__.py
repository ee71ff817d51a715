"""DS7: activation checkpointing, and the memory of the whole training."""
