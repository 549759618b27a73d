"""What the agent says of the kernel's OOM killer: a rank that was killed by it cannot say it itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from seatrial.files import write_json
from seatrial.records.codec import to_json
from tests.unit.agent.runs import attempt_of, order_for

AGENT = """
import sys
from pathlib import Path
from seatrial.agent.supervise import Supervisor
from seatrial.files import read_json
from seatrial.machine.oom_kills import OomKills
from seatrial.records.codec import from_json
from seatrial.records.command import AgentOrder
folder = Path(sys.argv[2])
Supervisor(from_json(AgentOrder, read_json(Path(sys.argv[1]))), oom_kills=OomKills(folder, folder)).run()
"""
KILLED = "import os, pathlib; pathlib.Path({path!r}).write_text('oom_kill 4'); os.kill(os.getpid(), 9)"


def test_a_counter_that_rose_is_part_of_the_last_report(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("oom_kill 3")
    order = order_for(tmp_path, KILLED.format(path=str(vmstat)))
    paths = attempt_of(order)
    write_json(paths.agent_order, to_json(order))
    words = [sys.executable, "-c", AGENT, str(paths.agent_order), str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as agent:
        assert agent.stdout is not None
        reports = [json.loads(line) for line in agent.stdout]
    [exited] = [report for report in reports if report["kind"] == "exited"]
    assert (exited["returncode"], exited["oom_kills"]) == (-9, "oom_kill 3 → 4 on this host")
