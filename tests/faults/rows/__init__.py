"""The rows of the fault table, a file for each part of it."""
