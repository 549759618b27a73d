"""What the workloads share: settings from a file or flags, lines for people, the process group, precision."""
