"""`dslint tune`: the fastest configs that surely fit, and their measurement."""
