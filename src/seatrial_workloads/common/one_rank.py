"""What one rank trains in. In: the run folder, the wanted device, the number of steps. Out: the probe, the ranks and the lines for people.

They are taken up in this order and let go of in the opposite one: the probe times the joining, and lines need the rank.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from seatrial.probe import Probe
from seatrial_workloads.common.distributed import Ranks, joined_ranks
from seatrial_workloads.common.human_lines import HumanLines
from seatrial_workloads.common.timing_lines import TimingLines


class OneRank(NamedTuple):
    """This process in its run."""

    run_dir: Path
    probe: Probe
    ranks: Ranks
    lines: HumanLines


@contextlib.contextmanager
def one_rank(run_dir: Path, device: str, steps: int) -> Iterator[OneRank]:
    """All of it around a training."""
    with Probe(run_dir) as probe, joined_ranks(device, probe) as ranks:
        timing = TimingLines(ranks.rank, steps, probe.recent, ranks.largest)
        with HumanLines(run_dir, ranks.rank, timing) as lines:
            yield OneRank(run_dir, probe, ranks, lines)
