"""What was measured, held against a plan's criteria: findings with their evidence, and one verdict over them (see `verdict.py`)."""
