"""What is said on a line: one JSON object a line, each with its `kind`, and how a caller proves that it knows the token.

In: messages, or bytes as they arrive. Out: bytes, or whole messages; a ValueError for what is none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any

# Several times within a lease: one that is lost on the way costs nothing.
BEAT_EVERY_S = 2.0
# The longest thing said is a whole environment.
LONGEST_LINE_BYTES = 4 * 1024 * 1024
TOKEN_BYTES = 32

Message = dict[str, Any]


def new_token() -> str:
    """What the two ends of a line know, and nobody else."""
    return secrets.token_hex(TOKEN_BYTES)


def proof(token: str, nonce: str, node: str) -> str:
    """What only a node that knows the token can answer to the harness's `nonce`."""
    return _signed(token, f"{nonce} {node}")


def harness_proof(token: str, nonce: str, node: str) -> str:
    """What only a harness that knows the token can answer to the node's `nonce`.

    A node does whatever it is told: on a host that many use, another's program may listen where a harness was a moment ago.
    """
    return _signed(token, f"harness {nonce} {node}")


def is_same(told: object, expected: str) -> bool:
    """Whether a proof is right; takes as long for a wrong one, whatever it says."""
    # Not by its words where it is no text: a list in lists a thousand deep cannot be put into words.
    return isinstance(told, str) and hmac.compare_digest(told.encode(errors="replace"), expected.encode())


def _signed(token: str, text: str) -> str:
    return hmac.new(token.encode(), text.encode(errors="replace"), hashlib.sha256).hexdigest()


def encoded(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


class Decoder:
    """Bytes as they arrive in, whole messages out."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[Message]:
        """Messages that `data` completes; ValueError for what is none."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > LONGEST_LINE_BYTES:
            raise ValueError("a line without an end")
        messages = [json.loads(line) for line in lines]
        if not all(isinstance(message, dict) and isinstance(message.get("kind"), str) for message in messages):
            raise ValueError("no message of ours")
        return messages
