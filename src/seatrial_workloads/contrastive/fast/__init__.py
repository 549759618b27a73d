"""Fast implementations of parts of the model, each next to its plain reference; `fast_paths` decides which are used."""
