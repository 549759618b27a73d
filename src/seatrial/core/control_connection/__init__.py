"""The control connection between harness and node: one TCP connection that the node opens, JSON lines both ways, heartbeats.

    harness                                     node (an agent, or the share of a campaign without ssh)
    ControlServer(token).port       ◄──────     ControlClient.connect(endpoint): nonces, then everything encrypted, hello first
    send(name, message)              ──────►    receive()
    poll() → (name, message)        ◄──────     send(message)
    heartbeat every HEARTBEAT_EVERY_S ─────►    answered at once with the node's clock: the clock offset is measured by that

What started the node's process (ssh, pdsh, a person) is no part of the connection: it may die and the run goes on. Silence ends a run: a
node that receives nothing for `lease_s` kills everything it started, a harness that receives nothing counts the node as lost.
The token, from a private file that both can read, authenticates and encrypts (`encryption`); there is no plaintext fallback.

A connection of its own, and not the pipes of the ssh that started the agent: pdsh mixes the output of all hosts and has no input for each,
place `pernode` has no ssh at all, and a run must outlive the ssh that began it. One way for all three is simpler than two, and has one set
of tests.
"""
