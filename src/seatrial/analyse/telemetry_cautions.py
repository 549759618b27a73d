"""What the samples say that a reader must know to weigh a run, and what weakens the samples themselves.

In: the figures of a run's telemetry and the samplers' account. Out: cautions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from seatrial.analyse.telemetry import samplers
from seatrial.records.caution import Caution
from seatrial.records.measure import Cell
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount

THROTTLED_PCT = 5.0
"""Clocks held back in more of the samples than this: the figures are of a slower card than the one on the label."""
AT_THE_LIMIT = "sw_power_cap"
"""The one reason that a healthy card has too."""
STEAL_PCT = 5.0
"""Time that the machine below took from this virtual one: more than most differences between groups."""


def telemetry_cautions(
    figures: dict[str, Cell], account: TelemetryAccount | None, run: str, others: Mapping[str, TelemetryAccount] | None = None
) -> Iterator[Caution]:
    """What makes a reader doubt the telemetry, then what the telemetry makes him doubt."""
    if account is not None:
        for kind, sampler in samplers(account):
            yield from _sampler_cautions(kind, sampler, run)
    yield from _of_other_hosts(others or {}, run)
    yield from _throttled(figures, run)
    yield from _foreign(figures, run)
    yield from _steal(figures, run)


def _of_other_hosts(others: Mapping[str, TelemetryAccount], run: str) -> Iterator[Caution]:
    """One of each kind, of the first host that has it, with how many more do."""
    found: dict[str, list[tuple[str, Caution]]] = {}
    for host, account in others.items():
        for kind, sampler in samplers(account):
            for caution in _sampler_cautions(kind, sampler, run):
                found.setdefault(caution.kind, []).append((host, caution))
    for shown in found.values():
        host, first = shown[0]
        more = f" The same is said of {len(shown) - 1} more samplers of hosts beside node 0." if len(shown) > 1 else ""
        yield replace(first, text=f"Host {host}: {first.text}{more}", numbers={**first.numbers, "host": host, "times": len(shown)})


def _sampler_cautions(kind: str, sampler: SamplerAccount, run: str) -> Iterator[Caution]:
    if sampler.stopped_t is not None:
        yield Caution(
            kind="telemetry_stopped",
            subject=run,
            numbers={"rows": sampler.rows, "t": sampler.stopped_t},
            text=f"The {kind} sampler got no answer any more ({sampler.note}); look into the kernel's log for the driver's last words.",
        )
    elif sampler.empty and not sampler.expected:
        yield Caution(
            kind="telemetry_empty",
            subject=run,
            numbers={"samples": sampler.samples},
            text=f"There is no {kind} telemetry of this run, and there should be: {sampler.note or 'no reason is known'}.",
        )
    elif sampler.note and not sampler.expected and not sampler.invalid:
        yield Caution(kind="telemetry_amiss", subject=run, text=f"{kind} telemetry is not whole: {sampler.note}.")
    if sampler.gaps:
        yield Caution(
            kind="telemetry_gaps",
            subject=run,
            numbers={"gaps": sampler.gaps, "longest_s": sampler.longest_gap_s, "interval_s": sampler.interval_s},
            text=f"{kind} telemetry has gaps ({sampler.gaps}), the longest of {sampler.longest_gap_s:.1f} s at an interval of "
            f"{sampler.interval_s:g} s: the host was too busy, or the driver too slow, to be looked at.",
        )
    if sampler.invalid:
        yield Caution(
            kind="telemetry_invalid",
            subject=run,
            numbers={"invalid": sampler.invalid, "rows": sampler.rows},
            text=f"{sampler.invalid} {kind} samples held values that cannot be and were left out ({sampler.note}).",
        )


def _throttled(figures: dict[str, Cell], run: str) -> Iterator[Caution]:
    share = figures.get("gpu_throttled_pct")
    if isinstance(share, float) and share > THROTTLED_PCT:
        reasons = str(figures.get("gpu_throttle_reasons") or "")
        yield Caution(
            kind="gpu_throttled",
            subject=run,
            numbers={"throttled_pct": round(share, 1), "reasons": reasons},
            text=f"The GPU's clocks were held back in {share:.0f} % of the samples ({reasons}): {_advice(reasons)}.",
        )


def _advice(reasons: str) -> str:
    if reasons == AT_THE_LIMIT:
        return "the card works at its power limit, as heavy work makes it; compare only with runs under the same limit"
    return "compare only with runs that were held back alike, and look after cooling and power supply"


def _foreign(figures: dict[str, Cell], run: str) -> Iterator[Caution]:
    most = figures.get("gpu_foreign_process_max")
    if isinstance(most, int) and most > 0:
        yield Caution(
            kind="gpu_shared",
            subject=run,
            numbers={"processes": most},
            text=f"{most} {'process' if most == 1 else 'processes'} of others used this run's GPUs meanwhile, so its figures are not the "
            "card's own; run again with the GPUs to yourself.",
        )


def _steal(figures: dict[str, Cell], run: str) -> Iterator[Caution]:
    share = figures.get("host_cpu_steal_mean_pct")
    if isinstance(share, float) and share > STEAL_PCT:
        yield Caution(
            kind="cpu_stolen",
            subject=run,
            numbers={"steal_pct": round(share, 1)},
            text=f"{share:.0f} % of the processors' time was taken by the machine this one is a guest of: timings depend on its "
            "neighbours; use a host of your own, or more repeats.",
        )
