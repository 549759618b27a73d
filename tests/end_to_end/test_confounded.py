"""A script that reports through the probe what it has in effect: a path that one group lost, and an axis that fell back."""

from __future__ import annotations

import json

from tests.facts import states
from tests.harness import Harness

# ZeRO 1 loses the graph, which is what makes it slower; flash attention falls back.
TRAIN = """
import sys, time
from seatrial.probe import Probe

zero, attention = int(sys.argv[1]), sys.argv[2]
with Probe() as probe:
    probe.effective("graph", requested=True, effective=not zero, reason="ZeRO hooks into the gradients" if zero else "")
    fell_back = "flash_attn is not installed" if attention == "flash" else ""
    probe.effective("attn", requested=attention, effective="sdpa", reason=fell_back)
    for step in range(12):
        with probe.step(samples=8):
            time.sleep(0.02 if zero else 0.005)
"""


def test_a_lost_path_confounds_and_a_fallback_has_no_effect(harness: Harness) -> None:
    (harness.folder / "train.py").write_text(TRAIN)
    sweep = ["sweep", "-P", "zero=0,1", "-P", "attn=sdpa,flash", "--repeats", "1", "--out", "out", "--json", "--", "python", "train.py"]
    text = harness.run(*sweep, "{zero}", "{attn}")
    told = json.loads(text.splitlines()[-1])
    by_group = {row["summary"]["group"]: row for row in told["ranking"]}
    assert states(told["confounded"], "graph", "on in zero0_attn-sdpa", "off in zero1_attn-sdpa")
    assert by_group["zero0_attn-flash"]["same_as"] == "zero0_attn-sdpa" and not by_group["zero1_attn-sdpa"]["is_compared"]
    assert "attn had no effect: both ran sdpa" in " ".join(text.split())
    refused = harness.call("compare", "out", "zero0_attn-sdpa", "zero1_attn-sdpa", code=2)
    assert "confounded: graph is on" in refused and "--allow-confounded" in refused
