"""`seatrial init -- COMMAND`: a plan file from a command that works."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = "seatrial init -- torchrun --nproc_per_node 2 train.py --bs 8\n\nseatrial init -o nightly.yaml -- python train.py --lr 3e-4"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("init", epilog=EXAMPLES)(init)


def init(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="A command that works, after --.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The plan to write.")] = Path("plan.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
) -> int:
    """Write a plan from a command that works, with comments that say what to change."""
    from seatrial import files
    from seatrial.errors import UsageError
    from seatrial.plan.command_words import take_apart
    from seatrial.plan.from_command import mapping_from_command
    from seatrial.plan.load import plan_from_mapping
    from seatrial.plan.write import plan_yaml

    if output.is_dir():
        raise UsageError(f"{output} is a folder: name the file to write in it, as in -o {output / 'plan.yaml'}")
    if output.exists() and not force:
        raise UsageError(f"{output} is there already: choose another name with -o, or overwrite it with --force")
    if not output.parent.is_dir():
        raise UsageError(f"there is no folder {output.parent} to write {output.name} to: make it first, or choose another place with -o")
    mapping = mapping_from_command(command, axes={}, repeats=3)
    plan_from_mapping(mapping, str(output))
    files.write_text(output, plan_yaml(mapping, command=command, notes=take_apart(command).notes))
    print(f"wrote {output}\nnext: give it axes, look at it with `seatrial plan show {output}`, run it with `seatrial run {output}`")
    return 0
