"""`python -P -m seatrial.agent.query_handler`: answer the doctor's queries about this host, one JSON line each, until standard input ends.

    {"ready": true, "host": "node1", "pid": 4711}                                                     sent first
    {"n": 1, "ask": "all", "parts": {"facts": {"ask": "facts"}, "port": {"ask": "listen", "token": "…"}}}     query
    {"n": 1, "parts": {"facts": {"host": "node1", …}, "port": {"port": 29650}}, "received_t": …, "sent_t": …}   answer

Every query has a timeout, after which the answer is `{"trouble": "no answer within 5 s"}`; the parts of `all` are answered
concurrently. Sockets and files that queries leave open are closed and removed by the query `close`, and at the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import getpass
import hashlib
import json
import operator
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import seatrial
from seatrial.agent.connectivity import (
    CONNECT_TIMEOUT_S,
    SSH_TIMEOUT_S,
    Answer,
    Listeners,
    describe_error,
    measure_speed,
    run_concurrently,
    try_connections,
    try_ssh,
)
from seatrial.core.control_connection.encryption import encryption_problem
from seatrial.core.files import PRIVATE, json_object
from seatrial.core.linux import raise_fd_limit
from seatrial.core.paths import TRIAL_PREFIX
from seatrial.core.private_files import is_own, is_private, is_world_writable, new_private_file
from seatrial.core.shell import RunawayCommandError, command_output_bytes, find_on_path, find_program
from seatrial.core.timeouts import has_hung_call, poll_until
from seatrial.machine.gpus import read_driver
from seatrial.machine.host import read_host
from seatrial.machine.network import list_interfaces
from seatrial.machine.processes import list_running_campaigns, read_boot_id
from seatrial.machine.software import find_interpreter, resolve_python

# Longer than any healthy host takes: a hung disk or name server is reported.
QUERY_TIMEOUT_S = 5.0
# A build of CUDA extensions and kernels on a slow disk.
WARM_TIMEOUT_S = 1800.0
# For queries with inner timeouts: their sum, and a margin.
QUERY_TIMEOUTS_S = {
    "warm": WARM_TIMEOUT_S + 10.0,
    "gpus": 11.0,
    "facts": 11.0,
    "ssh": SSH_TIMEOUT_S + 1.0,
    "reach": CONNECT_TIMEOUT_S + 2.0,
}
# Below QUERY_TIMEOUT_S, so that the other parts of a query are still answered.
NAME_TIMEOUT_S = 2.0
PATH_TIMEOUT_S = 3.0
# A broken link leaves the pipe open without any further query.
IDLE_TIMEOUT_S = 120.0
MAX_QUERY_BYTES = 4 << 20
# A thousand hosts may connect, and be connected to, at once.
MAX_OPEN_FILES = 8192
PACKAGES = ("seatrial", "seatrial_workloads")
# Larger than any script; larger programs are not hashed.
MAX_HASHED_BYTES = 64 << 20
# A file server may show others' changes a moment later.
FILE_TIMEOUT_S = 2.0
FILE_POLL_S = 0.05
MAX_FILE_CHARACTERS = 4096

Query = Mapping[str, Any]


class QueryHandler:
    """Answers queries, and holds what they leave open."""

    def __init__(self) -> None:
        self._listeners, self._files = Listeners(), SharedFolderFiles()
        self._functions: dict[str, Callable[[Query], Answer]] = {
            "clock": lambda query: {},
            "facts": read_facts,
            "gpus": read_gpus,
            "encryption": try_encryption,
            "names": resolve_names,
            "programs": find_programs,
            "paths": check_paths,
            "space": measure_space,
            "ssh": try_ssh,
            "listen": self._listeners.listen,
            "reach": try_connections,
            "speed": measure_speed,
            "put": self._files.put,
            "lock": self._files.lock,
            "look": check_shared_files,
            "is_held": is_lock_held,
            "warm": warm_up,
            "close": self._close,
        }

    def answer(self, query: Query) -> Answer:
        """Never raises, and returns in time; `n` is the query's number."""
        received_t = time.time()
        parts = query.get("parts")
        if query.get("ask") == "all" and isinstance(parts, dict):
            answer: Answer = {"parts": self._answer_all({str(name): part for name, part in parts.items() if isinstance(part, dict)})}
        else:
            answer = self._answer_all({"": query})[""]
        return {"n": query.get("n"), **answer, "received_t": received_t, "sent_t": time.time()}

    def close(self) -> None:
        self._listeners.close()
        self._files.close()

    def _answer_all(self, queries: Mapping[str, Query]) -> dict[str, Answer]:
        timeouts_s = {name: QUERY_TIMEOUTS_S.get(str(query.get("ask")), QUERY_TIMEOUT_S) for name, query in queries.items()}
        return run_concurrently({name: (functools.partial(self._answer, each), timeouts_s[name]) for name, each in queries.items()})

    def _answer(self, query: Query) -> Answer:
        kind = str(query.get("ask"))
        function = self._functions.get(kind)
        return function(query) if function else {"trouble": f"this Seatrial does not know the query {kind[:40]!r}"}

    def _close(self, query: Query) -> Answer:
        self.close()
        return {}


