"""The values that flow between stages: frozen, typed, to and from JSON; with the ETA model and the registry of failure signatures.

A few modules above the usual fifteen: each holds the values of one file or one stage.
"""
