"""Checkpoints of a run: what lies in them, how they are written whole, found again and gone on from, and weights from elsewhere."""
