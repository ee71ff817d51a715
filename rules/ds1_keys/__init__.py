"""DS1: keys and their values, one at a time: unknown, misspelt, of a wrong type, gone in a release."""
