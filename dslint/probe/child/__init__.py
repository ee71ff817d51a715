"""The child process of the probe: the only part of dslint that imports torch and deepspeed."""
