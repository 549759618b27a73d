"""Commands on the hosts of a cluster, and what runs there."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.cluster import machines, network
from tests.cluster.running import Started, entering_command, environment, kill_inside, processes_of
from tests.cluster.state import ClusterState

Argv = Sequence[str | Path]


class Commands:
    """Every method that takes `host` raises ClusterError when there is none of that name."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._started: list[subprocess.Popen[str]] = []

    def run(
        self,
        host: str,
        argv: Argv,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        timeout: float = 60.0,
        input: str = "",
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; its own exit code, negative for a signal. Past `timeout` everything below it is killed inside."""
        with _scratch_file() as given, _scratch_file() as out, _scratch_file() as err:
            given.write(input)
            given.seek(0)
            words = entering_command(self.state, host, [str(word) for word in argv], cwd)
            process = subprocess.Popen(
                words,
                env={**environment(self.state), **(env or {})},
                stdin=given,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout)
            except BaseException as error:
                kill_inside(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise subprocess.TimeoutExpired(list(argv), timeout, _text(out), _text(err)) from None
                raise
            done = subprocess.CompletedProcess([str(word) for word in argv], code, _text(out), _text(err))
        if check:
            assert code == 0, f"{done.args} on {host} ended with {code}:\n{done.stdout}{done.stderr}"
        return done

    def start(self, host: str, argv: Argv, *, env: Mapping[str, str] | None = None, cwd: Path | str | None = None) -> Started:
        """Start a command and go on; it ends with its host at the latest."""
        log = machines.scratch(self.state) / f"{host}.log"
        words = entering_command(self.state, host, [str(word) for word in argv], cwd)
        with open(log, "w") as output:
            process = subprocess.Popen(
                words,
                env={**environment(self.state), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        return Started(host, process, log)

    def processes(self, host: str, text: str = "") -> list[int]:
        """Numbers, inside the host, of the processes with this text in their command line or environment; a host that is off has none."""
        return [seen.pid for seen in processes_of(self.state, host) if text in seen.command or text in seen.environment]

    def commands(self, host: str, text: str = "") -> list[str]:
        """Command lines of the same, for messages."""
        return [seen.command for seen in processes_of(self.state, host) if text in seen.command or text in seen.environment]

    def kill(self, host: str, pid: int, number: int = signal.SIGKILL) -> None:
        """Signal one process by its number inside the host."""
        for seen in processes_of(self.state, host):
            if seen.pid == pid:
                os.kill(seen.outer, number)

    def listens(self, host: str, port: int) -> bool:
        init = self.state.host(host).init
        return init is not None and network.listens(init, port)


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _scratch_file() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
