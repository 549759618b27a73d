"""From step tables to figures: what a run measured, what its group comes to, and in which order the groups stand."""
