"""DS9: the integration that loads the config, and the files around it: "auto", training arguments, launch commands, programs."""
