"""The hostfile and selections from it: as DeepSpeed reads them, and errors with their line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.core.errors import HostfileError, NoHostsError
from seatrial.core.hostfile import (
    HostfileHost,
    HostSpec,
    count_selected_slots,
    hostfile_text,
    include_text,
    parse_selection,
    read_hostfile,
    select_hosts,
    take_ranks,
)

THREE = (HostfileHost(name="node1", slots=2), HostfileHost(name="node2", slots=4), HostfileHost(name="node3", slots=1))


@pytest.fixture
def hostfile(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "hosts").write_text(text, encoding="utf-8")
        return tmp_path / "hosts"

    return write


def test_hosts_comments_and_blank_lines(hostfile: Callable[[str], Path]) -> None:
    text = "\ufeffnode1 slots=2\n# ours\n\n\t10.0.0.2\tslots=4   max_slots=8\r\nnode-3.lan_x slots=1 # small\n"
    assert [(host.name, host.slots) for host in read_hostfile(hostfile(text))] == [("node1", 2), ("10.0.0.2", 4), ("node-3.lan_x", 1)]


@pytest.mark.parametrize(
    "line",
    [
        *("node1", "node1 slots=2abc", "slots=2", "node1 slots=0", "NODE0 slots=1", f"{'a' * 300} slots=1"),
        *(f"{name} slots=2" for name in ("bob@node1", "fe80::1", "../x", "-oProxyCommand=x", "a..b", ".", "node[1-2]", "$(id)", "nöde")),
    ],
)
def test_a_wrong_line_is_an_error_with_its_number(line: str, hostfile: Callable[[str], Path]) -> None:
    path = hostfile(f"node0 slots=1\n{line}\n")
    with pytest.raises(HostfileError) as caught:
        read_hostfile(path)
    assert (caught.value.file, caught.value.line, isinstance(caught.value, NoHostsError)) == (path, 2, False)


@pytest.mark.parametrize("name", ["missing", "pipe", ".", "bytes", "empty", "comments"])
def test_a_file_without_hosts_or_that_cannot_be_read_is_an_error(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file, content in (("bytes", b"\xff\xfe\n"), ("empty", b""), ("comments", b"# node1 slots=2\n\n")):
        (tmp_path / file).write_bytes(content)
    with pytest.raises(NoHostsError):
        read_hostfile(tmp_path / name)


def test_hosts_and_slots_are_included_or_excluded_in_the_order_of_the_hostfile() -> None:
    node1 = HostSpec(name="node1", ranks=2)
    assert select_hosts(THREE) == (node1, HostSpec(name="node2", ranks=4), HostSpec(name="node3", ranks=1))
    assert select_hosts(THREE, "node2:3,0@node1") == (node1, HostSpec(name="node2", ranks=2, devices=("0", "3")))
    assert select_hosts(THREE, exclude="node3@node2:0") == (node1, HostSpec(name="node2", ranks=3, devices=("1", "2", "3")))


@pytest.mark.parametrize(
    ("include", "exclude", "problem"),
    [
        ("node4", "", "'node3'"),
        ("node1:2", "", "slot 2"),
        ("", "node3:1", "slot 0 alone"),
        ("node1:a", "", "not a slot"),
        ("node1:", "", "not a slot"),
        ("node1@", "", "empty"),
        ("node1", "node2", "both"),
        ("", "node1@node2@node3:0", "no slot"),
    ],
)
def test_a_wrong_selection_is_an_error(include: str, exclude: str, problem: str) -> None:
    with pytest.raises(HostfileError, match=problem):
        select_hosts(THREE, include, exclude)


def test_slots_are_counted_where_all_are_named() -> None:
    assert count_selected_slots("node1:0,1@node2:0") == 3 and count_selected_slots("node1:0,1@node2") is None


def test_the_first_ranks_fill_one_host_after_the_other() -> None:
    hosts = select_hosts(THREE, "node1@node2:1,3@node3")
    assert take_ranks(hosts, 3) == (HostSpec(name="node1", ranks=2), HostSpec(name="node2", ranks=1, devices=("1",)))
    assert take_ranks(hosts, 5) == hosts
    with pytest.raises(HostfileError, match="6 ranks, but the hosts have 5 slots together"):
        take_ranks(hosts, 6)


def test_a_hostfile_of_the_hosts_in_use_gives_them_again(hostfile: Callable[[str], Path]) -> None:
    hosts = select_hosts(THREE, "node1@node2:1,3")
    assert (hostfile_text(hosts), include_text(hosts)) == ("node1 slots=2\nnode2 slots=4\n", "node1@node2:1,3")
    assert select_hosts(read_hostfile(hostfile(hostfile_text(hosts))), include_text(hosts)) == hosts
    assert include_text(select_hosts(THREE)) == ""


NAMES = st.sampled_from(["node1", "node2", "node3", "gpu-4", "10.0.0.5"])
LINES = st.one_of(
    st.builds("{} slots={}".format, NAMES, st.integers(1, 5)),
    st.builds("\t{}  slots={} # a word".format, NAMES, st.integers(1, 5)),
    st.sampled_from(["", "# node9 slots=9", "   "]),
)
MISTAKES = st.sampled_from(["node1", "node1 slot=2", "slots=2", "node1 slots=x", "node2 2"])
PARTS = st.builds(
    lambda name, slots: f"{name}:{','.join(map(str, slots))}" if slots else name, NAMES, st.lists(st.integers(0, 5), max_size=3)
)
SELECTIONS = st.one_of(
    st.just(""), st.lists(PARTS, min_size=1, max_size=4).map("@".join), st.sampled_from(["node1:", "@node1", "node1:x", "n"])
)

Answer = dict[str, list[int]] | None


def _ours(path: Path, include: str, exclude: str) -> Answer:
    try:
        hosts = select_hosts(read_hostfile(path), include, exclude)
    except HostfileError:
        return None
    return {host.name: [int(device) for device in host.devices] or list(range(host.ranks)) for host in hosts}


def _theirs(lines: list[str], include: str, exclude: str) -> Answer:
    from deepspeed.launcher.runner import _parse_hostfile, parse_inclusion_exclusion

    try:
        # One that leaves nothing fails a little later.
        return dict(parse_inclusion_exclusion(_parse_hostfile(lines), include, exclude)) or None
    except ValueError:
        return None


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@given(st.lists(LINES, max_size=6), st.lists(MISTAKES, max_size=1), SELECTIONS, SELECTIONS)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_the_answer_is_that_of_deepspeed(tmp_path: Path, lines: list[str], mistakes: list[str], include: str, exclude: str) -> None:
    text = [*lines, *mistakes]
    (tmp_path / "hosts").write_text("\n".join(text))
    assert _ours(tmp_path / "hosts", include, exclude) == _theirs(text, include, exclude)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@given(st.lists(NAMES, min_size=1, max_size=5, unique=True), st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_sound_selections_are_those_of_deepspeed(tmp_path: Path, names: list[str], data: st.DataObject) -> None:
    slots = {name: data.draw(st.integers(1, 5)) for name in names}
    text = [f"{name} slots={number}" for name, number in slots.items()]
    taken = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    choice = "@".join(
        f"{name}:{','.join(map(str, numbers))}" if (numbers := data.draw(st.lists(st.integers(0, slots[name] - 1), max_size=4))) else name
        for name in taken
    )
    (tmp_path / "hosts").write_text("\n".join(text))
    for include, exclude in ((choice, ""), ("", choice)):
        ours = _ours(tmp_path / "hosts", include, exclude)
        assert ours == _theirs(text, include, exclude) and (ours or exclude)


@given(st.text(max_size=40))
def test_any_text_is_a_selection_or_an_error(text: str) -> None:
    try:
        named = parse_selection(text)
    except HostfileError:
        return
    assert named and all(host and list(slots) == sorted(set(slots)) for host, slots in named.items())


@given(st.text(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_hostfile_or_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "hosts").write_bytes(text.encode("utf-8", errors="surrogatepass"))
    try:
        hosts = read_hostfile(tmp_path / "hosts")
    except HostfileError:
        return
    assert all(host.slots > 0 and host.name.isascii() and "/" not in host.name for host in hosts)
