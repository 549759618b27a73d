"""Draw docs/images/data-flow.svg, the picture of docs/architecture.md, from the table of stages below.

python docs/make_diagram.py            write it
python docs/make_diagram.py --check    exit 1 if the picture is stale

A test checks every module, function, record and file of the table against the code.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from pathlib import Path

DOCS = Path(__file__).parent
PICTURE = DOCS / "images" / "data-flow.svg"

HARNESS, AGENT, RANK = "harness", "agent", "rank"
ONCE, EACH_RUN, ANY_TIME, ON_REQUEST = "once a campaign", "for each run", "recomputed from disk, at any time", "on request"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of a run. Modules are under src/seatrial, files are named as in docs/files.md."""

    name: str
    when: str
    where: str = HARNESS
    """The process it runs in."""
    module: str
    function: str
    """Its top function; `Class.method` where it is one."""
    does: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    record_module: str
    record: str
    """Its result: a class of `record_module`, or the name of what that module describes."""
    arrow: str = ""
    """The label of the arrow to the next stage, where that is not the record alone."""


EVENTS, HEARTBEATS = "events_rank*.jsonl", "heartbeat_rank*.jsonl"
STAGES = (
    Stage(
        name="plan",
        when=ONCE,
        module="plan/resolve.py",
        function="resolve_plan",
        does="checks the plan; expands, names, hashes and orders its runs",
        reads=("plan.yaml",),
        record_module="records/plan.py",
        record="CampaignPlan",
    ),
    Stage(
        name="preflight",
        when=ONCE,
        module="campaign/preflight.py",
        function="run_preflight",
        does="checks every host before anything starts; refuses what can only fail",
        writes=("preflight.json",),
        record_module="campaign/preflight.py",
        record="PreflightResult",
        arrow="PreflightResult: warnings, facts of the hosts",
    ),
    Stage(
        name="campaign",
        when=ONCE,
        module="campaign/loop.py",
        function="run_campaign",
        does="locks the folder; runs what is not finished, one run after another",
        reads=("outcome.json",),
        writes=(".owner.lock", ".owner.json", "plan.json", "plans", "progress.json"),
        record_module="records/plan.py",
        record="RunSpec",
    ),
    Stage(
        name="launch",
        when=EACH_RUN,
        module="launch/prepare.py",
        function="prepare_attempt",
        does="builds the command for its allocation and records it",
        writes=("spec.json", "settings.json", "environment.json", "command.sh", "agent.json", "hostfile"),
        record_module="records/launch.py",
        record="AgentOrder",
    ),
    Stage(
        name="agent",
        when=EACH_RUN,
        where=AGENT,
        module="agent/supervise.py",
        function="Supervisor.run",
        does="starts the launcher, merges its output, samples, stops every process",
        reads=("agent.json", "call.json"),
        writes=(
            *("launcher.log", "launcher_arrivals.csv", "ranks", "agent.log", "stacks"),
            *("gpu_telemetry.csv", "host_telemetry.csv", "telemetry.json"),
        ),
        record_module="records/launch.py",
        record="AgentReport",
        arrow="starts the ranks; AgentReport goes to observe",
    ),
    Stage(
        name="probe",
        when=EACH_RUN,
        where=RANK,
        module="probe/loop.py",
        function="Probe.step",
        does="records steps, phases, losses and heartbeats of every rank",
        reads=("halt.json",),
        writes=(EVENTS, HEARTBEATS, "stacks"),
        record_module="records/events.py",
        record="event lines",
        arrow="event lines and heartbeats, through files",
    ),
    Stage(
        name="observe",
        when=EACH_RUN,
        module="campaign/follow.py",
        function="Follower.follow",
        does="reads progress every second; acts on limits, stalls and stop requests",
        reads=(HEARTBEATS, "launcher.log", "host_telemetry.csv"),
        writes=("alarms.jsonl", "halt.json"),
        record_module="campaign/outcome_rules.py",
        record="Ending",
    ),
    Stage(
        name="outcome",
        when=EACH_RUN,
        module="campaign/one_run.py",
        function="run_one",
        does="runs the four above; records how the run ended and why",
        reads=(EVENTS, "launcher.log", "stacks"),
        writes=("provenance.json", "nodes.json", "outcome.json"),
        record_module="records/outcome.py",
        record="RunOutcome",
    ),
    Stage(
        name="collect",
        when=ANY_TIME,
        module="collect/steps.py",
        function="read_steps",
        does="reads the files of an attempt, damaged ones too, as tables",
        reads=("plan.json", "spec.json", "outcome.json", EVENTS, "launcher.log", "host_telemetry.csv"),
        writes=("run_manifest.tsv", "timing_points.csv", "eta_points.csv"),
        record_module="records/attempt.py",
        record="StepTables",
    ),
    Stage(
        name="analyse",
        when=ANY_TIME,
        module="analyse/measure.py",
        function="measure_run",
        does="finds the steady window, measures each run, groups and ranks",
        record_module="records/measure.py",
        record="RunMeasure",
        arrow="RunMeasure, GroupSummary, Ranking",
    ),
    Stage(
        name="judge",
        when=ANY_TIME,
        module="judge/verdict.py",
        function="judge",
        does="judges the figures by the plan's criteria",
        record_module="records/verdict.py",
        record="CampaignVerdict",
    ),
    Stage(
        name="report",
        when=ANY_TIME,
        module="report/write.py",
        function="write_report",
        does="writes tables, the winner's files, summaries and the page",
        reads=("summary.json", "charts"),
        writes=(
            *("verdict.json", "per_run_metrics.csv", "group_summary.csv", "ranked_groups.csv", "skipped_runs.tsv", "charts"),
            *("best_config.json", "best_config.env", "best_overrides.txt", "summary.json", "summary.md", "summary.html"),
        ),
        record_module="records/results.py",
        record="CampaignResults",
        arrow="CampaignResults; history only on request",
    ),
    Stage(
        name="history",
        when=ON_REQUEST,
        module="history/rows.py",
        function="add",
        does="keeps a group as a row that later campaigns are compared with",
        reads=("plan.json", "outcome.json", EVENTS),
        writes=("history.jsonl",),
        record_module="records/comparison.py",
        record="ComparedGroup",
    ),
)


