"""The checks of this lane find what they look for: a page with each fault, and the same page without it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import OpenPage

HEAD = "<!doctype html><html lang=en><head><title>made to be faulty</title></head><body style='margin:0;background:#fff'>"
CHART = "<figure class=chart id=chart-a data-chart=a data-state=drawn><svg width=100 height=50>{}</svg></figure>"
CASES: dict[str, tuple[str, Any, str, str]] = {
    # What: script, argument, body with the fault, body without.
    "pale text": ("contrast", 4.5, "<p id=a style='color:#999'>pale</p>", "<p id=a style='color:#333'>plain</p>"),
    "faded text": ("contrast", 4.5, "<div id=a style='opacity:.4'><p>pale</p></div>", "<div id=a><p>plain</p></div>"),
    "text in a chart on the page": (
        "contrast",
        4.5,
        CHART.format("<text x=5 y=20 fill='#bbb'>pale</text>"),
        CHART.format("<text x=5 y=20 fill='#222'>plain</text>"),
    ),
    "text in a chart on a dark cell": (
        "contrast",
        4.5,
        CHART.format("<rect width=100 height=50 fill='#123' /><text x=5 y=20 fill='#222'>hidden</text>"),
        CHART.format("<rect width=100 height=50 fill='#123' /><text x=5 y=20 fill='#fff'>plain</text>"),
    ),
    "too wide": (
        "edges",
        None,
        "<div style='width:3000px'>wide</div>",
        "<div style='overflow:auto'><p style='width:3000px'>x</div>",
    ),
    "over the left edge": ("edges", None, "<p style='margin-left:-50px'>out</p>", "<p>in</p>"),
    "cut off": (
        "clipped",
        None,
        CHART.format("<text x=80 y=20>a long text</text>"),
        CHART.format("<text x=1 y=20>a</text>"),
    ),
    "no label": ("order", None, "<input id=a>", "<label>Name <input id=a></label>"),
    "no alt": ("order", None, "<img src='data:,'>", "<img src='data:,' alt='a'>"),
    "headings that skip": ("order", None, "<h1>a</h1><h3>b</h3>", "<h1>a</h1><h2>b</h2>"),
    "id twice": ("order", None, "<p id=a></p><p id=a></p>", "<p id=a></p><p id=b></p>"),
    "link to nothing": ("order", None, "<a href='#b'>b</a>", "<a href='#b'>b</a><p id=b></p>"),
    "moving": ("moving", None, "<p style='transition:opacity 1s'>a</p>", "<p>a</p>"),
    "small letters": ("too_small", ["p", "font", 9], "<p id=a style='font-size:5px'>a</p>", "<p id=a>a</p>"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fault_is_found_and_nothing_where_there_is_none(case: str, open_page: OpenPage) -> None:
    script, argument, faulty, sound = CASES[case]
    opened = open_page("about:blank", wait=False, width=600)
    opened.page.set_content(HEAD + sound)
    assert opened.ask(script, argument) == []
    opened.page.set_content(HEAD + faulty)
    assert len(opened.ask(script, argument)) > 0


def test_troubles_are_heard(open_page: OpenPage) -> None:
    opened = open_page("about:blank", wait=False)
    opened.page.set_content(f"{HEAD}<script>console.warn('one'); setTimeout(() => {{ throw new Error('two') }})</script>")
    opened.page.wait_for_timeout(200)
    assert [line.partition(":")[0] for line in opened.troubles] == ["warning", "error"]
    opened.troubles.clear()


def test_a_request_is_heard_and_a_breach_of_the_policy(open_page: OpenPage) -> None:
    opened = open_page("about:blank", wait=False)
    policy = "<meta http-equiv='Content-Security-Policy' content=\"img-src 'none'\">"
    opened.page.set_content("<!doctype html><img src='http://127.0.0.1:9/a.png'>")
    assert opened.requests == ["http://127.0.0.1:9/a.png"]
    opened.troubles.clear()
    opened.page.goto("data:text/html," + f"<!doctype html><head>{policy}</head><img src='http://127.0.0.1:9/b.png'>".replace("#", "%23"))
    opened.page.wait_for_timeout(200)
    assert opened.breaches("img-src")
    assert len(opened.requests) == 1
    opened.troubles.clear()
