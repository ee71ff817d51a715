"""The live engine: the real DeepSpeed is started with a config for a few optimizer steps, in a child process, and its bytes are counted.

The near side (all modules but those in `child`) imports neither torch nor deepspeed: it writes a `Question`, starts
`python -m dslint.probe.child`, and reads an `Answer`.
"""
