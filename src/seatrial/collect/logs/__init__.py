"""What a run printed: lines and blocks of any size, steps and headers in them, how it ended and why.

launcher_log, bounded_lines → evidence, launcher_report → scan → outcome → diagnosis
"""
