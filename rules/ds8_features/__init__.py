"""DS8: everything else that has a section: checkpoints, monitors, data efficiency, parallelism, experts, compilation, autotuning."""
