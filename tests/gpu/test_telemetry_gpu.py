"""The samplers on a real driver, while matrix products load the GPU. On a machine with a CUDA GPU and torch:

    PYTHONPATH=src python -m pytest tests/gpu/test_telemetry_gpu.py -m gpu

Neither polars nor numpy is needed: rows are read with the csv module.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.files import read_json, write_private_json
from seatrial.records.codec import to_json
from seatrial.records.launch import AgentOrder, Command
from seatrial.records.plan import TelemetrySpec
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS
from tests.csv_files import rows_of

pytestmark = pytest.mark.gpu
pytest.importorskip("pynvml")

INTERVAL_S = 0.25
LOAD_S = 15.0
# The products begin at once and end with the run: rows in between are all of a busy GPU.
LOAD = """
import sys, time
import torch
if not torch.cuda.is_available():
    sys.exit(77)
left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
out = torch.empty_like(left)
torch.mm(left, right, out=out)
torch.cuda.synchronize()
print("begin", time.time(), flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(20):
        torch.mm(left, right, out=out)
    torch.cuda.synchronize()
print("end", time.time(), flush=True)
"""


@pytest.fixture(scope="module")
def attempt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The attempt folder of a run on the GPU."""
    folder = tmp_path_factory.mktemp("attempt")
    command = Command(argv=(sys.executable, "-c", LOAD, str(LOAD_S)), env={}, cwd=str(folder))
    telemetry = TelemetrySpec(gpu_s=INTERVAL_S, host_s=INTERVAL_S)
    write_private_json(folder / "agent.json", to_json(AgentOrder(command=command, attempt_folder=str(folder), telemetry=telemetry)))
    argv = [sys.executable, "-m", "seatrial.agent", str(folder / "agent.json")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as agent:
        assert agent.stdout is not None
        reports = [json.loads(line) for line in agent.stdout]
    if reports[1]["returncode"] == 77:
        pytest.skip("torch sees no CUDA GPU")
    assert reports[1]["returncode"] == 0, (folder / "launcher.log").read_text()
    return folder


def _busy(folder: Path, name: str = "gpu_telemetry.csv") -> list[dict[str, str]]:
    """Rows of the first GPU while the products ran, the first and last second left out."""
    times = dict(line.split() for line in (folder / "launcher.log").read_text().splitlines() if line.startswith(("begin", "end")))
    first_t, last_t = float(times["begin"]) + 1, float(times["end"]) - 1
    return [row for row in rows_of(folder / name) if first_t <= float(row["epoch_sec"]) <= last_t and row.get("gpu_index", "0") == "0"]


def _account(folder: Path, kind: str) -> dict[str, Any]:
    account = (read_json(folder / "telemetry.json") or {})[kind]
    assert isinstance(account, dict)
    return account


def test_every_gpu_column_is_filled(attempt: Path) -> None:
    rows, account = _busy(attempt), _account(attempt, "gpu")
    assert tuple(rows[0]) == GPU_COLUMNS
    assert len(rows) > 0.7 * (LOAD_S - 2) / INTERVAL_S
    # Free clocks and the absence of gaps are empty cells by design; cards without ECC have no counters of it.
    unfilled = {name for name in GPU_COLUMNS if not any(row[name] for row in rows)}
    assert unfilled <= {"throttle_reasons", "gap_s", "ecc_corrected", "ecc_uncorrected", "foreign_process_count"}, account
    assert set(account["missing"]) <= {"ecc_corrected", "ecc_uncorrected", "foreign_process_count"}
    assert (account["invalid"], account["empty"], account["stopped_t"]) == (0, False, None), account["note"]


def test_gpu_values_are_sane_under_load(attempt: Path) -> None:
    rows = _busy(attempt)
    utils = sorted(float(row["util_gpu_pct"]) for row in rows)
    assert utils[len(utils) // 2] > 80, "matrix products keep a GPU busy"
    for row in rows:
        assert 0 < float(row["power_w"]) < 1.2 * float(row["power_limit_w"])
        assert 10 < float(row["temp_c"]) < 110
        assert 0 < float(row["mem_used_mib"]) < float(row["mem_total_mib"])
        assert float(row["mem_used_mib"]) > 3 * 8192 * 8192 * 2 / 2**20, "it holds three matrices"
        assert 100 < float(row["sm_clock_mhz"]) < 4000
    energies = [float(row["energy_j"]) for row in rows if row["energy_j"]]
    assert energies == sorted(energies)


def test_energy_counter_agrees_with_power_over_time(attempt: Path) -> None:
    rows = _busy(attempt)
    # The counter is not in every row: from the first with it to the last.
    counted = [at for at, row in enumerate(rows) if row["energy_j"]]
    rows = rows[counted[0] : counted[-1] + 1]
    times, powers = [float(row["epoch_sec"]) for row in rows], [float(row["power_w"]) for row in rows]
    integral_j = sum((powers[at] + powers[at - 1]) / 2 * (times[at] - times[at - 1]) for at in range(1, len(rows)))
    counted_j = float(rows[-1]["energy_j"]) - float(rows[0]["energy_j"])
    assert counted_j == pytest.approx(integral_j, rel=0.10)


def test_host_columns(attempt: Path) -> None:
    rows, account = _busy(attempt, "host_telemetry.csv"), _account(attempt, "host")
    assert tuple(rows[0]) == HOST_COLUMNS
    assert set(account["missing"]) <= {"disk_read_kib_per_s", "disk_write_kib_per_s"}, "a virtual machine may show no disk of its own"
    assert max(float(row["rss_kib"]) for row in rows) > 100 * 1024, "torch alone takes more"
    assert max(float(row["tree_cpu_pct"]) for row in rows) > 20, "the loop that feeds the GPU runs on a core"


def test_cost_of_the_samplers(attempt: Path) -> None:
    """Only the order of magnitude: the bound is in benchmarks/sampler_cost.py."""
    for kind in ("gpu", "host"):
        account = _account(attempt, kind)
        print(f"{kind}: {account['cpu_s'] / account['samples'] * 1000:.2f} ms of processor a sample, {account['samples']} samples")
        assert account["cpu_s"] / account["wall_s"] < 0.2
