"""Text to tree: JSON and HJSON as DeepSpeed reads them, with the place of every key, value and comment."""
