"""The pages of rules and keys, as Markdown that reads alike in the repository and on the site."""
