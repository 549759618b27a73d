"""The Stage 1 procedures: the benchmark driver's variables, the stability check, the leak diagnosis, the summary."""
