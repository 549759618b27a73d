"""A while without Python's search for circles of objects. Standard library only.

The search goes through all objects again whenever there are a quarter more, and frees what it finds then and there. Where there are many
objects and no circle among them that costs time, and where nothing may be freed just now it does harm. What is in no circle is freed at
once, as ever.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Off, and on again after it where it was on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
