"""The frameworks that load a DeepSpeed config: how their files are recognised, their arguments, and the config that they build."""
