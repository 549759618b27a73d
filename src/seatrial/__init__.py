"""Seatrial: sea trials for distributed training and inference. `seatrial --help` is the way in; `seatrial.probe` is what scripts import."""

__version__ = "0.1.0"