# All in the picture's own units; a reader's font may be wider than ours, so columns have room to spare.
WIDTH = 1120
READS_END, BOX, BOX_WIDTH, WRITES = 330, 364, 390, 788
LINE, BOX_HEIGHT, GAP, TOP = 16, 84, 34, 92
MAX_IN_LIST, MAX_IN_BOX = 40, 48
STYLE = """
  svg { --paper: #ffffff; --ink: #1c2733; --soft: #5b6977; --rule: #c3ccd6; --band: #f3f6f9;
        --harness: #0b6aa8; --agent: #b35900; --rank: #1d7a48; font-family: system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #12181f; --ink: #e7edf3; --soft: #a3b1bf; --rule: #4a5866; --band: #1a222b;
          --harness: #6cb8f0; --agent: #f0a35c; --rank: #6fd19c; }
  }
  .paper { fill: var(--paper); } .band { fill: var(--band); }
  text { fill: var(--ink); font-size: 13px; } .soft { fill: var(--soft); }
  .file, .code { font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: 12px; }
  .file { white-space: pre; } .name { font-size: 16px; font-weight: 600; } .title { font-size: 18px; font-weight: 600; }
  .when { font-size: 12px; letter-spacing: 0.04em; }
  .box { fill: var(--paper); stroke-width: 2; } .arrow { stroke: var(--rule); stroke-width: 1.5; fill: none; } .head { fill: var(--rule); }
  .harness { stroke: var(--harness); } .agent { stroke: var(--agent); } .rank { stroke: var(--rank); }
"""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A stage and where its row begins and ends."""

    stage: Stage
    reads: list[str]
    writes: list[str]
    top: int
    bottom: int

    @property
    def middle(self) -> int:
        return (self.top + self.bottom) // 2


def placed() -> list[Placed]:
    """Every stage, each as high as its box or its longest list."""
    rows: list[Placed] = []
    top = TOP
    for stage in STAGES:
        reads, writes = _lines(stage.reads), _lines(stage.writes)
        height = max(BOX_HEIGHT, LINE * max(len(reads), len(writes)) + 8)
        rows.append(Placed(stage=stage, reads=reads, writes=writes, top=top, bottom=top + height))
        top += height + GAP
    return rows


def _lines(names: tuple[str, ...]) -> list[str]:
    """File names, as many to a line as fit; none is broken."""
    return textwrap.wrap("  ".join(names), MAX_IN_LIST, break_long_words=False, break_on_hyphens=False)


def picture() -> str:
    """The whole SVG."""
    rows = placed()
    height = rows[-1].bottom + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        'aria-labelledby="title">',
        '<title id="title">The data flow of one run, from plan.yaml to summary.html</title>',
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        *_heading(),
        *_bands(rows),
        *(part for row in rows for part in _row(row)),
        *_arrows_down(rows),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _heading() -> Iterator[str]:
    yield _text(24, 34, "The data flow of one run", "title")
    yield _text(READS_END, 66, "reads", "soft", "end")
    yield _text(BOX, 66, "stage, its top function, what it does", "soft")
    yield _text(WRITES, 66, "writes", "soft")
    for position, process in enumerate((HARNESS, AGENT, RANK)):
        x = BOX + 34 + position * 140
        yield f'<rect class="box {process}" x="{x}" y="21" width="16" height="16" rx="4"/>'
        yield _text(x + 24, 34, f"in the {process}" if process != RANK else "in each rank", "soft")


def _bands(rows: list[Placed]) -> Iterator[str]:
    """One band for each `when`, with its label at the left."""
    for when, group in groupby(rows, key=lambda row: row.stage.when):
        own = list(group)
        top, bottom = own[0].top - 10, own[-1].bottom + 10
        yield f'<rect class="band" x="16" y="{top}" width="{WIDTH - 32}" height="{bottom - top}" rx="8"/>'
        middle = (top + bottom) // 2
        yield f'<text class="when soft" x="36" y="{middle}" text-anchor="middle" transform="rotate(-90 36 {middle})">{escape(when)}</text>'


def _row(row: Placed) -> Iterator[str]:
    stage, top = row.stage, row.middle - BOX_HEIGHT // 2
    yield f'<rect class="box {stage.where}" x="{BOX}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8"/>'
    yield _text(BOX + 14, top + 22, stage.name, "name")
    yield _text(BOX + 14, top + 40, f"{stage.module}: {stage.function}", "code soft")
    for number, line in enumerate(textwrap.wrap(stage.does, MAX_IN_BOX)):
        yield _text(BOX + 14, top + 57 + number * LINE, line)
    yield from _files(row.reads, row.middle, READS_END, "end")
    yield from _files(row.writes, row.middle, WRITES, "start")
    if row.reads:
        yield _arrow(READS_END + 6, row.middle, BOX - 3, row.middle)
    if row.writes:
        yield _arrow(BOX + BOX_WIDTH + 2, row.middle, WRITES - 8, row.middle)


def _files(lines: list[str], middle: int, x: int, anchor: str) -> Iterator[str]:
    first = middle - (len(lines) - 1) * LINE // 2 + 4
    for number, line in enumerate(lines):
        yield _text(x, first + number * LINE, line, "file", anchor)


def _arrows_down(rows: list[Placed]) -> Iterator[str]:
    """From each stage to the next, labelled with its result."""
    x = BOX + 40
    for one, following in pairwise(rows):
        yield _arrow(x, one.middle + BOX_HEIGHT // 2 + 1, x, following.middle - BOX_HEIGHT // 2 - 2)
        yield _text(x + 12, (one.bottom + following.top) // 2 + 4, one.stage.arrow or one.stage.record, "code soft")


def _arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<path class="arrow" d="M{x1} {y1} L{x2} {y2}" marker-end="url(#head)"/>'


def _text(x: int, y: int, text: str, kind: str = "", anchor: str = "start") -> str:
    attributes = f' class="{kind}"' if kind else ""
    return f'<text{attributes} x="{x}" y="{y}" text-anchor="{anchor}">{escape(text, quote=False)}</text>'


def main() -> int:
    drawn = picture()
    if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == drawn:
        return 0
    if "--check" in sys.argv:
        print(f"docs/{PICTURE.relative_to(DOCS)} is stale: run `python docs/make_diagram.py`")
        return 1
    PICTURE.write_text(drawn, encoding="utf-8")
    print(f"wrote docs/{PICTURE.relative_to(DOCS)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
