"""`seatrial run` of a plan with stages: each stage in order, then the acceptance.

In: a `StagedPlan`. Out: in the output folder a campaign or a log for each stage, and stages.json with how each ended; the exit code of the
acceptance. The same command resumes: a campaign continues with the remaining runs, a command that ended with exit code 0 is not run again.
"""

from __future__ import annotations

import contextlib
import fnmatch
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.cli.plan import resolve_loaded
from seatrial.cli.program import console_for, print_first_line, print_json
from seatrial.core.errors import (
    DONE,
    FAILED,
    INCONCLUSIVE,
    INTERRUPTED,
    WRONG_USE,
    RefusedError,
    SeatrialError,
    UsageError,
    did_you_mean,
    printable,
)
from seatrial.core.files import read_json, write_json
from seatrial.core.paths import StagesPaths
from seatrial.core.text import count
from seatrial.machine.gpus import read_driver
from seatrial.plan.stages import ACCEPTANCE, Stage, StagedPlan, fill
from seatrial.records.outcome import Outcome, StageRecord
from seatrial.records.plan import CampaignPlan
from seatrial.records.stored import accepted_outcome


class StagedRun:
    """One command `seatrial run` over a plan with stages."""

    def __init__(
        self,
        staged: StagedPlan,
        run_campaign: Callable[[CampaignPlan], int],
        *,
        output: Path,
        overrides: Sequence[str],
        site: str | None,
        as_json: bool,
        again: bool,
    ) -> None:
        """`run_campaign` runs one, with the options of the command, and returns its exit code; `again` runs finished commands too."""
        self._staged, self._execute, self._overrides, self._site = staged, run_campaign, overrides, site
        self._output, self._as_json, self._again = output, as_json, again
        self._paths = StagesPaths(self._output)
        self._console = console_for(as_json=as_json, plain=True, soft_wrap=True)
        self._records: dict[str, dict[str, Any]] = {}
        self._num_gpus = 0

    def run(self, only: Sequence[str], one_campaign: Mapping[str, object], first_line: str) -> int:
        """Run the stages that `only` selects, then the acceptance; the exit code. `one_campaign`: options that do not apply here."""
        chosen = self._choose(only)
        for option, value in one_campaign.items():
            if value is not None:
                raise UsageError(f"{option} is for one campaign, and {self._staged.name} has stages: run the plan of one stage with it")
        self._prepare(chosen)
        print_first_line(self._console, first_line)
        with contextlib.redirect_stdout(sys.stderr) if self._as_json else contextlib.nullcontext():
            code = self._run_stages(chosen)
            if code != INTERRUPTED:
                code = self._accept()
        if self._as_json:
            print_json({"name": self._staged.name, "exit_code": code, "stages": self._records, "output": str(self._output)})
        return code

    def _choose(self, only: Sequence[str]) -> list[Stage]:
        names = [*(stage.name for stage in self._staged.stages), ACCEPTANCE]
        for pattern in only:
            if not fnmatch.filter(names, pattern):
                raise UsageError(f"--only {pattern}: there is no such stage; {did_you_mean(pattern, names)}")
        return [stage for stage in self._staged.stages if not only or any(fnmatch.fnmatchcase(stage.name, one) for one in only)]

    def _prepare(self, chosen: Sequence[Stage]) -> None:
        """Refuse what can be refused before the first stage; every plan is read, so that a mistake in the last is found now."""
        noted = read_json(self._paths.stages) or {}
        if noted.get("name", self._staged.name) != self._staged.name:
            raise UsageError(f"{self._output} has the stages of '{noted['name']}', not of '{self._staged.name}': choose another with --out")
        self._records = dict(noted.get("stages", {}))
        if not chosen:
            return
        self._num_gpus = len(read_driver().gpus)
        if self._num_gpus < self._staged.needs_gpus:
            need, found = count(self._staged.needs_gpus, "GPU"), count(self._num_gpus, "GPU") if self._num_gpus else "none"
            raise RefusedError(f"{self._staged.name} needs {need} (needs_gpus), and this machine has {found}")
        for stage in chosen:
            if stage.plan is not None and self._num_gpus >= stage.needs_gpus:
                self._staged.load(stage, self._num_gpus, self._overrides)

    def _run_stages(self, chosen: Sequence[Stage]) -> int:
        for number, stage in enumerate(chosen, 1):
            self._console.print(f"[{number}/{len(chosen)}] {stage.name}", style="bold")
            record = self._run_stage(stage)
            if record.exit_code == INTERRUPTED:
                left = len(chosen) - number + 1
                self._console.print(f"interrupted: {count(left, 'stage')} left; run the same command to resume.", style="yellow")
                return INTERRUPTED
            record.ended_t = record.ended_t or time.time()
            self._note(stage.name, record)
            how = f"not run: {record.why}" if record.exit_code is None else f"exit code {record.exit_code}"
            why = f" ({record.why})" if record.exit_code and record.why else ""
            self._console.print(printable(f"[{number}/{len(chosen)}] {stage.name}: {how}{why}"))
        return DONE

    def _note(self, name: str, record: StageRecord) -> None:
        self._records[name] = vars(record)
        write_json(self._paths.stages, {"name": self._staged.name, "stages": self._records})

    def _run_stage(self, stage: Stage) -> StageRecord:
        if self._num_gpus < stage.needs_gpus:
            have = count(self._num_gpus, "GPU") if self._num_gpus else "none"
            return StageRecord(exit_code=None, why=f"needs {count(stage.needs_gpus, 'GPU')}, and this machine has {have}")
        if stage.command:
            return self._run_command(stage.name, fill(stage.command, self._output))
        try:
            code = self._run_campaign(stage)
            if code not in (DONE, INTERRUPTED) and stage.after_stall and self._has_stalled(stage):
                changes = ", ".join(f"{key}={value}" for key, value in stage.after_stall.items())
                self._console.print(printable(f"{stage.name} stalled; repeating it with {changes}"), style="yellow")
                code = self._run_campaign(stage, after_stall=True)
        except SeatrialError as error:
            self._console.print(printable(str(error)), style="red")
            return StageRecord(exit_code=error.exit_code, why=str(error))
        return StageRecord(exit_code=code)

    def _run_campaign(self, stage: Stage, *, after_stall: bool = False) -> int:
        path, loaded = self._staged.load(stage, self._num_gpus, self._overrides, after_stall=after_stall)
        return self._execute(resolve_loaded(loaded, path, self._output / stage.name, self._site))

    def _has_stalled(self, stage: Stage) -> bool:
        newest = (run.attempts()[-1:] for run in self._paths.campaign(stage.name).runs())
        outcomes = (accepted_outcome(attempt) for attempts in newest for attempt in attempts)
        return any(outcome is not None and outcome.outcome is Outcome.STALLED for outcome in outcomes)

    def _run_command(self, name: str, argv: list[str]) -> StageRecord:
        before = self._records.get(name, {})
        if before.get("exit_code") == DONE and before.get("command") == argv and not self._again:
            self._console.print("finished earlier; --again runs it again")
            return StageRecord(**before)
        code, why = self._tee(argv, self._paths.log(name))
        return StageRecord(exit_code=code, why=why, command=argv)

    def _tee(self, argv: Sequence[str], log: Path) -> tuple[int, str]:
        """Exit code of the command, and why it could not be started; its output is printed and kept in `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as error:
            return WRONG_USE, f"{argv[0]} cannot be started: {error.strerror}"
        assert child.stdout is not None
        with child, open(log, "wb") as out:
            try:
                for line in child.stdout:
                    out.write(line)
                    self._console.print(printable(line.decode("utf-8", errors="replace").rstrip("\n")))
            except BaseException:
                child.terminate()
                raise
        return child.returncode, ""

    def _accept(self) -> int:
        """The exit code of the acceptance; without one, of the worst stage."""
        if not self._staged.acceptance:
            codes = [self._records.get(stage.name, {}).get("exit_code") for stage in self._staged.stages]
            if any(code not in (None, DONE, INCONCLUSIVE) for code in codes):
                return FAILED
            return INCONCLUSIVE if any(code != DONE for code in codes) else DONE
        self._console.print(ACCEPTANCE, style="bold")
        code, why = self._tee(fill(self._staged.acceptance, self._output), self._paths.log(ACCEPTANCE))
        if why:
            self._console.print(printable(why), style="red")
        # A signal ended it.
        return code if code >= 0 else FAILED
