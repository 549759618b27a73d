"""The one process starter on every node: parent and subreaper of the launcher, merger of its output, killer of what it leaves."""
