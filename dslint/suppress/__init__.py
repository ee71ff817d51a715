"""Findings that are kept out of the report: by comments in the file, by entries of the settings, by the baseline."""
