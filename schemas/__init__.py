"""What DeepSpeed accepts: a pydantic model per section of the config, and the plain tables made from them.

Importing this package imports no pydantic: `check` reads `key_table`, and the models come in where a typed config or a JSON Schema is asked for.
"""
