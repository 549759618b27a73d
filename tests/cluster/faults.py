"""Everything that can be done to a host of a cluster while it is on. What a fault is made of is in network.py, disks.py and ssh.py."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import disks, machines, network, ssh
from tests.cluster.commands import Commands
from tests.cluster.running import inside, listener_pid
from tests.cluster.state import HostState
from tests.stubs.clock import WallClock
from tests.waiting import wait_until


class Faults(Commands):
    """Each fault ends when it is taken back, or when the host boots."""

    def cut(self, host: str) -> None:
        """Pull the cable at the switch: silence both ways."""
        network.set_cable(self.state, self.state.host(host), up=False)

    def uncut(self, host: str) -> None:
        network.set_cable(self.state, self.state.host(host), up=True)

    def slow(self, host: str, rate: str = "1mbit") -> None:
        """Limit what goes to and from the host, each, in the words of tc."""
        network.limit_rate(self.state, self.state.host(host), rate)

    def delay(self, host: str, delay_ms: int) -> None:
        """Each packet so much later, both ways; ClusterError where the kernel has no netem. Takes the place of `slow`."""
        network.delay(self.state, self.state.host(host), delay_ms)

    def unslow(self, host: str) -> None:
        """Take `slow` and `delay` back."""
        network.remove_queue(self.state, self.state.host(host))

    def lose(self, host: str, percent: int) -> None:
        """Drop so many of a hundred packets that come in, at random."""
        network.add_rule(self.state.host(host), f"numgen random mod 100 < {int(percent)} drop" if percent < 100 else "drop")

    def block_port(self, host: str, port: int, *, silent: bool = False) -> None:
        """Refuse connections from other hosts to this TCP port, or drop their packets when `silent`."""
        network.add_rule(self.state.host(host), f"tcp dport {int(port)} {'drop' if silent else 'reject with tcp reset'}")

    def unblock(self, host: str) -> None:
        """Take every `block_port` and `lose` of this host back."""
        network.remove_rules(self.state.host(host))

    def second_interface(self, host: str, *, connected: bool = True) -> str:
        """eth1 with an address of another network, which is returned; unless `connected`, what is sent there reaches nobody."""
        found = self.state.host(host)
        network.add_second_interface(self.state, found, connected)
        return found.second_address

    def resolve(self, host: str, name: str, address: str | None) -> None:
        """What `name` means on this host, from now on; None: nothing."""
        path = self.state.host_folder(host) / "hosts"
        kept = [line for line in path.read_text().splitlines() if name not in line.split()[1:]]
        # Written in place: the file is bound over the host's /etc/hosts.
        path.write_text("\n".join([*kept, *([f"{address}\t{name}"] if address else []), ""]))

    def refuse_ssh(self, host: str, how: str = "stopped") -> None:
        """`stopped`: nothing listens; `key`: no key is good; `host_key`: the host shows a key that nobody knows. Open sessions stay."""
        self._set_ssh(self.state.host(host), how)

    def allow_ssh(self, host: str) -> None:
        self._set_ssh(self.state.host(host), "")

    def skew(self, host: str, seconds: int) -> None:
        """The wall clock of all that is started on this host from now on, by ssh or by `run` and `start`; 0 is right again."""
        found = self.state.host(host)
        found.clock = {}
        if seconds:
            # Not libfaketime: where it leaves the monotonic clock alone, Python's time.sleep fails under it with "Invalid argument".
            clock = WallClock(machines.scratch(self.state) / "clock")
            clock.set(seconds)
            found.clock = clock.environment()
        self._set_ssh(found, found.ssh_refusal)

    def _set_ssh(self, host: HostState, refusal: str) -> None:
        host.ssh_refusal = refusal
        ssh.write_sshd_config(self.state, host.name, host.clock)
        self._stop_sshd(host)
        if refusal != "stopped":
            folder = self.state.host_folder(host.name)
            inside(self.state, host.name, ["/usr/sbin/sshd", "-f", str(folder / "sshd_config"), "-E", str(folder / "sshd.log")])
            wait_until(lambda: self.listens(host.name, machines.SSH_PORT), f"sshd of {host.name} listens")
        self.state.save()

    def _stop_sshd(self, host: HostState) -> None:
        listener = listener_pid(host.init) if host.init is not None else None
        if listener is not None:
            inside(self.state, host.name, ["kill", str(listener)])
            wait_until(lambda: not self.listens(host.name, machines.SSH_PORT), f"sshd of {host.name} ends")

    def disk(self, host: str, path: Path | str, size: str = "8m") -> None:
        """A small disk of the host's own at `path`, empty; whatever is there is hidden from this host."""
        disks.add_disk(self.state, host, str(path), size)
        self.state.save()

    def fill(self, host: str, path: Path | str) -> None:
        """Fill a disk made by `disk` to the last byte."""
        disks.fill_disk(self.state, host, str(path))

    def unfill(self, host: str, path: Path | str) -> None:
        disks.empty_disk(self.state, host, str(path))

    def unshare(self, host: str, path: Path | str) -> None:
        """The host sees an empty folder of its own where the others see the shared one."""
        self.disk(host, path, size="1g")

    def read_only(self, host: str, path: Path | str) -> None:
        """The host can read there and not write."""
        disks.make_read_only(self.state, host, str(path))

    def replace(self, host: str, path: Path | str, content: str) -> None:
        """The host sees this text in the file `path`, the others what is there."""
        disks.replace_file(self.state, host, str(path), content)

    def unmount(self, host: str, path: Path | str) -> None:
        """Take one `disk`, `unshare`, `read_only` or `replace` back."""
        disks.unmount(self.state, host, str(path))
        self.state.save()

    def hide(self, host: str, program: str) -> None:
        """As if the program were not installed on this host."""
        disks.hide_program(self.state, host, program)
