"""What starts the ranks on other hosts is killed, or reports another exit code than theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.records.outcome import Outcome
from tests.cluster.campaigns import DUMMY, Campaign

# Rank 1 fails while rank 0 is still busy.
FAILS = """\
import os, sys, time

time.sleep(1 if os.environ["RANK"] == "1" else 30)
sys.exit(int(os.environ["RANK"]) * 7)
"""
RUN_BY_HAND = """\
deepspeed --hostfile hostfile --launcher pdsh --master_addr node1 --master_port 29511 --no_local_rank sleeps.py
"""
SLEEPS = """\
import time

for step in range(600):
    print("step", step, flush=True)
    time.sleep(0.1)
"""


def test_pdsh_killed_by_a_signal_costs_the_run_nothing(campaign: Campaign) -> None:
    plan = {**DUMMY, "place": {**DUMMY["place"], "via": "pdsh"}, "steps": 150}
    started = campaign.start(plan)
    campaign.wait_for_steps(started, ranks=2)
    (pdsh,) = campaign.hosts.processes("head", "pdsh -R")
    campaign.hosts.kill("head", pdsh)
    assert started.wait(120) == 0, started.output
    assert campaign.outcome().outcome is Outcome.OK
    campaign.assert_nothing_left()


# The exit code of the launcher where a rank exits with 7: torchrun turns it into 1.
@pytest.mark.parametrize(("launcher", "code"), [("python", 7), ("torchrun", 1), ("deepspeed", 7)])
def test_one_of_two_exit_codes_is_the_true_one(campaign: Campaign, tmp_path: Path, launcher: str, code: int) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    plan = {**DUMMY, "workload": {"script": "fails.py", "reads": "none"}, "settings": {}, "launcher": launcher}
    del plan["steps"]
    campaign.run(plan, "--set", "env.DS_ACCELERATOR=cpu", code=2)
    outcome = campaign.outcome()
    assert (outcome.exit_code, outcome.host) == (code, "node2"), outcome
    assert campaign.nodes().nodes[1].returncode == code
    assert "7" in outcome.detail


@pytest.mark.torch
def test_pdsh_killed_below_a_deepspeed_runner_that_then_exits_0(campaign: Campaign, tmp_path: Path) -> None:
    """A script of the user that Seatrial only starts: its exit code 0 is not trusted."""
    (tmp_path / "train.sh").write_text(RUN_BY_HAND)
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    plan = {**DUMMY, "workload": {"script": "bash", "args": ["train.sh"]}, "settings": {}, "launcher": "command", "place": "local"}
    del plan["steps"]
    started = campaign.start(plan, "--set", "env.DS_ACCELERATOR=cpu")
    campaign.wait(lambda: campaign.log().count("step 3") >= 2, lambda: started.output + campaign.log())
    (pdsh,) = campaign.hosts.processes("head", "pdsh -S")
    campaign.hosts.kill("head", pdsh)
    assert started.wait(90) == 2, started.output
    outcome = campaign.outcome()
    assert (outcome.exit_code, outcome.outcome, outcome.signature) == (0, Outcome.FAILED, "deepspeed_launcher_killed"), outcome
    assert "0 of 2 ranks" in outcome.detail
