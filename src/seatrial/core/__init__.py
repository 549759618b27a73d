"""What all other packages share: errors, text, files, paths, tables, commands, the control connection. Imports nothing of ours.

More than fifteen modules in one folder: each is one subject, so that the probe and the agents load the few that they need.
"""
