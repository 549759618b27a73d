"""Access to the hosts and to what runs need there: hostfile, ssh, Python, programs, paths, and one shared output folder.

In: `HostsNeed` and `Answers`. Out: a `HostCheck` for each host that answered. The output folder must be the same for every host:
files written by one are seen by the others, renames are seen at once, and locks hold across hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seatrial.core.errors import HostfileError
from seatrial.core.hostfile import read_hostfile
from seatrial.core.text import count, format_bytes, join_names
from seatrial.preflight.check_definition import HostCheck, hosts_text, refusal, warning
from seatrial.preflight.hosts.queries import Answers, HostsNeed, answer_part, problem_in, text_mapping
from seatrial.preflight.hosts.uniformity import most_common
from seatrial.preflight.storage import LITTLE_FREE_BYTES, MIN_FREE_BYTES
from seatrial.records.caution import Check
from seatrial.records.plan import PlaceSpec

HOSTFILE_FOUND = refusal(
    name="hostfile {file}",
    what="that the hostfile is there and names hosts",
    prevents="Unable to find hostfile, will proceed with training with local resources only: all ranks on one machine, silently",
    fix="write {path} with a line `node1 slots=2` for each host, or name another with place.hostfile",
    in_docs={"path": "FILE"},
)
HOSTS_USED = warning(
    name="hosts of {file}",
    what="that every host of the hostfile has a rank, where the plan chooses none of them by include or exclude",
    prevents="figures of fewer hosts than were meant; no error is shown",
    fix="leave place.ranks out to use every slot, or write fewer slots; place.exclude says that a host is left out on purpose",
)
HOSTFILE_CHECKS = (HOSTFILE_FOUND, HOSTS_USED)
MAX_NAMED = 8
UNNAMED = "as given"


def check_hostfile(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    if need.by_ssh:
        file = need.place.hostfile or UNNAMED
        ranks = sum(host.ranks for host in need.hosts)
        summary = f"{count(len(need.hosts), 'host')} for {ranks} ranks: {join_names(list(need.names), MAX_NAMED)}"
        yield HOSTFILE_FOUND.on(need.head, True, summary, file=file, path=file)
        unused = _unused_hosts(need)
        found = f"no rank of any run is on {hosts_text(unused)}" if unused else "all are used"
        yield HOSTS_USED.on(need.head, not unused, found, file=file)


def _unused_hosts(need: HostsNeed) -> list[str]:
    """Hosts of the file without a rank, unless include or exclude chose them."""
    place = need.place
    if not place.hostfile or place.include or place.exclude:
        return []
    try:
        listed = read_hostfile(Path(place.hostfile))
    except HostfileError:
        return []
    return [host.name for host in listed if host.name not in need.names]


def no_hosts_check(place: PlaceSpec, cwd: Path) -> Check:
    """The check of a hostfile without hosts; its path is relative to `cwd`."""
    path = cwd / place.hostfile
    return HOSTFILE_FOUND.result(False, f"{path}: {_hostfile_problem(path)}", file=place.hostfile or UNNAMED, path=path)


def _hostfile_problem(path: Path) -> str:
    try:
        read_hostfile(path)
    except HostfileError as error:
        at = f"line {error.line}: " if error.line else ""
        return f"{at}{error.problem.partition('; ')[0]}"
    return "it was unreadable when the plan was read. Start again"


SSH = refusal(
    name="ssh",
    what="that a session opens on each host by ssh, without a password or any other prompt (BatchMode), as launchers need it; on "
    "the host that is this machine a child process is enough",
    prevents="{error}",
    fix="{way}",
    in_docs={
        "error": "Permission denied (publickey); Host key verification failed; Could not resolve hostname; Connection refused; or a "
        "launcher that hangs at the password prompt",
        "way": "ssh-copy-id HOST; ssh-keyscan HOST >> ~/.ssh/known_hosts, once the key is known to be right; or start sshd there",
    },
)
STARTS = refusal(
    name="Python and Seatrial",
    what="that the interpreter (place.python, else the path of the one Seatrial runs in) is on each host, starts, and has Seatrial",
    prevents="{error}",
    fix="{way}",
    in_docs={
        "error": "bash: /opt/venv/bin/python: No such file or directory; or: No module named seatrial",
        "way": "install the same environment (venv or conda) at that path on each host, or name the path they have in place.python",
    },
)
ENCRYPTS = refusal(
    name="encrypted connection",
    what="that `cryptography` is in that Python on each host and works: agents talk to the harness encrypted, or not at all",
    prevents="an agent that cannot connect: {error}",
    fix="pip install cryptography into that Python on each host",
    in_docs={"error": "ModuleNotFoundError: No module named 'cryptography'"},
)
ONE_MACHINE_EACH = refusal(
    name="distinct machines",
    what="that no two names of the hostfile are one machine; for place pernode only a warning, since it may be intended for a trial",
    prevents="Duplicate GPU detected : rank 0 and rank 1 both on CUDA device; or ranks that share a host which was counted twice",
    fix="{way}",
    in_docs={"way": "correct the hostfile, or what the name resolves to (`getent hosts NAME`)"},
)
SSH_TO_ITSELF = warning(
    name="ssh to itself",
    what="that the head can ssh to itself: Seatrial does not need it, a `deepspeed --hostfile` of your own that names it does",
    prevents="{error}, from deepspeed's own pdsh, on the host that it was started on",
    fix="cat ~/.ssh/id_*.pub >> ~/.ssh/authorized_keys; ssh-keyscan {host} >> ~/.ssh/known_hosts; or let Seatrial start the ranks",
    in_docs={"error": "Permission denied (publickey)", "host": "HEAD"},
)
SESSION_CHECKS = (SSH, STARTS, ENCRYPTS, ONE_MACHINE_EACH, SSH_TO_ITSELF)

# ssh's message → the later error, as launchers show it, and the fix.
SSH_ERRORS = (
    (
        r"host key verification failed|remote host identification has changed|no matching host key",
        "Host key verification failed",
        "ssh-keyscan {host} >> ~/.ssh/known_hosts once you know the key to be right (ssh-keygen -R {host} first where there is an old one)",
    ),
    (
        r"permission denied|too many authentication failures|no supported authentication",
        "Permission denied (publickey)",
        "ssh-copy-id {host}, and load the key where it has a passphrase (ssh-add); `ssh -v {host}` shows which keys are offered",
    ),
    (
        r"could not resolve hostname|name or service not known|temporary failure in name resolution",
        "ssh: Could not resolve hostname {host}: Name or service not known",
        "correct the name in the hostfile, or add it to /etc/hosts, DNS or ~/.ssh/config",
    ),
    (
        r"connection refused",
        "ssh: connect to host {host} port 22: Connection refused",
        "start sshd there (systemctl start ssh), or give its port in place.ssh_args (-p 2222)",
    ),
    (
        r"no route to host|network is unreachable|timed out|connection closed|connection reset|has not begun",
        "ssh: connect to host {host} port 22: Connection timed out",
        "see that the host is up and reachable (`ping {host}`, `ssh -v {host}`), or take it out: place.exclude: {host}",
    ),
)
NO_PYTHON = re.compile(r"no such file or directory|not found|permission denied.*ended with 126|ended with 12[67]", re.IGNORECASE)
NO_MODULE = re.compile(r"no module named '?(seatrial[\w.]*|\w+)", re.IGNORECASE)


def check_sessions(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    for host in need.names:
        yield from _check_session(need, answers, host)
    yield from _one_machine_each(need, answers)
    if need.by_ssh and not answers.fast:
        yield from _check_ssh_to_itself(need, answers)


def _check_session(need: HostsNeed, answers: Answers, host: str) -> Iterator[HostCheck]:
    reply = answers.first[host]
    problem = reply.trouble
    # A failure after login is the interpreter's: the shell's exit code or message shows it.
    inside = bool(NO_MODULE.search(problem)) or (bool(NO_PYTHON.search(problem)) and "resolve" not in problem.lower())
    if need.by_ssh:
        entered = not problem or inside or host == need.head
        way = "a child process here" if host == need.head else f"in {reply.took_s:.1f} s"
        error, fix = ssh_error(problem, host)
        yield SSH.on(host, entered, way if entered else problem, error=error, way=fix)
        if not entered:
            return
    error, fix = _start_error(problem)
    yield STARTS.on(host, not problem, problem or "started", error=error, way=fix)
    # Missing if a slow disk did not load the package in time; then the agent's own error counts.
    broken = answer_part(answers.first, host, "encryption").get("problem")
    if isinstance(broken, str):
        yield ENCRYPTS.on(host, not broken, broken or "tried", error=broken)


def ssh_error(problem: str, host: str) -> tuple[str, str]:
    """The later error and the fix for ssh's message."""
    for pattern, error, way in SSH_ERRORS:
        if re.search(pattern, problem, re.IGNORECASE):
            return error.format(host=host), way.format(host=host)
    return problem or "ssh exited with exit code 255", f"see what `ssh -v -o BatchMode=yes {host} true` says"


