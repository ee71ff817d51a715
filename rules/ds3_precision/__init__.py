"""DS3: fp16, bf16, loss scaling, data types, master weights."""
