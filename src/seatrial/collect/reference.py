"""docs/troubleshooting.md and the one of each runbook, made from the registry so that they cannot say something else.

`markdown()` is the page of all entries, `markdown(topic)` that of the entries of one topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.collect.harmless import HARMLESS, HarmlessLine
from seatrial.records.outcome import Cause
from seatrial.signatures.registry import signatures
from seatrial.signatures.signature import STAGE1, Signature

_HEAD = """\
# When something goes wrong{subject}

For whoever has a failed run before them.
Made by `make docs` from the registry that the harness itself uses (`src/seatrial/signatures/*.toml`, `src/seatrial/collect/harmless.py`):
what stands here under "what to do" is what `seatrial` prints and what `summary.md` says under Failures. A cause is the word under `cause`
in `outcome.json`, `run_manifest.tsv` and `skipped_runs.tsv`. `seatrial doctor PLAN` finds many of these before a campaign starts.

Whose fault it is stands under `fault` in `outcome.json`. What is the platform's (infrastructure) does not weigh on a group and asks for a
re-run on a healthy one; what is the group's own settings (configuration) or the script's (code) does, and so does what is not known.
{more}
"""
_MORE = {
    "": "",
    STAGE1: "\nThese are the entries of the stage-1 procedures; all are in [docs/troubleshooting.md](../../../docs/troubleshooting.md).",
}
_SUBJECTS = {"": "", STAGE1: ": stage 1"}
_BY_LINE = """\
## Failures told by a line of the log

The earliest telling line counts, of whichever rank it is. An after-effect is what ranks say when they have lost another one: it counts
only where no other line tells more."""
_BY_END = "## Failures told by a limit, an exit code or what is missing"
_SLOW = """\
## Signs of slowness

No run fails by them. Those that a run shows stand as advice beside a throughput criterion that fails. They are found in the head of
`launcher.log`, in what the settings came to, in the variables that reached the ranks, or by what analysis found under Stability."""
_NO_FAILURE = """\
## No failure, and yet worth a look

No run ends by it, and its cause is `none`; where a caution is named, the report tells it."""
_HARMLESS = """\
## Harmless lines

Never taken for a failure, also not where the log of a failed run ends with them. They are counted under Health in `summary.md` and under
`health` in `summary.json`. Nothing needs doing."""


def markdown(topic: str = "") -> str:
    """The whole page."""
    entries = [entry for entry in signatures() if not topic or topic in entry.topics]
    failures = [entry for entry in entries if entry.cause is not Cause.NONE]
    parts = [
        _HEAD.format(subject=_SUBJECTS[topic], more=_MORE[topic]).rstrip() + "\n",
        _failures(_BY_LINE, [entry for entry in failures if entry.patterns]),
        _failures(_BY_END, [entry for entry in failures if not entry.patterns]),
        _slow([entry for entry in entries if entry.slows]),
        _others(_NO_FAILURE, [entry for entry in entries if entry.cause is Cause.NONE and not entry.slows]),
        _harmless([entry for entry in HARMLESS if not topic or topic in entry.topics]),
    ]
    return "\n".join(parts)


def _failures(heading: str, entries: Sequence[Signature]) -> str:
    rows = [(one.symptom, one.why, one.action, _cause_cell(one), one.fault.value) for one in entries]
    return _table(heading, ("you see", "why", "what to do", "cause", "whose fault"), rows)


def _cause_cell(entry: Signature) -> str:
    return f"`{entry.cause.value}` (after-effect)" if entry.after_effect else f"`{entry.cause.value}`"


def _others(heading: str, entries: Sequence[Signature]) -> str:
    rows = [(one.symptom, one.why, one.action, f"`{one.caution}`" if one.caution else "–") for one in entries]
    return _table(heading, ("you see", "why", "what to do", "caution"), rows)


def _slow(entries: Sequence[Signature]) -> str:
    return _table(_SLOW, ("you see", "why", "what to do", "sign"), [(one.symptom, one.why, one.action, f"`{one.id}`") for one in entries])


def _harmless(entries: Sequence[HarmlessLine]) -> str:
    return _table(_HARMLESS, ("you see", "what it means", "under health"), [(one.symptom, one.meaning, f"`{one.id}`") for one in entries])


def _table(heading: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"{heading}\n", f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}", *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"