def read_facts(query: Query) -> Answer:
    """Host, versions and network. `program`, `cwd` and `variables` name the runs' interpreter, by default this one."""
    host = read_host()
    variables = {**os.environ, **{str(name): str(value) for name, value in query.get("variables", {}).items()}}
    python = find_interpreter(tuple(map(str, query.get("program", ()))), Path(str(query.get("cwd") or "/")), variables)
    code = user = ""
    with contextlib.suppress(OSError):
        code = hash_code()
    with contextlib.suppress(KeyError, OSError):
        user = getpass.getuser()
    return {
        "host": host.name,
        "boot_id": read_boot_id(),
        "platform": host.platform,
        "cpu": host.cpu,
        "cpu_count": host.cpu_count,
        "memory_bytes": host.memory_bytes,
        "seatrial": seatrial.__version__,
        "code": code,
        "python": python.python,
        "packages": dict(python.packages),
        "torch_cuda": python.torch_cuda,
        "user": user,
        "uid": os.geteuid(),
        "campaigns": list_running_campaigns(),
        "interfaces": {name: list(addresses) for name, addresses in list_interfaces().items()},
    }


def read_gpus(query: Query) -> Answer:
    """Separate from the facts, since a driver may hang."""
    driver = read_driver()
    problem = "" if driver.no_driver else driver.problem
    answer = {"gpus": [gpu.name for gpu in driver.gpus], "driver_version": driver.version, "driver_cuda": driver.cuda}
    return {**answer, "trouble": problem} if problem else answer


def try_encryption(query: Query) -> Answer:
    """`problem`: why the agent, which uses this interpreter, cannot encrypt its connection to the harness; empty where it can."""
    return {"problem": encryption_problem()}


@functools.cache
def hash_code(root: Path = Path(seatrial.__file__).parent.parent) -> str:
    """A hash of the names and contents of all .py files of Seatrial's packages, to compare hosts."""
    digest = hashlib.sha256()
    shipped = root / "seatrial" / "shipped"
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        if shipped in path.parents:
            # Files to copy, which a checkout has elsewhere.
            continue
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode("utf-8", errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def hash_file(path: Path) -> str:
    """A hash of the contents; empty for a large file, and for anything but a regular file."""
    if not path.is_file() or path.stat().st_size > MAX_HASHED_BYTES:
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def resolve_names(query: Query) -> Answer:
    """`addresses` of each of `names`, and of this host's own name; `troubles` of those that do not resolve."""
    own = socket.gethostname()
    names = dict.fromkeys([own, *map(str, query.get("names", ()))])
    answers = run_concurrently({name: (functools.partial(_resolve, name), NAME_TIMEOUT_S) for name in names})
    return {
        "own": own,
        "addresses": {name: found.get("addresses", []) for name, found in answers.items()},
        "troubles": {name: found["trouble"] for name, found in answers.items() if "trouble" in found},
    }


def _resolve(name: str) -> Answer:
    # Any address family, as torch and NCCL do.
    found = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)
    return {"addresses": list(dict.fromkeys(str(entry[4][0]) for entry in found))}


