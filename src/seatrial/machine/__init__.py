"""Facts about this host: GPUs, processor, code, versions. Reads; only `orphans`, `shared_memory` and `handles` change anything."""
