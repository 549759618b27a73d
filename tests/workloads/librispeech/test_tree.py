"""Files and lock of a tree, its verification, the process pool and progress output."""

from __future__ import annotations

import errno
import io
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from seatrial_workloads.librispeech.pool import CrashedTask, Pool, PoolError
from seatrial_workloads.librispeech.prepare import main
from seatrial_workloads.librispeech.progress import print_line, progress, progress_lines
from seatrial_workloads.librispeech.synthetic import write_tree
from seatrial_workloads.librispeech.tree import PrepareError, TreeFiles, locked_folder, scan_tree
from tests.workloads.librispeech.trees import COMMAND, TIMEOUT_S, CannotStart, DieOnce, bytes_of, divide_ten_by, prepare, square_or_die


def test_an_empty_and_a_missing_tree(tmp_path: Path) -> None:
    assert scan_tree(tmp_path) == TreeFiles()
    assert scan_tree(tmp_path / "none").refused == {".": "the folder cannot be read: No such file or directory"}


def test_files_are_found_in_any_case_and_sorted(tmp_path: Path) -> None:
    for name in ("b/2.flac", "b/1.FLAC", "a.flac", "b/x.trans.TXT", "b/notes.md", ".hidden.flac", ".git/c.flac"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert scan_tree(tmp_path) == TreeFiles(flacs=["a.flac", "b/1.FLAC", "b/2.flac"], texts=["b/x.trans.TXT"])


def test_links_are_followed_and_a_cycle_ends(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "1.flac").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "round").symlink_to(tmp_path)
    assert scan_tree(tmp_path).flacs == ["linked/1.flac", "real/1.flac"]


@pytest.mark.parametrize(
    ("name", "why"), [(b"a\tb.flac", "a tab or line break"), (b"a\nb.txt", "a tab or line break"), (b"\xff.flac", "not UTF-8")]
)
def test_names_that_a_manifest_cannot_represent_are_refused(tmp_path: Path, name: bytes, why: str) -> None:
    with open(os.fsencode(tmp_path) + b"/" + name, "wb"):
        pass
    found = scan_tree(tmp_path)
    assert (found.flacs, found.texts) == ([], [])
    (reason,) = found.refused.values()
    assert why in reason


def test_a_folder_is_created_and_locked_once_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with pytest.raises(PrepareError, match="another process is preparing"), locked_folder(folder), locked_folder(folder):
        pass
    with locked_folder(folder):
        assert folder.is_dir()


@pytest.mark.parametrize(("number", "message"), [(errno.ENOSPC, "is full"), (errno.EDQUOT, "is full"), (errno.EIO, "is not writable")])
def test_disk_errors_while_locked_become_prepare_errors(tmp_path: Path, number: int, message: str) -> None:
    with pytest.raises(PrepareError, match=message), locked_folder(tmp_path):
        raise OSError(number, "why")
    with pytest.raises(KeyError), locked_folder(tmp_path):
        raise KeyError


ONE = "dev-clean/100201/100300/100201-100300-0000.flac"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify")
    write_tree(folder / "source", 8, mean_s=0.8)
    main(["--input-root", str(folder / "source"), "--output-root", str(folder / "tree"), "--trim", "--quiet"])
    return folder / "tree"


@pytest.fixture
def tree(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "tree"))


def edit(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text()))


def row(tree: Path) -> str:
    return next(line for line in (tree / "manifest.tsv").read_text().splitlines() if line.startswith(ONE))


def cut(tree: Path) -> None:
    (tree / ONE).write_bytes((tree / ONE).read_bytes()[:-200])


def shorten(tree: Path) -> None:
    samples, rate = soundfile.read(tree / ONE)
    soundfile.write(tree / ONE, samples[:-1], rate)


def resample(tree: Path) -> None:
    samples, _ = soundfile.read(tree / ONE)
    soundfile.write(tree / ONE, samples, 22_050)


def widen(tree: Path) -> None:
    samples, rate = soundfile.read(tree / ONE)
    soundfile.write(tree / ONE, np.stack([samples, samples], axis=1), rate)


def rename_id(tree: Path) -> None:
    for path in (tree / ONE).parent.glob("*.trans.txt"):
        edit(path, lambda text: text.replace("100201-100300-0000 ", "100201-100300-0099 "))


def empty_transcripts(tree: Path) -> None:
    for path in (tree / ONE).parent.glob("*.trans.txt"):
        edit(path, lambda text: "".join(f"{line.split()[0]}\n" for line in text.splitlines()))


def set_row(tree: Path, number: int, value: str) -> None:
    fields = row(tree).split("\t")
    fields[number] = value
    edit(tree / "manifest.tsv", lambda text: text.replace(row(tree), "\t".join(fields)))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (lambda tree: (tree / ONE).unlink(), f"{ONE}: is in the manifest but not on disk"),
    "cut": (cut, f"{ONE}: cannot be decoded: "),
    "empty": (lambda tree: (tree / ONE).write_bytes(b""), f"{ONE}: the file is empty (0 bytes)"),
    "shorter": (shorten, f"{ONE}: has "),
    "resampled": (resample, f"{ONE}: has 22050 Hz; expected 16000"),
    "two channels": (widen, f"{ONE}: has 2 channels; expected one"),
    "no id": (rename_id, f"{ONE}: no transcript for 100201-100300-0000"),
    "no words": (empty_transcripts, f"{ONE}: no transcript for 100201-100300-0000"),
    "other length": (lambda tree: set_row(tree, 1, "5"), " 5 samples and"),
    "other seconds": (lambda tree: set_row(tree, 2, "9.5"), "do not agree"),
    "twice": (lambda tree: edit(tree / "manifest.tsv", lambda text: f"{text}{row(tree)}\n"), f"{ONE}: has 2 rows in the manifest"),
    "not in it": (
        lambda tree: edit(tree / "manifest.tsv", lambda text: text.replace(f"{row(tree)}\n", "")),
        f"{ONE}: is on disk but not in the manifest",
    ),
    "out of it": (lambda tree: set_row(tree, 0, "../../etc/passwd.flac"), "../../etc/passwd.flac: is outside the tree"),
}


