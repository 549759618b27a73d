"""Options that several verbs share, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seatrial.core.ports import LAST_PORT


def _folder(text: str) -> Path:
    if not text:
        # A shell variable that was not set: taken for `.` the results would be scattered over this folder.
        raise typer.BadParameter("it is empty; name a folder, or leave the option out")
    return Path(text)


PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, a YAML file.", show_default=False)]
Folder = Annotated[Path, typer.Argument(metavar="OUT", help="The campaign's output folder.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the plan, for example settings.d_model=256; may be repeated."),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="GROUP", help="Run only this group or run (a glob is allowed); may be repeated."),
]
Budget = Annotated[
    str | None,
    typer.Option("--budget", metavar="TIME", help="Start no run that would end later than this after the start: 90s, 15m, 2h."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="Write here instead of the plan's output folder.", parser=_folder),
]
SiteName = Annotated[
    str | None,
    typer.Option(
        "--site",
        metavar="NAME",
        help="The site's facts (network variables, partition, activation): a file, or a name in ~/.config/seatrial/sites. "
        "Default: site.yaml beside the plan, where there is one.",
        show_default=False,
    ),
]
PlaceKind = Annotated[
    str | None,
    typer.Option("--place", metavar="KIND", help="Run it there instead: `slurm` makes every run a job. Short for --set place.kind=KIND."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="mlflow|wandb|tensorboard",
        help="Send each finished run to this tracker, if it is installed; may be repeated.",
    ),
]
Heartbeat = Annotated[
    float | None,
    typer.Option(
        "--heartbeat",
        metavar="SECONDS",
        help="Print a line about the run under way this often; 0 for never. Default: 30 without a terminal, else never.",
        min=0,
        show_default=False,
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Run finished runs again too. Their earlier attempts stay but no longer count.")]
FromStart = Annotated[
    bool,
    typer.Option(
        "--from-start",
        help="Restart a stopped training at step 0. Default: a plan of one group and one repeat resumes from its last complete "
        "checkpoint; other plans always start at step 0.",
    ),
]
ResumeChanged = Annotated[
    bool,
    typer.Option(
        "--resume-changed",
        help="Resume from the last complete checkpoint even if script or settings changed. Default: refused, unless only the "
        "number of steps changed.",
    ),
]
KeepGoing = Annotated[
    bool,
    typer.Option(
        "--keep-going", help="Continue after three identical failures in a row (no run has succeeded, and no setting explains them)."
    ),
]
IgnoreNeeds = Annotated[
    bool,
    typer.Option("--ignore-needs", help="Start even if the campaign that the plan `needs` has not passed here. Recorded as a warning."),
]
IgnoreFit = Annotated[
    bool,
    typer.Option("--ignore-fit", help="Start even if the forecast says that a run will not fit into GPU memory. Recorded as a warning."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Confirm a campaign of more than 1,000 runs, often a mistake in the axes.")]
Full = Annotated[
    bool,
    typer.Option("--full", help="Print the whole report: step times, phases, ranks, machine, every finding. Default: one screen."),
]
AllowConfounded = Annotated[
    bool,
    typer.Option(
        "--allow-confounded",
        help="Compare confounded groups too (a setting took effect in only one of them). The result is marked.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="End with one JSON line on stdout; everything for people goes to stderr.")]
WHERE = "Where to find it"
HistoryFile = Annotated[
    Path | None,
    typer.Option(
        "--history",
        metavar="FILE",
        help="The file of history rows. Default: SEATRIAL_HISTORY, else seatrial/history.jsonl among your data.",
        rich_help_panel=WHERE,
        show_default=False,
    ),
]
PER_NODE = "One command on each node, without ssh"
NodeRank = Annotated[
    int | None,
    typer.Option(
        "--node-rank",
        "--node_rank",
        metavar="R",
        help=(
            "For `place: {kind: pernode, nodes: N}`: which of the N nodes this is, from 0; the same command is typed on each. Node 0 runs "
            "the campaign, the others start what it asks for. In a Slurm job: srun -N2 --ntasks-per-node=1 sh -c "
            "'seatrial run PLAN --node-rank $SLURM_NODEID …'. Default: NODE_RANK."
        ),
        min=0,
        show_default=False,
        rich_help_panel=PER_NODE,
    ),
]
MasterAddr = Annotated[
    str | None,
    typer.Option(
        "--master-addr",
        "--master_addr",
        metavar="HOST",
        help="Name or address of node 0, as the others reach it. Default: MASTER_ADDR.",
        show_default=False,
        rich_help_panel=PER_NODE,
    ),
]
MasterPort = Annotated[
    int | None,
    typer.Option(
        "--master-port",
        "--master_port",
        metavar="PORT",
        help="Control port of node 0; the ranks' rendezvous has another (`place.port`). Default: MASTER_PORT.",
        min=1,
        max=LAST_PORT,
        show_default=False,
        rich_help_panel=PER_NODE,
    ),
]
