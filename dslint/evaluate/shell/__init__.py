"""Shell scripts: what is static in them is evaluated, and nothing is executed.

`syntax` parses with tree-sitter, `words` expands words, `conditions` decides tests, `run` follows the statements to the commands.
"""
