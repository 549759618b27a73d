"""The process on every node that starts a run's command: its subreaper, the merger of its output, the killer of what it leaves."""
