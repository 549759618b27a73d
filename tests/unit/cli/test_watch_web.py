"""`watch --web` before it serves: what it refuses, and how the browser is told the address."""

from __future__ import annotations

import socket
import stat
import sys
import threading
from pathlib import Path

import pytest

from seatrial.cli.main import run_command
from seatrial.cli.open_private import opened
from tests.unit.campaign.made_campaign import write_campaign
from tests.unit.security.folders import contents

ADDRESS = "http://127.0.0.1:8123/?token=abc"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return write_campaign(tmp_path / "out", steps=3).folder


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command(["watch", *words]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err


def test_a_folder_that_holds_no_campaign_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        assert "holds no campaign" in refusal([str(tmp_path / name), "--web"], capsys)
    assert contents(tmp_path) == {"empty": None}


def test_a_port_that_is_taken_is_refused_with_the_remedy(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = refusal([str(out), "--web", "--port", str(port)], capsys)
    assert f"port {port} is taken" in said and "--port" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--web", "--once"], "leave one of them out"),
        (["--port", "80"], "--port is for the page of --web"),
        (["--open"], "--open is for the page of --web"),
        (["--web", "--port", "65536"], "65535"),
    ],
)
def test_words_that_do_not_go_together(out: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert says in refusal([str(out), *words], capsys)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_its_name_is_said(
    out: Path, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # There, and not to be loaded: that is said as for one that is not there at all.
    (tmp_path / f"{missing}.py").write_text("raise ImportError('made for another Python')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in list(sys.modules):
        if name.split(".")[0] == missing or name.startswith("seatrial.web."):
            monkeypatch.delitem(sys.modules, name)
    said = refusal([str(out), "--web"], capsys)
    assert "made for another Python" in said and "pip install 'seatrial[web]'" in said


def test_without_a_display_nothing_is_opened_and_the_way_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    with opened(ADDRESS, 8123, ask=pytest.fail) as sentence:
        assert "ssh -L 8123:127.0.0.1:8123" in sentence and "token" not in sentence


def test_the_browser_is_told_the_address_by_a_file_that_only_this_user_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    asked: list[str] = []
    done = threading.Event()

    def ask(address: str) -> bool:
        asked.append(address)
        done.set()
        return True

    with opened(ADDRESS, 8123, ask=ask) as sentence:
        assert sentence == "" and done.wait(60)
        page = Path(asked[0].removeprefix("file://"))
        # What the process is started with is for everybody to read.
        assert "token" not in asked[0] and f"url={ADDRESS}" in page.read_text()
        assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    assert not page.parent.exists()
