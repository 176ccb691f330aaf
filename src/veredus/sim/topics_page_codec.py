"""The messages of topics, written from the page alone: this shares nothing with the codec of our proxies and servers.

A reading of the page that both sides shared would agree with itself, however wrong. So this one is made another way:
one shape for all messages, words by position, and a TRANSFER's body read octet after octet.

    Said("PUT", ("bob", "prices", "7"), b"EWR 12.5")   is   PUT bob prices 7 CR LF CR LF EWR 12.5

Source: seed 000, section 3.1. Where the page is silent (the words of STATUS, where a TRANSFER's lines end) its authors'
program decides: github.com/diogolhc/feup-m.eic-sdle-proj1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

NOTHING_GOT = "-1"
"""The last message id of a client that never got anything (3.1.3)."""
OK, ALREADY, NOT_SUBSCRIBED, NONE = "OK", "ALREADY_SUBSCRIBED", "NOT_SUBSCRIBED", "NO_MESSAGES"
UNAVAILABLE, NO_SERVER = "SERVER_UNAVAILABLE", "PROXY_DOES_NOT_KNOW_ANY_SERVER"
TRANSFER_ERROR = "TRANSFER_TOPIC_ERROR"
_LINE = b"\r\n"
_WORDS = {"SUBSCRIBE": 2, "UNSUBSCRIBE": 2, "GET": 3, "PUT": 3, "PERIODIC": 1, "MERGE": 3, "TRANSFER": 2}
"""How many words stand behind each name; STATUS has two, or three."""


class Said(NamedTuple):
    """A message: its name, the words of its header behind that in order, and the octets of its body."""

    name: str
    words: tuple[str, ...]
    body: bytes = b""

    @property
    def octets(self) -> bytes:
        """Header CRLF CRLF [body]."""
        return b"%b\r\n\r\n%b" % (" ".join([self.name, *self.words]).encode(), self.body)

    @property
    def sender(self) -> str:
        """Who says it; the client's own name, also where a proxy passes it on."""
        return self.words[0]

    @property
    def topic(self) -> str:
        """The topic; of a STATUS, its word."""
        return self.words[1]

    @property
    def status(self) -> str:
        """The word of a STATUS."""
        return self.words[1]

    @property
    def message_id(self) -> str:
        """The id that a STATUS has, or which a GET says was got last; "" where there is none."""
        return self.words[2] if len(self.words) > 2 else ""


def heard(octets: bytes) -> Said:
    """The message that these octets are. Raises `ValueError` for what is none."""
    end = octets.find(_LINE + _LINE)
    if end < 0:
        raise ValueError(f"no empty line ends the header of {octets[:60]!r}")
    name, *words = octets[:end].decode().split(" ")
    if words and words[-1] == "":
        # The page shows a blank at the end of a header.
        del words[-1]
    counts = (2, 3) if name == "STATUS" else (_WORDS.get(name, -1),)
    if len(words) not in counts or "" in words:
        raise ValueError(f"the page has no message {octets[:end]!r}")
    return Said(name, tuple(words), octets[end + 4 :])


# ── a client's (3.1.1 to 3.1.4) ──────────────────────────────────────────────────────────────────────────────────────


def subscribe(client: str, topic: str) -> bytes:
    """SUBSCRIBE <SENDER_ID> <TOPIC>."""
    return Said("SUBSCRIBE", (client, topic)).octets


def unsubscribe(client: str, topic: str) -> bytes:
    """UNSUBSCRIBE <SENDER_ID> <TOPIC>."""
    return Said("UNSUBSCRIBE", (client, topic)).octets


def get(client: str, topic: str, last_id: str = NOTHING_GOT) -> bytes:
    """GET <SENDER_ID> <TOPIC> <LAST_MESSAGE_ID>."""
    return Said("GET", (client, topic, last_id)).octets


def put(client: str, topic: str, counter: int, message: bytes) -> bytes:
    """PUT <SENDER_ID> <TOPIC> <COUNTER>, and the message."""
    return Said("PUT", (client, topic, str(counter)), message).octets


# ── a proxy's and a server's (3.1.5 to 3.1.8) ────────────────────────────────────────────────────────────────────────


def periodic(server: str, topics: Sequence[str]) -> bytes:
    """PERIODIC <SENDER_ID>, and all topics of the server."""
    return Said("PERIODIC", (server,), " ".join(topics).encode()).octets


def merge(proxy: str, topic: str, other: str) -> bytes:
    """MERGE <SENDER_ID> <TOPIC> <OTHER_SERVER_ADDRESS>."""
    return Said("MERGE", (proxy, topic, other)).octets


def transfer(server: str, topic: str, waiting: Mapping[str, Sequence[str]], messages: Mapping[str, bytes]) -> bytes:
    """TRANSFER <SENDER_ID> <TOPIC>: who is subscribed, with the ids that each has yet to receive; messages by id."""
    lines = [b"%b\r\n" % " ".join([who, *ids]).encode() for who, ids in waiting.items()]
    told = [b"*%b\r\n%b\r\n" % (message_id.encode(), _hidden(content)) for message_id, content in messages.items()]
    return Said("TRANSFER", (server, topic), b"".join([*lines, *told])).octets


def status(who: str, word: str, message_id: str = "", message: bytes = b"") -> bytes:
    """STATUS <ID> <STATUS> [MESSAGE_ID], and the message that a GET gets."""
    words = (who, word, message_id) if message_id else (who, word)
    return Said("STATUS", words, message).octets


def topics_in(body: bytes) -> list[str]:
    """The topics in the body of a PERIODIC."""
    return body.decode().split()


def topic_data_in(body: bytes) -> tuple[dict[str, list[str]], dict[str, bytes]]:
    """The subscribers in the body of a TRANSFER, each with what it has yet to receive, and the messages by id.

    Raises `ValueError` for a body that is none.
    """
    first, *pieces = list(_pieces(body))
    waiting = {who: ids for who, *ids in (line.decode().split() for line in first.split(_LINE) if line)}
    messages: dict[str, bytes] = {}
    for piece in pieces:
        word, line, content = piece.partition(_LINE)
        if not line or not content.endswith(_LINE):
            raise ValueError(f"a message of a TRANSFER is an id, a line and its content: {piece[:60]!r}")
        messages[word.decode()] = content[:-2]
    return waiting, messages


def _hidden(content: bytes) -> bytes:
    return b"".join({0x2A: b"/s", 0x2F: b"//"}.get(octet, bytes([octet])) for octet in content)


def _pieces(body: bytes) -> Iterator[bytes]:
    """What stands between the asterisks, with what was hidden shown again."""
    piece, octets = bytearray(), iter(body)
    for octet in octets:
        if octet == 0x2A:
            yield bytes(piece)
            piece.clear()
        elif octet == 0x2F:
            shown = {0x73: 0x2A, 0x2F: 0x2F}.get(next(octets, -1))
            if shown is None:
                raise ValueError("in a TRANSFER a stroke is followed by another one, or by s")
            piece.append(shown)
        else:
            piece.append(octet)
    yield bytes(piece)
