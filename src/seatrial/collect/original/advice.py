"""What to do about a failure of a run that the original scripts made.

In: what a log was diagnosed with. Out: the registry's advice; other words where that names what such a run never had: a plan, limits of
ours, a command.sh beside its log.
"""

from __future__ import annotations

from seatrial.collect.failure.cause import Diagnosis

AT_THE_HEAD = "the command stands at its head, under CMD"
# Entry of the registry → what stands in for its action.
INSTEAD = {
    "exception": f"Read the traceback in launcher.log; {AT_THE_HEAD}.",
    "exit_code": f"Read the end of launcher.log; {AT_THE_HEAD}.",
    "bad_argument": f"Mend the arguments: what that line begins with does not take them. Of launcher.log, {AT_THE_HEAD}.",
    "program_missing": "Install the program, or have its folder on PATH.",
    "port_in_use": "End the process that holds the port (`ss -ltnp` names it), or name another one (MASTER_PORT_BASE).",
    "no_slot": "Name GPUs that `nvidia-smi -L` lists (INCLUDE).",
    "native_crash": "A library crashed below Python: PYTHONFAULTHANDLER=1 before the command prints the stack.",
    "nccl_transport": "Check that the ranks reach one another (interface, firewall, peer access); NCCL_DEBUG=INFO before the command says "
    "more.",
    "loopback_address": "See that `getent hosts NAME` gives the same address everywhere and no 127.…: take the line `127.0.1.1 NAME` out "
    "of /etc/hosts, or name the network (NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME). Then run again.",
    "master_address": "Name the address at which ranks are to meet (--master_addr): the first of `hostname -I` is often another network's.",
    "peer_lost": "Another rank ended first and left no word: launcher.log has what each of them printed last.",
    "timeout_command": "See in train.log whether it was slow or stood still; raise RUN_TIMEOUT_SEC only if it was slow.",
}


def action_for(found: Diagnosis) -> str:
    """What a report says to do."""
    return INSTEAD.get(found.signature, found.action)
