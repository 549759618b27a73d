"""A training without a model: steps, waits, crashes and leaks to order. Standard library only."""
