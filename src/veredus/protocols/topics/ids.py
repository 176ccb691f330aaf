"""The names that the topic service has in a node, and the ids of messages.

An id is the stream's incarnation, as far as it is shown, and a sequence, or the first and last of many:

0123456789abcdef-7        0123456789abcdef-7..12
"""

from __future__ import annotations

import re
from typing import NamedTuple

SUBSCRIPTION = "topics"
"""The name of the subscription of each client."""
GIVEN = "topics-given"
"""The name of the keeper's subscription that marks a topic as given to it."""
SINK = "topics-merge/"
"""How the sink of a keeper begins; the giver's incarnation follows."""
SHOWN_SIZE = 16
"""So many hexadecimal digits of an incarnation are shown."""
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


def shown_of(incarnation: bytes) -> str:
    """The incarnation of a stream as ids show it."""
    return incarnation.hex()[:SHOWN_SIZE]
