"""All rows together: sound hosts, hosts that do not answer, many of them, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.preflight.hosts import examine
from seatrial.preflight.hosts.examine import examine_hosts, host_questions
from seatrial.preflight.hosts.rows import HostRow, folded
from seatrial.preflight.hosts.wanted import hosts_of, need_of_head
from seatrial.preflight.question import Question
from seatrial.preflight.reference import markdown
from seatrial.records.check import Check
from seatrial.records.run_spec import HostSpec, PlaceSpec, RunSpec
from tests.unit.preflight.hosts.fake_hosts import FakeHosts, amiss, examined, specs
from tests.unit.preflight.needs import make_need, make_run


def test_sound_hosts_are_in_order_and_told_of() -> None:
    found = examined(FakeHosts("node1", "node2"))
    assert amiss(found) == {}
    assert found.facts["node2"].gpus == ("H100",) * 8 and found.facts["node2"].name == "node2"
    assert found.facts["node1"].clock_offset_s == 0.001
    assert [section.subject for section in found.sections if section.subject != "interfaces"] == [
        title for title in host_questions() if title != "interfaces"
    ]


def test_every_answer_has_a_later_error_and_a_fix() -> None:
    found = examined(FakeHosts("node1", "node2"), fast=False)
    checks = [check for row in found.rows for check in row.checks.values()]
    assert len(checks) > 40 and all(check.prevents and check.fix and check.found for check in checks if not check.ok)


def test_time_grows_with_the_slowest_host_and_not_with_their_number() -> None:
    few = FakeHosts("node0", "node1", slow_s={"node1": 1.0})
    many = FakeHosts(*(f"node{number}" for number in range(64)), slow_s={"node40": 1.0})
    assert amiss(examined(few)) == {} == amiss(examined(many))
    # Of two hosts there is one link, of 64 there are as many: two rounds of trials do.
    assert many.exchanges == few.exchanges + 1 <= 6
    assert many.time_s == few.time_s + 1.0 <= 6.0
    # In the short form the questions of one host do not grow with the number of hosts either, but for node 0's.
    targets = many.asked[1]["node7"]["parts"]["reach"]["targets"]
    assert set(targets) == {"peer node8", "rendezvous", "call"}
    assert len(many.asked[1]["node0"]["parts"]["reach"]["targets"]) == 63


def test_the_long_form_calls_every_pair() -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    examined(hosts, fast=False, head="node1")
    assert set(hosts.asked[1]["node2"]["parts"]["reach"]["targets"]) == {"peer node1", "peer node3", "rendezvous", "call"}


def test_a_host_that_does_not_answer_has_one_finding_and_is_asked_nothing_more() -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    hosts.trouble("node3", "ssh: connect to host node3 port 22: Connection refused (ended with 255)")
    found = examined(hosts)
    assert list(amiss(found)) == [("ssh", "node3")]
    assert all("node3" not in asked for asked in hosts.asked[1:])
    assert set(found.facts) == {"node1", "node2"}
    # The ring closes over those that live.
    assert "peer node1" in hosts.asked[1]["node2"]["parts"]["reach"]["targets"]


def test_a_silent_head_still_gives_rows() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.trouble("this machine", "no answer within 14 s")
    assert amiss(examined(hosts, head="this machine")) == {}


def test_what_was_opened_is_closed_also_when_an_exchange_breaks() -> None:
    class Breaking(FakeHosts):
        def __call__(self, questions, patience_s, /):  # type: ignore[no-untyped-def]
            if self.exchanges == 1:
                self.exchanges += 1
                raise KeyboardInterrupt
            return super().__call__(questions, patience_s)

    hosts = Breaking("node1", "node2")
    with pytest.raises(KeyboardInterrupt):
        examined(hosts)
    assert hosts.asked[-1] == {"node1": {"ask": "close"}, "node2": {"ask": "close"}}


def test_answers_of_another_shape_are_told_of_and_break_nothing() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node2", "facts", cpu_count="many")
    hosts.change("node2", "names", addresses="none")
    hosts.change("node2", "space", folders=[1])
    hosts.change("node2", "reach", troubles=3)
    found = examined(hosts)
    assert "node2" not in found.facts
    assert not [check for check in amiss(found).values() if check.name.startswith("checks of")]


def test_checks_that_break_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(wanted: object, answers: object) -> list[object]:
        raise RuntimeError("odd")

    monkeypatch.setattr(examine, "SUBJECTS", (examine.Subject(title="clocks", questions=(), checks=broken),))  # type: ignore[arg-type]
    (check,) = amiss(examined(FakeHosts("node1"))).values()
    assert (check.name, check.found, check.refuses) == ("checks of clocks", "RuntimeError: odd", False)


def test_no_hosts_is_an_error_and_never_a_silent_local_run() -> None:
    found = examine_hosts(FakeHosts(), make_need(), (), head="head", fast=True)
    (check,) = found.checks
    assert check.name == "hostfile as given on head" and check.refuses and not check.ok
    assert "will proceed with training with local resources only" in check.prevents


def test_like_findings_are_folded_with_their_hosts_in_the_name() -> None:
    def one(found: str, ok: bool) -> Check:
        return Check(name="clock", ok=ok, found=found, prevents="x", fix="y", refuses=False)

    many = {f"node{number}": one("off", False) for number in range(7)}
    row = HostRow(name="clock", checks={**many, "a": one("1 ms", True), "b": one("2 ms", True)})
    assert [check.name for check in folded(row)] == ["clock on node0, node1, node2, node3 and 3 more", "clock on a, b"]


def test_what_hosts_say_cannot_steer_the_terminal() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.trouble("node2", "\x1b[2Jboo")
    assert "\x1b" not in amiss(examined(hosts))["ssh", "node2"].found


def test_hosts_of_a_plan_are_taken_once_with_their_most_ranks(tmp_path: Path) -> None:
    need = make_need(_on(tmp_path, HostSpec(name="a", ranks=1), HostSpec(name="b", ranks=2)), _on(tmp_path, HostSpec(name="a", ranks=4)))
    assert hosts_of(need) == (HostSpec(name="a", ranks=4), HostSpec(name="b", ranks=2))


def test_the_head_alone_is_asked_for_its_own_share(tmp_path: Path) -> None:
    need = make_need(_on(tmp_path, HostSpec(name="a", ranks=2), HostSpec(name="b", ranks=4, devices=("1",)), port=29500))
    (own,) = need_of_head(need, "b").runs
    assert (own.place.kind, own.place.ranks, own.place.devices, own.place.port) == ("local", 4, ("1",), None)
    assert need_of_head(need, "a").runs[0].place.port == 29500
    assert need_of_head(need, "elsewhere").runs == ()


def _on(cwd: Path, *hosts: HostSpec, port: int | None = None) -> RunSpec:
    import dataclasses

    place = PlaceSpec(kind="hostfile", hosts=hosts, ranks=sum(host.ranks for host in hosts), port=port)
    return dataclasses.replace(make_run(cwd, bundled="dummy"), place=place)


QUESTIONS = [question for questions in host_questions().values() for question in questions]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_the_page_describes_every_question(question: Question) -> None:
    page = markdown()
    row = f"| {question.described(question.name)} | {question.described(question.looks_at)} |".replace("\n", " ")
    assert row in page and not (question.refuses and question.only_tells)


def test_no_two_questions_have_one_name() -> None:
    assert len({question.name for question in QUESTIONS}) == len(QUESTIONS)


def test_every_module_of_questions_is_asked() -> None:
    folder = Path(examine.__file__).parent
    asking = {path.stem for path in folder.glob("*.py") if "\nQUESTIONS = (" in path.read_text()}
    assert asking == {subject.checks.__module__.rpartition(".")[2] for subject in examine.SUBJECTS}


def test_the_names_of_fakes() -> None:
    assert specs("a") == (HostSpec(name="a"),)
