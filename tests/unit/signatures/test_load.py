"""The data files: in their order, whole, and a bad entry names itself."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from seatrial.records.outcome import Cause, Fault
from seatrial.signatures.check import problems
from seatrial.signatures.load import FILES, FOLDER, load_signatures
from seatrial.signatures.signature import Signature

GOOD = """\
[[signature]]
id = "disk_gone"
symptom = "`no disk`"
cause = "io_error"
fault = "infrastructure"
why = "The disk is gone."
action = "Bring it back."
patterns = ['no disk']
"""


def loaded(tmp_path: Path, *texts: str) -> tuple[Signature, ...]:
    for number, text in enumerate(texts):
        (tmp_path / f"f{number}.toml").write_text(text)
    return load_signatures(tmp_path, tuple(f"f{number}" for number in range(len(texts))))


def test_every_file_is_in_the_order_and_every_name_of_the_order_is_a_file() -> None:
    assert sorted(FILES) == sorted(path.stem for path in FOLDER.glob("*.toml"))


def test_entries_come_in_the_order_of_the_files_and_within_them() -> None:
    written = [entry["id"] for name in FILES for entry in tomllib.loads((FOLDER / f"{name}.toml").read_text())["signature"]]
    assert [entry.id for entry in load_signatures()] == written


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("shm_comm_build", "op_build"),
        ("cache_race", "file_missing"),
        ("shared_memory", "disk_full"),
        ("shared_memory", "host_oom"),
        ("slurm_oom", "bad_argument"),
        ("deepspeed_not_installed", "import_error"),
        ("local_rank", "bad_argument"),
        ("nccl_version", "extension_abi"),
        ("extension_abi", "import_error"),
        ("vllm_kv_cache", "cuda_oom"),
        ("ibv_error", "nccl_transport"),
        ("nccl_remote", "nccl_transport"),
        ("host_lost", "hub_unreachable"),
        ("driver_mismatch", "no_driver"),
    ],
)
def test_what_is_special_stands_before_what_is_general(earlier: str, later: str) -> None:
    ids = [entry.id for entry in load_signatures()]
    assert ids.index(earlier) < ids.index(later)


def test_the_files_go_into_the_wheel() -> None:
    project = tomllib.loads((FOLDER.parents[2] / "pyproject.toml").read_text())
    globs = project["tool"]["setuptools"]["package-data"]["seatrial"]
    assert [name for name in FILES if not any(fnmatch(f"signatures/{name}.toml", glob) for glob in globs)] == []


def test_an_entry_is_read_into_the_record(tmp_path: Path) -> None:
    [entry] = loaded(tmp_path, GOOD)
    assert (entry.cause, entry.fault, entry.patterns) == (Cause.IO_ERROR, Fault.INFRASTRUCTURE, ("no disk",))
    assert problems(entry) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('cause = "io_error"', 'cause = "disk"', "f0.toml, entry disk_gone: 'cause' is 'disk'; it is one of none, "),
        ('fault = "infrastructure"', 'fault = "theirs"', "'fault' is 'theirs'; it is one of infrastructure, "),
        ('action = "Bring it back."\n', "", "'action' is missing or empty"),
        ('why = "The disk is gone."', 'why = ""', "'why' is missing or empty"),
        ('id = "disk_gone"\n', "", "f0.toml, entry 1: 'id' is missing or empty"),
        ("patterns = ['no disk']", "pattern = 'no disk'", "unknown key 'pattern'; known are "),
        ("patterns = ['no disk']", "patterns = 'no disk'", "'patterns' is to be a list of texts"),
        ("patterns = ['no disk']", "exit_codes = ['9']", "'exit_codes' is to be a list of numbers"),
        ("patterns = ['no disk']", "after_effect = 'yes'", "'after_effect' is 'yes', which is of the wrong type"),
        ("[[signature]]", "[[signatur]]", "unknown table 'signatur'"),
    ],
)
def test_a_malformed_entry_names_itself(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(ValueError) as error:
        loaded(tmp_path, GOOD.replace(old, new))
    assert told in str(error.value)


def test_an_id_is_there_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'disk_gone' is there already"):
        loaded(tmp_path, GOOD, GOOD)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("'no disk'", "'no ('", "not a regular expression"),
        ("'no disk'", "'step'", "lines that every script prints"),
        ('"disk_gone"', '"Disk-gone"', "small letters"),
        ("gone.", "gone", "'why' is not a sentence"),
        ("Bring", "bring", "'action' is not a sentence"),
        ("`no disk`", "`no disk", "paired backticks"),
        ("patterns", "topics = ['moon']\npatterns", "topic 'moon'"),
        ("patterns", "words = ['disk']\npatterns", "'words' is for signs of slowness"),
        ("patterns", "echo = true\npatterns", "an echo is an after-effect too"),
        ("patterns", "slows = true\npatterns", "has the cause `none`"),
        ('"io_error"', '"none"', "nobody's fault"),
    ],
)
def test_what_an_entry_must_not_say_is_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    [entry] = loaded(tmp_path, GOOD.replace(old, new))
    assert any(told in problem for problem in problems(entry))
