"""Groups of campaigns and rows of history as sides of a comparison.

In: a campaign's results and a group's name, or the words somebody typed. Out: `Side`s. A word is `OUT:GROUP`, `OUT` (its only group,
else its winner), `GROUP` where a campaign is named beside it, `history:NAME`, or the NAME of a pinned row.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from seatrial.campaign.grouped import Grouped, read_grouped
from seatrial.errors import CampaignError, UsageError, did_you_mean
from seatrial.history.rows import history_path, read_history
from seatrial.machine.fingerprint import fingerprint_facts
from seatrial.machine.secrets import mask
from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.comparison import Side, SideRun
from seatrial.records.measure import GroupSummary, RunMeasure, Window
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import Scalar
from seatrial.units import HASH_SHOWN

HISTORY = "history:"
# The rest of the fingerprint is what is run on it: commit, packages, Python, and variables that tune a run.
MACHINE_FACTS = ("host", "platform", "cpu", "cpu_count", "container", "gpu_name", "gpu_cc", "gpu_power_limit_w", "driver_version")
NO_GPU_FACTS = ("gpu_name", "driver_version")


def side_of(results: Grouped, group: str, name: str = "") -> Side:
    """A group of a campaign with the runs that count."""
    summary = next((one for one in results.groups if one.group == group), None)
    if summary is None:
        raise UsageError(f"{results.output} has no group '{group}'; {did_you_mean(group, [one.group for one in results.groups])}")
    counted = _counted(results, summary)
    newest = max(counted, key=_ended_t, default=None)
    machine, code = _facts(newest) if newest else ({}, {})
    return Side(
        name=name or group,
        group=group,
        source=results.output,
        runs=tuple(map(_side_run, counted)),
        campaign=str(Path(results.output).resolve()),
        world_size=_world_size(newest),
        nodes=max((run.measure.hosts for run in counted if run.measure), default=1),
        failed_runs=summary.failed_runs,
        infrastructure_failures=summary.infrastructure_failures,
        pending=_pending(results, summary),
        machine=machine,
        code=code,
        effective=_effective(newest),
        settings=_settings(newest, summary),
        debug=summary.debug,
        taken_t=_ended_t(newest) if newest else 0.0,
    )


def groups_to_compare(results: Grouped) -> list[str]:
    """Groups of the main lane that have a run that counts; the sentinel only watches the platform."""
    return [group.group for group in results.groups if group.runs and group.lane and group.mode != SENTINEL]


def side_name(folder: Path | str, group: str) -> str:
    """`OUT:GROUP` as people would write it: `./out/` and `x/../out` are out."""
    return f"{os.path.normpath(folder)}:{group}"


class Finder:
    """Reads each campaign once, however many words name it."""

    def __init__(self, *, inside: Path | None = None, history: Path | None = None, known: Mapping[Path, Grouped] | None = None) -> None:
        self.inside = inside
        self.history = history_path(history)
        self._read: dict[Path, Grouped] = {folder.resolve(): campaign for folder, campaign in (known or {}).items()}

    def campaign(self, folder: Path) -> Grouped:
        """The campaign in a folder."""
        key = folder.resolve()
        if key not in self._read:
            self._read[key] = read_grouped(folder)
        return self._read[key]

    def side(self, word: str) -> Side:
        """What one word names; a UsageError that says what it may name where it names nothing."""
        folder, group = split_word(word)
        if folder is not None:
            self.inside = self.inside or folder
            return side_of(self.campaign(folder), group, side_name(folder, group)) if group else self.best_of(folder)
        if self.inside is not None and not word.startswith(HISTORY) and self._is_group(word):
            return side_of(self.campaign(self.inside), word)
        return self._row(word)

    def best_of(self, folder: Path) -> Side:
        """The only group of a campaign, else its winner."""
        campaign = self.campaign(folder)
        able = groups_to_compare(campaign)
        chosen = able[0] if len(able) == 1 else campaign.ranking.winner
        if chosen is None:
            raise CampaignError(f"{folder} has no winner ({campaign.ranking.reason or 'no run ended ok'}); name a group: {folder}:GROUP")
        return side_of(campaign, chosen, side_name(folder, chosen))

    def _is_group(self, word: str) -> bool:
        assert self.inside is not None
        return any(group.group == word for group in self.campaign(self.inside).groups)

    def _row(self, word: str) -> Side:
        name = word.removeprefix(HISTORY)
        row = read_history(self.history).pinned(name)
        if row is not None:
            return replace(row.side, name=f"{HISTORY}{name}", source=f"{HISTORY}{name}")
        raise UsageError(self._unknown(word, name))

    def _unknown(self, word: str, name: str) -> str:
        history = read_history(self.history)
        names = history.pinned_names
        if word.startswith(HISTORY):
            remedy = (
                did_you_mean(name, names) if names else "nothing is pinned there: `seatrial history add OUT`, then `history pin ROW NAME`"
            )
            return f"no row of {self.history} is pinned as '{name}'{history.unreadable_clause}; {remedy}"
        if self.inside is not None:
            known = [group.group for group in self.campaign(self.inside).groups]
            return f"{self.inside} has no group '{word}', and no row of history has that name; {did_you_mean(word, [*known, *names])}"
        return (
            f"'{word}' is no campaign's folder, no OUT:GROUP and no pinned row of history; name a folder that `seatrial run` wrote to, "
            "or the campaign of a group with --in OUT"
        )


def split_word(word: str) -> tuple[Path | None, str]:
    """Folder and group of `OUT:GROUP` or `OUT`; no folder where the word names none. A folder's own name may hold a colon."""
    if not word or word.startswith(HISTORY):
        return None, ""
    if Path(word).is_dir():
        return Path(word), ""
    before, colon, group = word.rpartition(":")
    if colon and before and Path(before).is_dir():
        return Path(before), group
    return None, ""


