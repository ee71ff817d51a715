"""DS9: who loads the config, and what stands beside it: "auto", training arguments, launchers, programs."""
