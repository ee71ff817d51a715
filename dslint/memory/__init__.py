"""Estimates the memory that a rank needs, from a config, a model and facts, without torch and without allocating anything.

`shapes` describes a model, `families` reads it from a `config.json`; `plan` extracts from the effective config what affects memory;
`engine` replays a training step as DeepSpeed runs it (`zero12`, `zero3`), `host` covers host memory; `estimate` combines them, and `fit`
tries changes.
"""
