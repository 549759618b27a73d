"""What torch says of the sizes when a GPU's memory is not enough.

In: the telling line of such an end, in torch's wording since 2.1 or the one before. Out: the sizes in MiB, and a sentence on how far the
demand was above what could be had. None where the line has no sizes, as NCCL's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MIB_PER_UNIT = {"bytes": 2**-20, "KiB": 2**-10, "MiB": 1.0, "GiB": 1024.0, "TiB": 1048576.0}
_SIZE = r"(\d{1,9}(?:\.\d{1,6})?) (bytes|KiB|MiB|GiB|TiB)"
# Each in the newer wording, then in the older one.
_TRIED = re.compile(rf"Tried to allocate {_SIZE}")
_TOTAL = re.compile(rf"total capacity of {_SIZE}|{_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free\b")
_HELD = re.compile(rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated")
_SPARE = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
OTHERS_MIB = 512.0
"""Less than this beside the run is what contexts and the driver take."""


@dataclass(frozen=True, kw_only=True)
class OomSizes:
    """Of one GPU at the moment of the failure."""

    tried_mib: float
    free_mib: float
    held_mib: float
    """By tensors."""
    spare_mib: float
    """Kept by torch's allocator, and in no use."""
    total_mib: float
    others_mib: float
    """Taken by other processes; 0 where that is not told."""

    @property
    def factor(self) -> float:
        """What was asked for in all, over what could be had in all."""
        return (self.held_mib + self.tried_mib) / (self.held_mib + self.free_mib + self.spare_mib)

    @property
    def words(self) -> str:
        """One sentence or two."""
        told = f"tried to allocate {_shown(self.tried_mib)} with {_shown(self.free_mib)} free of {_shown(self.total_mib)}"
        told = f"By its own message it {told}, and held {_shown(self.held_mib)}"
        others = f" Other processes hold {_shown(self.others_mib)} of this GPU." if self.others_mib > OTHERS_MIB else ""
        if self.factor <= 1:
            lies = f"{_shown(self.spare_mib)} more lie in pieces that are too small"
            return f"{told}: {lies}; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may be enough.{others}"
        return f"{told}: its demand up to there was {self.factor:.2f} times what it can have, and more may follow.{others}"


def oom_sizes(line: str) -> OomSizes | None:
    """The sizes in a line, where all that the factor needs are there."""
    tried, free, held, total = (_mib(pattern, line) for pattern in (_TRIED, _FREE, _HELD, _TOTAL))
    if tried is None or free is None or held is None or total is None or held + free <= 0:
        return None
    own = _mib(_OWN, line)
    others = 0.0 if own is None else max(0.0, total - own - free)
    return OomSizes(tried_mib=tried, free_mib=free, held_mib=held, spare_mib=_mib(_SPARE, line) or 0.0, total_mib=total, others_mib=others)


def _mib(pattern: re.Pattern[str], line: str) -> float | None:
    match = pattern.search(line)
    if match is None:
        return None
    number, unit = (part for part in match.groups() if part is not None)
    return float(number) * MIB_PER_UNIT[unit]


def _shown(mib: float) -> str:
    return f"{mib:.0f} MiB" if mib < 1024 else f"{mib / 1024:.2f} GiB"
