"""What a script printed, read back: tables.py gives the steps, source.py the lines with their times, readings.py finds steps in them by the
format that fits.
"""
