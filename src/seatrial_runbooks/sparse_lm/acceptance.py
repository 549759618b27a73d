"""The acceptance table of a validation. In: the output folder of its stages. Out: one row per criterion, the procedure's and ours.

A row is PASS, FAIL, INCONCLUSIVE or NOT TESTED. What this machine cannot show is NOT TESTED, never PASS: scaling with one GPU, speed on
a CPU. Figures come with their file, window and n.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seatrial.core.errors import DONE, FAILED, INCONCLUSIVE
from seatrial.core.files import read_json
from seatrial.core.paths import AttemptPaths, CampaignPaths, StagesPaths
from seatrial.records.codec import from_json_or_none
from seatrial.records.outcome import StageRecord
from seatrial.records.verdict import CampaignVerdict, Criterion

PASS, FAIL, UNDECIDED, NOT_TESTED = "PASS", "FAIL", "INCONCLUSIVE", "NOT TESTED"
NO_SPEED = "a small model on a CPU: its speed is not meaningful"
ONE_RANK = "a single rank exchanges no gradients"
MIN_RATIO = 100.0
MAX_HOST_SHARE = 0.5
RATIO = re.compile(r"v2_performance_improvement: (.*ratio [\d.]+x.*)")
RATIO_TEST = "test_performance_guards.py::test_v2_performance_improvement"
# A line of pytest's summary; a skipped test is named by its file alone.
RESULT = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED)(?: \[\d+\])? (\S+)(.*)", re.MULTILINE)
HOST_SHARE = re.compile(r"^host share ([\d.]+) ?%", re.MULTILINE)
STAGE = "nsa.sel.ranges_v2"
# Stages whose backend the audit must show. The compressed branch is matrix products by design.
BRANCHES = {"nsa.sel.attn": "selected", "nsa.win.attn": "window"}
MATMUL = "matmul"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The validation that is judged."""

    out: Path
    cpu: bool
    """The small model on the CPU: its speed is not meaningful."""

    def campaign(self, stage: str) -> CampaignPaths:
        return StagesPaths(self.out).campaign(stage)

    def log(self, stage: str) -> Path:
        return StagesPaths(self.out).log(stage)

    def stages(self) -> Mapping[str, StageRecord]:
        """How every stage that was begun ended; one without an exit code was not run."""
        noted = (read_json(StagesPaths(self.out).stages) or {}).get("stages", {})
        records = {name: from_json_or_none(StageRecord, record) for name, record in noted.items()}
        return {name: record for name, record in records.items() if record is not None}

    def record(self, stage: str) -> StageRecord:
        return self.stages().get(stage) or StageRecord(exit_code=None)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One criterion."""

    source: str
    """`runbook` or `ours`."""
    criterion: str
    status: str
    found: str
    file: str = ""
    window: str = ""
    n: int | None = None


def acceptance_rows(target: Target) -> list[Row]:
    """Every criterion, in the order of the procedure."""
    return [
        *_findings(target, "baseline", "runbook", "baseline"),
        *_throughput(target),
        _tests_row(target, "v2", "runbook", "selection v2 equals v1 on every pattern", "test_selection_v2_equiv.py"),
        _tests_row(target, "parity", "runbook", "the heads of a group read the same blocks", "test_group_consistency.py"),
        _compression(target),
        _best_bucket(target),
        *_findings(target, "scaling", "runbook", "near-linear scaling per GPU"),
        _audit(target),
        *_findings(target, "long-run", "runbook", "long run"),
        _tests_row(target, "parity", "ours", "attention equals dense attention with explicit masks", "test_equiv_small.py"),
        _v2_ratio(target),
        _profile(target),
        *_findings(target, "fused", "ours", "fused AdamW, all else equal"),
    ]


def exit_code(rows: Sequence[Row]) -> int:
    """2 with a failed row, 3 with one that is open or not tested, else 0."""
    statuses = {row.status for row in rows}
    if FAIL in statuses:
        return FAILED
    return INCONCLUSIVE if statuses & {UNDECIDED, NOT_TESTED} else DONE


def attempts(target: Target, stage: str) -> list[AttemptPaths]:
    """The newest attempt of every run of a stage."""
    return [run.attempts()[-1] for run in target.campaign(stage).runs()]


def _not_run(target: Target, stage: str) -> str:
    record = target.record(stage)
    return (record.why or "not run") if record.exit_code is None else ""


def _findings(target: Target, stage: str, source: str, title: str) -> Iterator[Row]:
    """The criteria of a stage's plan, by its verdict."""
    reason = _not_run(target, stage)
    verdict = from_json_or_none(CampaignVerdict, read_json(target.campaign(stage).verdict))
    if reason or verdict is None:
        found = reason or "the campaign's verdict.json is missing or unreadable: see its preflight.json"
        yield Row(source=source, criterion=title, status=NOT_TESTED if reason else FAIL, found=found)
        return
    for finding in verdict.findings:
        criterion = finding.criterion
        if criterion is None:
            continue
        evidence = finding.evidence[0] if finding.evidence else None
        status, text = finding.verdict.value, finding.text
        if target.cpu and criterion.metric not in CORRECTNESS:
            status, text = NOT_TESTED, f"{NO_SPEED} ({text})"
        elif status == FAIL and (shortened := _requested_fewer(target, stage, criterion)):
            status, text = NOT_TESTED, f"{shortened}: {text}"
        yield Row(
            source=source,
            criterion=f"{title}: {criterion.metric}",
            status=status,
            found=text,
            file=str(target.campaign(stage).folder / evidence.file) if evidence and evidence.file else "",
            window=evidence.window if evidence else "",
            n=evidence.n if evidence else None,
        )


