"""Preparation as a command: its options, resuming, and interruption at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

from seatrial_workloads.librispeech import prepare_tree
from seatrial_workloads.librispeech.prepare import main
from seatrial_workloads.librispeech.prepare_tree import Appender, Output, Source, read_outputs
from seatrial_workloads.librispeech.synthetic import write_tree
from seatrial_workloads.librispeech.tree import HEADER, locked_folder, read_manifest
from tests.facts import states
from tests.waiting import wait_until
from tests.workloads.librispeech.trees import COMMAND, TIMEOUT_S, DyingConvertOne, bytes_of, prepare, rejected

NUM_FILES = 12
ONE = "dev-clean/100201/100300/100201-100300-0000.flac"
TABLES = {"manifest.tsv", "prepare.json", "prepared.tsv", "rejected.tsv"}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("source"), NUM_FILES, mean_s=0.8).parent


@pytest.fixture
def source(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "source"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def run(source: Path, target: Path, *options: str) -> int:
    return main(["--input-root", str(source), "--output-root", str(target), "--quiet", *options])


def test_a_tree_is_prepared(source: Path, target: Path) -> None:
    printed = prepare("--input-root", source, "--output-root", target, "--trim", "--log-every", "5")
    assert "5 of 12 files" in printed and "12 files prepared: 12 now, 0 before" in printed and "none rejected" in printed
    rows = read_manifest(target / "manifest.tsv")
    assert [row.rel_path for row in rows] == sorted(str(path.relative_to(source)) for path in source.rglob("*.flac"))
    for row in rows:
        before, after = (soundfile.info(root / row.rel_path) for root in (source, target))
        assert (after.frames, after.samplerate, after.channels, after.subtype) == (row.num_samples, 16_000, 1, "PCM_16")
        assert after.frames < before.frames and f"{row.num_samples / 16_000:.6f}" in (target / "manifest.tsv").read_text()
    for path in source.rglob("*.trans.txt"):
        assert (target / path.relative_to(source)).read_bytes() == path.read_bytes()
    assert rejected(target) == {}
    assert {path.name for path in target.iterdir() if path.is_file()} == TABLES


@pytest.mark.parametrize("flags", [("--trim",), ("--target-sr", "8000", "--trim", "--trim-top-db", "30")])
def test_one_worker_and_two_write_the_same_bytes(source: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert run(source, tmp_path / "one", *flags) == run(source, tmp_path / "two", "--workers", "2", *flags) == 0
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")


def test_a_second_run_converts_nothing(source: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(source, target)
    before, when = bytes_of(target), (target / ONE).stat().st_mtime_ns
    assert run(source, target) == 0
    assert "0 now, 12 before" in capsys.readouterr().out
    assert bytes_of(target) == before and (target / ONE).stat().st_mtime_ns == when


@pytest.mark.parametrize(
    "damage", [lambda path: path.write_bytes(path.read_bytes()[:-100]), lambda path: path.write_bytes(b""), lambda path: path.unlink()]
)
def test_an_incomplete_output_is_converted_again(source: Path, target: Path, damage, capsys) -> None:  # type: ignore[no-untyped-def]
    run(source, target)
    before = bytes_of(target)
    damage(target / ONE)
    assert run(source, target) == 0
    assert "1 now, 11 before" in capsys.readouterr().out
    assert bytes_of(target) == before


def test_files_of_another_tool_are_not_trusted(source: Path, target: Path, tmp_path: Path) -> None:
    """Half a file under its final name, and a complete one converted with unknown settings."""
    run(source, tmp_path / "clean", "--trim")
    (target / ONE).parent.mkdir(parents=True)
    (target / ONE).write_bytes((source / ONE).read_bytes()[:3_000])
    shutil.copy(source / ONE.replace("0000.flac", "0001.flac"), (target / ONE).parent)
    run(source, target, "--trim")
    assert bytes_of(target) == bytes_of(tmp_path / "clean")


def test_a_changed_source_is_converted_again(source: Path, target: Path, tmp_path: Path) -> None:
    run(source, target)
    soundfile.write(source / ONE, 0.1 * np.ones(500), 16_000)
    run(source, target)
    assert soundfile.info(target / ONE).frames == 500
    assert next(row.num_samples for row in read_manifest(target / "manifest.tsv") if row.rel_path == ONE) == 500


def test_a_removed_source_is_removed_from_the_manifest(source: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(source, target)
    (source / ONE).unlink()
    assert run(source, target) == 0
    assert ONE not in [row.rel_path for row in read_manifest(target / "manifest.tsv")]
    assert "1 more .flac files" in capsys.readouterr().out


def test_other_settings_are_refused_until_overwritten(source: Path, target: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    run(source, target, "--trim")
    before = bytes_of(target)
    assert run(source, target, "--trim", "--trim-top-db", "30") == 1
    assert "trim_top_db was 60.0 and would be 30.0" in capsys.readouterr().err
    assert run(source, target, "--target-sr", "8000") == 1
    assert "target_sr was 16000 and would be 8000" in capsys.readouterr().err
    assert bytes_of(target) == before
    assert run(source, target, "--target-sr", "8000", "--overwrite") == run(source, tmp_path / "clean", "--target-sr", "8000") == 0
    assert bytes_of(target) == bytes_of(tmp_path / "clean")


def test_an_interrupted_overwrite_is_resumed(source: Path, target: Path, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    run(source, target)
    with monkeypatch.context() as patch:
        patch.setattr(prepare_tree, "convert_all", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(source, target, "--trim", "--overwrite") == 130
    assert not (target / "manifest.tsv").exists()
    run(source, target, "--trim")
    run(source, tmp_path / "clean", "--trim")
    assert bytes_of(target) == bytes_of(tmp_path / "clean")


def test_bad_files_are_rejected_and_the_rest_is_prepared(source: Path, target: Path) -> None:
    folder = (source / ONE).parent
    good = (source / ONE).read_bytes()
    (folder / "cut.flac").write_bytes(good[: len(good) // 2])
    (folder / "empty.flac").touch()
    (folder / "text.flac").write_text("not audio")
    (folder / "gone.flac").symlink_to(folder / "nowhere")
    (folder / "folder.flac").mkdir()
    os.mkfifo(folder / "pipe.flac")
    os.mkfifo(folder / "pipe.txt")
    soundfile.write(folder / "silent.flac", np.zeros(16_000), 16_000)
    (folder / "tab\tin name.flac").write_bytes(good)
    Path(os.fsdecode(os.fsencode(folder) + b"/latin\xe9.flac")).write_bytes(good)
    printed = prepare("--input-root", source, "--output-root", target, "--trim", "--workers", "2")
    assert "12 files prepared" in printed and "9 rejected" in printed
    names = {Path(name).name: reason for name, reason in rejected(target).items()}
    assert names.pop("cut.flac").startswith("cannot be decoded: ")
    assert names == {
        "empty.flac": "the file is empty (0 bytes)",
        "text.flac": "cannot be decoded: Format not recognised.",
        "gone.flac": "cannot be read: No such file or directory",
        "silent.flac": "silence only",
        "pipe.flac": "cannot be read: is not a regular file",
        "pipe.txt": "cannot be read: is not a regular file",
        "tab\\tin name.flac": "its name contains a tab or line break, which a manifest cannot represent",
        "latin\\udce9.flac": "its name is not UTF-8",
    }
    assert len(list(target.rglob("*.flac"))) == NUM_FILES
    before = bytes_of(target)
    prepare("--input-root", source, "--output-root", target, "--trim")
    assert bytes_of(target) == before


def test_the_output_of_a_damaged_source_is_removed(source: Path, target: Path) -> None:
    run(source, target)
    (source / ONE).write_bytes(b"")
    run(source, target)
    assert not (target / ONE).exists() and ONE in rejected(target)


def test_a_file_that_kills_its_worker_twice_is_rejected(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_tree, "ConvertOne", DyingConvertOne)
    assert run(source, target) == 0
    (why,) = rejected(target).values()
    assert states(why, "SIGKILL", "twice")
    assert len(read_manifest(target / "manifest.tsv")) == NUM_FILES - 1


def test_no_usable_file_is_exit_code_1(tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "bad.flac").write_bytes(b"bad")
    assert run(tmp_path / "source", target) == 1
    assert "no file could be prepared" in capsys.readouterr().err
    assert list(rejected(target)) == ["bad.flac"]


def test_only_partial_files_of_dead_writers_are_removed(source: Path, target: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    folder = (target / ONE).parent
    folder.mkdir(parents=True)
    here = os.uname().nodename
    dead, living, elsewhere = (f".x.flac.{writer}.a1.part" for writer in (f"{gone.pid}@{here}", f"{os.getpid()}@{here}", "1@elsewhere"))
    for name in (dead, living, elsewhere, ".x.flac.part", "notes.123.part"):
        (folder / name).touch()
    os.utime(folder / elsewhere, (0, 0))
    run(source, target)
    left = {path.name for path in folder.iterdir()} - {path.name for path in (source / ONE).parent.iterdir()}
    assert left == {living, ".x.flac.part", "notes.123.part"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--output-root", "{out}"], "--input-root is missing"),
        (["--input-root", "{out}/none", "--output-root", "{out}"], "is not a folder"),
        (["--input-root", "{empty}", "--output-root", "{out}"], "has no usable .flac file"),
        (["--input-root", "{in}", "--output-root", "{in}"], "are nested"),
        (["--input-root", "{in}", "--output-root", "{in}/prepared"], "are nested"),
        (["--input-root", "{in}/dev-clean", "--output-root", "{in}"], "are nested"),
        (["--input-root", "{in}/dev-clean/..", "--output-root", "{link}"], "are nested"),
        (["--input-root", "{in}", "--output-root", "{out}", "--workers", "0"], "--workers is 0"),
        (["--input-root", "{in}", "--output-root", "{out}", "--log-every", "-1"], "--log-every is -1"),
        (["--input-root", "{in}", "--output-root", "{out}", "--target-sr", "999"], "--target-sr is 999"),
        (["--input-root", "{in}", "--output-root", "{out}", "--target-sr", "192001"], "--target-sr is 192001"),
        (["--input-root", "{in}", "--output-root", "{out}", "--trim-top-db", "0"], "--trim-top-db is 0.0"),
        (["--input-root", "{in}", "--output-root", "{out}", "--trim-top-db", "nan"], "--trim-top-db is nan"),
        (["--input-root", "{in}", "--output-root", "{out}", "--trim-top-db", "inf"], "--trim-top-db is inf"),
        (["--input-root", "{in}", "--output-root", "{out}", "--seed", "3"], "--seed needs --synthetic N"),
        (["--input-root", "{in}", "--output-root", "{out}", "--manifest-path", "{note}"], "is not a manifest"),
        *(
            (["--synthetic", "10", "--output-root", "{out}", *option], f"{option[0]} cannot be combined with --synthetic")
            for option in (["--trim"], ["--verify"], ["--overwrite"], ["--input-root", "{in}"])
        ),
        (["--synthetic", "5", "--output-root", "{out}", "--target-sr", "8000"], "a synthetic tree has 16000"),
        (["--synthetic", "2", "--output-root", "{out}"], "--synthetic is 2"),
        (["--synthetic", "9", "--seed", "-1", "--output-root", "{out}"], "--seed is -1"),
        (["--verify", "--output-root", "{out}"], "is not a folder"),
    ],
)
def test_invalid_options_are_refused_and_nothing_is_written(argv: list[str], message: str, pristine: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.tsv").write_text("mine")
    (tmp_path / "link").symlink_to(pristine)
    known = {"in": pristine, "out": tmp_path / "out", "empty": tmp_path / "empty", "note": tmp_path / "note.tsv", "link": tmp_path / "link"}
    before = bytes_of(pristine)
    assert main([argument.format(**known) for argument in argv]) == 1
    assert message in capsys.readouterr().err
    assert bytes_of(pristine) == before and not list(tmp_path.rglob("*.flac")) and (tmp_path / "note.tsv").read_text() == "mine"


@pytest.mark.parametrize("argv", [[], ["--outputroot", "x"], ["--output-root", ""], ["--output-root", "x", "--workers", "two"]])
def test_wrong_use_is_exit_code_1(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("prepare librispeech: ")


@pytest.mark.parametrize("content", [HEADER, ""])
def test_an_existing_manifest_is_replaced(source: Path, target: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "m.tsv").write_text(content)
    assert run(source, target, "--manifest-path", str(tmp_path / "m.tsv")) == 0
    assert len(read_manifest(tmp_path / "m.tsv")) == NUM_FILES and not (target / "manifest.tsv").exists()


def test_missing_libraries_are_named_with_the_remedy(source: Path, target: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("soxr", "soundfile") else object())
    assert run(source, target) == 1
    assert states(capsys.readouterr().err, "soundfile and soxr", "pip install 'seatrial[stage1]'")


def test_a_concurrent_preparation_is_refused(source: Path, target: Path) -> None:
    with locked_folder(target):
        assert "another process is preparing" in prepare("--input-root", source, "--output-root", target, code=1)


def test_a_link_into_the_input_is_refused(source: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target.mkdir()
    (target / "dev-clean").symlink_to(source / "dev-clean")
    before = bytes_of(source)
    assert run(source, target) == 1
    assert "is a link into --input-root" in capsys.readouterr().err
    assert bytes_of(source) == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for half of the files."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80k", "tmpfs", str(folder)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_leaves_only_complete_files(source: Path, small_disk: Path, tmp_path: Path) -> None:
    printed = prepare("--input-root", source, "--output-root", small_disk / "out", "--workers", "2", code=1)
    assert "is full" in printed and "Traceback" not in printed
    run(source, tmp_path / "clean")
    whole, there = bytes_of(tmp_path / "clean"), bytes_of(small_disk / "out")
    assert any(name.endswith(".flac") for name in there) and "manifest.tsv" not in there
    assert all(whole[name] == data for name, data in there.items() if not name.endswith(".tsv"))
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    prepare("--input-root", source, "--output-root", small_disk / "out")
    assert bytes_of(small_disk / "out") == whole


def test_file_modes_follow_the_umask(source: Path, target: Path) -> None:
    before = os.umask(0o002)
    try:
        assert run(source, target) == 0
    finally:
        os.umask(before)
    modes = {str(path.relative_to(target)): stat.S_IMODE(path.stat().st_mode) for path in target.rglob("*") if path.is_file()}
    assert {ONE, *TABLES} <= set(modes) and any(name.endswith(".trans.txt") for name in modes)
    assert set(modes.values()) == {0o664}, modes


NUM_FILES_INTERRUPTED = 150


@pytest.fixture(scope="module")
def many_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("source"), NUM_FILES_INTERRUPTED, mean_s=2.0).parent


@pytest.fixture(scope="module")
def uninterrupted(many_files: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    target = tmp_path_factory.mktemp("target")
    prepare("--input-root", many_files, "--output-root", target, "--trim")
    return bytes_of(target)


def arguments(many_files: Path, target: Path) -> list[str]:
    return ["--input-root", str(many_files), "--output-root", str(target), "--trim", "--workers", "2", "--quiet"]


def started(many_files: Path, target: Path, num_done: int) -> subprocess.Popen[str]:
    """A preparation that has finished `num_done` more files, or all."""
    wanted = num_files(target) + num_done
    process = subprocess.Popen([*COMMAND, *arguments(many_files, target)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_until(lambda: process.poll() is not None or num_files(target) >= wanted, f"{wanted} files done")
    return process


def num_files(target: Path) -> int:
    return len(list(target.rglob("[!.]*.flac")))


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    workers = []
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.Error):
            workers += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    return workers


def test_the_bytes_are_the_same_after_four_interruptions(many_files: Path, tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    target = tmp_path / "target"
    moments = random.Random(1)
    for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
        process = started(many_files, target, moments.randrange(1, NUM_FILES_INTERRUPTED // 4))
        process.send_signal(number)
        printed, _ = process.communicate(timeout=TIMEOUT_S)
        # It may have finished before the signal.
        assert process.returncode in (0, -number if number == signal.SIGKILL else 130), printed
        assert "Traceback" not in printed
        assert all(uninterrupted[name] == data for name, data in bytes_of(target).items() if name.endswith(".flac") and "/." not in name)
    prepare(*arguments(many_files, target))
    assert bytes_of(target) == uninterrupted


def test_sigterm_leaves_no_partial_file_and_no_worker(many_files: Path, tmp_path: Path) -> None:
    codes = []
    while 130 not in codes:
        # It may finish before the signal, but not every time.
        assert len(codes) < 10
        process = started(many_files, tmp_path / str(len(codes)), 10)
        workers = workers_of(process)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=TIMEOUT_S)
        codes.append(process.returncode)
        assert "run the same command to resume" in printed or codes[-1] == 0
        assert not list(tmp_path.rglob("*.part")) and not any(worker.is_running() for worker in workers)


@pytest.mark.parametrize("moment", [0, 60])
def test_a_killed_worker_is_replaced(moment: int, many_files: Path, tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    process = started(many_files, tmp_path / "target", moment)
    for worker in workers_of(process)[:1]:
        with contextlib.suppress(psutil.Error):
            worker.kill()
    printed, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, printed
    assert bytes_of(tmp_path / "target") == uninterrupted


def test_workers_of_a_killed_parent_exit(many_files: Path, tmp_path: Path) -> None:
    process = started(many_files, tmp_path / "target", 10)
    workers = workers_of(process)
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    wait_until(lambda: not any(worker.is_running() for worker in workers), "its workers have exited")
    assert workers


def output(number: int) -> Output:
    return Output(number, 2 * number, Source(3 * number, 4 * number))


def test_a_truncated_line_is_ignored_and_does_not_damage_the_next(tmp_path: Path) -> None:
    path = tmp_path / "prepared.tsv"
    with Appender(path) as lines:
        lines.add("a.flac", output(1))
        lines.add("b.flac", output(2))
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with Appender(path) as lines:
            lines.add("c.flac", output(3))
        known = read_outputs(path)
        assert known["c.flac"] == output(3)
        assert known.get("a.flac") in (None, output(1)) and known.get("b.flac", output(2))[:2] == output(2)[:2]


def test_invalid_lines_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "prepared.tsv"
    path.write_text("header\na.flac\t1\t2\t3\t4\nb.flac\t1\t2\t3\nc.flac\tone\t2\t3\t4\n\n")
    assert read_outputs(path) == {"a.flac": Output(1, 2, Source(3, 4))}
    assert read_outputs(tmp_path / "none") == {}
