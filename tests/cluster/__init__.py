"""Hosts made of namespaces on one machine, with real ssh between them, and the means to break each: see docs/cluster.md."""
