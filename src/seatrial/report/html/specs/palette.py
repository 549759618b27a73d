"""The colours of the charts: Okabe and Ito's order without yellow and black, told apart by people who do not see all colours, on white and
on dark. Where two series meet, a shape, a dash or a label stands beside the colour.
"""

from __future__ import annotations

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C")
BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY = COLOURS
PURPLE, BROWN = "#7A5195", "#8A6428"
SERIES = (*COLOURS, PURPLE)
"""Eight runs can be picked, and a node has eight GPUs."""
DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])
"""For series that share a colour or cross one another."""
HEAT = ("#e3eef9", "#9ac8e0", "#4a97c9", "#1862a8", "#08306b")
"""One hue from light to dark, the same on both backgrounds: its darkness alone tells the order."""
ON_LIGHT, ON_DARK = "#111111", "#ffffff"
"""Text in a cell of HEAT."""
PHASES = {"data_wait": ORANGE, "preprocess": PINK, "fwd": SKY, "bwd": BLUE, "step": GREEN, "other": GREY}
"""In the order in which a step goes through them."""


def colour(index: int) -> str:
    """The colour of the series with that place; they begin anew after the last."""
    return SERIES[index % len(SERIES)]
