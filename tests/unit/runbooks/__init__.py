"""Tests of what stands behind the commands under runbooks/."""
