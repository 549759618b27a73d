"""The registry of signatures: signs of failure and of slowness, each with its cause and what to do. Data files and their loader."""
