"""What telemetry makes a reader doubt."""

from __future__ import annotations

import pytest

from seatrial.analyse.telemetry_cautions import telemetry_cautions
from seatrial.records.measure import Cell
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount

WELL = TelemetryAccount(gpu=SamplerAccount(interval_s=2.0, rows=9), host=SamplerAccount(interval_s=2.0, rows=9))


def _kinds(figures: dict[str, Cell], account: TelemetryAccount | None = WELL) -> list[str]:
    return [caution.kind for caution in telemetry_cautions(figures, account, "mb8_r1")]


def _of(**changes: object) -> TelemetryAccount:
    return TelemetryAccount(gpu=SamplerAccount(**{"interval_s": 2.0, "rows": 9, **changes}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("account", "kinds"),
    [
        (WELL, []),
        (None, []),
        (TelemetryAccount(), []),
        (_of(rows=0, empty=True, expected=True, note="no GPU"), []),
        (_of(rows=0, empty=True, note="NVML does not start"), ["telemetry_empty"]),
        (_of(stopped_t=5.0, note="the driver stopped answering"), ["telemetry_stopped"]),
        (_of(rows=0, empty=True, stopped_t=5.0), ["telemetry_stopped"]),
        (_of(gaps=1, longest_gap_s=9.0, invalid=3), ["telemetry_gaps", "telemetry_invalid"]),
    ],
)
def test_of_the_samplers(account: TelemetryAccount | None, kinds: list[str]) -> None:
    assert _kinds({}, account) == kinds


@pytest.mark.parametrize(
    ("figures", "kinds"),
    [
        ({"gpu_throttled_pct": 5.0, "gpu_foreign_process_max": 0, "host_cpu_steal_mean_pct": 5.0}, []),
        ({"gpu_throttled_pct": None, "gpu_foreign_process_max": None, "host_cpu_steal_mean_pct": None}, []),
        ({"gpu_throttled_pct": 5.1, "gpu_throttle_reasons": "sw_power_cap"}, ["gpu_throttled"]),
        ({"gpu_foreign_process_max": 1}, ["gpu_shared"]),
        ({"host_cpu_steal_mean_pct": 12.0}, ["cpu_stolen"]),
    ],
)
def test_of_the_machine(figures: dict[str, Cell], kinds: list[str]) -> None:
    assert _kinds(figures) == kinds


def test_texts_say_what_and_what_to_do() -> None:
    figures: dict[str, Cell] = {"gpu_throttled_pct": 91.6, "gpu_throttle_reasons": "sw_power_cap", "gpu_foreign_process_max": 2}
    throttled, shared = telemetry_cautions(figures, None, "mb8_r1")
    assert throttled.text == (
        "The GPU's clocks were held back in 92 % of the samples (sw_power_cap): the card works at its power limit, as heavy work makes it; "
        "compare only with runs under the same limit."
    )
    assert shared.text == (
        "2 processes of others used this run's GPUs meanwhile, so its figures are not the card's own; run again with the GPUs to yourself."
    )
    assert (throttled.subject, throttled.numbers) == ("mb8_r1", {"throttled_pct": 91.6, "reasons": "sw_power_cap"})


def test_heat_is_not_the_power_limit() -> None:
    (hot,) = telemetry_cautions({"gpu_throttled_pct": 40.0, "gpu_throttle_reasons": "hw_thermal_slowdown+sw_power_cap"}, None, "mb8_r1")
    assert hot.text.endswith("compare only with runs that were held back alike, and look after cooling and power supply.")


def test_every_caution_of_a_sampler_is_of_the_run_and_has_its_numbers() -> None:
    account = _of(gaps=1, longest_gap_s=9.0, invalid=3, note="a negative power")
    gaps, invalid = telemetry_cautions({}, account, "mb8_r1")
    assert gaps.numbers == {"gaps": 1, "longest_s": 9.0, "interval_s": 2.0} and invalid.numbers == {"invalid": 3, "rows": 9}
    (stopped,) = telemetry_cautions({}, _of(stopped_t=5.0, note="no answer"), "mb8_r1")
    (empty,) = telemetry_cautions({}, _of(rows=0, samples=4, empty=True), "mb8_r1")
    assert stopped.numbers == {"rows": 9, "t": 5.0} and empty.numbers == {"samples": 4}
    assert {one.subject for one in (gaps, invalid, stopped, empty)} == {"mb8_r1"}
    assert empty.text.endswith("and there should be: no reason is known.")
