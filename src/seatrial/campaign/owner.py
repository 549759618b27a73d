"""Who runs a campaign: `.owner.json` and the lock beside it, read and never taken; and the request that asks that one to stop.

In: a campaign's folder. Out: its `Owner` (host, boot, process, and a beat that is raised every few seconds), or None. A dead holder's lock
is free, and what it left in `.owner.json` counts for nothing on its own host; a holder on another host, whose lock may not be seen from
here, counts as long as the file is fresh. `owning` takes the folder.

`seatrial stop` asks the owner through a request that names its token: a request left over from an earlier owner names another token
and is ignored. An owner that finds another's token in the folder (it was asleep for so long that its place was taken) stops too.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from dataclasses import dataclass, field

from seatrial import files
from seatrial.errors import CampaignError
from seatrial.machine.proc_files import PROC, boot_id, read_line
from seatrial.paths import CampaignPaths
from seatrial.records.codec import described

# Of another host, read by a clock that may differ from its own; only `stop` and `watch` go by it, which harm nobody.
FRESH_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who runs a campaign."""

    pid: int
    host: str
    token: str
    since_t: float
    boot_id: str = ""
    """Of the kernel that runs it: the same for containers of one machine, another after every boot."""
    start_ticks: int = 0
    """When the process began; with its pid it names one process for ever."""
    beat: int = field(default=0, compare=False)


def read_owner(paths: CampaignPaths) -> Owner | None:
    """Who holds the folder now; None when nobody does."""
    stored = stored_owner(paths)
    if stored is None:
        return None
    locked = is_locked(paths)
    if locked or (locked is None and runs_here(stored)) or (not is_this_kernel(stored) and _is_fresh(paths, time.time())):
        return stored
    return None


def ask_to_stop(paths: CampaignPaths) -> Owner | None:
    """Leave a request for the present owner to stop; None when nobody owns the folder."""
    owner = read_owner(paths)
    if owner is not None:
        try:
            files.write_json(paths.stop_request, {"token": owner.token})
        except OSError as error:
            who = f"process {owner.pid} on {owner.host}"
            raise CampaignError(f"{paths.stop_request} cannot be written ({error.strerror}): send TERM to {who} instead") from error
    return owner


def asked_to_stop(paths: CampaignPaths, owner: Owner) -> bool:
    """Whether a stop request for this very owner lies in the folder, or another has taken its place."""
    request = files.read_json(paths.stop_request)
    if isinstance(request, dict) and request.get("token") == owner.token:
        return True
    present = stored_owner(paths)
    return present is not None and present.token != owner.token


def this_process() -> Owner:
    """This process as an owner, under a token of its own."""
    pid = os.getpid()
    return Owner(
        pid=pid, host=os.uname().nodename, token=uuid.uuid4().hex, since_t=time.time(), boot_id=boot_id(PROC), start_ticks=_start_ticks(pid)
    )


def stored_owner(paths: CampaignPaths) -> Owner | None:
    """Whoever `.owner.json` names, dead or alive."""
    return described(Owner, files.read_json(paths.owner))


def is_locked(paths: CampaignPaths) -> bool | None:
    """Whether somebody holds the lock, asked through a handle that can write nothing; None where there are no locks."""
    try:
        with open(paths.lock, "rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def is_this_kernel(owner: Owner) -> bool:
    """Whether this host's locks and process numbers speak of that owner too."""
    here = boot_id(PROC)
    return owner.boot_id == here if owner.boot_id and here else owner.host == os.uname().nodename


def runs_here(owner: Owner) -> bool:
    """Whether that very process runs under this kernel."""
    return is_this_kernel(owner) and bool(owner.start_ticks) and _start_ticks(owner.pid) == owner.start_ticks


def _is_fresh(paths: CampaignPaths, now_t: float) -> bool:
    try:
        return abs(now_t - paths.owner.stat().st_mtime) < FRESH_S
    except OSError:
        return False


def _start_ticks(pid: int) -> int:
    """0 when there is no such process, or only its remains."""
    line = read_line(str(PROC), pid)
    return 0 if line is None or line.state in "ZX" else line.started_ticks
