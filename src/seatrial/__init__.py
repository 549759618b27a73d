"""Seatrial: sea trials for distributed training.

Two things are meant to be used from outside, and are kept as they are: the command `seatrial` with the files it writes, and what
`seatrial.probe` offers to scripts. Beyond these and `__version__` there is no public Python API: every other module may change.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
