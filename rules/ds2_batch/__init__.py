"""DS2: batch size, micro batch size, gradient accumulation and world size."""
