"""Asks the real DeepSpeed what it does with a config, on a machine without a GPU."""
