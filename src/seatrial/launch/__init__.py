"""From a run's spec to started agents: launchers build the command, places allocate hosts and ports, transports start agents."""
