"""The values that flow between stages: frozen, typed, to and from JSON; with the ETA model and the registry of failure signatures.

More modules than usual: each holds the values of one file or one stage, so that an import loads little.
"""
