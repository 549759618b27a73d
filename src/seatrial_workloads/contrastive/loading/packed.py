"""Many short texts as one. In: strings. Out: a table that gives each back by its index.

280,000 strings are as many Python objects. A forked worker that only reads one writes its reference count, and with that gets its own copy
of the page around it: with sixteen workers the memory fills up step by step and looks like a leak. Here they are two objects: all the
characters, and where each text ends.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


class PackedTexts:
    """Texts, by index."""

    def __init__(self, texts: Iterable[str]) -> None:
        encoded = [text.encode() for text in texts]
        self._bytes = b"".join(encoded)
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        return self._bytes[self._ends[index] : self._ends[index + 1]].decode()
