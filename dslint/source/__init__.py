"""Parses JSON, HJSON and YAML into trees with the place of every key, value and comment, and edits their text."""
