"""`dslint tune`: the fastest configs that fit by estimate, and their measurement."""
