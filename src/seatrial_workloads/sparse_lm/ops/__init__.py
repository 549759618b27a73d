"""Operators of native sparse attention. `naive` is the reference with explicit masks; everything else must agree with it."""
