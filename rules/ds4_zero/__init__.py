"""DS4: ZeRO and communication."""
