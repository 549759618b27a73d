"""Registry of what makes runs fail or slow: failure signatures (TOML data and their loader) and debug settings."""
