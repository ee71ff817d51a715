"""DS3: fp16, bf16, the loss scale, data types, autocast, master weights."""
