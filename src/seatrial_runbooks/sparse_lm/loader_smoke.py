"""Whether the FineWeb-Edu loader gives a first batch in time. In: flags. Out: one line, exit code 0 or 2.

    python scripts/automation/fwe_smoke.py --seq-len 1024 --batch 1 --timeout 60 --tokenizer gpt2

    [smoke][OK] first batch in 11.84s shape=(1, 1024)
    [smoke][FAIL] the tokenizer 'gpt2' cannot be loaded (…): …; give a local folder as data.tokenizer

Tokenizer, dataset and packing are the trainer's own. Without a network: `--local-path FOLDER --tokenizer FOLDER`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from seatrial.core.errors import DONE, FAILED, WRONG_USE, SeatrialError, UsageError, printable
from seatrial_runbooks.command_line import StrictParser, count, limit, write_to

NAME = "fwe_smoke.py"
EXAMPLES = """examples:
  python scripts/automation/fwe_smoke.py --seq-len 1024 --batch 1 --timeout 60 --tokenizer gpt2
  python scripts/automation/fwe_smoke.py --local-path data/fineweb --tokenizer byte"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the line; the exit code."""
    try:
        options = _parser().parse(argv)
    except UsageError as error:
        write_to(f"{NAME}: {printable(str(error))}\n", sys.stderr)
        return WRONG_USE
    began_m = time.monotonic()
    try:
        shape = first_batch(options.local_path, options.tokenizer, options.seq_len, options.batch, options.timeout, options.report_docs)
    # Any error of the loader is the result.
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        write_to(f"[smoke][FAIL] {printable(lines[0])}\n", sys.stdout)
        return FAILED
    write_to(f"[smoke][OK] first batch in {time.monotonic() - began_m:.2f}s shape={shape}\n", sys.stdout)
    return DONE


def first_batch(
    local_path: Path | None, tokenizer_name: str, seq_len: int, rows: int, timeout_s: float, report_docs: int
) -> tuple[int, int]:
    """The shape of the inputs; raises the loader's errors, and after `timeout_s`."""
    try:
        from seatrial_workloads.sparse_lm.data import PackedDocuments, load_within, within
        from seatrial_workloads.sparse_lm.documents import HubStream, LocalFiles
    except ModuleNotFoundError as error:
        raise SeatrialError(f"{error}: activate the environment that the trainer runs in") from error

    def report(epoch: int, read: int) -> None:
        if read % report_docs == 0:
            write_to(f"[smoke] {read} documents read\n", sys.stdout)

    def take() -> tuple[int, int]:
        source = HubStream() if local_path is None else LocalFiles(local_path)
        batch = next(iter(PackedDocuments(source, tokenizer, seq_len, rows, report).batches(0, 1)))
        return rows, int(batch.tokens.shape[1]) - 1

    began_m = time.monotonic()
    tokenizer = load_within(timeout_s, tokenizer_name)
    shape: tuple[int, int] = within(timeout_s, take, "the first batch", spent_s=time.monotonic() - began_m)
    return shape


def _parser() -> StrictParser:
    options = StrictParser("Take one batch from the FineWeb-Edu loader.", EXAMPLES)
    options.add_argument("--seq-len", type=count, default=1024, metavar="N", help="Tokens per row (default %(default)s).")
    options.add_argument("--batch", type=count, default=1, metavar="N", help="Rows (default %(default)s).")
    options.add_argument("--timeout", type=limit, default=60.0, metavar="S", help="Seconds for the first batch (default %(default)s).")
    options.add_argument("--report-docs", type=count, default=1000, metavar="N", help="Documents between two lines (default %(default)s).")
    options.add_argument("--tokenizer", default="byte", metavar="NAME", help="byte, gpt2, or a local folder (default %(default)s).")
    options.add_argument("--local-path", type=Path, metavar="DIR", help="Files in FineWeb-Edu's layout instead of the hub.")
    return options


def run() -> None:
    """Run as a program that does not wait at exit for the hub client's threads."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
