"""From a folder of attempts to results: measured, grouped, ranked, judged, compared, exported, explained."""
