"""Facts about this host: GPUs, processes, network, software, provenance, secrets, samplers. Read-only, except that
`orphans` kills and removes, and samplers write their files."""
