"""The command line: one module a verb, imported when it is chosen. The only place that prints and exits."""
