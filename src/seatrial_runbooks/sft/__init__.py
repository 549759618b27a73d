"""The fine-tuning procedure: the flags of its scripts, over the bundled workload."""
