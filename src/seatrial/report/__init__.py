"""One view of a campaign's results (`view/`), its files (`write.py`) and its renderers: terminal, Markdown, HTML, trackers."""
