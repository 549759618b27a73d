"""The hostfile itself: whether it is there and names hosts. Whether these can be entered is asked of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seatrial.errors import HostfileError
from seatrial.hostfile import read_hostfile
from seatrial.preflight.hosts.answers import Answers
from seatrial.preflight.hosts.rows import HostCheck, hosts_text
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.records.run_spec import HostSpec, PlaceSpec
from seatrial.wording import count, named

HOSTFILE = Question(
    name="hostfile {file}",
    looks_at="that the hostfile is there and names hosts",
    prevents="Unable to find hostfile, will proceed with training with local resources only: all ranks on one machine, and nobody is told",
    fix="write {path} with a line `node1 slots=2` for each host, or name another with place.hostfile",
    in_docs={"path": "FILE"},
    refuses=True,
)
UNUSED = Question(
    name="hosts of {file}",
    looks_at="that every host of the hostfile has a rank, where the plan chooses none of them by include or exclude",
    prevents="figures of fewer hosts than were meant; no error is shown",
    fix="leave place.ranks out to use every slot, or write fewer slots; place.exclude says that a host is left out on purpose",
)
QUESTIONS = (HOSTFILE, UNUSED)
MOST_NAMED = 8
UNNAMED = "as given"


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    if wanted.by_ssh:
        file = wanted.place.hostfile or UNNAMED
        yield HostCheck(host=wanted.head, check=HOSTFILE.answer(True, _told(wanted.hosts), file=file, path=file))
        unused = _unused(wanted)
        found = f"no rank of any run is on {hosts_text(unused)}" if unused else "all are used"
        yield HostCheck(host=wanted.head, check=UNUSED.answer(not unused, found, file=file))


def _unused(wanted: Wanted) -> list[str]:
    """Hosts of the file without a rank, where nobody said that they are to have none."""
    place = wanted.place
    if not place.hostfile or place.include or place.exclude:
        return []
    try:
        listed = read_hostfile(Path(place.hostfile))
    except HostfileError:
        return []
    return [host.name for host in listed if host.name not in wanted.names]


def nobody(place: PlaceSpec, cwd: Path) -> Check:
    """The check of a file that gave no hosts; `cwd` is where its path begins."""
    path = cwd / place.hostfile
    return HOSTFILE.answer(False, f"{path}: {_why(path)}", file=place.hostfile or UNNAMED, path=path)


def _told(hosts: Sequence[HostSpec]) -> str:
    ranks = sum(host.ranks for host in hosts)
    return f"{count(len(hosts), 'host')} for {ranks} ranks: {named([host.name for host in hosts], MOST_NAMED)}"


def _why(path: Path) -> str:
    """By another look at the file."""
    try:
        read_hostfile(path)
    except HostfileError as error:
        at = f"line {error.line}: " if error.line else ""
        return f"{at}{error.problem.partition('; ')[0]}"
    return "it could not be read when the plan was, and can be now; start again"
