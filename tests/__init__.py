"""The tests of dslint."""

import sys

# No test asks for formats of strings, and jsonschema takes 1.3 seconds for its parsers of IRIs, in each process where they are installed.
sys.modules.setdefault("rfc3987_syntax", None)
