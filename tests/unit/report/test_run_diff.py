"""Two attempts side by side: what differs, in which section, and whether they may be averaged."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.machine.provenance import compute_fingerprint
from seatrial.records.attempt import Attempt
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.plan import LauncherSpec, PlaceSpec, RunSpec, WorkloadSpec
from seatrial.report.run_diff import NO_DIFFERENCE, DiffedRun, Difference, RunDiff, argv_differences, diff_json, diff_lines, diff_runs
from tests.unit.analyse import factory as analyse_factory
from tests.unit.report.factory import outcome, provenance, spec

GOLDEN = Path(__file__).parent / "golden"


def side(
    repeat: int = 1,
    *,
    run_spec: RunSpec | None = None,
    how: dict[str, Any] | None = None,
    effective: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    **facts: Any,
) -> DiffedRun:
    run_spec = run_spec or spec("mb16_nw2", repeat)
    recorded = provenance(**facts)
    attempt = Attempt(
        folder=f"out/{run_spec.run}/attempt-1",
        number=1,
        spec=run_spec,
        outcome=outcome(run_spec, 1, **{"how": Outcome.OK, **(how or {})}),
        provenance=dataclasses.replace(recorded, fingerprint=facts.get("fingerprint", compute_fingerprint(recorded))),
    )
    return DiffedRun(attempt=attempt, effective=analyse_factory.effective(effective or {}), environment=environment or {})


def told(diff: RunDiff, section: str) -> dict[str, tuple[Any, Any]]:
    return {one.name: (one.before, one.after) for one in diff.differences if one.section == section}


def test_two_repeats_are_alike_and_say_so() -> None:
    own = {"SEATRIAL_RUN": "a", "SEATRIAL_RUN_DIR": "/a", "SEATRIAL_ATTEMPT": "1", "MASTER_PORT": "1"}
    diff = diff_runs(side(1, environment=own), side(2, environment=dict.fromkeys(own, "b")))
    assert diff.differences == () and diff.may_be_averaged and diff.fingerprints_equal
    assert diff_lines(diff, 80)[-2:] == [NO_DIFFERENCE, "Fingerprints equal: may be averaged."]


def test_each_difference_is_in_its_section() -> None:
    other = spec("mb8_nw2", 1, steps=400, env={"NCCL_ALGO": "Ring"}, place=PlaceSpec(ranks=4), script_sha256="ab" * 32)
    diff = diff_runs(
        side(effective={"attn": ("auto", "flash", "")}, nics={"eth0": "up"}, environment={"HF_HOME": "/a"}),
        side(
            run_spec=other,
            how={"how": Outcome.FAILED, "cause": Cause.CUDA_OOM, "detail": "out of memory"},
            effective={"attn": ("auto", "sdpa", "no flash-attn")},
            nics={"eth0": "down"},
            environment={"HF_HOME": "/b", "NCCL_ALGO": "Ring"},
            packages={"torch": "2.12.0", "triton": "3.1"},
            driver_version="570.10",
            cuda="13.0",
            host="node-2",
            memory_bytes=16 * 1024**3,
            git_commit_hash="ffff",
        ),
    )
    assert told(diff, "settings") == {
        "micro_batch": (16, 8),
        "place.ranks": (2, 4),
        "steps": (200, 400),
        "env.NCCL_ALGO": (None, "Ring"),
    }
    assert told(diff, "effective settings") == {"attn": ("flash", "sdpa")}
    assert told(diff, "environment") == {"HF_HOME": ("/a", "/b")}, "the plan's own variable is told among the settings"
    assert told(diff, "versions") == {
        "driver_version": (None, "570.10"),
        "cuda": (None, "13.0"),
        "torch": ("2.13.0", "2.12.0"),
        "triton": (None, "3.1"),
    }
    assert told(diff, "hardware") == {
        "host": ("node-1", "node-2"),
        "memory_bytes": (8 * 1024**3, 16 * 1024**3),
        "nic eth0": ("up", "down"),
    }
    assert told(diff, "code") == {"git_commit_hash": ("0123456789abcdef0123", "ffff"), "script_sha256": (None, "ab" * 32)}
    assert told(diff, "outcome") == {
        "outcome": ("ok", "failed"),
        "cause": ("none", "cuda_oom"),
        "detail": (None, "out of memory"),
        "exit_code": (0, 1),
    }
    assert {one.name for one in diff.differences if one.parts} == {"host", "driver_version", "cuda", "git_commit_hash", "torch", "triton"}
    assert set(diff.parted_by) == {"host", "driver_version", "cuda", "git_commit_hash", "torch", "triton"}
    assert not diff.may_be_averaged


def test_tuning_variable_of_the_caller_parts_two_runs() -> None:
    diff = diff_runs(side(variables={"NCCL_ALGO": "Ring"}), side(2))
    assert [(one.section, one.name, one.before, one.after, one.parts) for one in diff.differences] == [
        ("environment", "NCCL_ALGO", "Ring", None, True)
    ]
    assert diff.conclusion == "Fingerprints differ: not averaged. Different: NCCL_ALGO."


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (side(), side(run_spec=spec("mb8_nw2", 1)), "Fingerprints equal, settings not: two groups"),
        (side(effective={"a": (1, 1, "")}), side(2, effective={"a": (1, 2, "")}), "Fingerprints equal, effective settings not"),
        (side(fingerprint="old"), side(2), "Fingerprints differ without a recorded reason"),
        (side(fingerprint=""), side(2), "At least one has no recorded fingerprint"),
    ],
)
def test_why_two_runs_are_not_averaged(before: DiffedRun, after: DiffedRun, says: str) -> None:
    diff = diff_runs(before, after)
    assert diff.conclusion.startswith(says) and not diff.may_be_averaged


def test_words_of_a_command_are_reported_under_their_option() -> None:
    before = ["train.py", "--bs", "8", "--lr=0.1", "--name", "a b"]
    after = ["train.py", "--bs", "16", "--lr=0.2", "--name", "a b", "--compile"]
    assert list(argv_differences("args", before, after)) == [
        Difference(section="settings", name="args --bs", before="8 --lr=0.1", after="16 --lr=0.2"),
        Difference(section="settings", name="args", before=None, after="--compile"),
    ]
    assert list(argv_differences("args", before, before)) == []


def test_unfinished_run_is_called_so() -> None:
    running = side(2)
    running = dataclasses.replace(running, attempt=dataclasses.replace(running.attempt, outcome=None))
    diff = diff_runs(side(), running)
    assert told(diff, "outcome")["outcome"] == ("ok", "unfinished")
    assert diff_lines(diff, 80)[1].endswith("unfinished")


def test_a_masked_difference_is_not_passed_over_in_silence() -> None:
    shown = spec("mb16_nw2", 1, env={"HF_TOKEN": "***"})
    diff = diff_runs(side(run_spec=shown), side(run_spec=dataclasses.replace(shown, group_key="key-other", hash="other")))
    assert diff.differences == ()
    assert "a masked value differs" in " ".join(diff_lines(diff, 80))


def _golden_case() -> RunDiff:
    words = WorkloadSpec(name="train.py", script="train.py", args=("--bs", "8", "--data", "/data/" + "shard/" * 14))
    before = spec("bs8", 1, workload=words, settings={}, axes={"bs": 8}, launcher=LauncherSpec(kind="python"))
    after = dataclasses.replace(
        before,
        run="bs16_r1",
        group_key="key-bs16",
        axes={"bs": 16},
        workload=dataclasses.replace(words, args=("--bs", "16", "--data", "/x")),
    )
    return diff_runs(
        side(run_spec=before, git_dirty="false", gpu_name="H200", gpu_power_limit_w="700.00", memory_bytes=2 * 1024**4),
        side(
            run_spec=after,
            how={
                "how": Outcome.FAILED,
                "cause": Cause.CUDA_OOM,
                "detail": "CUDA out of memory. [red]Tried[/red] to allocate 2 GiB",
                "duration_s": 3.14,
            },
            git_dirty="true",
            git_diff_sha256="9f86d081884c7d659a2feaa0c55ad015",
            gpu_name="H200",
            gpu_power_limit_w="350.00",
            packages={"torch": "2.14.0"},
            memory_bytes=1024**4,
        ),
    )


@pytest.mark.parametrize("width", [80, 20])
def test_the_text_is_as_it_was_and_fits(width: int) -> None:
    lines = diff_lines(_golden_case(), width)
    if width == 80:
        assert "\n".join(lines) + "\n" == (GOLDEN / "run_diff.txt").read_text(encoding="utf-8")
    assert max(len(line) for line in lines) <= 80


def test_json_holds_the_same_with_values_as_values() -> None:
    stored = json.loads(json.dumps(diff_json(_golden_case())))
    assert list(stored) == ["before", "after", "fingerprints_equal", "may_be_averaged", "parted_by", "says", "masked", "differences"]
    assert stored["after"]["outcome"] == "failed" and stored["before"]["run"] == "bs8_r1"
    assert {"section": "settings", "name": "bs", "before": 8, "after": 16, "parts": False} in stored["differences"]
    assert stored["parted_by"] == ["gpu_power_limit_w", "git_diff_sha256", "torch"]


def test_values_that_are_masked_in_both_are_not_called_equal() -> None:
    old, new = (spec("mb8_nw2", 1, group_key=key, env={"LICENSE": "***", "MODE": "x"}) for key in ("one", "two"))
    diff = diff_runs(side(run_spec=old), side(run_spec=new))
    assert diff.masked == ("env.LICENSE",) and any("env.LICENSE" in line for line in diff_lines(diff, 200))
    # The key is over the values themselves.
    assert diff_runs(side(run_spec=old), side(run_spec=old)).masked == ()
