"""`seatrial stop OUT`: end a campaign from another terminal."""

from __future__ import annotations

import typer

from seatrial.cli.options import Folder

EXAMPLES = "seatrial stop outputs/tiny-lm-demo\n\nseatrial run plans/tiny-lm-demo.yaml   (resumes it later)"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("stop", epilog=EXAMPLES)(stop)


def stop(out: Folder) -> int:
    """Ask a running campaign to stop: the run under way is ended, results are written, what is finished stays.

    Works from another host on a shared file system too. The same `run` or `sweep` command resumes the campaign.
    """
    from seatrial.campaign.owner import ask_to_stop
    from seatrial.errors import CampaignError
    from seatrial.paths import CampaignPaths

    owner = ask_to_stop(CampaignPaths(out))
    if owner is None:
        raise CampaignError(f"no campaign is running in {out}: name the folder that a running `seatrial run` or `sweep` writes to")
    print(f"asked process {owner.pid} on {owner.host} to stop; it ends its run and writes what it has")
    return 0
