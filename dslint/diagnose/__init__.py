"""What jobs print when they die, and what is behind it."""
