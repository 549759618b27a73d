"""The switch and the cables, and their faults.

The switch is a bridge in the keeper's network namespace, which has no uplink: no packet of a host can leave the machine. Each host has
one end of a veth pair as eth0, the switch has the other as p-NAME. Rates and delays are queues on both ends, ports are blocked and
packets lost by nftables inside the host.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.state import ClusterError, ClusterState, HostState, ProcessId

TABLE = "inet seatrial"


def _run(argv: list[str], text: str = "") -> str:
    done = subprocess.run(argv, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}\n{text}")
    return done.stdout


def _in_network(process: ProcessId, argv: list[str], text: str = "") -> str:
    return _run(["nsenter", "-t", str(process.pid), "-n", "--", *argv], text)


def _init(host: HostState) -> ProcessId:
    if host.init is None or not host.init.alive():
        raise ClusterError(f"host {host.name} is off")
    return host.init


def make_switch(keeper: ProcessId) -> None:
    _in_network(
        keeper,
        ["ip", "-batch", "-"],
        "link set lo up\nlink add br0 type bridge\nlink set br0 up\nlink add br1 type bridge\nlink set br1 up\n",
    )


def plug_in(state: ClusterState, hosts: list[HostState]) -> None:
    """A cable for each host, and its address."""
    lines = []
    for host in hosts:
        lines += _cable(host, host.port, "eth0", mac_number=0)
        lines += [f"link set {host.port} master br0 up"]
    _in_network(state.keeper, ["ip", "-batch", "-"], "\n".join([*lines, ""]))
    for host in hosts:
        _in_network(_init(host), ["ip", "-batch", "-"], f"link set lo up\naddr add {host.address}/16 dev eth0\nlink set eth0 up\n")


def _cable(host: HostState, port: str, interface: str, mac_number: int) -> list[str]:
    # The same MAC address at every boot: the others keep the old one in their ARP tables for a while.
    mac = f"02:00:00:{mac_number:02x}:{host.number // 200:02x}:{host.number % 200 + 10:02x}"
    return [f"link add {port} type veth peer name {interface} address {mac} netns {_init(host).pid}"]


def unplug(state: ClusterState, host: HostState) -> None:
    """Remove the cables, also those that the kernel has not removed yet."""
    _on_ports(state, host, ["delete"])


def set_cable(state: ClusterState, host: HostState, up: bool) -> None:
    _on_ports(state, host, ["set", "up" if up else "down"])


def has_link(host: HostState) -> bool:
    """Whether eth0 has noticed that its cable is plugged in, which takes the kernel up to a second."""
    return "state UP" in _in_network(_init(host), ["ip", "link", "show", "dev", "eth0"])


def forget_neighbours(host: HostState) -> None:
    """Else the host may answer `No route to host` for three more seconds, for a neighbour that it looked for while the cable was out."""
    _in_network(_init(host), ["ip", "neigh", "flush", "dev", "eth0"])


def _on_ports(state: ClusterState, host: HostState, options: list[str]) -> None:
    for port in (host.port, host.second_port):
        try:
            _in_network(state.keeper, ["ip", "link", options[0], "dev", port, *options[1:]])
        except ClusterError:
            # No second interface, or the kernel has already removed the port of a host that is off.
            if _has_port(state, port):
                raise


def _has_port(state: ClusterState, port: str) -> bool:
    return f"{port}:" in Path(f"/proc/{state.keeper.pid}/net/dev").read_text().split()


def add_second_interface(state: ClusterState, host: HostState, connected: bool) -> None:
    port = host.second_port
    lines = [*_cable(host, port, "eth1", mac_number=1), f"link set {port} {'master br1 ' if connected else ''}up", ""]
    _in_network(state.keeper, ["ip", "-batch", "-"], "\n".join(lines))
    _in_network(_init(host), ["ip", "-batch", "-"], f"addr add {host.second_address}/16 dev eth1\nlink set eth1 up\n")


def set_queue(state: ClusterState, host: HostState, options: list[str]) -> None:
    """One queue on both ends of the cable; it replaces an earlier one."""
    _in_network(state.keeper, ["tc", "qdisc", "replace", "dev", host.port, "root", *options])
    _in_network(_init(host), ["tc", "qdisc", "replace", "dev", "eth0", "root", *options])


def limit_rate(state: ClusterState, host: HostState, rate: str) -> None:
    set_queue(state, host, ["tbf", "rate", rate, "burst", "32kb", "latency", "400ms"])


def delay(state: ClusterState, host: HostState, delay_ms: int) -> None:
    try:
        set_queue(state, host, ["netem", "delay", f"{delay_ms}ms"])
    except ClusterError as error:
        raise ClusterError(f"packets cannot be delayed: this kernel has no netem ({error})") from error


def remove_queue(state: ClusterState, host: HostState) -> None:
    for process, device in ((state.keeper, host.port), (_init(host), "eth0")):
        subprocess.run(
            ["nsenter", "-t", str(process.pid), "-n", "--", "tc", "qdisc", "del", "dev", device, "root"], capture_output=True, check=False
        )


def add_rule(host: HostState, rule: str) -> None:
    """For incoming packets."""
    chain = f"add table {TABLE}\nadd chain {TABLE} input {{ type filter hook input priority 0; }}\n"
    _in_network(_init(host), ["nft", "-f", "-"], f"{chain}add rule {TABLE} input iifname != lo {rule}\n")


def remove_rules(host: HostState) -> None:
    _in_network(_init(host), ["nft", "-f", "-"], f"add table {TABLE}\ndelete table {TABLE}\n")


def listens(process: ProcessId, port: int) -> bool:
    """Whether a process on that host listens on this port."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        if any(fields[1].endswith(f":{port:04X}") and fields[3] == "0A" for fields in map(str.split, lines)):
            return True
    return False
