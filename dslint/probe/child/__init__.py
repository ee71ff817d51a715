"""The far side of the probe: a process of its own, the only part of dslint that imports torch and deepspeed."""
