"""Everything that is said of a campaign: tables, the winner's files, summaries (`write.py`) and the terminal (`terminal/`)."""
