"""Judges: bash judges what is read of scripts, Python what is read of programs. Generators with a seed ask them."""