def warm_up(query: Query) -> Answer:
    """Run `module` with the runs' interpreter (`program`, `cwd`, `variables`), which fills caches for runs with `settings`; its results."""
    cwd = Path(str(query.get("cwd") or "/"))
    variables = {**os.environ, **{str(name): str(value) for name, value in query.get("variables", {}).items()}}
    program = list(map(str, query.get("program", ())))[:1]
    python = resolve_python(program[0], cwd, variables.get("PATH")) if program else sys.executable
    if python is None:
        return {"trouble": f"the Python of {program[0]} was not found"}
    argv = [python, "-P", "-m", str(query.get("module")), json.dumps(query.get("settings", []))]
    try:
        written = command_output_bytes(argv, cwd if cwd.is_dir() else None, WARM_TIMEOUT_S, variables)
    except RunawayCommandError:
        return {"trouble": f"not done within {WARM_TIMEOUT_S:.0f} s"}
    results = json_object((written or b"").strip().rpartition(b"\n")[2])
    return results or {"trouble": f"`{' '.join(argv[:4])}` failed: run it there to see why"}


def find_programs(query: Query) -> Answer:
    """Where each of `programs` is on `path` (as the runs have it) in `cwd`; those of `found_beside` also beside this Python."""
    path, cwd = query.get("path"), Path(str(query.get("cwd") or "/"))
    search_path = None if path is None else str(path)
    plain = {name: find_on_path(name, search_path, cwd) or "" for name in map(str, query.get("programs", ()))}
    beside = {name: find_program(name, search_path, cwd) or "" for name in map(str, query.get("found_beside", ()))}
    return {"where": {**plain, **beside}}


def check_paths(query: Query) -> Answer:
    """`troubles` of those of `paths` (path → `file`, `folder` or `any`) that cannot be used; `digests` of the files among the others."""
    paths = {str(path): str(kind) for path, kind in query.get("paths", {}).items()}
    answers = run_concurrently({path: (functools.partial(_check_path, Path(path), kind), PATH_TIMEOUT_S) for path, kind in paths.items()})
    return {
        "troubles": {path: found["trouble"] for path, found in answers.items() if found.get("trouble")},
        "digests": {path: found["digest"] for path, found in answers.items() if found.get("digest")},
    }


def _check_path(path: Path, kind: str) -> Answer:
    problem = _path_problem(path, kind)
    return {"trouble": problem, "digest": hash_file(path) if kind == "file" and not problem else ""}


def _path_problem(path: Path, kind: str) -> str:
    try:
        path.stat()
    except OSError as error:
        return f"{path}: {describe_error(error)}"
    if kind == "folder" and not path.is_dir():
        return f"{path} is not a folder"
    if kind == "file" and not path.is_file():
        return f"{path} is not a file"
    needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
    return "" if os.access(path, needed) else f"{path} may not be read"


def measure_space(query: Query) -> Answer:
    """For each of `folders` that exists: bytes free and in total (0 where the file system does not count), and whether it is writable."""
    folders = list(map(str, query.get("folders", ())))
    return {"folders": run_concurrently({folder: (functools.partial(_measure_folder, folder), PATH_TIMEOUT_S) for folder in folders})}


def _measure_folder(folder: str) -> Answer:
    state = os.statvfs(folder)
    return {
        "free_bytes": state.f_bavail * state.f_frsize,
        "total_bytes": state.f_blocks * state.f_frsize,
        "writable": os.access(folder, os.W_OK),
    }


def _why_open(folder: Path) -> str:
    if is_world_writable(folder):
        return "it is world-writable"
    created = new_private_file(folder)
    return "" if created is None or is_private(created) else "files with mode 0600 are readable by others there"


