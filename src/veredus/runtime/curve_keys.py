"""The secret key of a node's ZeroMQ listener: 40 characters of Z85 in a file for its owner alone (mode 0600)."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from veredus.kernel.errors import Refused
from veredus.protocols.zmtp.curve import KeyPair
from veredus.protocols.zmtp.z85 import KEY_SIZE, decode_z85, encode_z85


def make_server_key(path: Path) -> KeyPair:
    """Make the key of a node's ZeroMQ listener and keep it at `path`. Raises `Refused("bad-key")` where a file is."""
    pair = KeyPair(secrets.token_bytes(KEY_SIZE))
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(encode_z85(pair.secret) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Refused("bad-key", f"{path}: the key cannot be written there ({error.strerror or error})") from None
    return pair


def read_server_key(path: Path) -> KeyPair:
    """The key of a node's ZeroMQ listener. Raises `Refused("bad-key")`, also when others than its owner may read it."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        secret = decode_z85(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise Refused("bad-key", f"{path}: not a secret key in Z85: {error}") from None
    if mode & 0o077:
        raise Refused("bad-key", f"{path}: other users may use it (mode {mode:04o}): chmod 600 {path}")
    if len(secret) != KEY_SIZE:
        raise Refused("bad-key", f"{path}: a secret key must have 40 characters")
    return KeyPair(secret)
