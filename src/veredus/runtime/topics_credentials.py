"""What a client, a proxy or a server of topics shows for who it is: a token by PLAIN, a key by CURVE, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from veredus.kernel.errors import Refused
from veredus.node.settings import TopicsSection
from veredus.protocols.zmtp.z85 import KEY_SIZE, decode_z85, encode_z85

from .key_files import read_secret
from .regular_files import FILE_SIZE_MAX, read_own

TOKEN_SIZE_MAX = 255
"""What PLAIN has room for."""


class Credentials(NamedTuple):
    """A token; or a secret key, with the public key of those that are come to, both 40 characters of Z85."""

    token: str = ""
    server_key: str = ""
    secret_key: str = ""


NOTHING_TO_SHOW = Credentials()


def check_credentials(shown: Credentials) -> Credentials:
    """The same. Raises `Refused`: `bad-token`, or `bad-key`."""
    if shown.token and (shown.server_key or shown.secret_key):
        raise Refused("bad-token", "a token goes with PLAIN, and a key with CURVE: give one of them")
    if not shown.token.isascii() or len(shown.token) > TOKEN_SIZE_MAX:
        raise Refused("bad-token", f"a token must have at most {TOKEN_SIZE_MAX} ASCII characters")
    if bool(shown.server_key) != bool(shown.secret_key):
        raise Refused("bad-key", "CURVE needs two keys: the client's secret key, and the public key of the listeners")
    for name, text in (("the public key of the listeners", shown.server_key), ("the secret key", shown.secret_key)):
        if text:
            _check_key(name, text)
    return shown


def read_credentials(topics: TopicsSection) -> Credentials:
    """What the settings of the topic service name. Raises `Refused`: `bad-token`, or `bad-key`."""
    token = _read_token(Path(topics.token)) if topics.token else ""
    secret = encode_z85(read_secret(Path(topics.key))) if topics.key else ""
    return check_credentials(Credentials(token, topics.server_key, secret))


def _read_token(path: Path) -> str:
    try:
        token = read_own(path, FILE_SIZE_MAX)[1].decode("ascii").strip()
    except OSError as error:
        raise Refused("bad-token", f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Refused("bad-token", f"{path}: not a file with a token: {error}") from None
    if not token:
        raise Refused("bad-token", f"{path}: there is no token in this file")
    return token


def _check_key(name: str, text: str) -> None:
    try:
        size = len(decode_z85(text))
    except ValueError as error:
        raise Refused("bad-key", f"{name} is wrong: {error}") from None
    if size != KEY_SIZE:
        raise Refused("bad-key", f"{name} must have 40 characters")
