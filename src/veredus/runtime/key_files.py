"""Secret keys in files: 40 characters of Z85, for their owner alone (mode 0600)."""

from __future__ import annotations

from pathlib import Path

from veredus.kernel.errors import Refused
from veredus.protocols.zmtp.z85 import KEY_SIZE, decode_z85

from .regular_files import FILE_SIZE_MAX, read_own


def read_secret(path: Path) -> bytes:
    """The 32 octets of a secret key. Raises `Refused("bad-key")`, also when others than its owner may read it."""
    try:
        mode, content = read_own(path, FILE_SIZE_MAX)
        secret = decode_z85(content.decode("ascii").strip())
    except OSError as error:
        raise Refused("bad-key", f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Refused("bad-key", f"{path}: not a secret key in Z85: {error}") from None
    if mode & 0o077:
        raise Refused("bad-key", f"{path}: other users may use it (mode {mode:04o}): chmod 600 {path}")
    if len(secret) != KEY_SIZE:
        raise Refused("bad-key", f"{path}: a secret key must have 40 characters")
    return secret
