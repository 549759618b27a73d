"""Facts about this host: GPUs, processor, code, versions. Reads, never changes."""
