"""Why a run failed, by its own words: cause.py tells the cause, the rest weighs and picks the lines of its log."""
