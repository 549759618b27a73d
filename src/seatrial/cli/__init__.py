"""The command line: a module for each verb or few verbs, imported when one is chosen. In the harness, the only place that prints and exits.

More than fifteen modules in one folder: eleven of verbs, and the options and views that verbs share.
"""
