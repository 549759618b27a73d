"""The agent of one node of many: it calls the harness, says who it is, waits for its order and carries it out.

In: nodes/<name>/call.json. Out: an exit code, and one sentence for whoever started the agent where the harness could not even be called.
What earlier attempts of the campaign left on this host is ended before any rank starts, so that no old one sits on a GPU or a port; but
only after the harness has answered, which proves that this attempt is the campaign's own now. An agent that starts late, when its attempt
was given up and a later run lives on the host, reaches nobody and ends nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial.agent.carry_out import carry_out
from seatrial.agent.harness_line import HarnessLine
from seatrial.agent.recorded_environment import write_environment
from seatrial.agent.rendezvous import Rendezvous
from seatrial.agent.reports import note
from seatrial.agent.starter import Starter
from seatrial.files import read_json, write_private_json
from seatrial.line.awake_clock import AwakeClock
from seatrial.line.caller import Caller, LineError
from seatrial.line.protocol import Message
from seatrial.machine.interfaces import interfaces, is_link_local
from seatrial.machine.orphans import kill_leftovers
from seatrial.machine.patience import looked_for
from seatrial.machine.shared_memory import present
from seatrial.paths import AttemptPaths
from seatrial.records.codec import from_json, to_json
from seatrial.records.command import AgentOrder
from seatrial.records.line import NodeCall

FAILED, UNREACHED, UNREADABLE = 1, 3, 4
# A network disk may show what another host has just written a moment later.
APPEARS_WITHIN_S = 5.0
LOOK_EVERY_S = 0.2


class CallError(Exception):
    """call.json cannot be read, or is none."""


def answer_call(path: Path) -> int:
    """The exit code of `python -m seatrial.agent --call PATH`."""
    with Starter() as starter:
        try:
            call = read_call(path)
            starter.leave(AttemptPaths(path.parent).agent_log)
            with Rendezvous(call) as rendezvous:
                rendezvous.reserve()
                clock = AwakeClock()
                said = {**hello(), "port": rendezvous.to_tell(), "trouble": rendezvous.trouble}
                line = HarnessLine(Caller.connect(call, said, clock.now), call.node)
                starter.let_go()
                _end_leftovers(call, line, clock)
                rendezvous.reserve()
                return _obey(line, call, clock, rendezvous.trouble)
        except CallError as error:
            starter.say(str(error))
            return UNREADABLE
        except LineError as error:
            note(str(error))
            starter.say(str(error))
            return UNREACHED


def read_call(path: Path) -> NodeCall:
    """CallError where there is none after a while."""
    here = socket.gethostname()
    written = looked_for(lambda: read_json(path), lambda found: found is not None, APPEARS_WITHIN_S, LOOK_EVERY_S)
    if written is None and path.exists():
        raise CallError(f"{here} cannot read {path}; check that the user there is the same, and may read the campaign's folder")
    if written is None:
        raise CallError(f"{here} has no {path}; check that the campaign's folder is shared with this host, at the same path")
    try:
        return from_json(NodeCall, written)
    except ValueError as error:
        raise CallError(f"{here} does not understand {path} ({error}); check that all hosts have the same version of seatrial") from error


def hello() -> dict[str, Any]:
    """Who and where this node is, beside its name."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "addresses": _addresses()}


def _addresses() -> dict[str, list[str]]:
    """Interface → its addresses; those that mean nothing elsewhere are left out, for a hello may not be long."""
    return {name: [address for address in known if not is_link_local(address)] for name, known in interfaces().items()}


def _end_leftovers(call: NodeCall, line: HarnessLine, clock: AwakeClock) -> None:
    # Asked before each look: once the harness has given this attempt up, the next may run here.
    ended = kill_leftovers(Path(call.campaign), Path(call.attempt), lambda: line.stands(clock.now()))
    if ended:
        note(f"killed what earlier attempts had left here: {', '.join(map(str, sorted(ended)))}")


def _obey(line: HarnessLine, call: NodeCall, clock: AwakeClock, trouble: str) -> int:
    go = line.wait_for_go(clock)
    if go is None:
        line.close()
        return 0
    if trouble:
        return _refused(line, trouble)
    try:
        order, caller = _ordered(go, call)
    except ValueError as error:
        note(f"the order cannot be read: {error}")
        return _refused(line, f"the order cannot be read ({error}); are the versions of seatrial alike on all hosts?")
    _keep(order, call)
    write_environment(AttemptPaths(Path(call.attempt)).node(call.node), caller, order.command.env)
    return carry_out(order, caller, line, clock)


def _refused(line: HarnessLine, why: str) -> int:
    line.failed(why)
    line.close()
    return FAILED


def _ordered(go: Message, call: NodeCall) -> tuple[AgentOrder, Mapping[str, str]]:
    """The order as it is meant here, and what lies beneath its variables."""
    order = from_json(AgentOrder, go.get("order"))
    env = go.get("env")
    # What the host itself has (its login shell's, its system's) lies beneath what was sent; where nothing was, it is all there is.
    caller = {**os.environ, **({str(name): str(value) for name, value in env.items()} if isinstance(env, dict) else {})}
    # What stands in the shared memory of the harness's host says nothing of this one's.
    return replace(order, call=call, host=socket.gethostname(), shared_memory=present()), caller


def _keep(order: AgentOrder, call: NodeCall) -> None:
    """agent.json as it is meant here: should this agent be killed, others learn from it what stood in the shared memory before."""
    try:
        write_private_json(AttemptPaths(Path(call.attempt)).node(call.node).agent_order, to_json(replace(order, call=None)))
    except OSError as error:
        note(f"agent.json could not be written anew ({error.strerror}); shared memory would stay if this agent were killed")
