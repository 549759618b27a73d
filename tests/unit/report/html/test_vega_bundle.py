"""The drawing scripts: made once, kept, and never a reason for a page to fail."""

from __future__ import annotations

import importlib.metadata
import os
import stat
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.report.html.vega_bundle import vega_bundle

BODY = "const long = 1;" * 10_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A package that makes a bundle at once; what it was asked for."""
    seen: list[str] = []
    install(monkeypatch, lambda snippet: seen.append(snippet) or f"{BODY}\rconst end = '</script></body><!--';\r\nwindow.vegaEmbed=a;")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return seen


def install(monkeypatch: pytest.MonkeyPatch, make: Callable[[str], str]) -> None:
    module = types.ModuleType("vl_convert")
    module.javascript_bundle = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vl_convert", module)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9")


def test_it_is_made_once(asked: list[str], tmp_path: Path) -> None:
    first, second = vega_bundle(), vega_bundle()
    assert first is not None and first == second and len(asked) == 1
    assert [path.name for path in (tmp_path / "cache" / "seatrial").iterdir()] == ["vega-9.9.js"]


def test_nothing_in_it_ends_the_script_or_is_another_to_the_browser(asked: list[str]) -> None:
    text = vega_bundle() or ""
    assert "</" not in text and "<!--" not in text and "\r" not in text
    assert "<\\/script><\\/body>" in text


def test_a_kept_one_that_was_cut_short_is_made_again(asked: list[str], tmp_path: Path) -> None:
    whole = vega_bundle()
    kept = tmp_path / "cache" / "seatrial" / "vega-9.9.js"
    kept.write_text(BODY)
    assert vega_bundle() == whole and len(asked) == 2
    assert kept.read_text() == whole


def test_a_kept_one_that_others_could_have_written_is_made_again(asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = vega_bundle()
    kept = tmp_path / "cache" / "seatrial" / "vega-9.9.js"
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700 and stat.S_IMODE(kept.stat().st_mode) == 0o600
    planted = f"{BODY}alert(1);window.vegaEmbed=a;"
    for times, mode in enumerate((0o620, 0o602), start=2):
        kept.write_text(planted)
        kept.chmod(mode)
        assert vega_bundle() == whole and len(asked) == times
    kept.write_text(planted)
    assert vega_bundle() == planted
    monkeypatch.setattr(os, "geteuid", lambda: kept.stat().st_uid + 1)
    assert vega_bundle() == whole


def test_a_cache_that_cannot_be_written_costs_time_only(asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    first, second = vega_bundle(), vega_bundle()
    assert first is not None and first == second and len(asked) == 1


def test_without_a_home_there_is_no_cache(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "~")
    assert vega_bundle() is not None


def test_a_package_that_makes_nonsense_gives_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    install(monkeypatch, lambda snippet: "nonsense")
    assert vega_bundle() is None


def test_without_the_package_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", unknown)
    assert vega_bundle() is None


def test_a_package_that_cannot_be_loaded_gives_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert vega_bundle() is None
