"""Harmless lines in real runs: they cause no failure, explain no failure, and the report counts them."""

from __future__ import annotations

import json

from tests.harness import Harness
from tests.unit.collect.log_texts import BY_ID, HARMLESS_LINES

JOB = """
import atexit, sys, time
# Printed after the traceback, as torch prints its last warning.
atexit.register(lambda: print(open("harmless.txt").read(), flush=True))
for step in range(10):
    print(f"iter {step}: loss {5 - step / 10:.2f}, time 4.00ms", flush=True)
    time.sleep(0.01)
if sys.argv[1] == "bad":
    raise ValueError("bad sample 17")
"""


def test_harmless_lines_are_counted_and_explain_nothing(harness: Harness) -> None:
    (harness.folder / "job.py").write_text(JOB)
    (harness.folder / "harmless.txt").write_text("\n".join(HARMLESS_LINES))
    text = harness.run("sweep", "-P", "end=well,bad", "--repeats", "1", "--out", "out", "--full", "--", "python", "job.py", "{end}", code=2)

    rows = {row["group"]: row for row in harness.manifest()}
    assert {name: (row["outcome"], row["cause"]) for name, row in rows.items()} == {
        "end-well": ("ok", "none"),
        "end-bad": ("failed", "exception"),
    }
    assert rows["end-bad"]["detail"] == "ValueError: bad sample 17"
    health = json.loads(harness.out.summary_json.read_text())["health"]
    assert (health["runs"], health["fatal_tracebacks"], health["other_tracebacks"]) == (2, ["end-bad_r1"], [])
    assert (health["ranks_started"], health["ranks_ended_well"], health["ranks_unknown"]) == (1, 1, ["end-bad_r1"])
    assert {one["id"]: (one["runs"], one["lines"]) for one in health["harmless"]} == {
        id: (2, 2 * len(lines)) for id, lines in BY_ID.items()
    }
    assert "Health: harmless warnings in 2 runs" in text
    assert "## Health" in harness.out.summary_md.read_text()
