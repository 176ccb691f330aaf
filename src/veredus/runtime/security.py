"""Who knocks: tokens kept as salted hashes, and TLS contexts.

A token is `veredus_<id>_<secret>`: the id finds its line in the file, the secret is 32 random bytes. The file has one
line for each token, `id scrypt:<log2 N>:<r>:<p> <salt> <hash> <created>[/<expires>] <principal>`, and is for its
owner alone (mode 0600). A line may hold the public key of a ZeroMQ client in place of a token: `id curve <key> -
<created>[/<expires>] <principal>`. The file is read again when it has changed, so that a token that was removed opens
no further connection; nor does one that has expired. A version that knows no expiry takes the interval for a date.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import ssl
import tempfile
import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from veredus.kernel.errors import Refused
from veredus.node.rules import PRINCIPAL_SIZE_MAX
from veredus.node.settings import NodeSettings, TlsSection
from veredus.protocols.zmtp.z85 import KEY_SIZE, decode_z85, encode_z85
from veredus.streams.rights import ANONYMOUS, LOCAL, MULTICAST

from .directory import sync_directory
from .listeners import UNIX_USER
from .regular_files import FILE_SIZE_MAX, LIST_SIZE_MAX, check_own, check_regular, read_own
from .token_lock import locked_tokens

PREFIX = "veredus_"
TOKEN_SIZE_MAX = 256
_ID_SIZE = 8
_SECRET_SIZE = 32
_SALT_SIZE = 16
_HASH_SIZE = 32
_COST: Final = (12, 8, 1)
"""log2 N, r and p of scrypt: about 10 ms and 4 MiB. The secrets are random, so a dearer hash would buy nothing."""
_COST_MAX: Final = (17, 16, 4)
_REMEMBERED_MAX = 10_000
KEY_METHOD = "curve"
_NO_FILE: Final = (0, 0, 0)
"""What is seen of a file that is not there."""


class TokenLine(NamedTuple):
    """One token as the file keeps it."""

    id: str
    cost: tuple[int, int, int]
    salt: bytes
    hash: bytes
    created: str
    principal: str
    expires: str = ""
    """When it ends, in UTC, as `created` is written; "" for never."""
    key: bytes = b""
    """The public key of a ZeroMQ client, which the line is for in place of a token; b"" for none."""

    def is_expired(self, now_s: float) -> bool:
        """Whether it has ended at `now_s`, in seconds since 1970."""
        return bool(self.expires) and now_s >= datetime.fromisoformat(self.expires).timestamp()

    def holds(self, secret: str) -> bool:
        """Whether the secret is the token's; takes its time, and the same time whatever the answer."""
        return not self.key and hmac.compare_digest(_hashed(secret, self.salt, self.cost), self.hash)


