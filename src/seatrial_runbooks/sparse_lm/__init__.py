"""The programs of the sparse-LM procedure: watchdog, window statistics, loader check and the validation from snapshot to acceptance."""
