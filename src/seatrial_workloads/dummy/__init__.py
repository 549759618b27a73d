"""A training without a model: configurable steps, waits, crashes and leaks. Standard library only."""
