"""The probe: runs the real DeepSpeed engine with a config for a few optimizer steps in a child process, and counts its memory.

Only the package `child` imports torch and deepspeed. The other modules write a `Question`, start `python -m dslint.probe.child`, and read
an `Answer`.
"""
