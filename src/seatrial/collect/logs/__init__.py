"""What a run printed: lines and blocks of any size, steps and headers in them, how it ended and why.

    bounded_lines → launcher_log → line_relevance → launcher_report → scan → log_outcome → diagnosis
                                 → script_header, steps

Other files are read by `bounded_lines` too.
"""
