"""Results of a folder of attempts: measured, grouped, ranked, judged, compared, exported, explained."""
