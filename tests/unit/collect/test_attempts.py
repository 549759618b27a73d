"""Attempts on disk: what is read, which are current, and the cautions about them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from seatrial.agent.node import write_environment
from seatrial.collect import attempts
from seatrial.collect.attempts import (
    INSPECTED_BYTES,
    MAX_HOST_WARNINGS,
    SAMPLER_KILLED,
    alarm_cautions,
    binary_log_cautions,
    clock_skew_cautions,
    count_samples,
    environment_cautions,
    leftover_process_cautions,
    preflight_cautions,
    read_attempt,
    read_campaign,
    read_stored,
)
from seatrial.core import files
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.caution import Check
from seatrial.records.codec import to_json
from seatrial.records.launch import SKEW_S, NodeRecord, NodesRecord
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec, TelemetrySpec
from seatrial.records.stored import clock_offset_s, read_plan
from tests.facts import states
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import write_attempt


def write_plan(out: Path, *runs: RunSpec, name: str = "demo") -> None:
    files.write_json(out / "plans" / f"{name}.json", to_json(CampaignPlan(name=name, output=str(out), runs=runs)))


def test_an_attempt_comes_back_as_it_was_written(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(axes={"bs": 8}, settings={"lr": 0.1}))
    assert read_attempt(AttemptPaths(Path(attempt.folder))) == attempt


def test_all_attempts_by_run_then_number(tmp_path: Path) -> None:
    for group, number in (("b", 1), ("a", 10), ("a", 2)):
        write_attempt(tmp_path, factory.spec(group), number=number)
    assert [(one.spec.run, one.number) for one in read_campaign(CampaignPaths(tmp_path))] == [("a_r1", 2), ("a_r1", 10), ("b_r1", 1)]


@pytest.mark.parametrize("text", [None, "{", '{"run": "x"}'])
def test_an_unreadable_spec_is_no_attempt(tmp_path: Path, text: str | None) -> None:
    attempt = write_attempt(tmp_path)
    path = Path(attempt.folder) / "spec.json"
    path.unlink() if text is None else path.write_text(text)
    assert read_attempt(AttemptPaths(Path(attempt.folder))) is None
    assert read_campaign(CampaignPaths(tmp_path)) == []
    (caution,) = read_stored(CampaignPaths(tmp_path)).cautions
    assert (caution.kind, caution.subject) == ("unreadable_file", attempt.spec.run)


def test_an_unreadable_outcome_is_a_caution(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    (Path(attempt.folder) / "outcome.json").write_text('{"outcome": "exploded", "run": "a"}')
    found = read_attempt(AttemptPaths(Path(attempt.folder)))
    assert found is not None and found.outcome is None
    assert [caution.kind for caution in found.cautions] == ["unreadable_file"]


def test_without_an_outcome_it_is_unfinished_and_not_a_fault(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, outcome=None)
    found = read_attempt(AttemptPaths(Path(attempt.folder)))
    assert found is not None and found.outcome is None and found.cautions == ()


OK, FAILED, CUT = Outcome.OK, Outcome.FAILED, Outcome.INTERRUPTED


@pytest.mark.parametrize(
    ("written", "plans", "expected"),
    [
        pytest.param([("a", "h", OK), ("b", "old", OK)], [[("a", "h"), ("b", "new")]], [("a_r1", 1)], id="only what a plan has"),
        pytest.param([("a", "h", FAILED), ("a", "h", OK), ("a", "h", CUT), ("a", "h", None)], [[("a", "h")]], [("a_r1", 2)], id="ended"),
        pytest.param([("a", "h", OK), ("a", "h", FAILED)], [[("a", "h")]], [("a_r1", 2)], id="newest"),
        pytest.param([("a", "h", CUT), ("a", "h", None)], [[("a", "h")]], [("a_r1", 2)], id="none ended"),
        pytest.param([("a", "one", OK), ("a", "two", OK)], [[("a", "one")], [("a", "two")]], [("a_r1", 1), ("a_r1", 2)], id="two plans"),
        pytest.param([("a", "one", OK), ("a", "two", OK), ("b", "h", OK)], [], [("a_r1", 2), ("b_r1", 1)], id="no plan"),
    ],
)
def test_current_attempts(
    tmp_path: Path,
    written: list[tuple[str, str, Outcome | None]],
    plans: list[list[tuple[str, str]]],
    expected: list[tuple[str, int]],
) -> None:
    numbers: Counter[str] = Counter()
    for group, hash, outcome in written:
        numbers[group] += 1
        write_attempt(tmp_path, factory.spec(group, hash=hash), number=numbers[group], outcome=outcome)
    for number, runs in enumerate(plans):
        write_plan(tmp_path, *(factory.spec(group, hash=hash) for group, hash in runs), name=f"plan{number}")
    found = read_campaign(CampaignPaths(tmp_path))
    assert [(attempt.spec.run, attempt.number) for attempt in found if attempt.current] == expected


def test_the_latest_plan_is_read_once_where_its_copy_is_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def counted(path: Path) -> tuple[CampaignPlan | None, str]:
        read.append(path)
        return read_plan(path)

    monkeypatch.setattr(attempts, "read_plan", counted)
    paths = CampaignPaths(tmp_path)
    write_plan(tmp_path, factory.spec("a"))
    paths.plan.write_bytes((paths.plans / "demo.json").read_bytes())
    (plan,) = attempts.read_plans(paths)
    assert plan.runs == (factory.spec("a"),)
    assert read == [paths.plan]
    write_plan(tmp_path, factory.spec("b"))
    (plan,) = attempts.read_plans(paths)
    assert plan.runs == (factory.spec("b"),)


def test_the_worst_alarm_of_each_kind_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "alarms.jsonl"
    alarms = [
        {"kind": "spike", "ratio": 2.5, "text": "steps take 50 ms"},
        {"kind": "spike", "ratio": 4.0, "text": "steps take 80 ms"},
        {"kind": "spike_over", "ratio": 1.0, "text": "over"},
        {"kind": "silence", "ratio": 900.0, "text": "no step has ended for 18 s"},
    ]
    path.write_text("".join(json.dumps(alarm) + "\n" for alarm in alarms) + '{"kind": "spi')

    malformed, spike, silence = alarm_cautions("mb8_r1", path)
    assert (malformed.kind, malformed.numbers) == ("bad_rows", {"rows": 1})
    assert (spike.kind, spike.subject, spike.numbers) == ("spike", "mb8_r1", {"alarms": 2, "ratio": 4.0})
    assert "steps take 80 ms" in spike.text
    assert silence.kind == "silence" and "no step has ended for 18 s" in silence.text


def test_samples_of_a_killed_agent_are_counted(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path)
    assert count_samples(paths, TelemetrySpec()) is None
    paths.host_telemetry.write_text("timestamp,load1\na,1\nb,2\nc,")

    account = count_samples(paths, TelemetrySpec(host_s=0.5))

    assert account is not None and account.gpu is None and account.host is not None
    assert (account.host.rows, account.host.interval_s, account.host.empty, account.host.note) == (2, 0.5, False, SAMPLER_KILLED)


def ended(outcome: Outcome, killed: int) -> RunOutcome:
    return RunOutcome(run="a_r1", attempt=1, hash="h", outcome=outcome, killed=killed)


def test_processes_that_outlived_a_good_run_are_counted() -> None:
    (caution,) = leftover_process_cautions("a_r1", ended(Outcome.OK, 2))
    assert (caution.kind, caution.numbers) == ("left_behind", {"killed": 2})


@pytest.mark.parametrize("outcome", [None, ended(Outcome.OK, 0), ended(Outcome.FAILED, 3)])
def test_no_caution_for_a_run_that_left_none_or_failed(outcome: RunOutcome | None) -> None:
    assert list(leftover_process_cautions("a_r1", outcome)) == []


@pytest.mark.parametrize("place", ["beginning", "end"])
def test_binary_data_is_counted_at_either_end(tmp_path: Path, place: str) -> None:
    log, text, rubbish = tmp_path / "launcher.log", "step 1: ä\n".encode() * (INSPECTED_BYTES // 5), b"\xff\xfe\x00" * 100
    log.write_bytes(rubbish + text if place == "beginning" else text + rubbish)
    (caution,) = binary_log_cautions("a_r1", log)
    assert caution.numbers == {"bytes": 300, "of": 2 * INSPECTED_BYTES}
    assert states(caution.text, "launcher.log", "300 of")


@pytest.mark.parametrize("content", [b"", "Übung ✓ 日本\n".encode() * 40_000, b"one odd byte \xff\n"])
def test_text_cut_within_a_character_is_not_binary(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "launcher.log").write_bytes(content)
    assert list(binary_log_cautions("a_r1", tmp_path / "launcher.log")) == []
    assert list(binary_log_cautions("a_r1", tmp_path / "missing.log")) == []


def record(*offsets_s: float | None) -> NodesRecord:
    return NodesRecord(
        nodes=tuple(NodeRecord(name=f"n{at}", node_rank=at, first_rank=at, ranks=1, clock_offset_s=one) for at, one in enumerate(offsets_s))
    )


@pytest.mark.parametrize("nodes", [None, NodesRecord(), record(None, 0.0, SKEW_S, -SKEW_S)])
def test_no_caution_for_synchronised_clocks(nodes: NodesRecord | None) -> None:
    assert list(clock_skew_cautions("mb8_r1", nodes)) == []


def test_the_worst_clock_skew_comes_first() -> None:
    (caution,) = clock_skew_cautions("mb8_r1", record(0.0, 2.0, -3600.0, 3.0, 4.0, 5.0))
    assert "n2 1h 00m behind, n5 5.0 s ahead, n4 4.0 s ahead, n3 3.0 s ahead and 1 more" in caution.text
    assert caution.numbers == {"host": "n2", "seconds": -3600.0, "hosts": 5}


def test_an_unknown_clock_offset_is_zero() -> None:
    assert [clock_offset_s(record(None, 7.0), rank) for rank in (0, 1, 9)] == [0.0, 7.0, 0.0] and clock_offset_s(None, 0) == 0.0


def environment_texts(folder: Path, **hosts: dict[str, str]) -> list[str]:
    attempt = AttemptPaths(folder / "attempt-1")
    for name, variables in hosts.items():
        attempt.node(name).folder.mkdir(parents=True, exist_ok=True)
        write_environment(attempt.node(name), variables, {"OMP_NUM_THREADS": "1"})
    return [caution.text for caution in environment_cautions("r", attempt)]


def test_differing_variables_are_named_with_their_hosts(tmp_path: Path) -> None:
    (text,) = environment_texts(tmp_path, a={"NCCL_ALGO": "Ring"}, b={"NCCL_ALGO": "Ring"}, c={"NCCL_ALGO": "Tree", "NCCL_DEBUG": "INFO"})
    assert "NCCL_ALGO Tree on c, Ring elsewhere; NCCL_DEBUG INFO on c, not set elsewhere" in text


def test_variables_of_a_host_may_differ(tmp_path: Path) -> None:
    assert environment_texts(tmp_path, a={"CUDA_VISIBLE_DEVICES": "0", "HOME": "/a"}, b={"CUDA_VISIBLE_DEVICES": "1", "HOME": "/b"}) == []
    assert environment_texts(tmp_path / "none") == []


def test_a_host_without_a_record_is_not_compared(tmp_path: Path) -> None:
    attempt = AttemptPaths(tmp_path / "attempt-1")
    attempt.node("c").folder.mkdir(parents=True)
    attempt.node("c").environment.write_text("[1")
    assert environment_texts(tmp_path, a={"NCCL_ALGO": "Ring"}, b={"NCCL_ALGO": "Ring"}) == []


def test_secrets_in_the_environment_are_masked(tmp_path: Path) -> None:
    environment_texts(tmp_path, a={"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz", "MY_OWN": "x"})
    stored = json.loads((tmp_path / "attempt-1" / "nodes" / "a" / "environment.json").read_text())["variables"]
    assert [one["name"] for one in stored] == ["HF_TOKEN", "OMP_NUM_THREADS"] and "hf_abc" not in json.dumps(stored)
    assert [one["set_by"] for one in stored] == ["host", "seatrial"]


SLOW = Check(name="link speed on node2", ok=False, found="0.2 MiB/s", prevents="x", fix="See its cable", refuses=False, hosts=("node2",))
SOUND = Check(name="link speed on node1", ok=True, found="900 MiB/s", prevents="x", hosts=("node1",))
LOCAL = Check(name="load", ok=False, found="9", prevents="x", refuses=False)


def preflight_texts(folder: Path, *checks: Check) -> list[str]:
    (folder / "preflight.json").write_text(json.dumps([to_json(check) for check in checks]))
    return [caution.text for caution in preflight_cautions(folder / "preflight.json")]


def test_failed_checks_of_this_machine_and_of_hosts_are_reported(tmp_path: Path) -> None:
    text, local = preflight_texts(tmp_path, SOUND, SLOW, LOCAL)
    assert "link speed on node2: 0.2 MiB/s" in text and "See its cable" in text
    assert "load: 9" in local
    assert len(preflight_texts(tmp_path, *[SLOW] * 40)) == MAX_HOST_WARNINGS
