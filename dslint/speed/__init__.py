"""The time of a training step: a model in parts, the fastest configs that fit, and their measurement."""
