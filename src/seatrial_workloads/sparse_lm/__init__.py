"""Byte-level language model with native sparse attention: compressed, selected and sliding-window branches behind a learned gate.

More than fifteen modules in one folder: its data, its settings and each part of the model are subjects of their own; kernels are in ops/.
"""
