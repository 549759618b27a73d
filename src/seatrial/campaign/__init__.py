"""One run, all runs, and what is made of them: the only place where preflight, launch and observe meet."""
