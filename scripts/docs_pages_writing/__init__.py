"""The generated pages of rules, keys and coverage, as Markdown."""
