"""One answerer through three pipes that are never waited for. The answerers here are small shells."""

from __future__ import annotations

import select
from collections.abc import Callable

from seatrial.launch.session import Session

LONG_S = 60.0
READY = """echo '{"ready": true}'; """


def shell(script: str) -> Session:
    return Session(("sh", "-c", script), None)


def read_until(session: Session, done: Callable[[], bool]) -> None:
    """Read whatever comes until `done` says so, or the session is over."""
    while not done() and not session.trouble:
        assert select.select(session.pipes[1:], [], [], LONG_S)[0], "nothing came"
        session.read()


def test_a_program_that_is_not_there_is_a_trouble_in_words() -> None:
    session = Session(("/no/such/program",), None)
    assert session.trouble == "/no/such/program: No such file or directory" and session.pipes == ()
    session.close()
    session.wait(0.0)


def test_questions_have_numbers_and_only_the_last_ones_answer_counts() -> None:
    session = shell(READY + """while read line; do echo 'a login script prints'; echo '{"n": 1}'; echo '{"n": 2, "x": 3}'; done""")
    read_until(session, lambda: session.ready)
    session.put({"ask": "clock"})
    session.put({"ask": "clock"})
    read_until(session, lambda: session.answer() is not None)
    assert session.answer() == {"n": 2, "x": 3} and session.ready_m >= session.began_m and not session.is_sending
    session.close()
    session.wait(LONG_S)
    assert session.process is not None and session.process.returncode == 0


def test_the_last_line_of_its_complaint_is_why_it_ended() -> None:
    session = shell("echo 'Warning: a banner' >&2; echo '  ssh:   no way  ' >&2; exit 255")
    read_until(session, lambda: False)
    assert session.trouble == "ssh: no way (ended with 255)" and session.answer() is None
    session.close()
    session.wait(LONG_S)


def test_without_a_complaint_its_code_is_all_there_is() -> None:
    session = shell("exit 3")
    read_until(session, lambda: False)
    assert session.trouble == "it ended with 3"
    session.close()
    session.wait(LONG_S)


def test_one_that_does_not_end_is_killed_when_patience_is_over() -> None:
    session = shell("trap '' TERM; echo; while :; do sleep 600; done")
    assert select.select([session.pipes[1]], [], [], LONG_S)[0]
    session.close()
    session.wait(0.0)
    assert session.process is not None and session.process.returncode == -9


def test_a_question_to_one_that_has_ended_breaks_nothing() -> None:
    session = shell("exec <&-; echo; sleep 600")
    assert select.select([session.pipes[1]], [], [], LONG_S)[0]
    session.put({"ask": "clock"})
    assert session.trouble and not session.is_sending
    session.close()
    session.wait(LONG_S)
