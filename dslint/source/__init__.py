"""Parses JSON, HJSON and YAML into trees with the place of every key, value and comment, and edits their text."""

import dslint.source.parse  # noqa: F401 - registers how documents are pickled
