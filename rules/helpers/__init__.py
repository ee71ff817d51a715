"""What rules share: words of messages, fixes, examples. No rule lives here."""
