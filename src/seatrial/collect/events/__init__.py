"""Events that the probe of every rank wrote, read back: tables.py gives the steps, files.py reads, checks.py believes or not, and the rest
asks for one kind of event each.
"""
