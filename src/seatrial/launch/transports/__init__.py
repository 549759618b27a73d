"""What starts the agents on the hosts of a run, one module a way. A transport only starts: once an agent has called, nobody asks for it."""
