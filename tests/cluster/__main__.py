"""`python -m tests.cluster --help`."""

import sys

from tests.cluster.command_line import main

sys.exit(main(sys.argv[1:]))
