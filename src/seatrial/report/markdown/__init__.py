"""summary.md: `summary` puts it together, one module a section, `text` escapes and makes tables."""
