"""The model: its encoders, the loss, and fast implementations of its parts; `fast_paths` decides which of those are used."""
