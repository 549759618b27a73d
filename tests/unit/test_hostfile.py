"""The hostfile and what is chosen from it: as DeepSpeed reads it, and what is wrong told with its line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.errors import HostfileError, NoHostsError, UsageError
from seatrial.hostfile import HostfileHost, chosen, first_ranks, hostfile_text, include_text, parse_choice, read_hostfile, slots_named
from seatrial.records.run_spec import HostSpec

THREE = (HostfileHost(name="node1", slots=2), HostfileHost(name="node2", slots=4), HostfileHost(name="node3", slots=1))
WRONG_LINES = {
    "node1": "2: 'node1' is no host with its slots; write `node1 slots=2`, ranks or GPUs for the number",
    "node1 slots=": "2: 'node1 slots=' is no host with its slots; write `node1 slots=2`, ranks or GPUs for the number",
    "node1 slots=2abc": "2: 'node1 slots=2abc' is no host with its slots; write `node1 slots=2`, ranks or GPUs for the number",
    "node1 slots = 2": "2: 'node1 slots = 2' is no host with its slots; write `node1 slots=2`, ranks or GPUs for the number",
    "slots=2": "2: 'slots=2' is no host with its slots; write `node1 slots=2`, ranks or GPUs for the number",
    "node1 slots=0": "2: 'node1' has no slots; give it 1 or more, or take the line out",
    "node0 slots=1": "2: 'node0' stands in line 1 already; give each host one line with all its slots",
    "NODE0 slots=1": "2: 'NODE0' stands in line 1 already; give each host one line with all its slots",
    "bob@node1 slots=2": "2: 'bob@node1' names a user: write `node1` alone, and the user into ~/.ssh/config (Host node1, User NAME)",
    "fe80::1 slots=2": (
        "2: 'fe80::1' has a colon, which stands before slots; give the address a name in /etc/hosts or ~/.ssh/config and write that"
    ),
    **{
        f"{name} slots=2": f"2: '{name}' is no name of a host; write letters, digits, . _ and -, a letter or digit first"
        for name in ("../x", "a/b", "-oProxyCommand=x", "a..b", ".", "node[1-2]", "a,b", "$(id)", "nöde")
    },
    f"{'a' * 300} slots=1": f"2: '{'a' * 79}…' is longer than 253 characters; give the host a shorter name",
}
WRONG_CHOICES = {
    ("node4", ""): "'node4' is no host of the hostfile; did you mean 'node3'?",
    ("node1:2", ""): "there is no slot 2 on 'node1', which has slots 0 to 1 by the hostfile",
    ("", "node3:1"): "there is no slot 1 on 'node3', which has slot 0 alone by the hostfile",
    ("node1:a", ""): "'a' is no slot in 'node1:a'; write numbers with commas between them, node1:0,1, and @ between hosts",
    ("node1:", ""): "'' is no slot in 'node1:'; write numbers with commas between them, node1:0,1, and @ between hosts",
    ("node1:0:1", ""): "'0:1' is no slot in 'node1:0:1'; write numbers with commas between them, node1:0,1, and @ between hosts",
    ("node1@", ""): "'node1@' names a host without a name; write node1@node2:0,1",
    ("node1", "node2"): "include (node1) and exclude (node2) are both given; keep one of the two",
    ("", "node1@node2@node3:0"): "exclude (node1@node2@node3:0) leaves no slot of any host; leave some",
}


@pytest.fixture
def hostfile(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "hosts").write_text(text, encoding="utf-8")
        return tmp_path / "hosts"

    return write


def test_hosts_comments_and_blank_lines(hostfile: Callable[[str], Path]) -> None:
    text = "# ours\n\nnode1 slots=2\n\t10.0.0.2\tslots=4   max_slots=8\r\nnode-3.lan_x slots=1 # small\n"
    assert [(host.name, host.slots) for host in read_hostfile(hostfile(text))] == [("node1", 2), ("10.0.0.2", 4), ("node-3.lan_x", 1)]


def test_a_byte_order_mark_is_no_part_of_a_name(hostfile: Callable[[str], Path]) -> None:
    assert read_hostfile(hostfile("\ufeffnode1 slots=2\n"))[0].name == "node1"


@pytest.mark.parametrize("line", WRONG_LINES)
def test_a_wrong_line_is_told_with_its_number(line: str, hostfile: Callable[[str], Path]) -> None:
    path = hostfile(f"node0 slots=1\n{line}\n")
    with pytest.raises(HostfileError) as caught:
        read_hostfile(path)
    assert str(caught.value) == f"{path}:{WRONG_LINES[line]}" and caught.value.line == 2
    assert isinstance(caught.value, UsageError) and not isinstance(caught.value, NoHostsError)


@pytest.mark.parametrize("text", ["", "\n\n", "# node1 slots=2\n"])
def test_an_empty_file_names_no_host(text: str, hostfile: Callable[[str], Path]) -> None:
    path = hostfile(text)
    with pytest.raises(NoHostsError) as caught:
        read_hostfile(path)
    assert str(caught.value) == f"{path}: names no host; write a line `node1 slots=2` for each"


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\n")
    said = {}
    for name in ("missing", "pipe", "bytes", "."):
        with pytest.raises(NoHostsError) as caught:
            read_hostfile(tmp_path / name)
        said[name] = caught.value.problem
    example = "with a line `node1 slots=2` for each host"
    assert said["missing"] == f"there is no such hostfile; write it, {example}, or name another"
    assert said["pipe"] == said["."] == f"is no plain file; write one {example}"
    assert said["bytes"] == "the hostfile cannot be read (it is not text in UTF-8); make it readable, or name another"


def test_all_hosts_and_no_devices_where_nothing_is_chosen() -> None:
    assert chosen(THREE) == (HostSpec(name="node1", ranks=2), HostSpec(name="node2", ranks=4), HostSpec(name="node3", ranks=1))


def test_slots_that_are_named_are_devices_in_the_order_of_the_hostfile() -> None:
    assert chosen(THREE, "node2:3,0@node1") == (HostSpec(name="node1", ranks=2), HostSpec(name="node2", ranks=2, devices=("0", "3")))


def test_what_is_excluded_leaves_the_rest() -> None:
    assert chosen(THREE, exclude="node3@node2:0") == (
        HostSpec(name="node1", ranks=2),
        HostSpec(name="node2", ranks=3, devices=("1", "2", "3")),
    )


@pytest.mark.parametrize("choice", WRONG_CHOICES)
def test_a_choice_that_cannot_be(choice: tuple[str, str]) -> None:
    with pytest.raises(HostfileError) as caught:
        chosen(THREE, *choice)
    assert str(caught.value) == WRONG_CHOICES[choice]


def test_slots_are_counted_where_all_are_named() -> None:
    assert slots_named("node1:0,1@node2:0") == 3 and slots_named("node1:0,1@node2") is None


def test_the_first_ranks_fill_one_host_after_the_other() -> None:
    hosts = chosen(THREE, "node1@node2:1,3@node3")
    assert first_ranks(hosts, 3) == (HostSpec(name="node1", ranks=2), HostSpec(name="node2", ranks=1, devices=("1",)))
    assert first_ranks(hosts, 5) == hosts
    with pytest.raises(HostfileError, match="6 ranks, but the hosts have 5 slots together"):
        first_ranks(hosts, 6)


def test_a_hostfile_of_the_hosts_in_use_gives_them_again(hostfile: Callable[[str], Path]) -> None:
    hosts = chosen(THREE, "node1@node2:1,3")
    assert (hostfile_text(hosts), include_text(hosts)) == ("node1 slots=2\nnode2 slots=4\n", "node1@node2:1,3")
    assert chosen(read_hostfile(hostfile(hostfile_text(hosts))), include_text(hosts)) == hosts
    assert include_text(chosen(THREE)) == ""


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
CHOICES = st.one_of(
    st.just(""), st.lists(PARTS, min_size=1, max_size=4).map("@".join), st.sampled_from(["node1:", "@node1", "node1:x", "n"])
)

Answer = dict[str, list[int]] | None


def _ours(path: Path, include: str, exclude: str) -> Answer:
    try:
        hosts = chosen(read_hostfile(path), include, exclude)
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
@given(st.lists(LINES, max_size=6), st.lists(MISTAKES, max_size=1), CHOICES, CHOICES)
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_the_answer_is_that_of_deepspeed(tmp_path: Path, lines: list[str], mistakes: list[str], include: str, exclude: str) -> None:
    text = [*lines, *mistakes]
    (tmp_path / "hosts").write_text("\n".join(text))
    assert _ours(tmp_path / "hosts", include, exclude) == _theirs(text, include, exclude)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@given(st.lists(NAMES, min_size=1, max_size=5, unique=True), st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_choices_that_can_be_are_answered_as_by_deepspeed(tmp_path: Path, names: list[str], data: st.DataObject) -> None:
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
def test_any_text_is_a_choice_or_a_mistake(text: str) -> None:
    try:
        named = parse_choice(text)
    except HostfileError:
        return
    assert named and all(host and list(slots) == sorted(set(slots)) for host, slots in named.items())


@given(st.text(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_hostfile_or_a_mistake(tmp_path: Path, text: str) -> None:
    (tmp_path / "hosts").write_bytes(text.encode("utf-8", errors="surrogatepass"))
    try:
        hosts = read_hostfile(tmp_path / "hosts")
    except HostfileError:
        return
    assert all(host.slots > 0 and host.name.isascii() and "/" not in host.name for host in hosts)
