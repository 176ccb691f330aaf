"""Who may come to a listener of topics, and who we say that we are where we come to another's.

    peer ── NULL, PLAIN or CURVE ──► whose token, or key, is it? ──► its principal ──► lost when that is proved no more

A member is a principal of a proxy or a server: it speaks for others, announces topics, and has them merged. Without a
list of members, those are members who have proved nothing: in a service that nothing was set up for everybody is.
Source: RFC 24, 26 and 37 of ZeroMQ; docs/internals/DESIGN.md, "Rights".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from veredus.node.exposure import access_of, topics_mechanisms_of
from veredus.node.settings import NodeSettings
from veredus.protocols.zmtp.curve import CLIENT_RANDOM_SIZE, SERVER_RANDOM_SIZE, CurveClient, CurveServer, KeyPair
from veredus.protocols.zmtp.mechanisms import Credential, Local, Mechanism, Null
from veredus.protocols.zmtp.plain import PlainClient, PlainServer
from veredus.protocols.zmtp.z85 import decode_z85

from .askers import Askers, Known, Tokens
from .curve_keys import read_server_key
from .proofs import Lost, Proofs
from .topics_credentials import read_credentials

_ASKING, _ASKED = Local(b"DEALER"), Local(b"ROUTER")


def asked_by_anybody() -> dict[bytes, Mechanism]:
    """How a peer may come where nobody proves who he is."""
    return {b"NULL": Null(_ASKED, is_server=True)}


def asking_as_nobody() -> dict[bytes, Mechanism]:
    """How we come to another then."""
    return {b"NULL": Null(_ASKING, is_server=False)}


class TopicsGate:
    """Owns the keys of one listener of topics, and what proves its open connections; used on one loop."""

    def __init__(
        self, settings: NodeSettings, askers: Askers, tokens: Tokens, unproven: Callable[[], str] | None = None
    ) -> None:
        """As `settings` say; `unproven` gives the principal of who proves nothing, which a reload may change.

        Raises `Refused`: `bad-key`, `bad-tokens`.
        """
        security, topics = settings.security, settings.topics
        self._settings = settings
        self._askers = askers
        self._tokens = tokens
        self._unproven = unproven or (lambda: access_of(settings).unproven)
        self._proofs = Proofs(tokens(), "")
        self._members = frozenset(topics.member_names)
        self._keys = read_server_key(Path(security.zeromq_key)) if security.zeromq_key else None
        shown = read_credentials(topics)
        self._token = shown.token
        self._own_keys = KeyPair(decode_z85(shown.secret_key)) if shown.secret_key else None
        self._others_key = decode_z85(shown.server_key)

    @property
    def shows_who_it_is(self) -> bool:
        """Whether we prove who we are where we come: then we say for whom we ask, too."""
        return bool(self._token or self._own_keys)

    @property
    def unproven(self) -> str:
        """Which principal somebody is who proves nothing, "" where that is nobody."""
        return self._unproven()

    def is_member(self, principal: str) -> bool:
        """Whether whoever proved to be `principal`, "" for nobody, is trusted as a proxy or a server."""
        return principal in self._members if principal else not self._members

    # ── handshakes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def mechanisms(self) -> dict[bytes, Mechanism]:
        """By which one peer may come."""
        return {name.encode(): self._asked_by(name) for name in topics_mechanisms_of(self._settings, self._unproven())}

    def way_in(self) -> dict[bytes, Mechanism]:
        """The one by which we come to another."""
        mechanism: Mechanism
        if self._own_keys is not None:
            mechanism = CurveClient(_ASKING, self._own_keys, self._others_key, os.urandom(CLIENT_RANDOM_SIZE))
        elif self._token:
            mechanism = PlainClient(_ASKING, "", self._token)
        else:
            mechanism = Null(_ASKING, is_server=False)
        return {mechanism.name: mechanism}

    def _asked_by(self, name: str) -> Mechanism:
        if name == "NULL":
            return Null(_ASKED, is_server=True)
        if name == "PLAIN":
            return PlainServer(_ASKED)
        assert self._keys is not None
        return CurveServer(_ASKED, self._keys, os.urandom(SERVER_RANDOM_SIZE))

    # ── who it is ────────────────────────────────────────────────────────────────────────────────────────────────────

    def judge(
        self, number: int, shown: Credential, address: str, take: Callable[[Known], None], is_there: Callable[[], bool]
    ) -> None:
        """Find out whose credential peer `number` shows, and `take` that, perhaps at once, while it `is_there`."""

        def judged(known: Known) -> None:
            if not is_there():
                return
            tokens = self._tokens()
            if known.principal is not None and tokens is not None:
                self._proofs.take_token(number, tokens.line_of(shown.password, shown.key))
            take(known)

        if shown.key:
            judged(self._askers.holder_of(shown.key))
        else:
            self._askers.ask(shown.password, address, judged, is_there)

    def forget(self, number: int) -> None:
        """The peer is gone."""
        self._proofs.forget(number)

    def lost(self) -> list[Lost]:
        """The peers that have proved who they are, and whose proof holds no more; each once."""
        self._proofs.use_tokens(self._tokens())
        return self._proofs.lost()

    def fault(self) -> str:
        """Why the file of tokens cannot be read, once for each fault; "" while it can."""
        return self._proofs.fault()
