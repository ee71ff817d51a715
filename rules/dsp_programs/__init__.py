"""DSP: programs: what they do with the engine, the model, the data and the process group."""
