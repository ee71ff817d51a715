"""How much memory a rank needs, from a config, a model and the facts: without torch, and without allocating anything.

`shapes` says what a model is made of, `families` reads that from a `config.json`; `plan` takes from the effective config what matters here;
`states` is what stays, `replay` walks through a step of training as DeepSpeed takes it, `host` is the machine's memory; `estimate` puts
them together, and `fit` tries changes.
"""
