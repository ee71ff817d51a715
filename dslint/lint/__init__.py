"""Linting: file discovery, rules on one document, runs over many files."""
