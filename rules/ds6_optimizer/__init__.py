"""DS6: optimizer, scheduler and gradient clipping."""
