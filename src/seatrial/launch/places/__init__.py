"""Where processes run, one module a kind: each gives a run its ranks, its devices and a held port."""
