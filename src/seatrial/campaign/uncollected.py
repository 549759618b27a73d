"""A while without Python's search for circles of objects.

A thousand runs are half a million objects, none of them in a circle, and the search goes through all of them again whenever there are a
quarter more: a tenth of the time that a report takes. What is in no circle is freed at once, as ever.
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
