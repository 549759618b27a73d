"""How long a run will still take. Standard library only: harness, analysis and the trainers' own lines take it from here."""
