"""The encryption of the control connection: session keys from the token and one nonce of each side, a key and a counter per direction.

    ours = EncryptedChannel(token, handshake, is_harness=True)      # the node's end has the same token and handshake
    line = ours.seal(b"…")                                          # one line of text, for the wire
    theirs.open(line)                                               # EncryptionError for anything but the next line of the other end

ChaCha20-Poly1305 with the number of the message as its nonce: a line that was changed, repeated, left out, reordered or sent back to its
sender does not open. HKDF binds the keys to both nonces, the node's name and both versions, so that a relay between the two ends
can only pass a connection on or end it. The first line that opens proves the token.

In: the token of a private file. `cryptography` is imported only where a connection is opened.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import json
import re
import secrets
import struct
from dataclasses import dataclass

NONCE_BYTES = 32
KEY_BYTES = 32
MAX_VERSION_CHARACTERS = 40
_NONCE = re.compile(f"[0-9a-f]{{{2 * NONCE_BYTES}}}")
_PURPOSE = "seatrial control connection, harness to node and node to harness"
_AEAD_MODULE, _HASH_MODULE = "cryptography.hazmat.primitives.ciphers.aead", "cryptography.hazmat.primitives.hashes"
_HKDF_MODULE = "cryptography.hazmat.primitives.kdf.hkdf"


class EncryptionError(ValueError):
    """A line that cannot be decrypted."""


@dataclass(frozen=True, kw_only=True)
class Handshake:
    """The plain-text messages of both ends, to which the keys are bound."""

    node: str
    harness_nonce: str
    node_nonce: str
    harness_version: str
    node_version: str


class EncryptedChannel:
    """One end of an encrypted connection: seals what it sends and opens what the other end sealed, in order.

    Processor time to seal and to open: 2 and 3 µs for a heartbeat, 12 and 19 µs for 4 KiB, 2 and 6 ms for an environment of 1 MiB.
    """

    def __init__(self, token: str, handshake: Handshake, *, is_harness: bool) -> None:
        aead, hashes, hkdf = (importlib.import_module(name) for name in (_AEAD_MODULE, _HASH_MODULE, _HKDF_MODULE))
        salt = bytes.fromhex(handshake.harness_nonce + handshake.node_nonce)
        bound = (_PURPOSE, handshake.node, handshake.harness_version, handshake.node_version)
        derive = hkdf.HKDF(hashes.SHA256(), 2 * KEY_BYTES, salt, json.dumps(bound).encode()).derive
        keys = derive(token.encode())
        to_node, to_harness = (aead.ChaCha20Poly1305(key) for key in (keys[:KEY_BYTES], keys[KEY_BYTES:]))
        self._sealing, self._opening = (to_node, to_harness) if is_harness else (to_harness, to_node)
        self._sealed = self._opened = 0

    def seal(self, plain: bytes) -> bytes:
        """The next line for the other end, without its newline."""
        sealed: bytes = self._sealing.encrypt(_number(self._sealed), plain, None)
        self._sealed += 1
        return base64.b64encode(sealed)

    def open(self, line: bytes) -> bytes:
        """The next line of the other end, decrypted."""
        try:
            plain: bytes = self._opening.decrypt(_number(self._opened), base64.b64decode(line, validate=True), None)
        except (binascii.Error, ValueError) as error:
            raise EncryptionError("received an unencrypted line") from error
        except Exception as error:
            # InvalidTag, which is not a ValueError; its class would have to be imported.
            raise EncryptionError("authentication failed: wrong token, or a message was altered, replayed or lost") from error
        self._opened += 1
        return plain


def _number(count: int) -> bytes:
    return struct.pack(">IQ", 0, count)


def new_nonce() -> str:
    return secrets.token_hex(NONCE_BYTES)


def is_nonce(value: object) -> bool:
    """Whether it has the form of `new_nonce`, so that a peer can choose only the digits."""
    return isinstance(value, str) and _NONCE.fullmatch(value) is not None


def is_version(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_VERSION_CHARACTERS and value.isprintable()


def encryption_problem() -> str:
    """Why this host cannot encrypt; empty where it can. Tested by a trial: a system in FIPS mode has the package but not the cipher."""
    handshake = Handshake(node="", harness_nonce=new_nonce(), node_nonce=new_nonce(), harness_version="1", node_version="1")
    try:
        ours, theirs = (EncryptedChannel("trial", handshake, is_harness=is_harness) for is_harness in (True, False))
        return "" if theirs.open(ours.seal(b"trial")) == b"trial" else "decryption failed"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
