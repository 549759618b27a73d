"""Who may read what Seatrial writes: the modes of its files, each once. A user's umask takes away more, where it says so."""

from __future__ import annotations

# Results are meant to be read by the team, as far as the user's umask lets them.
READABLE = 0o644
# Datasets and checkpoints, with which the user goes on working: as open() would leave them, by the umask alone.
BY_UMASK = 0o666
# Tokens of lines, orders with a plan's variables, and whatever waits in a temporary folder: nobody's but the user's own.
PRIVATE = 0o600
PRIVATE_FOLDER = 0o700
# A private file that can be started: command.sh holds the plan's variables as they are.
PRIVATE_PROGRAM = 0o700
