"""What was found beside the criteria, each with its evidence: winner, stability and its causes, drift, leaks, stragglers, steady
state, slow steps, failures, settings for finding faults.

In: the campaign's facts. Out: statements, the gravest first. None of them changes the exit code; a plan that wants one to do so names
its metric in a criterion.
"""

from __future__ import annotations

from seatrial.judge.facts import Facts
from seatrial.judge.statements_of_causes import cause_statements
from seatrial.judge.statements_of_groups import drift_statement, stability_statements, winner_statement
from seatrial.judge.statements_of_health import leak_statements, straggler_statements
from seatrial.judge.statements_of_runs import debug_statements, failure_statements, slow_step_statements, steady_statements
from seatrial.records.verdict import Finding, Verdict

_GRAVITY = {Verdict.FAIL: 0, Verdict.INCONCLUSIVE: 1, Verdict.PASS: 2}


def statements(facts: Facts) -> tuple[Finding, ...]:
    """All of them; of one verdict in the order in which a reader wants them."""
    if not facts.finished:
        return ()
    found = [
        *failure_statements(facts),
        *leak_statements(facts),
        *straggler_statements(facts),
        *stability_statements(facts),
        *cause_statements(facts),
        *drift_statement(facts),
        *debug_statements(facts),
        *steady_statements(facts),
        *slow_step_statements(facts),
        *winner_statement(facts),
    ]
    return tuple(sorted(found, key=lambda finding: _GRAVITY[finding.verdict]))