@pytest.mark.parametrize("kind", sorted(DAMAGE))
def test_verifying_finds_damage(kind: str, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage, problem = DAMAGE[kind]
    damage(tree)
    before = bytes_of(tree)
    assert main(["--verify", "--output-root", str(tree), "--quiet"]) == 1
    printed = capsys.readouterr()
    assert problem in printed.out and "problems in" in printed.err
    assert bytes_of(tree) == before


def test_two_workers_verify_a_complete_tree(tree: Path) -> None:
    before = bytes_of(tree)
    assert "8 files match" in prepare("--verify", "--output-root", tree, "--workers", "2")
    assert bytes_of(tree) == before


def test_a_tree_is_verified_with_the_rate_it_was_prepared_with(prepared: Path, tmp_path: Path) -> None:
    source = prepared.parent / "source"
    main(["--input-root", str(source), "--output-root", str(tmp_path / "slow"), "--target-sr", "8000", "--quiet"])
    assert main(["--verify", "--output-root", str(tmp_path / "slow"), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("", "is not a manifest"),
        ("path,samples\n", "is not a manifest"),
        ("rel_path\tnum_samples\tduration_sec\n", "has no rows"),
        ("rel_path\tnum_samples\tduration_sec\na.flac\tmany\t1.0\n", ":2: "),
    ],
)
def test_an_unusable_manifest_is_refused(text: str | None, message: str, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "manifest.tsv").unlink()
    if text is not None:
        (tree / "manifest.tsv").write_text(text)
    assert main(["--verify", "--output-root", str(tree), "--quiet"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("workers", [1, 2])
def test_only_the_task_that_kills_its_worker_is_lost(workers: int) -> None:
    with Pool(square_or_die, workers) as pool:
        results = dict(pool.results(range(300)))
    assert results.pop(7) == CrashedTask("was killed by SIGKILL (out of memory?)")
    assert results == {number: number * number for number in range(300) if number != 7}


def test_the_tasks_of_a_worker_killed_once_are_retried(tmp_path: Path) -> None:
    with Pool(DieOnce(tmp_path / "died"), 1) as pool:
        assert dict(pool.results(range(40))) == {number: -number for number in range(40)}
    assert (tmp_path / "died").exists()


def test_an_exception_of_a_task_is_raised_with_its_traceback() -> None:
    with pytest.raises(PoolError, match="ZeroDivisionError"), Pool(divide_ten_by, 1) as pool:
        list(pool.results([5, 2, 0]))


def test_workers_that_cannot_start_are_an_error() -> None:
    with pytest.raises(PoolError, match="before it could start"), Pool(CannotStart(), 1) as pool:
        list(pool.results([1, 2]))


def test_no_tasks_start_no_worker() -> None:
    with Pool(CannotStart(), 2) as pool:
        assert list(pool.results([])) == []


def test_progress_lines_have_rate_and_eta(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([100.0, 102.0, 104.0]).__next__
    with progress_lines(1_000, 20, clock) as advance:
        for number in range(40):
            advance("3 rejected" if number > 30 else "")
    assert capsys.readouterr().out.splitlines() == [
        "20 of 1000 files, 10.0 files/s, 0:01:38 to go",
        "40 of 1000 files, 10.0 files/s, 0:01:36 to go, 3 rejected",
    ]


@pytest.mark.parametrize(("log_every", "quiet"), [(0, False), (1, True)])
def test_quiet_prints_nothing(log_every: int, quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("preparing", 10, log_every, quiet=quiet) as advance:
        for _ in range(10):
            advance("")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_with_eta(tmp_path: Path) -> None:
    write_tree(tmp_path / "source", 20, mean_s=0.5)
    ours, theirs = pty.openpty()
    command = [*COMMAND, "--input-root", str(tmp_path / "source"), "--output-root", str(tmp_path / "target")]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, timeout=TIMEOUT_S, check=True, env={**os.environ, "TERM": "xterm"}
    )
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    os.close(theirs)
    assert "preparing" in shown and "20/20" in shown and "eta" in shown
    assert b"files/s, 0:" not in done.stdout


def test_characters_the_terminal_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    print_line("dev-clean/名.flac \udcff")
    assert written.getvalue() == b"dev-clean/\\u540d.flac \\udcff\n"


def test_a_closed_pipe_does_no_harm(tmp_path: Path) -> None:
    write_tree(tmp_path / "source", 20, mean_s=0.5)
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [*COMMAND, "--input-root", str(tmp_path / "source"), "--output-root", str(tmp_path / "target"), "--log-every", "1"]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"") and (tmp_path / "target" / "manifest.tsv").exists()
