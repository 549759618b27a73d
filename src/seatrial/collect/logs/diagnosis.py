"""Why a run failed: the first cause in its whole log.

In: lines as they come, of one log or of several files, then the exit code and the requested steps, where known. Out: a `Diagnosis`: how it
ended, cause, rank, line, excerpt, and what to do.

Signs come from the registry of failure signatures. When one rank dies, the others report errors too, and the launcher repeats them.
Signs of a lost peer therefore count only without any other sign; among equals the earliest line is the cause; a broken GPU takes precedence
over what its ranks print, and an exit code that the script chose over what other ranks print about the loss. Without any sign the cause is
unknown and the most relevant lines are kept.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence
from dataclasses import replace

from seatrial.collect.logs.launcher_log import PrefixedLine, host_in
from seatrial.collect.logs.launcher_report import (
    CRASH_SIGNALS,
    FAILED_BY_LAUNCHER,
    LAUNCHER_REPORT,
    NATIVE_SIGNALS,
    RAISED,
    SHELL_SIGNALS,
    ReportedEnd,
    how_it_ended,
    signal_name,
)
from seatrial.collect.logs.line_relevance import (
    NOISE,
    Block,
    ExceptionChain,
    FoundSigns,
    LogEvidence,
    Weight,
    block_begun_by,
    earliest,
    error_lines,
    final_lines,
)
from seatrial.collect.logs.log_outcome import INTERRUPTED_CODES, STEPS_OF_OTHERS, LogEnd
from seatrial.collect.logs.scan import LogScan
from seatrial.core.log_lines import strip_colours
from seatrial.records.outcome import Cause, Diagnosis, Outcome
from seatrial.records.signatures.harmless import without_harmless
from seatrial.records.signatures.registry import Signature, general, of_exit_code, signature

LONGEST_DETAIL = 500
SHORTLY_BEFORE = 5000
"""Most lines between a traceback and the launcher's report: other ranks may print many steps before the launcher ends them."""
STEPS_ALONE = 50
"""More steps than ranks take before they notice that one of them is gone."""
# Exit codes of a rank that raised, aborted or was sent TERM: its own lines show more.
UNINFORMATIVE_CODES = (RAISED, -6, -15)
# Causes that an exit code shows by itself.
EXIT_CODE_DETAILS = {
    Cause.KILLED: "a process of the run was killed by signal 9 (SIGKILL)",
    Cause.PROGRAM_MISSING: "the program was not found (exit code 127)",
}
# Entries of a crash below Python: the log has no stack, or that of faulthandler.
NATIVE_CRASH, CRASH_WITH_STACK = "native_crash", "crash_with_stack"
INTERRUPTED = "interrupted by Ctrl-C (SIGINT)"
NO_CAUSE = "no exit code is known and the log shows no cause"
NO_FAILURE = Diagnosis(cause=Cause.NONE, detail="", action="", signature="")