class SharedFolderFiles:
    """Small files in a folder that should be shared between hosts, to test whether it is: written, checked from elsewhere, locked.

    Names begin with TRIAL_PREFIX and have no slash, so nothing else in the folder can be touched. `close` removes them and releases the
    locks.
    """

    def __init__(self) -> None:
        self._written: set[Path] = set()
        self._locked: list[int] = []

    def put(self, query: Query) -> Answer:
        """Write `text` to a temporary file and rename it to `name` in `folder`, replacing what is there. `open` is why files in it are not
        safe from other users; empty where they are."""
        path = _test_file(query)
        temporary = path.with_name(f"{path.name}.part")
        self._written |= {path, temporary}
        act = "written"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(str(query.get("text", ""))[:MAX_FILE_CHARACTERS])
                file.flush()
                os.fsync(file.fileno())
            act = "renamed"
            os.replace(temporary, path)
        except OSError as error:
            return {"trouble": f"in {path.parent} no file can be {act}: {describe_error(error)}", "act": act}
        return {"open": _why_open(path.parent)}

    def lock(self, query: Query) -> Answer:
        """Hold a lock on `name` until `close`."""
        path = _test_file(query)
        self._written.add(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        self._locked.append(fd)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return {}

    def close(self) -> None:
        for fd in self._locked:
            with contextlib.suppress(OSError):
                os.close(fd)
        for path in self._written:
            with contextlib.suppress(OSError):
                path.unlink()
        self._locked.clear()
        self._written.clear()


def check_shared_files(query: Query) -> Answer:
    """`troubles` of those of `wanted` (name → text) that do not have that text, not even after a moment; `foreign`: owners of those that
    are not this user's."""
    folder, wanted = Path(str(query["folder"])), {str(name): text for name, text in query.get("wanted", {}).items()}

    def compare() -> dict[str, str]:
        return {name: problem for name, text in wanted.items() if (problem := _compare_file(_named(folder, name), text))}

    problems = poll_until(compare, operator.not_, FILE_TIMEOUT_S, FILE_POLL_S)
    return {"troubles": problems, "foreign": {name: owner for name in wanted if (owner := _foreign_owner(_named(folder, name)))}}


def _foreign_owner(path: Path) -> str:
    """The owner; empty for this user, and where there is no file."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        return "" if is_own(found, path.parent) else f"user {found.st_uid}, and the agent is user {os.geteuid()}"
    return ""


def _compare_file(path: Path, text: object) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = file.read(MAX_FILE_CHARACTERS)
    except OSError as error:
        return describe_error(error)
    allowed = text if isinstance(text, list) else [text]
    return "" if found in allowed else "stale content is read there" if found else "the file is empty there"


def is_lock_held(query: Query) -> Answer:
    fd = os.open(_test_file(query), os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return {"held": True}
    finally:
        os.close(fd)
    return {"held": False}


def _test_file(query: Query) -> Path:
    return _named(Path(str(query["folder"])), str(query["name"]))


def _named(folder: Path, name: str) -> Path:
    if not name.startswith(TRIAL_PREFIX) or "/" in name or not folder.is_absolute():
        raise ValueError(f"{name!r} is not a test file")
    return folder / name


def main(queries: int, answers: int) -> int:
    """Read from one descriptor and write to the other until the first ends, or no query comes for IDLE_TIMEOUT_S."""
    handler = QueryHandler()
    try:
        _write(answers, {"ready": True, "host": socket.gethostname(), "pid": os.getpid()})
        pending = b""
        while select.select([queries], [], [], IDLE_TIMEOUT_S)[0]:
            data = os.read(queries, 1 << 16)
            *lines, pending = (pending + data).split(b"\n")
            for query in filter(None, map(json_object, lines)):
                _write(answers, handler.answer(query))
            if not data or len(pending) > MAX_QUERY_BYTES:
                break
    except BrokenPipeError:
        # The doctor is gone.
        pass
    finally:
        handler.close()
    return 0


def _write(fd: int, answer: Answer) -> None:
    line = json.dumps(answer).encode() + b"\n"
    while line:
        line = line[os.write(fd, line) :]


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _run() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _exit)
    raise_fd_limit(MAX_OPEN_FILES)
    code = main(sys.stdin.fileno(), sys.stdout.fileno())
    if has_hung_call():
        # A normal exit would wait for locks that a hung call holds.
        os._exit(code)
    return code


if __name__ == "__main__":
    raise SystemExit(_run())
