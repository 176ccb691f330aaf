"""A question that a proxy has been asked, or asks by itself, on its way to a server.

Source: seed 000, section 3 ("Communication Protocol").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from .exchange import Asked, Mark
from .mapping import Conflict
from .messages import END_OF_HEADER, HEADER_SIZE_MAX, Header, StatusWord, status_word_of, why_not_for

IN_CONFLICT = ("UNSUBSCRIBE", "GET", "GET_MANY")
"""What is asked of other servers too while several claim a topic."""
WISHES = ("SUBSCRIBE", "UNSUBSCRIBE")
"""Of these one does not tell a copy that comes late from a new one."""
WISH = "wish"
_TAKEN = ("SUBSCRIBE", "UNSUBSCRIBE", "GET", "GET_MANY", "PUT", "PUT_MANY", "PERIODIC")
_GETS = ("GET", "GET_MANY")
_NOT_SUBSCRIBED, _OF_PROXIES = b" NOT_SUBSCRIBED", b" PROXY_DOES_NOT_KNOW_ANY_SERVER"
"""What is not in the beginning of an answer need not be looked at more closely."""
_BEGINNING_SIZE = HEADER_SIZE_MAX + len(END_OF_HEADER)
Key: TypeAlias = tuple[str | bytes, str, str, str]


@dataclass(slots=True)
class Question:
    """What is on its way to a server. Without a peer it is the proxy's own, to merge `conflict`."""

    peers: list[int]
    """Who waits for the answer: a peer, and one more for each copy that came meanwhile."""
    name: str
    sender: str
    topic: str
    data: bytes
    server: str
    principal: str = ""
    rivals: Sequence[str] = ()
    """Who else claims the topic and was not asked yet."""
    asked: tuple[str, ...] = ()
    """Who was asked, and whether one of them had not claimed the topic when the question came."""
    is_beyond: bool = False
    conflict: Conflict | None = None
    tries: int = 1
    due_ns: int = 0
    done: bytes = b""
    """What the first server said that did it, where all of them are asked."""
    home: str = ""
    """Which server did not know the id that is named, so that others are asked for it; "" for none."""
    sought: tuple[str, ...] = ()
    """Who is to be asked for it yet."""
    said: bytes = b""
    """What is asked instead, where nobody knows it."""
    is_held: bool = False
    """Whether it was not asked yet: it waits until its server, which is asked to give the topic away, has answered."""
    is_outdated: bool = False
    """Whether its sender has asked to subscribe, or not to be subscribed, once more since: it is asked no further."""
    marks: dict[Mark | None, None] = field(default_factory=dict)
    """What tells the questions of its peers from others."""
    waiting: list[tuple[int, Mark | None]] = field(default_factory=list)
    """Who has asked in the same words since, and may mean it anew: they are asked for together when this is over."""

    @classmethod
    def of(cls, asked: Asked, name: str, sender: str, topic: str) -> Question:
        """What a peer asks, of no server yet."""
        principal = asked.speaks_for or asked.principal
        return cls([asked.peer], name, sender, topic, asked.data, "", principal, marks={asked.mark: None})

    def join(self, asked: Asked) -> None:
        """Somebody asks in the same words. A GET that is not known to be a copy may be newer than what this one is
        answered.
        """
        if self.name not in _GETS or (asked.mark is not None and asked.mark in self.marks):
            self.peers.append(asked.peer)
        else:
            self.waiting.append((asked.peer, asked.mark))

    def anew(self) -> Question:
        """The same once more, for those who wait behind it."""
        peers, marks = [peer for peer, _ in self.waiting], dict.fromkeys(mark for _, mark in self.waiting)
        name, sender, topic, data, principal = self.name, self.sender, self.topic, self.data, self.principal
        return Question(peers, name, sender, topic, data, "", principal, marks=marks)

    def join_waiting(self) -> None:
        """It is answered with what is so now, and tells those who wait behind it, too."""
        self.peers += [peer for peer, _ in self.waiting]
        self.waiting = []

    @property
    def key(self) -> Key:
        """Under which the newest question of its kind is found; a GET is of one kind with those in the same words."""
        kind = self.data if self.name in _GETS else WISH if self.name in WISHES else self.name
        return kind, self.sender, self.topic, self.principal

    def may_be_elsewhere(self, data: bytes) -> bool:
        """Whether, as this answer to it is, another server may have the subscription, or have it too."""
        is_unknown = _NOT_SUBSCRIBED in data[:_BEGINNING_SIZE]
        return self.name == "UNSUBSCRIBE" or (self.name in IN_CONFLICT and is_unknown)


def is_of_proxy(data: bytes) -> bool:
    """Whether an answer is one that proxies alone give."""
    return _OF_PROXIES in data[:_BEGINNING_SIZE] and status_word_of(data) == StatusWord.PROXY_DOES_NOT_KNOW_ANY_SERVER


def why_not_taken(header: Header, size: int, body_size_max: int) -> str:
    """Why a proxy takes nobody's message with this header, "" where it does."""
    if header.name not in _TAKEN:
        return why_not_for("a proxy", _TAKEN, "servers", header.name)
    body_size = size - header.size
    if header.name != "PERIODIC" and body_size > body_size_max:
        return f"this proxy accepts bodies of at most {body_size_max} bytes, this one has {body_size}"
    return ""


def unheard_said(question: Question, unheard: Sequence[str]) -> str:
    """Why it cannot be answered before servers are there that may have the subscription."""
    away, topic = ", ".join(unheard), question.topic
    said = f"{question.server} has no such subscription to {topic}, and {away}, which may have it,"
    if question.done:
        said = f"the subscription to {topic} has ended at one server, but {away}, which may have it too,"
    return f"{said} is not available: try again, or remove that server from the list"


def unavailable_said(question: Question, silent_ns: int) -> str:
    """Why it is answered by the proxy: its server has answered nothing for so long, 0 where it answers others."""
    has = "may have" if question.is_beyond or question.home not in ("", question.server) else "has"
    who = f"{question.server}, which {has} the topic {question.topic},"
    if silent_ns:
        return f"{who} has not answered for {silent_ns / 1e9:.1f} s: try again"
    return f"{who} answers other requests, but not this one in time: try again"
