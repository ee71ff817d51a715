"""Read the errors in job logs, and find the rules behind them."""
