"""The line between the harness and a node: one TCP connection that the node opens, JSON lines both ways, beats that prove life.

    harness                                     node (an agent, or the share of a campaign without ssh)
    Switchboard(token).port         ◄──────     Caller.connect(call): nonce, hello with a proof of the token
    send(name, message)              ──────►    receive()
    poll() → (name, message)        ◄──────     send(message)
    beat every BEAT_EVERY_S          ──────►    answered at once with the node's clock: the offset is measured by that

Whatever started the node's process (ssh, pdsh, a person) is no part of the line: it may die and the run goes on. What ends a run is
silence: a node that hears nothing for `lease_s` kills everything it started, a harness that hears nothing takes the node for lost.
The token proves that both read the same private file; what is said is not encrypted, as in torch's own rendezvous.
"""
