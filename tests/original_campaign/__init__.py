"""A folder as the original stage-1 scripts leave it, written by hand after the spec: for the tests of everything that reads one.

In: runs with their attempts, and which oddities the folder is to have. Out: `run_manifest.tsv` with the 60 columns, and a folder for each
run with `launcher.log` (META block, CMD block, the launcher's lines), `train.log` (every attempt appended), `gpu_telemetry.csv` and
`host_telemetry.csv`; nothing of Seatrial's. Times of day are those of a machine eight hours ahead of UTC, as its clocks would write them.

    root = write_original_campaign(tmp_path / "bench", sweep_run(0, 128), sweep_run(0, 160), torn_line=True)
"""

from tests.original_campaign.logs import train_lines
from tests.original_campaign.manifest import MANIFEST_COLUMNS, OLD_COLUMNS
from tests.original_campaign.runs import FIRST_START, OriginalAttempt, OriginalRun, ab_run, epoch_s, sweep_run
from tests.original_campaign.write import write_original_campaign

__all__ = [
    "FIRST_START",
    "MANIFEST_COLUMNS",
    "OLD_COLUMNS",
    "OriginalAttempt",
    "OriginalRun",
    "ab_run",
    "epoch_s",
    "sweep_run",
    "train_lines",
    "write_original_campaign",
]
