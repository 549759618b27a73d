"""The control connection between harness and node: one TCP connection that the node opens, JSON lines both ways, heartbeats.

    harness                                     node (an agent, or the share of a campaign without ssh)
    ControlServer(token).port       ◄──────     ControlClient.connect(endpoint): nonce, hello with a proof of the token
    send(name, message)              ──────►    receive()
    poll() → (name, message)        ◄──────     send(message)
    heartbeat every HEARTBEAT_EVERY_S ─────►    answered at once with the node's clock: the clock offset is measured by that

What started the node's process (ssh, pdsh, a person) is no part of the connection: it may die and the run goes on. Silence ends a run: a
node that receives nothing for `lease_s` kills everything it started, a harness that receives nothing counts the node as lost.
The token proves that both read the same private file; messages are not encrypted, as in torch's own rendezvous.
"""
