"""The command line: one module a verb, imported when it is chosen. In the harness, the only place that prints and exits.

More than fifteen modules in one folder: there are as many verbs.
"""
