"""The process on every node that starts a run's command: it is its subreaper, merges its output and kills what it leaves."""