def _counted(results: Grouped, summary: GroupSummary) -> list[MeasuredRun]:
    names = set(summary.counted)
    return [run for run in results.runs if run.attempt.current and run.attempt.spec.run in names and _key(run) == summary.group_key]


def _key(run: MeasuredRun) -> str:
    return run.attempt.spec.key


def _side_run(run: MeasuredRun) -> SideRun:
    measure, spec = run.measure, run.attempt.spec
    window = measure.window if measure else None
    return SideRun(
        run=spec.run,
        repeat=spec.repeat,
        started_t=run.attempt.outcome.started_t if run.attempt.outcome else 0.0,
        figures=_figures(measure),
        steady=window.steady if window else True,
        window=_window_text(window),
        n=window.n if window else 0,
        last_steps=measure.last_steps if measure else None,
        loss=measure.loss_course if measure else None,
    )


def _figures(measure: RunMeasure | None) -> dict[str, float]:
    from seatrial.analyse.groups import FIGURES

    values = {name: getattr(measure, name, None) for name in FIGURES}
    return {name: float(value) for name, value in values.items() if value is not None}


def _window_text(window: Window | None) -> str:
    return f"steps {window.first_step}–{window.last_step}" if window else ""


def _pending(results: Grouped, summary: GroupSummary) -> tuple[str, ...]:
    """Runs of the group that a plan still waits for, as far as an attempt tells whose they are."""
    mine = {run.attempt.spec.run for run in results.runs if _key(run) == summary.group_key}
    return tuple(run for run in results.pending if run in mine)


def _facts(run: MeasuredRun) -> tuple[dict[str, str], dict[str, str]]:
    """Machine and code. What was not found is left out, but where the host is known, no GPU is a fact too."""
    provenance = run.attempt.provenance
    flat = {"script_sha256": (run.attempt.spec.script_sha256 or "")[:HASH_SHOWN]}
    for name, value in fingerprint_facts(provenance).items():
        flat.update(value if isinstance(value, dict) else {name: ";".join(value) if isinstance(value, list) else str(value)})
    known = {name: value for name, value in flat.items() if value and value != "0"}
    machine = {name: known[name] for name in MACHINE_FACTS if name in known}
    if provenance.host:
        machine |= {name: "none" for name in NO_GPU_FACTS if name not in machine}
    return machine, {name: mask(name, value) for name, value in known.items() if name not in MACHINE_FACTS}


def _world_size(run: MeasuredRun | None) -> int:
    if run is None:
        return 1
    return run.measure.world_size if run.measure else run.attempt.spec.place.ranks


def _effective(run: MeasuredRun | None) -> dict[str, str]:
    if run is None or run.measure is None:
        return {}
    return {name: _text(name, used) for name, (_, used, _) in run.measure.effective.items()}


def _settings(run: MeasuredRun | None, summary: GroupSummary) -> dict[str, str]:
    """Fixed settings, axes, and what the plan adds to the environment."""
    spec = run.attempt.spec if run else None
    fixed: Mapping[str, Scalar] = spec.settings if spec else {}
    told = {name: _text(name, value) for name, value in {**fixed, **summary.axes}.items()}
    return told | {f"env.{name}": mask(name, value) for name, value in (spec.env.items() if spec else ())}


def _text(name: str, value: Scalar) -> str:
    return mask(name, "" if value is None else str(value))


def _ended_t(run: MeasuredRun) -> float:
    outcome = run.attempt.outcome
    return (outcome.ended_t or outcome.started_t + outcome.duration_s) if outcome else 0.0
