"""Secrets that only their form gives away, hidden; text that is none stays as it is."""

from __future__ import annotations

import pytest

from seatrial.machine.secret_shapes import MASK, hide_shapes

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"token hf_{LETTERS} here", f"token hf_{MASK} here"),
        (f"sk-proj-{LETTERS}", f"sk-{MASK}"),
        (f"ghp_{LETTERS}", f"ghp_{MASK}"),
        ("AKIAIOSFODNN7EXAMPLE", f"AKIA{MASK}"),
        (f"Authorization: Bearer {LETTERS}", f"Authorization: Bearer {MASK}"),
        ("https://me:pa/ss@host/x", f"https://me:{MASK}@host/x"),
        ("postgres://u:p@h:5432/db and redis://:q@r", f"postgres://u:{MASK}@h:5432/db and redis://:{MASK}@r"),
        (f"git clone https://{LETTERS}@host/r", f"git clone https://{MASK}@host/r"),
        ("curl -u me:pw https://host", f"curl -u me:{MASK} https://host"),
        ("https://hooks.slack.com/services/T0/B0/xyz", f"https://hooks.slack.com/services/{MASK}"),
    ],
)
def test_hidden_with_what_tells_what_it_was(text: str, hidden: str) -> None:
    assert hide_shapes(text) == hidden


@pytest.mark.parametrize(
    "text",
    [
        *("", "no secret at all", "https://host:8080/path@v1", "docker run -u 1000:1000 image", "hf_short", "a sk-learn-like-name"),
        *("rank 0 at step 12", "C:\\Users\\me", "see https://host/a?b=c", "thf_" + LETTERS),
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert hide_shapes(text) == text


def test_a_private_key_is_hidden_whole_and_where_the_text_has_only_a_part_of_it() -> None:
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    assert hide_shapes(f"a\n{begin}\nMIIE\nabcd\n{end}\nb") == f"a\n{begin}{MASK}\nb"
    assert hide_shapes(f"a\n{begin}\nMIIE\nabcd") == f"a\n{begin}{MASK}"
    assert hide_shapes(f"abcd\nMIIE\n{end}\nb") == f"{MASK}{end}\nb"


def test_twice_hidden_is_hidden_once() -> None:
    text = f"https://me:pw@host hf_{LETTERS}"
    assert hide_shapes(hide_shapes(text)) == hide_shapes(text)
