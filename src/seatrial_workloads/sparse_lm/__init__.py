"""Byte-level language model with native sparse attention: compressed, selected and sliding-window branches behind a learned gate."""
