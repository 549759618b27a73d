"""The seeds' configuration columns of one run."""

from __future__ import annotations

from seatrial.records.columns import GROUP_SEED, MANIFEST_OURS, MANIFEST_SEED
from seatrial.records.command import Provenance
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount
from seatrial.run_table.seed_columns import axis_cells, config_cells, fallback_reasons, global_batch
from tests.unit.analyse import factory


def test_what_was_done_stands_before_what_was_asked() -> None:
    run = factory.spec(settings={"micro_batch": 32, "precision": "auto", "compile": True})
    effective = {"micro_batch": (32, 16, "does not fit"), "precision": ("auto", "bf16", "cc 9.0")}
    cells = config_cells(run, Provenance(), effective, world_size=4)
    assert (cells["micro_batch"], cells["global_batch"], cells["world_size"]) == (16, 64, 4)
    assert (cells["precision_mode_req"], cells["precision_mode_effective"]) == ("auto", "bf16")
    assert cells["torch_compile_enabled"] is True


def test_what_no_workload_reported_is_not_taken_as_done() -> None:
    cells = config_cells(factory.spec(settings={"precision": "bf16"}), Provenance(), {})
    assert (cells["precision_mode_req"], cells["precision_mode_effective"]) == ("bf16", None)


def test_every_column_is_one_of_the_tables() -> None:
    known = {*MANIFEST_SEED, *MANIFEST_OURS, *GROUP_SEED}
    names = set(config_cells(factory.spec(), Provenance(), {}))
    assert names - known == {"speech_attn_impl_req", "text_attn_impl_req"}


def test_axes_with_a_seed_column_are_not_told_twice() -> None:
    assert axis_cells({"micro_batch": 8, "opt": "adam"}) == {"axis_opt": "adam"}


def test_an_axis_of_a_foreign_script_fills_the_seed_s_column() -> None:
    cells = config_cells(factory.spec(axes={"micro_batch": 8}), Provenance(), {})
    assert cells["micro_batch"] == 8


def test_global_batch_falls_back_to_samples_per_step() -> None:
    assert global_batch(factory.spec(workload={"samples_per_step": 4.0}), {}, 2) == 8.0
    assert global_batch(factory.spec(axes={"micro_batch": "eight"}), {}, 2) is None
    assert global_batch(factory.spec(), {}, 2) is None


def test_reasons_name_only_what_was_not_done_as_asked() -> None:
    effective = {"attention": ("flash", "sdpa", "not installed"), "precision": ("bf16", "bf16", "asked for")}
    assert fallback_reasons(effective) == "attention: flash → sdpa (not installed)"


def test_rows_of_telemetry_and_the_flag_that_there_are_none() -> None:
    account = TelemetryAccount(gpu=SamplerAccount(interval_s=2.0, empty=True, expected=True), host=SamplerAccount(interval_s=2.0, rows=30))
    cells = config_cells(factory.spec(), Provenance(), {}, telemetry=account)
    assert (cells["gpu_telemetry_rows"], cells["gpu_telemetry_empty_flag"]) == (0, True)
    assert (cells["host_telemetry_rows"], cells["host_telemetry_empty_flag"]) == (30, False)
    without = config_cells(factory.spec(), Provenance(), {})
    assert (without["host_telemetry_rows"], without["host_telemetry_empty_flag"]) == (0, True)
