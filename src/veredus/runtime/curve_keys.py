"""The secret key of a node's ZeroMQ listener: 40 characters of Z85 in a file for its owner alone (mode 0600)."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from veredus.kernel.errors import Refused
from veredus.protocols.zmtp.curve import KeyPair
from veredus.protocols.zmtp.z85 import KEY_SIZE, encode_z85

from .key_files import read_secret


def make_server_key(path: Path) -> KeyPair:
    """Make the key of a node's ZeroMQ listener and keep it at `path`. Raises `Refused("bad-key")` where a file is.

    A key that cannot be written whole leaves no file.
    """
    pair = KeyPair(secrets.token_bytes(KEY_SIZE))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        message = (
            f"{path}: a file is there already, and may be the key of a node: name another file, or remove that one"
        )
        raise Refused("bad-key", message) from None
    except OSError as error:
        raise _unwritten(path, error) from None
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(encode_z85(pair.secret) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _unwritten(path, error) from None
    return pair


def read_server_key(path: Path) -> KeyPair:
    """The key of a node's ZeroMQ listeners. Raises `Refused("bad-key")`, also when others may read it."""
    return KeyPair(read_secret(path))


def _unwritten(path: Path, error: OSError) -> Refused:
    return Refused("bad-key", f"{path}: the key cannot be written there ({error.strerror or error})")
