"""A small transformer language model trained with DDP on CPU or CUDA: the demo, and the example to copy."""
