"""What stands behind the commands under runbooks/: the names a procedure uses become a plan that the harness runs; results are read."""