class TokenFile:
    """Owns the answers to "whose token is this?"; may be asked from several threads.

    A first answer costs about 10 ms: ask `remembered` on the loop, and `principal_of` elsewhere if that does not know.
    While the file cannot be used, or is gone, what was read before holds, until `refresh`, which is called now and
    then, can read it again. Whoever asks before it was ever read gets `Refused("bad-tokens")`.
    """

    def __init__(self, path: Path) -> None:
        """The tokens in `path`, which need not exist yet."""
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._is_faulty = False
        """Whether it could not be read the last time, and could before."""
        self._lines: dict[str, TokenLine] = {}
        self._remembered: dict[bytes, TokenLine] = {}
        self._pepper = secrets.token_bytes(32)

    def remembered(self, token: str) -> str | None:
        """The principal of a token that was proved before and is still in the file; None says to ask `principal_of`."""
        self._renew()
        line = self._remembered.get(self._mark(token))
        return None if line is None or line.is_expired(time.time()) else line.principal

    def principal_of(self, token: str) -> str | None:
        """The principal of a token, None for a wrong one. Raises `Refused("unauthenticated")` when it has expired."""
        self._renew()
        mark = self._mark(token)
        known = self._remembered.get(mark)
        if known is not None:
            return _unexpired(known).principal
        parts = _split_token(token)
        line = self._lines.get(parts[0]) if parts else None
        if parts is None or line is None or not line.holds(parts[1]):
            return None
        with self._lock:
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            if self._lines.get(line.id) is line:
                self._remembered[mark] = line
        return _unexpired(line).principal

    def has_line(self, token: str) -> bool:
        """Whether the file has a line with this token's id, so that it takes a hash to say whether it is right."""
        self._renew()
        line = self.line_of(token)
        return line is not None and not line.key

    def line_of(self, token: str, key: bytes = b"") -> TokenLine | None:
        """The line of a token, or of a public key, that was proved just now, as it was read last."""
        if key:
            return next((line for line in self._lines.values() if line.key == key), None)
        parts = _split_token(token)
        return None if parts is None else self._lines.get(parts[0])

    def line_of_key(self, key: bytes) -> TokenLine | None:
        """The line of a public key that a peer proved to hold. Raises `Refused`: `bad-tokens`, `unauthenticated`."""
        self._renew()
        line = self.line_of("", key)
        return None if line is None else _unexpired(line)

    def has(self, line: TokenLine) -> bool:
        """Whether the file still has this line, as it was read last."""
        return self._lines.get(line.id) == line

    def refresh(self) -> None:
        """Read the file if it has changed. Raises `Refused("bad-tokens")`; what was read before holds then."""
        self._is_faulty = self._seen is not None
        seen = self._look()
        if seen != self._seen:
            lines = {line.id: line for line in _lines_of(self._path)} if seen != _NO_FILE else {}
            with self._lock:
                self._lines, self._seen = lines, seen
                self._remembered.clear()
        self._is_faulty = False

    def _mark(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode(errors="replace")[:TOKEN_SIZE_MAX], key=self._pepper).digest()

    def _renew(self) -> None:
        # Not for each who asks once more: that would be work for the loop, as much as a peer wants.
        if not self._is_faulty:
            try:
                self.refresh()
            except Refused:
                if self._seen is None:
                    raise

    def _look(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except FileNotFoundError as error:
            if self._seen in (None, _NO_FILE):
                return _NO_FILE
            # It was there. Who takes it away may be about to put another in its place: it revokes nobody.
            raise unreadable_tokens(self._path, error) from None
        except OSError as error:
            raise unreadable_tokens(self._path, error) from None
        return found.st_mtime_ns, found.st_size, found.st_ino


def tokens_of(settings: NodeSettings) -> TokenFile | None:
    """The tokens in the file that settings name, None where they name none."""
    return TokenFile(Path(settings.security.tokens)) if settings.security.tokens else None


def read_tokens(path: Path) -> list[TokenLine]:
    """The tokens of a file in its order; none when there is no such file.

    Raises `Refused("bad-tokens")`, with the line, when it is not a file of tokens or others than its owner may read it.
    """
    return _lines_of(path) if path.exists() or path.is_symlink() else []


def _lines_of(path: Path) -> list[TokenLine]:
    try:
        mode, content = read_own(path, LIST_SIZE_MAX)
        text = content.decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable_tokens(path, error) from None
    if mode & 0o077:
        raise Refused("bad-tokens", f"{path}: other users may use it (mode {mode:04o}): chmod 600 {path}")
    lines = []
    for number, text_line in enumerate(text.splitlines(), 1):
        if text_line.strip() and not text_line.startswith("#"):
            try:
                lines.append(_parse_line(text_line))
            except ValueError as error:
                raise Refused("bad-tokens", f"{path}:{number}: {error}") from None
    return lines


def unreadable_tokens(path: Path, error: OSError | UnicodeDecodeError) -> Refused:
    """What is said where a file of tokens cannot be read."""
    reason = error.strerror if isinstance(error, OSError) else error
    return Refused("bad-tokens", f"{path}: not a readable token file: {reason}")


def add_token(path: Path, principal: str, life: timedelta | None = None) -> tuple[str, TokenLine]:
    """Make a token for `principal` and keep its hash: the token itself, to be shown once, and its line.

    It expires when `life` is over, or never. Raises `Refused`: `bad-principal`, `bad-tokens`, `tokens-locked`.
    """
    _check_principal(principal)
    with locked_tokens(path):
        lines = read_tokens(path)
        token_id = _new_id(lines)
        secret = _encoded(secrets.token_bytes(_SECRET_SIZE))
        salt = secrets.token_bytes(_SALT_SIZE)
        now = datetime.now(UTC)
        expires = "" if life is None else _written(now + life)
        line = TokenLine(token_id, _COST, salt, _hashed(secret, salt, _COST), _written(now), principal, expires)
        _write_tokens(path, [*lines, line])
    return f"{PREFIX}{token_id}_{secret}", line


def add_key(path: Path, principal: str, key: bytes, life: timedelta | None = None) -> TokenLine:
    """Keep the public key of a ZeroMQ client who is `principal`; its line.

    It expires when `life` is over, or never. Raises `Refused`: `bad-principal`, `bad-tokens`, `tokens-locked`.
    """
    _check_principal(principal)
    with locked_tokens(path):
        lines = read_tokens(path)
        if any(line.key == key for line in lines):
            raise Refused("bad-tokens", f"{path} has this key already: see `veredus token ls`")
        now = datetime.now(UTC)
        expires = "" if life is None else _written(now + life)
        line = TokenLine(_new_id(lines), (0, 0, 0), b"", b"", _written(now), principal, expires, key)
        _write_tokens(path, [*lines, line])
    return line


def _new_id(lines: list[TokenLine]) -> str:
    taken = [line.id for line in lines]
    return next(id_ for id_ in iter(lambda: secrets.token_hex(_ID_SIZE // 2), None) if id_ not in taken)


def remove_token(path: Path, token_id: str) -> TokenLine:
    """Take the token with this id out of the file. Raises `Refused`: `unknown-token`, `bad-tokens`, `tokens-locked`."""
    with locked_tokens(path):
        lines = read_tokens(path)
        gone = next((line for line in lines if line.id == token_id), None)
        if gone is None:
            raise Refused("unknown-token", f"{path} has no token {token_id!r}: see `veredus token ls --file {path}`")
        _write_tokens(path, [line for line in lines if line is not gone])
    return gone


def server_context(tls: TlsSection) -> ssl.SSLContext:
    """The context of a listener. Raises `Refused("bad-certificate")`, which names the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if tls.version_min == "1.3" else ssl.TLSVersion.TLSv1_2
    load_certificate(context, tls.certificate, tls.key)
    if tls.client_authorities:
        context.verify_mode = ssl.CERT_REQUIRED if tls.client_certificates == "required" else ssl.CERT_OPTIONAL
        load_authorities(context, tls.client_authorities)
        if tls.revoked:
            load_authorities(context, tls.revoked, "lists of revoked certificates")
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def client_context(authorities: str = "", certificate: str = "", key: str = "") -> ssl.SSLContext:
    """The context of a client: it believes the machine's authorities, or only those in the file `authorities`.

    `certificate` and `key` say who the client is. Raises `Refused("bad-certificate")`, which names the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if authorities:
        load_authorities(context, authorities, check=check_regular)
    else:
        context.load_default_certs()
    if certificate:
        load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Show this certificate, with its key, where `context` is used. Raises `Refused("bad-certificate")`."""
    _check(check_regular, certificate, FILE_SIZE_MAX)
    _check(check_own, key or certificate, FILE_SIZE_MAX)
    try:
        context.load_cert_chain(certificate, key or None, password="")
    except (ssl.SSLError, OSError) as error:
        pair = f"{certificate} with {key}" if key else certificate
        raise Refused(
            "bad-certificate",
            f"{pair}: not a PEM certificate chain with its unencrypted private key ({_reason(error)})",
            file=certificate,
        ) from None


def load_authorities(
    context: ssl.SSLContext,
    authorities: str,
    what: str = "certificates of authorities",
    check: Callable[[str, int], None] = check_own,
) -> None:
    """Believe these authorities where `context` is used. Raises `Refused("bad-certificate")`."""
    _check(check, authorities, LIST_SIZE_MAX)
    try:
        context.load_verify_locations(authorities)
    except (ssl.SSLError, OSError) as error:
        raise Refused("bad-certificate", f"{authorities}: no PEM {what} ({_reason(error)})", file=authorities) from None


def _check(check: Callable[[str, int], None], file: str, size_max: int) -> None:
    try:
        check(file, size_max)
    except OSError as error:
        raise Refused("bad-certificate", f"{file}: cannot be read: {error.strerror}", file=file) from None


def _unexpired(line: TokenLine) -> TokenLine:
    if line.is_expired(time.time()):
        raise Refused("unauthenticated", f"this token has expired ({line.expires}): request a new one")
    return line


def _written(when: datetime) -> str:
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)


def _hashed(secret: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    log2_n, r, p = cost
    memory_size = 128 * r * ((1 << log2_n) + p + 2) + (1 << 20)
    return hashlib.scrypt(
        secret.encode(errors="replace"), salt=salt, n=1 << log2_n, r=r, p=p, maxmem=memory_size, dklen=_HASH_SIZE
    )


def _split_token(token: str) -> tuple[str, str] | None:
    if len(token) > TOKEN_SIZE_MAX or not token.startswith(PREFIX):
        return None
    token_id, line, secret = token.removeprefix(PREFIX).partition("_")
    return (token_id, secret) if line and len(token_id) == _ID_SIZE else None


def _parse_line(text: str) -> TokenLine:
    fields = text.split(" ", 5)
    if len(fields) != 6:
        raise ValueError("a token's line has six fields")
    token_id, method, salt, hash_, created, principal = fields
    created, _, expires = created.partition("/")
    if expires and datetime.fromisoformat(expires).tzinfo is None:
        raise ValueError(f"{expires!r} has no time zone")
    if method == KEY_METHOD:
        key = decode_z85(salt)
        if len(key) != KEY_SIZE:
            raise ValueError(f"a key has {KEY_SIZE} octets")
        return TokenLine(token_id, (0, 0, 0), b"", b"", created, principal, expires, key)
    name, *numbers = method.split(":")
    if name != "scrypt" or len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        raise ValueError(f"{method!r} is unknown: only scrypt:N:r:p is supported")
    cost = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
    if not all(1 <= number <= most for number, most in zip(cost, _COST_MAX, strict=True)):
        raise ValueError(f"{method!r} is too expensive to check")
    return TokenLine(token_id, cost, _decoded(salt), _decoded(hash_), created, principal, expires)


def principal_fault(name: str) -> str:
    """What is wrong with the name of a principal, "" where it may be one."""
    if name.startswith(UNIX_USER):
        return f"{name!r} names a user of the Unix socket"
    if name == MULTICAST:
        return f"{name!r} is the name of the node itself where it reads for a multicast group"
    if name in (LOCAL, ANONYMOUS):
        return f"{name!r} is the name of peers that prove nothing"
    is_plain = name.isascii() and name.isprintable() and name == name.strip()
    if not name or not is_plain or "*" in name or len(name) > PRINCIPAL_SIZE_MAX:
        return f"{name!r}: a principal must have 1 to {PRINCIPAL_SIZE_MAX} printable ASCII characters without *"
    return ""


def _check_principal(principal: str) -> None:
    fault = principal_fault(principal)
    if fault:
        raise Refused("bad-principal", f"{fault}: use another name")


def _written_proof(line: TokenLine) -> str:
    if line.key:
        return f"{KEY_METHOD} {encode_z85(line.key)} -"
    return f"scrypt:{':'.join(map(str, line.cost))} {_encoded(line.salt)} {_encoded(line.hash)}"


def _write_tokens(path: Path, lines: list[TokenLine]) -> None:
    text = "".join(
        f"{line.id} {_written_proof(line)} {line.created}{'/' if line.expires else ''}{line.expires} {line.principal}\n"
        for line in lines
    )
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write("# Salted hashes of tokens; kept by `veredus token`.\n" + text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
        # Nor may a power failure bring back what was revoked.
        sync_directory(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
