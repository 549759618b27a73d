"""The lane `make test-runbooks`: every fenced block of the procedures, run."""
