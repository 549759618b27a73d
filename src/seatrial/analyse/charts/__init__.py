"""What can be drawn of a run: see records.columns."""
