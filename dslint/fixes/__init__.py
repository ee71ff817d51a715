"""Fixes: which can be applied together, and files that are written whole or not at all."""
