"""In front of the real mlflow, which the tests of tracking need: DeepSpeed loads it wherever it is installed, in its launchers and in every
rank, a second each, and uses it for tuning alone."""

raise ImportError("mlflow is left out where DeepSpeed is run")
