"""The commands under runbooks/: a procedure's variables become plans that the harness runs; its other commands read the results."""
