"""From a run's spec to a started process: the command and its environment (pure), a held port, the files of an attempt, the agent."""
