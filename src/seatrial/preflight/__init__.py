"""Checks before anything is started, each naming the later error it prevents."""
