"""The values that flow between stages: frozen, typed, to and from JSON, no logic."""