class LogReader:
    """Reads a log as it comes; `result` may be called at any time, and more lines may follow."""

    def __init__(self) -> None:
        self._scan = LogScan()
        self._end = LogEnd(self._scan)

    def feed(self, line: str, *, source: str = "", rank: int | None = None) -> None:
        """One line. `source` names its file, `rank` the rank it belongs to, where the caller knows it."""
        self._scan.feed(line, source=source, rank=rank)

    def feed_block(self, text: bytes, shapes: Sequence[bytes], *, source: str = "") -> None:
        """Many lines of one file with their shapes: like `feed`, several times as fast."""
        self._scan.feed_block(text, shapes, source=source)

    def result(self, exit_code: int | None = None, requested_steps: int | None = None) -> Diagnosis:
        """What the lines so far show; `requested_steps`: the planned number of steps, if known."""
        at_end = self._end.traceback_at_end()
        outcome, last = self._end.outcome(exit_code, requested_steps), self._end.last_step()
        found = NO_FAILURE
        if outcome is not Outcome.OK:
            found = self._interrupt() if outcome is Outcome.INTERRUPTED else self.failure(exit_code)
        return replace(
            found,
            outcome=outcome,
            launcher_report=bool(self._scan.reports),
            traceback_at_end=at_end or self._end.is_cut() or (self._end.good_end_at is None and self._end.lost_peer_at_end()),
            good_end=self._end.good_end_at is not None or (requested_steps is not None and last.may_be(requested_steps)),
            last_step=last.step,
        )

    def reached(self, requested_steps: int) -> bool | None:
        """Whether the last lines show that so many steps were taken; None without a step."""
        last = self._end.last_step()
        return None if last.step is None else last.may_be(requested_steps)

    def files_with_steps(self) -> set[str]:
        """Files that show a training."""
        return {source for source, steps in self._scan.file_steps.items() if steps.is_training}

    def short_files(self, sources: Collection[str]) -> dict[str, int]:
        """Parallel files that break off before the last step of the furthest one, with their own last steps."""
        files = {source: steps for source, steps in self._scan.file_steps.items() if source in sources and steps.numbers}
        furthest = max(files.values(), key=lambda steps: steps.numbers[-1], default=None)
        return {source: steps.numbers[-1] for source, steps in files.items() if furthest is not None and steps.ends_before(furthest)}

    def unfinished(self) -> tuple[int, int] | None:
        """Position and length of the progress bar that the lines end with, if it is not full."""
        return self._end.unfinished()

    def failure(self, exit_code: int | None = None) -> Diagnosis:
        """The cause of a run that is known to have failed, by the lines, else by the exit code."""
        return self._cause(exit_code) or self._unexplained_end(exit_code)

    def _cause(self, exit_code: int | None) -> Diagnosis | None:
        """The cause in the log; None without one."""
        found = self._root_cause(self._end.found_at_end()) or self._root_cause(list(self._scan.found()))
        found = found or self._launcher_cause() or self._doubtful_cause()
        cancelled, report = self._cancelled(), self._scan.report_at
        if cancelled is not None and report is not None and report.at < cancelled.at:
            # Slurm ends the other tasks of a step when one fails.
            return found or self._reported_end()
        if cancelled is not None and (found is None or _is_after(found, cancelled)):
            return self._from_evidence(cancelled)
        if found is None and (self._scan.reports or exit_code):
            # Steps of another host may have arrived late.
            found = self._root_cause(self._scan.earlier)
        if found is not None:
            return found
        after_effect = self._after_effect()
        recovered = self._scan.recovered_from
        if recovered and self._recovered_counts(recovered.decisive, exit_code, after_effect):
            return self._from_evidence(recovered.decisive)
        if after_effect is None:
            return None
        # Neither the code of an exception, nor of a signal as Python or a shell reports it: the script itself chose it.
        if exit_code is not None and 1 < exit_code < SHELL_SIGNALS:
            detail = f"ended with exit code {exit_code}; the log shows only the consequence: {after_effect.text}"
            return _diagnosis(_exit_code_entry(exit_code), detail)
        # A signal that no process sends itself in good order: the others only complain about the process it ended.
        if exit_code is not None and -exit_code in (signal.SIGKILL, *NATIVE_SIGNALS):
            return None
        diagnosis = self._from_evidence(after_effect)
        # A lost peer explains nothing; other lines may.
        return replace(diagnosis, telling=self._error_lines()) if after_effect.sign and after_effect.sign.echo else diagnosis

    def _cancelled(self) -> LogEvidence | None:
        """The scheduler's line about a cancelled job or step, where nothing but lost peers was noticed before."""
        first = self._after_effect()
        return first if first is not None and first.sign is not None and first.sign.cause is Cause.SCHEDULER else None

    def _root_cause(self, found: Sequence[FoundSigns]) -> Diagnosis | None:
        higher_priority = earliest(one.higher_priority for one in found)
        if higher_priority is not None:
            return self._from_evidence(higher_priority)
        # Ranks wait for one that never joins: its error, in another file or behind another prefix, is the cause.
        for some in ([one for one in found if not one.waited_for_peer], found):
            first = self._first_of(earliest(one.sign for one in some), [one.chain for one in some if one.chain])
            if first is not None:
                return first
        return None

    def _doubtful_cause(self) -> Diagnosis | None:
        found = list(self._scan.found())
        return self._first_of(earliest(one.weak_sign for one in found), [one.weak_chain for one in found if one.weak_chain])

    def _first_of(self, sign: LogEvidence | None, chains: Sequence[ExceptionChain]) -> Diagnosis | None:
        chain = min(chains, key=lambda one: one.first.at, default=None)
        if chain is not None and (sign is None or chain.first.at <= sign.at):
            return self._from_evidence(chain.decisive)
        return None if sign is None else self._from_evidence(sign)

    def _launcher_cause(self) -> Diagnosis | None:
        """The launcher's report about the rank that ended first, if it says more than the other ranks' errors."""
        end = self._scan.reported_end
        if end is None or end.code is None:
            end = ReportedEnd(code=self._scan.deepspeed_code)
        if end.code is None or end.code in UNINFORMATIVE_CODES:
            return None
        if end.code == -signal.SIGKILL:
            found = _diagnosis(general(Cause.KILLED), f"{end.who} was killed {how_it_ended(end.code)}")
        elif -end.code in NATIVE_SIGNALS:
            found = self._crash(end.code, f"{end.who} crashed: {signal_name(end.code)}")
        else:
            return self._silent_end(end)
        return self._where_reported(found, end)

    def _silent_end(self, end: ReportedEnd) -> Diagnosis:
        errors = self._error_lines()
        why = f"; most relevant line: {errors[0]}" if errors else ", and printed no reason"
        detail = f"{end.who} ended first, {how_it_ended(end.code or RAISED)}{why}"
        own = errors or final_lines(self._informative_lines(), "" if end.rank is None else f"[rank{end.rank}]:")
        return self._where_reported(replace(_diagnosis(general(Cause.EXIT_CODE), detail), telling=own), end)

    def _where_reported(self, found: Diagnosis, end: ReportedEnd) -> Diagnosis:
        """The diagnosis with the reported rank, and with the line of a one-line report."""
        at = self._scan.report_at if end.name else None
        return replace(found, rank=end.rank, source=at.source if at else "", line=(at.number or None) if at else None)

    def _reported_rank(self) -> int | None:
        """The failed rank by the launcher's report, else by its first line about one."""
        end, report = self._scan.reported_end, self._scan.report_at
        return end.rank if end is not None else report.rank if report else None

    def _after_effect(self) -> LogEvidence | None:
        """The earliest after-effect that is more than the loss of a peer, else the earliest."""
        found = list(self._scan.found())
        return earliest(one.after_effect for one in found) or earliest(one.echo for one in found)

    def _recovered_counts(self, raised: LogEvidence, exit_code: int | None, after_effect: LogEvidence | None) -> bool:
        """Whether an exception is the cause though steps came after it: the launcher names its rank as failed; or Python exited with 1 and
        no after-effect explains that; or one does, and the steps are of another rank's file, which follows in the same text."""
        return self._is_reported(raised) or (exit_code == RAISED if after_effect is None else self._is_in_another_file(raised))

    def _is_reported(self, raised: LogEvidence) -> bool:
        report, code = self._scan.report_at, self._reported_code()
        if report is None or code not in UNINFORMATIVE_CODES:
            return False
        if raised.rank is not None:
            return code == RAISED and raised.rank == self._reported_rank()
        if not 0 <= report.at - raised.at <= SHORTLY_BEFORE:
            return False
        # Another rank aborted while it waited: it cannot have taken many steps without the first.
        return code == RAISED or (report.step is not None and raised.step is not None and report.step - raised.step <= STEPS_ALONE)

    def _is_in_another_file(self, raised: LogEvidence) -> bool:
        """Files of several ranks were put into one: the numbers restart, get no further, and no line reports a restart."""
        fell_back_at = self._scan.fell_back_at.get(raised.source, 0)
        restarted_at = max(self._scan.restart_at.get(raised.source, 0), self._scan.relaunched_at.get(raised.source, 0))
        if raised.rank is not None or raised.step is None or fell_back_at < raised.at or restarted_at > raised.at:
            return False
        last = self._scan.last_step().step
        return last is not None and last <= raised.step + STEPS_OF_OTHERS

    def _from_evidence(self, evidence: LogEvidence) -> Diagnosis:
        entry = evidence.sign or general(Cause.EXCEPTION)
        rank = evidence.rank
        if rank is None and not entry.after_effect and self._reported_code() == RAISED:
            # Without prefixes, only the launcher knows which rank ended first.
            rank = self._reported_rank()
        noticed_by = None
        if entry.after_effect and entry.id != "monitored_barrier" and not FAILED_BY_LAUNCHER.search(evidence.text):
            # A rank that prints it only waited for another one, or was ended.
            rank, noticed_by = None, rank
        entry = self._crash_entry(entry)
        return replace(
            _diagnosis(entry, evidence.text),
            host=host_in(evidence.prefix),
            rank=rank,
            noticed_by=noticed_by,
            source=evidence.source,
            line=evidence.number or None,
            excerpt=(*evidence.excerpt, *(self._scan.python_stack if entry.id == CRASH_WITH_STACK else ())),
            num_consequences=max(self._scan.num_errors - evidence.num_before - 1, 0),
        )

    def _crash_entry(self, entry: Signature) -> Signature:
        """The entry of a crash for a log with a stack, or for one without."""
        if entry.id not in (NATIVE_CRASH, CRASH_WITH_STACK):
            return entry
        return signature(CRASH_WITH_STACK if self._scan.python_stack else NATIVE_CRASH)

    def _crash(self, exit_code: int, detail: str) -> Diagnosis:
        """A crash by an exit code that is a signal of native code."""
        entry = of_exit_code(exit_code)
        entry = self._crash_entry(entry if entry is not None and entry.cause is Cause.NATIVE_CRASH else general(Cause.NATIVE_CRASH))
        stack = tuple(self._scan.python_stack) if entry.id == CRASH_WITH_STACK else ()
        return replace(_diagnosis(entry, detail), excerpt=stack)

    def _unexplained_end(self, exit_code: int | None) -> Diagnosis:
        if exit_code in (0, *INTERRUPTED_CODES) and self._end.is_interrupted():
            return self._interrupt()
        if exit_code in (None, 0, RAISED):
            if (cut := self._end.open_traceback()) is not None:
                return self._from_evidence(cut)
            if (reported := self._reported_end()) is not None:
                return reported
            if self._scan.reran is not None:
                return self._from_evidence(self._scan.reran)
        if not exit_code and (last := self._end.bad_end()):
            return _diagnosis(general(Cause.EXIT_CODE), last)
        if not exit_code and (begun := self._end.begun_after_end()) is not None:
            detail = f"the log ends at step {begun.step or 0:,} of a training that began after another had ended"
            return _diagnosis(general(Cause.UNKNOWN), detail)
        if exit_code is None:
            return self._unexplained(general(Cause.UNKNOWN), NO_CAUSE)
        if exit_code == 0:
            # The caller doubts exit code 0 because of these lines.
            errors = self._error_lines()
            return replace(_diagnosis(_exit_code_entry(exit_code), errors[0] if errors else "the log shows no cause"), telling=errors)
        entry = of_exit_code(exit_code)
        if entry is not None and entry.cause in EXIT_CODE_DETAILS:
            return _diagnosis(entry, EXIT_CODE_DETAILS[entry.cause])
        name = signal_name(exit_code)
        if name in CRASH_SIGNALS:
            return self._crash(exit_code, f"the process crashed: {name}" + (f" (exit code {exit_code})" if exit_code > 0 else ""))
        return self._unexplained(_exit_code_entry(exit_code), f"the launcher ended {how_it_ended(exit_code)} and the log shows no cause")

    def _interrupt(self) -> Diagnosis:
        assert self._scan.interrupt is not None
        found, user = self._from_evidence(self._scan.interrupt), general(Cause.USER)
        return replace(found, cause=user.cause, signature=user.id, fault=user.fault, action=user.action, detail=INTERRUPTED)

    def _reported_end(self) -> Diagnosis | None:
        """What the launcher reports about a rank that printed no reason."""
        if self._scan.report_at is None:
            return None
        end = self._scan.reported_end
        if end is not None and end.code is not None:
            return self._silent_end(end)
        found = self._unexplained(general(Cause.EXIT_CODE), f"the launcher reports a failure: {self._scan.report_at.text.strip()}")
        rank, at = self._reported_rank(), self._scan.report_at
        return replace(found, rank=rank, source=at.source, line=at.number or None)

    def _reported_code(self) -> int:
        end = self._scan.reported_end
        return RAISED if end is None or end.code is None else end.code

    def _unexplained(self, entry: Signature, detail: str) -> Diagnosis:
        errors = self._error_lines()
        more = f"; most relevant line: {errors[0]}" if errors else ""
        return replace(_diagnosis(entry, detail + more), telling=errors or final_lines(self._informative_lines()))

    def _error_lines(self) -> tuple[str, ...]:
        recent = [text for found in self._scan.found() for text in found.errors]
        return error_lines(recent or self._scan.recovered_errors)

    def _informative_lines(self) -> list[PrefixedLine]:
        """The last lines without those about lost peers, the launcher's own and exceptions that Python ignores."""
        blocks: dict[str, Block | None] = {}
        kept = []
        for _, _, _, line in self._scan.tail:
            split = self._scan.splitter.split(without_harmless(strip_colours(line)))
            block = blocks.get(split.source)
            blocks[split.source] = block = block_begun_by(split.text) or (block if block and block.takes(split.text) else None)
            if block is not None and block.weight is Weight.IGNORED:
                continue
            sign = self._scan.search.sign(split.text)
            if (sign is None or not sign.after_effect) and not NOISE.search(split.text) and not LAUNCHER_REPORT.search(split.text):
                kept.append(split)
        return kept


def diagnose(exit_code: int | None, lines: Sequence[str]) -> Diagnosis:
    """The cause of a failed run, by its lines, else by its exit code."""
    reader = LogReader()
    for line in lines:
        reader.feed(line)
    return reader.failure(exit_code)


def _is_after(found: Diagnosis, evidence: LogEvidence) -> bool:
    """Whether a line of the same file, or none, shows it: ranks that are ended print errors and exit with codes of their own."""
    return found.line is None or (found.source == evidence.source and found.line > evidence.number)


def _exit_code_entry(exit_code: int | None) -> Signature:
    """The entry of an exit code that does not show the cause alone."""
    entry = of_exit_code(exit_code)
    return entry if entry is not None and entry.cause is Cause.EXIT_CODE else general(Cause.EXIT_CODE)


def _diagnosis(entry: Signature, detail: str) -> Diagnosis:
    detail = " ".join(detail.split())
    shortened = detail if len(detail) <= LONGEST_DETAIL else detail[: LONGEST_DETAIL - 1] + "…"
    return Diagnosis(cause=entry.cause, detail=shortened, action=entry.action, signature=entry.id, fault=entry.fault)
