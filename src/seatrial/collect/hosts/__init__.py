"""The hosts of an attempt that ran on many: their folders, their clocks, their output, and in what they differ."""
