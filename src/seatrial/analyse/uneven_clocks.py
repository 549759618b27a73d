"""GPUs whose clocks were held back: by power, by heat, by something else.

In: the GPUs' samples of the window and the GPU of each. Out: causes `thermal`, `power_cap` and `throttling`, each of the GPU that shows
it most. A sample that heat had a part in is of heat, one of power counts as power, whatever else the driver says beside it: it sets
general words along with the particular one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.column import column, known_mean
from seatrial.analyse.hosts import gpu_name
from seatrial.analyse.telemetry import SETTINGS
from seatrial.analyse.uneven_span import Floats, Span
from seatrial.paths import ATTEMPT_FILES
from seatrial.records.health import UnevenCause

FILE = ATTEMPT_FILES.gpu_telemetry.name
LEAST_SAMPLES = 10
"""Of one GPU; of fewer a single held one would be a large share."""
THERMAL = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
POWER = frozenset({"sw_power_cap", "hw_power_brake_slowdown"})
FREE = -1
KINDS = ("thermal", "power_cap", "throttling")
LEAST_SHARE = {"thermal": 0.05, "power_cap": 0.2, "throttling": 0.05}
"""Of a GPU's samples. A healthy card that works hard touches its power limit now and then; no healthy card is too hot."""
WEIGHT = {"thermal": 1.0, "power_cap": 0.5, "throttling": 1.0}
"""A card at its power limit may be as steady as any other: weaker evidence than heat."""
AT_LIMIT = 0.9
"""Of the card's own limit: with less power than this it is another limit that holds it back."""
ADVICE = {
    "thermal": "Look after its cooling (fans, air flow, the air it takes in) and run again",
    "throttling": "`nvidia-smi -q -d PERFORMANCE` tells more; compare only with runs that were held back alike",
}


@dataclass(frozen=True, kw_only=True)
class _Held:
    """The GPU that one kind holds back most."""

    kind: str
    gpu: int
    others: int
    """GPUs beside it that are held back too."""
    words: str
    """What the driver gave as reasons, of all GPUs."""
    own: npt.NDArray[np.bool_]
    """Its samples."""
    held: npt.NDArray[np.bool_]
    """Those of them that show it."""

    @property
    def share(self) -> float:
        return float(self.held.sum() / self.own.sum())


def clock_causes(rows: pl.DataFrame, gpu: Floats, span: Span, hosts: Sequence[str] = ()) -> Iterator[UnevenCause]:
    """One cause a kind."""
    for found in _held(rows, gpu):
        yield _cause(found, rows, span, gpu_name(found.gpu, hosts))


def _held(rows: pl.DataFrame, gpu: Floats) -> Iterator[_Held]:
    reasons: pl.Series | None = rows.get_column("throttle_reasons", default=None)
    if reasons is None or np.isnan(gpu).any():
        return
    texts = reasons.to_list()
    kinds = {text: _kind(text) for text in set(texts)}
    if set(kinds.values()) == {FREE}:
        return
    of_sample = np.array([kinds[text] for text in texts])
    gpus, index, samples = np.unique(gpu, return_inverse=True, return_counts=True)
    for place, kind in enumerate(KINDS):
        count = np.bincount(index[of_sample == place], minlength=len(gpus))
        share = np.where(samples >= LEAST_SAMPLES, count / samples, 0.0)
        worst = int(share.argmax())
        if share[worst] >= LEAST_SHARE[kind]:
            yield _Held(
                kind=kind,
                gpu=int(gpus[worst]),
                others=int((share >= LEAST_SHARE[kind]).sum()) - 1,
                words="+".join(sorted({word for text, own in kinds.items() if own == place for word in _words(text)})),
                own=index == worst,
                held=(index == worst) & (of_sample == place),
            )


def _kind(text: str | None) -> int:
    words = _words(text)
    if not words:
        return FREE
    return 0 if words & THERMAL else 1 if words & POWER else 2


def _words(text: str | None) -> set[str]:
    return {word for word in (text or "").split("+") if word and word not in SETTINGS}


def _cause(found: _Held, rows: pl.DataFrame, span: Span, gpu: int | str) -> UnevenCause:
    n = int(found.own.sum())
    power_w, limit_w, temp_c, clock_mhz = (
        known_mean(column(rows, name)[found.held]) for name in ("power_w", "power_limit_w", "temp_c", "sm_clock_mhz")
    )
    free_mhz = known_mean(column(rows, "sm_clock_mhz")[found.own & ~found.held])
    seen = [
        _told(temp_c, "{:.0f} °C"),
        _told(power_w, "{:.0f} W") + (_told(limit_w, " of {:.0f} W") if power_w is not None else ""),
        _told(clock_mhz, "{:.0f} MHz") + (_told(free_mhz, " ({:.0f} MHz else)") if clock_mhz is not None else ""),
    ]
    also = f", and so were {found.others} more" if found.others else ""
    return UnevenCause(
        kind=found.kind,
        text=f"GPU {gpu} was held back ({found.words}) in {found.share:.0%} of {n} samples ({span.words}){also}; meanwhile in the "
        f"mean {', '.join(filter(None, seen)) or 'nothing more was told'}. {ADVICE.get(found.kind) or _power_advice(power_w, limit_w)}.",
        numbers={
            "gpu": gpu,
            "held_ratio": found.share,
            "gpus": found.others + 1,
            "temp_c": temp_c,
            "power_w": power_w,
            "power_limit_w": limit_w,
            "sm_clock_mhz": clock_mhz,
            "sm_clock_free_mhz": free_mhz,
            "reasons": found.words,
        },
        file=FILE,
        window=span.words,
        n=n,
        strength=WEIGHT[found.kind] * found.share,
    )


def _power_advice(power_w: float | None, limit_w: float | None) -> str:
    if power_w is not None and limit_w is not None and power_w < AT_LIMIT * limit_w:
        return "It is below its own limit, so the node or the rack limits it: look at the power supply and at caps set above the card"
    return "Raise the limit where it is below the card's default (`nvidia-smi -q -d POWER`); compare only with runs under the same limit"


def _told(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
