"""The charts of a run, in the columns of records.columns."""