def _requested_fewer(target: Target, stage: str, criterion: Criterion) -> str:
    """A run that was shortened on purpose does not fail a criterion on its steps."""
    if criterion.metric != "steps_done" or criterion.at_least is None:
        return ""
    requested = [(read_json(attempt.spec) or {}).get("steps") for attempt in attempts(target, stage)]
    fewest = min((steps for steps in requested if isinstance(steps, int)), default=None)
    return f"only {fewest} steps were requested" if fewest is not None and fewest < criterion.at_least else ""


GATES = ("reported.gate_entropy_mean", "reported.gate_max_mean")
# Metrics that are valid on any machine; all others are about speed or steadiness.
CORRECTNESS = ("failed_runs", "halted_runs", "steps_done", "loss_finite", "loss_falls", "loss_comparable", "leaking_runs", *GATES)
THROUGHPUT = "at least 39 tokens/s, aim 45 to 55 (S = 2048, global batch 2, bf16)"


def _throughput(target: Target) -> Iterator[Row]:
    rows = list(_findings(target, "buckets", "runbook", "bucket sweep"))
    measured = [row for row in rows if row.criterion.endswith("tokens_per_s")]
    if not measured:
        reason = _not_run(target, "buckets") or (NO_SPEED if target.cpu else "the bucket sweep has no throughput")
        yield Row(source="runbook", criterion=THROUGHPUT, status=NOT_TESTED, found=reason)
    yield from (Row(source=row.source, criterion=THROUGHPUT if row in measured else row.criterion, **_figures(row)) for row in rows)


def _figures(row: Row) -> dict[str, Any]:
    return {"status": row.status, "found": row.found, "file": row.file, "window": row.window, "n": row.n}


def _is_about(where: str, named: str) -> bool:
    """Whether a line of pytest's summary is about the tests of a file, or about one of them. A line that names only the file, as for a
    skipped test or a failed import, is about each."""
    file, _, test = named.partition("::")
    return file in where and (not test or "::" not in where or named in where)


def _tests_row(target: Target, stage: str, source: str, title: str, named: str) -> Row:
    """Judged by pytest's summary of that file's tests, or of one of them."""
    log = target.log(stage)
    if target.record(stage).exit_code is None or not log.is_file():
        return Row(source=source, criterion=title, status=NOT_TESTED, found=_not_run(target, stage) or "no log")
    text = log.read_text(encoding="utf-8", errors="replace")
    results = [match for match in RESULT.finditer(text) if _is_about(match[2], named)]
    failed = [match[0] for match in results if match[1] in ("FAILED", "ERROR")]
    skipped = [match[3].strip() for match in results if match[1] == "SKIPPED"]
    passed = sum(match[1] == "PASSED" for match in results)
    if failed:
        status, found = FAIL, failed[0]
    elif passed:
        status, found = PASS, f"{passed} passed" + (f", some skipped: {skipped[0]}" if skipped else "")
    elif skipped:
        status, found = NOT_TESTED, skipped[0].removeprefix(f"{NOT_TESTED}: ")
    else:
        status, found = FAIL, f"no result of {named}: {text.strip().splitlines()[-1] if text.strip() else 'no output'}"
    return Row(source=source, criterion=title, status=status, found=found, file=str(log), n=passed or None)


def _compression(target: Target) -> Row:
    title = "gradients are exchanged in bf16"
    for attempt in attempts(target, "baseline"):
        path = attempt.folder / "env.json"
        facts = read_json(path) or {}
        choice = facts.get("effective", {}).get("ddp_compression", {})
        if facts.get("world_size") == 1:
            return Row(source="runbook", criterion=title, status=NOT_TESTED, found=ONE_RANK, file=str(path))
        effective = choice.get("effective", facts.get("settings", {}).get("ddp_compression"))
        reason = f" ({choice['reason']})" if choice.get("reason") else ""
        status = PASS if effective == "bf16" else NOT_TESTED if target.cpu else FAIL
        return Row(source="runbook", criterion=title, status=status, found=f"effective: {effective}{reason}", file=str(path))
    return Row(source="runbook", criterion=title, status=NOT_TESTED, found=_not_run(target, "baseline") or "no run left an env.json")


