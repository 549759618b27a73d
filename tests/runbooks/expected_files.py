"""The files that a campaign of the driver must leave. In: the working folder, a call of the driver with its variables. Out: nothing, or an
AssertionError that names what is missing.

The expected runs are derived from the variables by the rules of the original driver, not by the code under test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from tests.csv_files import rows_of
from tests.runbooks.recording import Call
from tests.runbooks.rewrites import RANKS

AB_GROUPS = ("old_like", "tuned")
TABLES = ("run_manifest.tsv", "timing_points.csv", "per_run_metrics.csv", "group_summary.csv", "ranked_groups.csv")
REPORTS = ("summary.md", "summary.json", "best_config.json", "best_config.env", "best_overrides.txt")
RUN_FILES = ("train.log", "launcher.log", "resolved_config.yaml", "run_context.json")
_TIME = re.compile(r"_\d{8}_\d{6}")
ETA_FROM_STEP = 10
"""ETA_MIN_SAMPLES of every command: shorter runs print no ETA."""


def check_campaign(work: Path, call: Call) -> Path:
    """Every file and row that the call requests; the campaign's folder."""
    out = named_folder(work, call.variables["OUTPUT_ROOT"])
    names = requested_runs(call.variables)
    for name in (*TABLES, *REPORTS):
        assert (out / name).stat().st_size > 0, f"{out / name} is empty"
    _check_manifest(out, names)
    _check_tables(out, names)
    for name in names:
        _check_run(out / name, call.variables)
    if int(call.variables["MAX_STEPS"]) > ETA_FROM_STEP:
        assert {row["group"] for row in rows_of(out / "eta_points.csv")} >= {_group(name) for name in names}
    if "DRIVER_LOG_PATH" in call.variables:
        check_driver_log(out / Path(call.variables["DRIVER_LOG_PATH"]).name, names)
    return out


def named_folder(work: Path, name: str) -> Path:
    """The folder of that name; a timestamp in it matches any, as the block was recorded at another time: the newest."""
    found = sorted(work.glob(_TIME.sub("_[0-9]*", name)))
    assert found, f"there is no folder {name} in {work}"
    return found[-1]


def requested_runs(variables: Mapping[str, str]) -> list[str]:
    """Names of the runs, by the original's rule: every combination of the lists, or the two of ab, with each repeat."""
    groups = list(AB_GROUPS) if variables.get("MODE", "ab") == "ab" else requested_groups(variables)
    return [f"{group}_r{repeat}" for group in groups for repeat in range(1, int(variables.get("REPEATS", "3")) + 1)]


def requested_groups(variables: Mapping[str, str]) -> list[str]:
    """The groups of a sweep."""
    zeros, batches = variables.get("SWEEP_ZERO_STAGES", "0,1").split(","), variables.get("SWEEP_MICRO_BATCHES", "128,160,192").split(",")
    workers = (variables.get("SWEEP_NUM_WORKERS_LIST") or variables.get("SWEEP_NUM_WORKERS", "2")).split(",")
    ahead = (variables.get("SWEEP_PREFETCH_LIST") or variables.get("SWEEP_PREFETCH_FACTOR", "2")).split(",")
    return [f"sweep_z{z}_mb{mb}_nw{nw}_pf{pf}" for z in zeros for mb in batches for nw in workers for pf in ahead]


def check_driver_log(path: Path, names: list[str]) -> None:
    """A START and a DONE, or a SKIP, for every run."""
    text = path.read_text()
    for name in names:
        run = f"{_group(name)} r{name.rpartition('_r')[2]}:"
        assert f"[INFO] DONE {run}" in text or f"[INFO] SKIP {run}" in text, f"{path} has no end of {name}:\n{text[-3000:]}"


def check_run_folder(folder: Path, *, every_rank: bool) -> None:
    """A training's own files, and its lines."""
    for name in RUN_FILES[2:]:
        assert (folder / name).stat().st_size > 0, f"{folder / name} is empty"
    log = (folder / "train.log").read_text()
    for line in ("Step 0: Loss", "Timing(window="):
        assert line in log, f"no '{line}' in {folder / 'train.log'}"
    ranks = {rank for rank in range(RANKS) if f" rank={rank} loss=" in log}
    assert ranks == (set(range(RANKS)) if every_rank else set()), f"TimingRank lines of ranks {ranks} in {folder / 'train.log'}"


def check_launch(work: Path, call: Call) -> Path:
    """A training started by deepspeed itself: its files, a validation and a checkpoint where requested; its folder."""
    output = next((argument.partition("=")[2] for argument in call.argv if argument.startswith("experiment_output_dir=")), "")
    folder = named_folder(work, output.removeprefix("./")) if output else sorted((work / "outputs" / "train").iterdir())[-1]
    check_run_folder(folder, every_rank=False)
    if any("checkpoint_every_steps" in argument for argument in call.argv):
        assert "Validation Finished" in (folder / "train.log").read_text()
        assert (folder / "checkpoints" / "latest").exists() or (folder / "latest").exists(), sorted(folder.iterdir())
    return folder


def _check_manifest(out: Path, names: list[str]) -> None:
    rows = {f"{row['group']}_r{row['repeat']}": row for row in rows_of(out / "run_manifest.tsv")}
    missing = [name for name in names if name not in rows]
    assert not missing, f"no rows for {missing} in {out / 'run_manifest.tsv'}"
    failed = {name: rows[name]["status"] for name in names if rows[name]["status"] != "success"}
    assert not failed, f"not all runs ended well: {failed}"
    wrong = {name: rows[name]["world_size"] for name in names if rows[name]["world_size"] != str(RANKS)}
    assert not wrong, f"not {RANKS} ranks: {wrong}"


def _check_tables(out: Path, names: list[str]) -> None:
    groups = {_group(name) for name in names}
    measured = {f"{row['group']}_r{row['repeat']}" for row in rows_of(out / "per_run_metrics.csv")}
    assert measured >= set(names)
    for name in ("group_summary.csv", "ranked_groups.csv"):
        assert {row["group"] for row in rows_of(out / name)} >= groups, f"groups are missing in {name}"
    best = json.loads((out / "best_config.json").read_text())
    assert best["group"] in {row["group"] for row in rows_of(out / "group_summary.csv")}


def _check_run(folder: Path, variables: Mapping[str, str]) -> None:
    assert (folder / "launcher.log").stat().st_size > 0
    check_run_folder(folder, every_rank=variables.get("TIMING_RANK_SCOPE") == "all")
    if variables.get("ENABLE_HOST_TELEMETRY") == "true":
        assert rows_of(folder / "host_telemetry.csv"), f"no samples in {folder / 'host_telemetry.csv'}"


def _group(run: str) -> str:
    return run.rpartition("_r")[0]