def _start_error(problem: str) -> tuple[str, str]:
    module = NO_MODULE.search(problem)
    if module:
        return (
            f"No module named {module[1]}",
            "install Seatrial into that Python on each host, or name one that has it in place.python; with a checkout, export "
            "PYTHONPATH before starting seatrial; it is passed on",
        )
    return (
        problem or "No such file or directory",
        "install the same environment (venv or conda) at that path on each host, or name the path they have in place.python",
    )


def _one_machine_each(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    seen: dict[tuple[str, str], str] = {}
    for host in need.names:
        facts = answers.facts.get(host)
        if facts is None:
            continue
        first = seen.setdefault((facts.host, facts.boot_id), host)
        found = facts.host if first == host else f"{first} and {host} are both {facts.host}"
        way = (
            f"correct the hostfile, or what the name resolves to (`getent hosts {host}`)"
            if need.by_ssh
            else "start the command of each node on a machine of its own"
        )
        yield ONE_MACHINE_EACH.on(host, first == host, found, refuses=need.by_ssh, way=way)


def _check_ssh_to_itself(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    if not answers.answered(need.head):
        return
    name = need.own_ssh_name
    problem = problem_in(answer_part(answers.first, need.head, "ssh"))
    error, _ = ssh_error(problem, name)
    yield SSH_TO_ITSELF.on(need.head, not problem, problem or f"{name} accepts its own ssh", error=error, host=name)


PDSH = refusal(
    name="pdsh",
    what="that pdsh is on the head where place.via names it; otherwise ssh is used where it is missing",
    prevents="RuntimeError: launcher 'pdsh' not installed",
    fix="install pdsh on the head (apt-get install pdsh), or set place.via: ssh",
)
SSH_PROGRAM = refusal(
    name="ssh program",
    what="that ssh is on the head, which both ways of starting agents need",
    prevents="FileNotFoundError: [Errno 2] No such file or directory: 'ssh'",
    fix="install an ssh client (apt-get install openssh-client), or use place.kind: pernode, which needs none",
)
NINJA = warning(
    name="ninja",
    what="that ninja is on each host, on the PATH that the runs get, where DeepSpeed may build its ops",
    prevents="RuntimeError: Unable to JIT load the fused_adam op due to ninja not being installed",
    fix="pip install ninja into the environment of the runs on each host, and put its bin folder on PATH",
)
PROGRAM = refusal(
    name="program {program}",
    what="that the program the runs start with is on each host",
    prevents="{program}: No such file or directory, on one host's ranks",
    fix="install the same environment on each host, at the same path",
)
PROGRAM_CHECKS = (PDSH, SSH_PROGRAM, NINJA, PROGRAM)


def check_programs(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    if need.by_ssh and answers.answered(need.head):
        yield from _check_head_programs(need, answers)
    for host in need.names:
        answer = answer_part(answers.first, host, "programs")
        where = text_mapping(answer, "where")
        if problem_in(answer):
            continue
        if need.ninja:
            yield NINJA.on(host, bool(where.get("ninja")), where.get("ninja") or "not on PATH")
        for program in need.program:
            yield PROGRAM.on(host, bool(where.get(program)), where.get(program) or "not there", program=program)


def _check_head_programs(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    where = text_mapping(answer_part(answers.first, need.head, "programs"), "where")
    others = [host for host in need.names if host != need.head]
    if others:
        yield SSH_PROGRAM.on(need.head, bool(where.get("ssh")), where.get("ssh") or "not on PATH")
    missing = not where.get("pdsh")
    found = where.get("pdsh") or ("not on PATH" if need.place.via == "pdsh" else "not on PATH: agents are started by ssh")
    yield PDSH.on(need.head, not missing or need.place.via != "pdsh", found)


SHARED = refusal(
    name="output folder is shared",
    what="that a file which the head puts into the output folder is seen by each host, and one that each host puts there by the head",
    prevents="FileNotFoundError: [Errno 2] No such file or directory: '…/call.json' on the hosts, or results of one host only",
    fix="choose a folder on a disk that all hosts mount at the same path, with --out or `output`",
)
WRITABLE = refusal(
    name="output folder is writable",
    what="that each host may write, replace and rename files in the output folder",
    prevents="{error}, on one host's ranks",
    fix="fix the folder's permissions, its mount (read-only?) or its space on that host; the user must be the same on all of them",
    in_docs={"error": "PermissionError: [Errno 13] Permission denied, or OSError: [Errno 28] No space left on device"},
)
RENAME = warning(
    name="rename is seen",
    what="that a file which a host replaces by a rename is seen, whole and new, by the head within two seconds",
    prevents="JSONDecodeError, or an older file read for a new one: half a result taken for a whole one",
    fix="mount the folder without caching of names (NFS: lookupcache=positive, actimeo=1), or choose another disk with --out",
)
LOCK = warning(
    name="lock is seen",
    what="that a lock which the head holds in the output folder is held for the other hosts too",
    prevents="two campaigns in one folder that overwrite each other: the second is not refused when it is started on another host",
    fix="mount the folder with locks (NFS 4; Lustre: -o flock), or never start two campaigns in it",
)
SPACE = refusal(
    name="space in the output folder",
    what="free space of the output folder as each host sees it: a quota or a disk of its own may leave one host less",
    prevents="OSError: [Errno 28] No space left on device, on one host's ranks",
    fix="free at least {least} there, or choose another disk with --out",
    in_docs={"least": format_bytes(MIN_FREE_BYTES)},
)
TEMPORARY = warning(
    name="temporary files",
    what="free space and write access in each host's own folder for temporary files (TMPDIR)",
    prevents="OSError: [Errno 28] No space left on device: '/tmp/torchinductor_…'; or: No usable temporary directory found",
    fix="free space in {folder} there, or point TMPDIR at another disk",
)
OBEYED = refusal(
    name="files of the head",
    what="that a file of the head belongs to the agent's user on each host too: agents accept orders from their own user only",
    prevents="an agent that ends at once: call.json belongs to user 1000, and this is user 0",
    fix="log in to the hosts as the user who starts Seatrial (User in ~/.ssh/config), with the same uid on each",
)
PROTECTED = refusal(
    name="output folder is the user's own",
    what="that not every user may write to the output folder, and that files for one user alone are private there: whoever could replace "
    "them would command the agents of all hosts",
    prevents="commands of another user, run as you on every host; no error is shown",
    fix="chmod o-w {folder}, or choose a folder on a disk that keeps owners and modes, with --out or `output`",
    in_docs={"folder": "OUT"},
)
FOLDER_CHECKS = (SHARED, WRITABLE, OBEYED, PROTECTED, RENAME, LOCK, SPACE, TEMPORARY)
ERRORS = {
    "no space": "OSError: [Errno 28] No space left on device",
    "read-only": "OSError: [Errno 30] Read-only file system",
    "no such": "FileNotFoundError: [Errno 2] No such file or directory",
    "quota": "OSError: [Errno 122] Disk quota exceeded",
}
DENIED = "PermissionError: [Errno 13] Permission denied"


def check_shared_folder(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    for host in need.names:
        if answers.answered(host):
            written = problem_in(answer_part(answers.first, host, "put"))
            seen = _check_shared(need, answers, host)
            yield from seen
            error = next((error for words, error in ERRORS.items() if words in written.lower()), DENIED)
            yield WRITABLE.on(host, not written, written or need.folder, refuses=need.planned, error=error)
            yield from _check_owners(need, answers, host)
            if all(found.check.ok for found in seen) and host in answers.second and not written and host != need.head:
                yield from _check_across(need, answers, host)
            yield from _check_space(need, answer_part(answers.first, host, "space"), host)


def _check_owners(need: HostsNeed, answers: Answers, host: str) -> Iterator[HostCheck]:
    """Owners of the files that command an agent, and other users who can change them."""
    seen, put = answer_part(answers.second, host, "look"), answer_part(answers.first, host, "put")
    if host != need.head and "foreign" in seen:
        owner = text_mapping(seen, "foreign").get(answers.files[need.head], "")
        yield OBEYED.on(host, not owner, f"the head's file belongs to {owner}" if owner else "owned by this user")
    # A folder above it may be open to all, such as /tmp: the campaign creates its own there.
    if not problem_in(put) and need.folder == need.output:
        is_open = str(put.get("open") or "")
        yield PROTECTED.on(host, not is_open, f"{need.folder}: {is_open}" if is_open else need.folder, folder=need.folder)


def _check_shared(need: HostsNeed, answers: Answers, host: str) -> list[HostCheck]:
    if host == need.head or host not in answers.second or need.head not in answers.second:
        return []
    head_problem = problem_in(answer_part(answers.first, need.head, "put"))
    answer, head_answer = answer_part(answers.second, host, "look"), answer_part(answers.second, need.head, "look")
    blind = problem_in(answer) or text_mapping(answer, "troubles").get(answers.files[need.head], "")
    unseen = text_mapping(head_answer, "troubles").get(answers.files[host], "")
    found = f"{need.folder} is one folder"
    if head_problem:
        # Unknown: the head's own checks say why.
        return []
    if blind:
        found = f"in {need.folder} it cannot see the head's file: {blind}"
    elif unseen and not problem_in(answer_part(answers.first, host, "put")):
        found = f"in {need.folder} the head cannot see its file: {unseen}"
    else:
        unseen = ""
    return [SHARED.on(host, not blind and not unseen, found, refuses=need.planned)]


def _check_across(need: HostsNeed, answers: Answers, host: str) -> Iterator[HostCheck]:
    replaced = problem_in(answer_part(answers.second, host, "replace"))
    if need.head in answers.third and not replaced:
        late = text_mapping(answer_part(answers.third, need.head, "look"), "troubles").get(answers.files[host], "")
        yield RENAME.on(host, not late, late or "seen at once")
    if problem_in(answer_part(answers.first, need.head, "lock")):
        return
    answer = answer_part(answers.second, host, "is_held")
    held = answer.get("held") is True
    found = "held" if held else problem_in(answer) or "not held here while the head holds it"
    yield LOCK.on(host, held, found)


def _check_space(need: HostsNeed, answer: Mapping[str, Any], host: str) -> Iterator[HostCheck]:
    folders = answer.get("folders")
    known = folders if isinstance(folders, dict) else {}
    for folder, definition in ((need.folder, SPACE), (need.temporary, TEMPORARY)):
        disk = known.get(folder)
        if not isinstance(disk, dict):
            continue
        free, problem = disk.get("free_bytes"), str(disk.get("trouble") or "")
        free = free if isinstance(free, int) and disk.get("total_bytes") else None
        if definition is SPACE and problem:
            # A missing folder is reported above.
            continue
        least = LITTLE_FREE_BYTES if definition is SPACE else MIN_FREE_BYTES
        ok = not problem and (free is None or free >= least) and (definition is SPACE or disk.get("writable") is True)
        amount = "not counted" if free is None else f"{format_bytes(free)} free"
        found = (
            f"{folder}: {problem}"
            if problem
            else f"{amount} in {folder}" + ("" if disk.get("writable") else ", which cannot be written to")
        )
        refuses = need.planned and free is not None and free < MIN_FREE_BYTES
        needed = format_bytes(MIN_FREE_BYTES if refuses else LITTLE_FREE_BYTES)
        yield definition.on(host, ok, found, refuses=refuses, least=needed, folder=folder)


CWD = refusal(
    name="folder of the runs",
    what="that the folder in which the runs start is on each host",
    prevents="FileNotFoundError: [Errno 2] No such file or directory, before the first line of the script",
    fix="mount or copy it to the same path on each host",
)
SCRIPT = refusal(
    name="script",
    what="that the script lies at the same path on each host",
    prevents="can't open file 'train.py': [Errno 2] No such file or directory, on one host's ranks",
    fix="mount or copy the code to the same path on each host",
)
SAME_SCRIPT = refusal(
    name="script contents",
    what="that the script has the same contents on all hosts, and on the head where it is there too",
    prevents="ranks that do not compute the same: RuntimeError: Detected mismatch between collectives on ranks; or a hang in one of them",
    fix="copy one and the same {script} to all hosts, or mount the folder of the code on each",
    in_docs={"script": "train.py"},
)
DATA = refusal(
    name="data of the runs",
    what="that data which the head has is at the same path on each host",
    prevents="FileNotFoundError: [Errno 2] No such file or directory, on one host's ranks",
    fix="mount or copy the data to the same path on each host",
)
USER = warning(
    name="user",
    what="that the user has the same number (uid) on all hosts, so that each may write what another has made",
    prevents="PermissionError: [Errno 13] Permission denied, on files that another host's ranks have written",
    fix="log in to the hosts as the same user (User in ~/.ssh/config), with the same uid on each",
)
PATH_CHECKS = (CWD, SCRIPT, SAME_SCRIPT, DATA, USER)
DIGITS_SHOWN = 8
BY_KIND = {"cwd": CWD, "script": SCRIPT, "data": DATA}


def check_paths(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    for host in need.names:
        if answers.answered(host):
            yield from _check_paths(need, answers, host)
    yield from _check_scripts(need, answers)
    users = {host: facts.uid for host, facts in answers.facts.items() if facts.uid >= 0}
    # The head owns the first files.
    expected = str(users.get(need.head, "")) or most_common({host: str(uid) for host, uid in users.items()})
    for host in need.names:
        if host in users:
            found = f"{answers.facts[host].user} ({users[host]})"
            ok = str(users[host]) == expected
            yield USER.on(host, ok, found if ok else f"{found}; {expected} on the head")


def _check_scripts(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    """One check per host, whatever the number of scripts."""
    seen: dict[str, list[str]] = {}
    for path in (path for path, what in need.paths.items() if what == "script"):
        digests = {host: facts.scripts[path] for host, facts in answers.facts.items() if path in facts.scripts}
        usual = most_common(digests)
        others = [host for host, digest in digests.items() if digest == usual]
        for host, digest in digests.items():
            answer = f"{Path(path).name} differs: {digest[:DIGITS_SHOWN]}; {usual[:DIGITS_SHOWN]} on {hosts_text(others, answers.labels)}"
            seen.setdefault(host, []).extend([answer] if digest != usual else [])
    name = next((Path(path).name for path, what in need.paths.items() if what == "script"), "")
    for host, wrong in seen.items():
        yield SAME_SCRIPT.on(host, not wrong, "; ".join(wrong) or f"{name} is the same", script=name)


def _check_paths(need: HostsNeed, answers: Answers, host: str) -> Iterator[HostCheck]:
    answer = answer_part(answers.first, host, "paths")
    problems = text_mapping(answer, "troubles")
    for kind, definition in BY_KIND.items():
        paths = [path for path, what in need.paths.items() if what == kind]
        if not paths:
            continue
        wrong = [problems[path] for path in paths if path in problems]
        problem = problem_in(answer) or "; ".join(wrong)
        yield definition.on(host, not problem, problem or ", ".join(paths[:2]))
