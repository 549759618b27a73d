"""How processes start, one module a kind; `registry.command_for` chooses."""
