"""One run as a row: the seeds' columns, ours after them, and their cells. The manifest and the per-run table are made of this."""
