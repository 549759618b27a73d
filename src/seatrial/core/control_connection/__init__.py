"""The control connection between harness and node: one TCP connection that the node opens, JSON lines both ways, heartbeats.

    harness                                     node (an agent, or the share of a campaign without ssh)
    ControlServer(token).port       ◄──────     ControlClient.connect(endpoint): nonces, then everything encrypted, hello first
    send(name, message)              ──────►    receive()
    poll() → (name, message)        ◄──────     send(message)
    heartbeat every HEARTBEAT_EVERY_S ─────►    answered at once with the node's clock, which gives the clock offset

What started the node's process (ssh, pdsh, a person) is not part of the connection: it may die and the run goes on. Silence ends a run: a
node that receives nothing for `lease_s` kills everything it started; a harness that receives nothing counts the node as lost.
The token, from a private file that both can read, authenticates and encrypts (`encryption`); there is no plaintext fallback.

The pipes of the ssh that started the agent do not serve: pdsh mixes the output of all hosts and has no input for each, place `pernode` has
no ssh, and a run must outlive the ssh that began it.
"""
