"""Facts about this host: GPUs, processes, network, software, provenance, secrets. Read only, except that `orphans` kills and removes."""
