"""What the workloads share: settings, the training log, the process group, precision, checkpoints, engines."""
