"""Whole trees: what is left, what is refused, what is done again."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from seatrial_workloads.librispeech import prepare_tree
from seatrial_workloads.librispeech.manifest import read_manifest
from seatrial_workloads.librispeech.prepare import main
from seatrial_workloads.librispeech.record import PrepareError
from seatrial_workloads.librispeech.synthetic import make_tree
from tests.workloads.librispeech.trees import DyingConvertOne, bytes_of, prepare, rejected

NUM_FILES = 12
ONE = "dev-clean/100201/100300/100201-100300-0000.flac"
TABLES = {"manifest.tsv", "prepare.json", "prepared.tsv", "rejected.tsv"}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("source"), NUM_FILES, mean_s=0.8).parent


@pytest.fixture
def source(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "source"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def run(source: Path, target: Path, *words: str) -> int:
    return main(["--input-root", str(source), "--output-root", str(target), "--quiet", *words])


def test_a_tree_is_prepared(source: Path, target: Path) -> None:
    said = prepare("--input-root", source, "--output-root", target, "--trim", "--log-every", "5")
    assert "5 of 12 files" in said and "12 files prepared: 12 now, 0 before" in said and "none rejected" in said
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


@pytest.mark.parametrize("flags", [(), ("--trim",), ("--target-sr", "8000", "--trim", "--trim-top-db", "30")])
def test_one_worker_and_two_leave_the_same_bytes(source: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert run(source, tmp_path / "one", *flags) == run(source, tmp_path / "two", "--workers", "2", *flags) == 0
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")


def test_a_second_run_makes_nothing_again(source: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(source, target)
    before, when = bytes_of(target), (target / ONE).stat().st_mtime_ns
    assert run(source, target) == 0
    assert "0 now, 12 before" in capsys.readouterr().out
    assert bytes_of(target) == before and (target / ONE).stat().st_mtime_ns == when


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.mkdir(), path.rmdir()),
    ],
)
def test_an_output_that_is_not_whole_is_made_again(source: Path, target: Path, spoil, capsys) -> None:  # type: ignore[no-untyped-def]
    run(source, target)
    before = bytes_of(target)
    spoil(target / ONE)
    assert run(source, target) == 0
    assert "1 now, 11 before" in capsys.readouterr().out
    assert bytes_of(target) == before


def test_what_another_tool_left_is_not_believed(source: Path, target: Path, tmp_path: Path) -> None:
    """Half a file under its final name, and a whole one of which nobody knows how it was made."""
    run(source, tmp_path / "clean", "--trim")
    (target / ONE).parent.mkdir(parents=True)
    (target / ONE).write_bytes((source / ONE).read_bytes()[:3_000])
    shutil.copy(source / ONE.replace("0000.flac", "0001.flac"), (target / ONE).parent)
    run(source, target, "--trim")
    assert bytes_of(target) == bytes_of(tmp_path / "clean")


def test_a_source_that_has_changed_is_prepared_again(source: Path, target: Path, tmp_path: Path) -> None:
    run(source, target)
    soundfile.write(source / ONE, 0.1 * np.ones(500), 16_000)
    run(source, target)
    assert soundfile.info(target / ONE).frames == 500
    assert next(row.num_samples for row in read_manifest(target / "manifest.tsv") if row.rel_path == ONE) == 500


def test_a_source_that_is_gone_leaves_the_manifest(source: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_overwriting_that_was_broken_off_is_not_taken_for_done(source: Path, target: Path, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    run(source, target)
    with monkeypatch.context() as patch:
        patch.setattr(prepare_tree, "_convert_all", lambda *words: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(source, target, "--trim", "--overwrite") == 130
    assert not (target / "manifest.tsv").exists()
    run(source, target, "--trim")
    run(source, tmp_path / "clean", "--trim")
    assert bytes_of(target) == bytes_of(tmp_path / "clean")


def test_bad_files_are_listed_and_the_rest_is_prepared(source: Path, target: Path) -> None:
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
    said = prepare("--input-root", source, "--output-root", target, "--trim", "--workers", "2")
    assert "12 files prepared" in said and "9 rejected" in said
    names = {Path(name).name: reason for name, reason in rejected(target).items()}
    assert names.pop("cut.flac").startswith("cannot be decoded: ")
    assert names == {
        "empty.flac": "the file is empty (0 bytes)",
        "text.flac": "cannot be decoded: Format not recognised.",
        "gone.flac": "cannot be read: No such file or directory",
        "silent.flac": "silence only",
        "pipe.flac": "cannot be read: is no ordinary file",
        "pipe.txt": "cannot be read: is no ordinary file",
        "tab\\tin name.flac": "its name holds a tab or an end of line, which no line of a manifest can hold",
        "latin\\udce9.flac": "its name is not UTF-8",
    }
    assert len(list(target.rglob("*.flac"))) == NUM_FILES
    before = bytes_of(target)
    prepare("--input-root", source, "--output-root", target, "--trim")
    assert bytes_of(target) == before


def test_a_source_that_has_gone_bad_takes_its_output_with_it(source: Path, target: Path) -> None:
    run(source, target)
    (source / ONE).write_bytes(b"")
    run(source, target)
    assert not (target / ONE).exists() and ONE in rejected(target)


def test_a_file_that_kills_its_worker_twice_is_rejected(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_tree, "ConvertOne", DyingConvertOne)
    assert run(source, target) == 0
    assert list(rejected(target).values()) == ["the process preparing it was killed by SIGKILL (out of memory?), twice"]
    assert len(read_manifest(target / "manifest.tsv")) == NUM_FILES - 1


def test_nothing_but_bad_files_ends_with_1(tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "bad.flac").write_bytes(b"bad")
    assert run(tmp_path / "source", target) == 1
    assert "no file could be prepared" in capsys.readouterr().err
    assert list(rejected(target)) == ["bad.flac"]


def test_odd_names_and_links(pristine: Path, tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source"
    (source / "a folder").mkdir(parents=True)
    shutil.copy(pristine / ONE, source / "a folder" / "Ünïcode 名.flac")
    shutil.copy(pristine / ONE, source / "LOUD.FLAC")
    (source / "link.flac").symlink_to(pristine / ONE)
    (source / "linked").symlink_to(pristine / "dev-clean")
    (source / "a folder" / "round").symlink_to(source)
    (source / "._LOUD.FLAC").write_bytes(b"of another system")
    (source / "SPEAKERS.TXT").write_text("; id | sex")
    assert run(source, target) == 0
    names = [row.rel_path for row in read_manifest(target / "manifest.tsv")]
    linked = sorted(f"linked/{path.relative_to(pristine / 'dev-clean')}" for path in (pristine / "dev-clean").rglob("*.flac"))
    assert names == ["LOUD.FLAC", "a folder/Ünïcode 名.flac", "link.flac", *linked]
    assert (target / "SPEAKERS.TXT").read_text() == "; id | sex" and not (target / "link.flac").is_symlink()


def test_leftovers_of_the_dead_are_swept_and_nothing_else(source: Path, target: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    folder = (target / ONE).parent
    folder.mkdir(parents=True)
    here = os.uname().nodename
    of_the_dead, of_the_living = f".x.flac.{gone.pid}@{here}.a1.part", f".x.flac.{os.getpid()}@{here}.a1.part"
    for name in (of_the_dead, of_the_living, ".x.flac.part", "notes.123.part"):
        (folder / name).touch()
    run(source, target)
    left = {path.name for path in folder.iterdir()} - {path.name for path in (source / ONE).parent.iterdir()}
    assert left == {of_the_living, ".x.flac.part", "notes.123.part"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--output-root", "{out}"], "--input-root is missing"),
        (["--input-root", "{out}/none", "--output-root", "{out}"], "is no folder"),
        (["--input-root", "{empty}", "--output-root", "{out}"], "has no .flac file"),
        (["--input-root", "{in}", "--output-root", "{in}"], "lie in each other"),
        (["--input-root", "{in}", "--output-root", "{in}/prepared"], "lie in each other"),
        (["--input-root", "{in}/dev-clean", "--output-root", "{in}"], "lie in each other"),
        (["--input-root", "{in}/dev-clean/..", "--output-root", "{link}"], "lie in each other"),
        (["--input-root", "{in}", "--output-root", "{out}", "--workers", "0"], "--workers is 0"),
        (["--input-root", "{in}", "--output-root", "{out}", "--log-every", "-1"], "--log-every is -1"),
        (["--input-root", "{in}", "--output-root", "{out}", "--target-sr", "0"], "--target-sr is 0"),
        (["--input-root", "{in}", "--output-root", "{out}", "--trim-top-db", "0"], "--trim-top-db is 0.0"),
        (["--input-root", "{in}", "--output-root", "{out}", "--trim-top-db", "nan"], "--trim-top-db is nan"),
        (["--input-root", "{in}", "--output-root", "{out}", "--seed", "3"], "--seed is the synthetic tree's"),
        (["--input-root", "{in}", "--output-root", "{out}", "--manifest-path", "{note}"], "is no manifest"),
        (["--synthetic", "10", "--output-root", "{out}", "--trim"], "--trim has no meaning with --synthetic"),
        (["--synthetic", "2", "--output-root", "{out}"], "--synthetic is 2"),
        (["--synthetic", "9", "--seed", "-2", "--output-root", "{out}"], "--seed is -2"),
        (["--verify", "--output-root", "{out}"], "is no folder"),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_is_left(words: list[str], says: str, pristine: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.tsv").write_text("mine")
    (tmp_path / "link").symlink_to(pristine)
    known = {"in": pristine, "out": tmp_path / "out", "empty": tmp_path / "empty", "note": tmp_path / "note.tsv", "link": tmp_path / "link"}
    before = bytes_of(pristine)
    assert main([word.format(**known) for word in words]) == 1
    assert says in capsys.readouterr().err
    assert bytes_of(pristine) == before and not list(tmp_path.rglob("*.flac")) and (tmp_path / "note.tsv").read_text() == "mine"


def test_wrong_words_end_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--outputroot", "x"], ["--output-root", ""], ["--output-root", "x", "--workers", "two"], []):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 1
        assert "prepare librispeech:" in capsys.readouterr().err


def test_missing_libraries_are_named_with_the_remedy(source: Path, target: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("soxr", "soundfile") else object())
    assert run(source, target) == 1
    assert "soundfile and soxr must be installed for this: pip install 'seatrial[stage1]'" in capsys.readouterr().err


def test_a_second_preparation_of_the_same_folder_is_refused(source: Path, target: Path) -> None:
    with prepare_tree.owned_folder(target):
        assert "another process is preparing" in prepare("--input-root", source, "--output-root", target, code=1)


def test_a_link_back_into_the_input_is_not_written_through(source: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target.mkdir()
    (target / "dev-clean").symlink_to(source / "dev-clean")
    before = bytes_of(source)
    assert run(source, target) == 1
    assert "is a link into --input-root" in capsys.readouterr().err
    assert bytes_of(source) == before


@pytest.mark.parametrize(("number", "says"), [(errno.ENOSPC, "is full"), (errno.EROFS, "cannot be written to (")])
def test_trouble_with_the_output_ends_the_run(number: int, says: str, source: Path, target: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    def refuse(*words: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(prepare_tree, "write_outputs", refuse)
    assert run(source, target) == 1
    assert says in capsys.readouterr().err
    assert not (target / "manifest.tsv").exists()


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


def test_a_disk_that_fills_up_leaves_whole_files_only(source: Path, small_disk: Path, tmp_path: Path) -> None:
    said = prepare("--input-root", source, "--output-root", small_disk / "out", "--workers", "2", code=1)
    assert "is full" in said and "Traceback" not in said
    run(source, tmp_path / "clean")
    whole, there = bytes_of(tmp_path / "clean"), bytes_of(small_disk / "out")
    assert any(name.endswith(".flac") for name in there) and "manifest.tsv" not in there
    assert all(whole[name] == data for name, data in there.items() if not name.endswith(".tsv"))
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    prepare("--input-root", source, "--output-root", small_disk / "out")
    assert bytes_of(small_disk / "out") == whole


def test_an_input_that_vanishes_is_said(tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match="cannot be read"):
        prepare_tree._sources(
            prepare_tree.Request(
                input_root=tmp_path / "gone",
                output_root=tmp_path / "out",
                manifest_path=tmp_path / "out" / "manifest.tsv",
                conversion=prepare_tree.Conversion(target_sr=16_000, trim_top_db=None),
            )
        )


def test_what_users_left_in_the_output_stays_and_what_a_killed_writer_left_goes(source: Path, target: Path) -> None:
    folder = target / "dev-clean"
    folder.mkdir(parents=True)
    of_others = [folder / ".mydownload.part", target / ".keep.link"]
    of_ours = folder / ".a.flac.1@elsewhere.abc.part"
    for path in (*of_others, of_ours):
        path.write_text("mine")
        os.utime(path, (0, 0))
    assert run(source, target) == 0
    assert [path.read_text() for path in of_others] == ["mine", "mine"] and not of_ours.exists()


def test_who_may_read_the_tree_is_the_umasks_to_say(source: Path, target: Path) -> None:
    before = os.umask(0o002)
    try:
        assert run(source, target) == 0
    finally:
        os.umask(before)
    modes = {str(path.relative_to(target)): stat.S_IMODE(path.stat().st_mode) for path in target.rglob("*") if path.is_file()}
    assert {ONE, *TABLES} <= set(modes) and any(name.endswith(".trans.txt") for name in modes)
    assert set(modes.values()) == {0o664}, modes
