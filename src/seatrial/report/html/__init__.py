"""summary.html: the report people open."""
