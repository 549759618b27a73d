"""What was measured, checked against a plan's criteria: findings with their evidence, and one verdict over them (verdict.py)."""
