"""What DeepSpeed accepts: a pydantic model per section of the config, and plain tables compiled from the models.

Importing this package does not import pydantic: `check` uses only `key_table`; typed configs and the JSON Schema use the models.
"""
