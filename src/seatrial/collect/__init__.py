"""From what runs left on disk to values: attempts, step tables, causes of failure, and the manifest of them all."""
