"""Plans and runs as small as a check needs them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seatrial.preflight.check_definition import Need
from seatrial.records.caution import Check
from seatrial.records.plan import LauncherSpec, PlaceSpec, RunSpec, WorkloadSpec

BUNDLED = "seatrial_workloads.{}.train"


def make_run(cwd: Path, *, script: str | None = None, bundled: str | None = None, **more: Any) -> RunSpec:
    launcher = LauncherSpec(kind=more.pop("kind", "python"), program=more.pop("program", ()), args=more.pop("launcher_args", ()))
    place = PlaceSpec(devices=more.pop("devices", ()), ranks=more.pop("ranks", 1))
    module = BUNDLED.format(bundled) if bundled else None
    workload = WorkloadSpec(name=bundled or script or "", script=script, module=module, args=more.pop("args", ()))
    return RunSpec(run="base_r1", group="base", repeat=1, plan="p", workload=workload, launcher=launcher, place=place, cwd=str(cwd), **more)


def make_need(*runs: RunSpec, output: Path = Path("/"), base_env: dict[str, str] | None = None) -> Need:
    return Need(output=output, runs=runs, base_env={"PATH": "/usr/bin:/bin"} if base_env is None else base_env)


def by_name(checks: Iterable[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}
