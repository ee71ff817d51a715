"""Shell scripts: what is static in them is evaluated, and nothing is executed.

`syntax` parses with tree-sitter, `words` expands words, `tests` decides conditions, `run` follows the statements to the commands.
"""
