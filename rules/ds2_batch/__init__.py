"""DS2: batch size, micro batch size, gradient accumulation steps and world size."""
