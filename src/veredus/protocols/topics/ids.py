"""The names that the topic service has in a node, and the ids of messages.

An id is a life of the stream, its incarnation at first, as far as it is shown, and a sequence, or the first and last
of many:

0123456789abcdef-7        0123456789abcdef-7..12
"""

from __future__ import annotations

import re
from typing import NamedTuple

from veredus.streams.lives import Lives

from .messages import StatusWord
from .words import NO_MESSAGE_ID

SUBSCRIPTION = "topics"
"""The name of the subscription of each client."""
SINK = "topics-merge/"
"""How the sink of a keeper begins; the life of the giver's stream follows."""
SHOWN_SIZE = 16
"""So many hexadecimal digits of an incarnation are shown."""
PAGE_MARK = b"page"
"""How what stands for the incarnation of a topic of a server from the page begins."""
_ID = re.compile(r"([0-9a-f]{16})-([0-9]{1,19})(?:\.\.([0-9]{1,19}))?", re.ASCII)


class MessageId(NamedTuple):
    """What an id says."""

    incarnation: str
    first: int
    last: int


def read_id(text: str) -> MessageId | None:
    """What this id says, None where it is none."""
    found = _ID.fullmatch(text)
    return None if found is None else MessageId(found[1], int(found[2]), int(found[3] or found[2]))


def is_of_page(shown: str) -> bool:
    """Whether an incarnation, in hexadecimal digits, stands for a topic of a server from the page."""
    return shown.startswith(PAGE_MARK.hex())


def shown_of(incarnation: bytes) -> str:
    """The incarnation or a life of a stream as ids show it."""
    return incarnation.hex()[:SHOWN_SIZE]


def gap_id(life: bytes, first: int, last: int) -> str:
    """What tells of messages that are gone, as the id of many messages would."""
    return f"{shown_of(life)}-{first}..{last}"


def unknown_id(message_id: str, topic: str, client: str, own: Lives) -> tuple[StatusWord, str]:
    """What a client is told of an id that no message of the stream with the lives `own` has.

    Another server may have given it, and is not merged.
    """
    said = f"{message_id} is not a message of {topic} that {client} received"
    named = read_id(message_id)
    if named is not None and named.incarnation.startswith(own.tag.hex()):
        cure = "if the server was put back to an earlier state, forget it (veredus topics forget)"
        return StatusWord.REFUSED, f"{said}: name the last one, or {NO_MESSAGE_ID} for none; {cure}"
    advice = (
        "retry until both are merged; or, if that server is lost for good, name -1 to get the messages of this server"
    )
    elsewhere = "from this server, but maybe from another server that also has the topic"
    return StatusWord.SERVER_UNAVAILABLE, f"{said} {elsewhere}: {advice}"
