"""What the proxies and servers of the topic service are told by their sockets, and what they order of them.

A peer is somebody who asked and waits for exactly one answer; a token names a question of our own, which is answered
once or never. `link` is the connection by which it came to a node; a proxy has no other. What a peer is refused because
of who it is, is noted with the number of its own connection.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from veredus.kernel.effects import Note

from .many import Many
from .messages import Status, StatusWord, encode_message

Mark: TypeAlias = tuple[bytes, tuple[bytes, ...]]


class Asked(NamedTuple):
    """A message from a peer that waits for its answer; `origin` is a number, the same for all of one connection."""

    peer: int
    data: bytes
    link: int = 0
    origin: bytes = b""
    principal: str = ""
    """Who the connection has proved to be, "" for nobody."""
    speaks_for: str = ""
    """Whom a peer that has proved who it is asks this for, "" for itself."""
    is_member: bool = True
    """Whether the peer is trusted as a proxy or a server: to speak for others, to announce topics, to merge them."""
    why_not: str = ""
    """Why this is not taken: who asks has used up its share, and may ask again, or what it said is wrong. "" where it
    is."""
    why_not_as: StatusWord = StatusWord.SERVER_UNAVAILABLE
    """With which status it is told so."""
    is_from_proxy: bool = False
    """Whether a proxy asks, which took us for a server."""
    envelope: tuple[bytes, ...] = ()
    """What tells this question from all others of its connection, and is the same for its copies; () where nothing
    does."""

    @property
    def mark(self) -> Mark | None:
        """What tells this question from all others, None where nothing does."""
        return (self.origin, self.envelope) if self.envelope else None


class Answered(NamedTuple):
    """Whom we asked answered the question with this token."""

    token: int
    data: bytes
    link: int = 0
    server: str = ""
    """The address that was asked, "" where that is of no matter."""


class Answer(NamedTuple):
    """Tell a peer, once."""

    peer: int
    data: bytes


class LateAnswer(NamedTuple):
    """Tell a peer, once, when there is room for it: the bytes are made then, from a body that is in memory anyway."""

    peer: int
    status: Status
    """Without its body."""
    body: bytes | Many

    @property
    def size(self) -> int:
        """Of the body, in bytes."""
        return self.body.size if isinstance(self.body, Many) else len(self.body)

    @property
    def data(self) -> bytes:
        """What the peer is told; made at each call."""
        body = self.body.packed() if isinstance(self.body, Many) else self.body
        return encode_message(self.status._replace(body=body))


class Ask(NamedTuple):
    """Ask whoever listens at an address, which is a server's or a proxy's id."""

    address: str
    token: int
    data: bytes
    principal: str = ""
    """Who had asked us this, "" for somebody who has proved nothing; of no matter for questions of our own."""


class Meet(NamedTuple):
    """Connect to this address: it will be asked."""

    address: str


def note_no_member(asked: Asked, verb: str, kind: str, name: str) -> Note:
    """What is noted of a peer that is refused what proxies and servers alone may do: `verb` on what has this name."""
    fields: dict[str, object] = {"link": int.from_bytes(asked.origin), "principal": asked.principal}
    return Note("warning", "forbidden", {**fields, "verb": verb, "kind": kind, "name": name})


def no_member(principal: str) -> str:
    """Why a peer is refused what proxies and servers alone may do."""
    who = principal or "an unauthenticated peer"
    return f"{who} is not a proxy or a server of this service: list its principal under topics.members"
