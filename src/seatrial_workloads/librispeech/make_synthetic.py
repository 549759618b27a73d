"""A synthetic tree made by several processes. In: how many utterances, a seed. Out: the tree of `synthetic.make_tree`, and prepare.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seatrial.files import sweep_parts
from seatrial_workloads.librispeech.manifest import SAMPLE_RATE, write_manifest
from seatrial_workloads.librispeech.output_folder import owned_folder, unwritten
from seatrial_workloads.librispeech.pool import Died, Pool
from seatrial_workloads.librispeech.progress import progress
from seatrial_workloads.librispeech.record import Making, PrepareError, differences, read_record, write_record
from seatrial_workloads.librispeech.synthetic import Utterance, utterances, write_transcripts, write_utterance
from seatrial_workloads.librispeech.tree import TreePaths


@dataclass(frozen=True)
class WriteOne:
    """What a worker does with an utterance: the number of its samples, or the error of the disk."""

    root: Path
    seed: int

    def __call__(self, utterance: Utterance) -> int | OSError:
        try:
            return write_utterance(self.root, utterance, self.seed)
        except OSError as error:
            return error


def make_synthetic_tree(
    root: Path, manifest_path: Path, making: Making, *, num_workers: int = 1, log_every: int = 500, quiet: bool = False
) -> int:
    """Make every file of it, also those that are there from an earlier try; how many utterances there are."""
    paths = TreePaths(root)
    with owned_folder(root):
        _settle_record(paths, making)
        sweep_parts(root, foreign=False)
        manifest_path.unlink(missing_ok=True)
        lengths = {}
        with (
            progress("making", making.num_utterances, log_every, quiet=quiet) as bar,
            Pool(WriteOne(root, making.seed), num_workers) as pool,
        ):
            for utterance, length in pool.results(list(utterances(making.num_utterances))):
                lengths[utterance.rel_path] = _checked(root, length)
                bar.advance()
        write_transcripts(root, making.num_utterances, making.seed)
        manifest_path.parent.mkdir(parents=True, exist_ok=True)
        write_manifest(manifest_path, lengths, SAMPLE_RATE)
    return len(lengths)


def _checked(root: Path, length: int | OSError | Died) -> int:
    if isinstance(length, OSError):
        raise unwritten(root, length.errno, str(length))
    if isinstance(length, Died):
        raise PrepareError(f"a worker process {length.how}, twice: give the same command again")
    return length


def _settle_record(paths: TreePaths, making: Making) -> None:
    """Only an empty folder, or one with a try at the same tree, is made use of: nobody's data is mixed with what was never spoken."""
    there = read_record(paths.record)
    if there == making.record:
        return
    if there is not None:
        raise PrepareError(f"{paths.root} holds another tree ({differences(there, making.record)}): choose another --output-root")
    if any(not path.name.startswith(".") for path in paths.root.iterdir()):
        raise PrepareError(f"{paths.root} is not empty: choose another --output-root for the synthetic tree")
    write_record(paths.record, making.record)