def _best_bucket(target: Target) -> Row:
    """One is selected: the proven winner, or where the sizes are indistinguishable the steadiest of them."""
    title = "a bucket size selected: the highest mean, of tied ones the steadiest"
    summary = read_json(target.campaign("buckets").summary_json)
    if summary is None:
        reason = _not_run(target, "buckets")
        found = reason or "the bucket sweep left no summary.json"
        return Row(source="runbook", criterion=title, status=NOT_TESTED if reason else FAIL, found=found)
    file = str(target.campaign("buckets").ranked_groups)
    ranks = {attempt_world_size(attempt) for attempt in attempts(target, "buckets")}
    if target.cpu or ranks == {1}:
        return Row(source="runbook", criterion=title, status=NOT_TESTED, found=NO_SPEED if target.cpu else ONE_RANK, file=file)
    sentence = str(summary.get("winners") or "no winner").partition(" Latency winner")[0]
    status = PASS if _is_selected(summary.get("ranking") or {}) else UNDECIDED
    return Row(source="runbook", criterion=title, status=status, found=sentence, file=file, n=len(summary.get("runs", ())))


def _is_selected(ranking: Mapping[str, Any]) -> bool:
    """Whether a difference beyond the noise, or a tie that intervals show, selects a bucket. An order without intervals, of runs without a
    steady state, or of groups that differ in more than the bucket is not evidence."""
    if ranking.get("decided"):
        return True
    others = [row for row in ranking.get("groups", ()) if row["can_win"] and row["ratio"] is not None]
    is_tie = any(row["tied"] for row in others) and all(row["ratio"]["low"] is not None for row in others)
    return bool(ranking.get("recommended") and is_tie and not ranking.get("confounded"))


def attempt_world_size(attempt: AttemptPaths) -> int | None:
    size = (read_json(attempt.folder / "env.json") or {}).get("world_size")
    return size if isinstance(size, int) else None


def _audit(target: Target) -> Row:
    title = "attention backends by kernel name, no unexpected fallback"
    reason = _not_run(target, "audit")
    for attempt in attempts(target, "audit"):
        path = attempt.folder / "sdpa_audit.json"
        audit = read_json(path)
        if audit is None:
            continue
        status, found = _audited(audit["calls"])
        if target.cpu:
            status, found = NOT_TESTED, f"no GPU ({found})"
        return Row(source="runbook", criterion=title, status=status, found=found, file=str(path))
    return Row(source="runbook", criterion=title, status=NOT_TESTED if reason else FAIL, found=reason or "the run left no sdpa_audit.json")


def _audited(calls: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Judges only what was seen: each branch must have a call."""
    found = "; ".join(sorted({f"{call['stage']}: {call['backend']}" for call in calls}))
    if any(call["backend"] == "math" for call in calls):
        return FAIL, found
    seen = {call["stage"] for call in calls if call["backend"] != MATMUL}
    missing = [name for stage, name in BRANCHES.items() if stage not in seen]
    if missing:
        return NOT_TESTED, f"the audit saw no attention call of the {' and the '.join(missing)} branch ({found or 'no call at all'})"
    return PASS, found


def _v2_ratio(target: Target) -> Row:
    """Judged by the test itself, which compares the unrounded ratio."""
    row = _tests_row(target, "v2", "ours", f"selection v2 at least {MIN_RATIO:.0f} times v1 on a GPU", RATIO_TEST)
    ratio = RATIO.search(target.log("v2").read_text(encoding="utf-8", errors="replace")) if row.file else None
    if ratio is None and row.status == PASS:
        return replace(row, status=FAIL, found="the test printed no ratio")
    return replace(row, found=ratio[1], n=None) if ratio else row


def _profile(target: Target) -> Row:
    title = f"the host's share of a step at most {MAX_HOST_SHARE:.0%}, {STAGE} present"
    reason = _not_run(target, "nvtx")
    for attempt in attempts(target, "nvtx"):
        path = attempt.folder / "profile_summary.txt"
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        share, frame = HOST_SHARE.search(text), _top_frame(text)
        found = f"{share[0] if share else 'no host share'}; {STAGE} {'present' if STAGE in text else 'missing'}; top frame {frame}"
        if target.cpu:
            return Row(source="ours", criterion=title, status=NOT_TESTED, found=f"no GPU ({found})", file=str(path))
        passed = share is not None and float(share[1]) <= 100 * MAX_HOST_SHARE and STAGE in text
        return Row(source="ours", criterion=title, status=PASS if passed else FAIL, found=found, file=str(path))
    return Row(source="ours", criterion=title, status=NOT_TESTED if reason else FAIL, found=reason or "the run left no profile_summary.txt")


def _top_frame(text: str) -> str:
    return next((line.partition("  ")[2] for line in text.splitlines() if line.startswith("python ")), "unknown")


def as_markdown(rows: Sequence[Row]) -> str:
    """The table and its totals."""
    counts = {status: sum(row.status == status for row in rows) for status in (PASS, FAIL, UNDECIDED, NOT_TESTED)}
    lines = ["# Acceptance", "", ", ".join(f"{count} {status}" for status, count in counts.items()), ""]
    lines += ["| | criterion | status | found | window | n | file |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = (row.source, row.criterion, row.status, row.found, row.window, "" if row.n is None else str(row.n), row.file)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
