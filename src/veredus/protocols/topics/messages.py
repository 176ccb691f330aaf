"""The messages of the topic service, to the letter: words, an empty line, and a body for those that have one.

    NAME SP SENDER *(SP FIELD) CRLF CRLF [BODY]

Words are UTF-8 and hold neither a space nor a control character. A last word may be followed by one space, since the
page shows one there. Where it is silent, the program of its authors decides: the words of STATUS, and how a TRANSFER
sets lines apart. What a TRANSFER carries beyond the page goes behind its last message as one more, under the id that no
message ever has.
Source: seed 000, section 3.1; github.com/diogolhc/feup-m.eic-sdle-proj1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from veredus.kernel.errors import PeerFault
from veredus.kernel.names import U63_MAX
from veredus.kernel.octets import Octets

from .many import count_of
from .transfer_text import Carried, read_transfer, write_transfer
from .words import beginning, check_word, words_of

END_OF_HEADER = b"\r\n\r\n"
HEADER_SIZE_MAX = 2048
"""Four words of 255 characters fit, twice over."""
_SIZE_LEAST = 16 << 20
COUNTER_MAX = U63_MAX - 1
"""Counters begin with 0, and the numbers of a source with 1."""
UNDER_WAY = b"under way"
"""With what a server of ours says `OK` to MERGE: it serves the topic until the other one has it."""
REASON_SIZE_MAX = 1000
"""A peer may have written much of what is wrong with its message: so much of that is told."""


class StatusWord(StrEnum):
    """What became of a request. Those up to TRANSFER_TOPIC_ERROR are the authors' own, the others ours."""

    OK = "OK"
    ALREADY_SUBSCRIBED = "ALREADY_SUBSCRIBED"
    NOT_SUBSCRIBED = "NOT_SUBSCRIBED"
    SERVER_UNAVAILABLE = "SERVER_UNAVAILABLE"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    NO_MESSAGES = "NO_MESSAGES"
    PROXY_DOES_NOT_KNOW_ANY_SERVER = "PROXY_DOES_NOT_KNOW_ANY_SERVER"
    TRANSFER_TOPIC_ERROR = "TRANSFER_TOPIC_ERROR"
    BAD_MESSAGE = "BAD_MESSAGE"
    REFUSED = "REFUSED"


class Subscribe(NamedTuple):
    """A client asks to be subscribed. Source: section 3.1.1; `wish` is not on the page, and 0 where it is not said.

    It is a number that grows with each SUBSCRIBE or UNSUBSCRIBE of a client on a topic: a late copy of either is known
    by it. It goes in the body, which a server from the page passes over. `left` is the number of the client's last
    UNSUBSCRIBE, 0 for none: a subscription that a late copy from before that has made is not the one that it asks for.
    """

    sender: str
    topic: str
    wish: int = 0
    left: int = 0


class Unsubscribe(NamedTuple):
    """A client asks to be subscribed no longer. Source: section 3.1.2; `wish` as for `Subscribe`."""

    sender: str
    topic: str
    wish: int = 0


class Get(NamedTuple):
    """A client asks for the message behind `last_id`, the one it got last. Source: section 3.1.3."""

    sender: str
    topic: str
    last_id: str


class Put(NamedTuple):
    """A client publishes; `counter` is the same only where it tries again. Source: section 3.1.4."""

    sender: str
    topic: str
    counter: int
    body: bytes


class PutMany(NamedTuple):
    """A client publishes what `many.pack` made of several bodies, the first under `counter`, each behind it one higher.

    Not on the page.
    """

    sender: str
    topic: str
    counter: int
    body: bytes


class GetMany(NamedTuple):
    """A client asks for up to `count_max` messages behind `last_id`, at least one. Not on the page."""

    sender: str
    topic: str
    last_id: str
    count_max: int


class Periodic(NamedTuple):
    """A server says which topics are its own. Source: section 3.1.5."""

    sender: str
    topics: tuple[str, ...]


class Merge(NamedTuple):
    """A proxy asks a server to give a topic to the server at the address `other`. Source: section 3.1.6."""

    sender: str
    topic: str
    other: str


class Transfer(NamedTuple):
    """A server gives what it has of a topic to another. Source: section 3.1.7."""

    sender: str
    topic: str
    subscribers: tuple[tuple[str, tuple[str, ...]], ...]
    """Who is subscribed, with the ids of the messages that each has yet to receive."""
    messages: tuple[tuple[str, bytes], ...]
    """By id."""
    beyond: bytes = b""
    """What the page has no place for."""


class Status(NamedTuple):
    """The answer to any of the others; `message_id` goes with the body that a GET gets. Source: section 3.1.8.

    Beyond the page, a PUT whose counter is not above the last one is REFUSED with that one in the place of the id, the
    body of what GET_MANY gets is `many.pack_numbered`, and an `OK` to MERGE has the body `UNDER_WAY`.
    """

    sender: str
    status: str
    message_id: str = ""
    body: bytes = b""


Message: TypeAlias = Subscribe | Unsubscribe | Get | Put | Periodic | Merge | Transfer | Status | PutMany | GetMany


def message_size_max(body_size_max: int) -> int:
    """The largest message that is read at all: so large that what is too large for its kind can be told so.

    It holds the body of a put, a part of a TRANSFER, each byte of which may be escaped, and the names of many topics.
    """
    return HEADER_SIZE_MAX + max(_SIZE_LEAST, 4 * body_size_max)


_NAMES: dict[type, str] = {
    Subscribe: "SUBSCRIBE",
    Unsubscribe: "UNSUBSCRIBE",
    Get: "GET",
    Put: "PUT",
    Periodic: "PERIODIC",
    Merge: "MERGE",
    Transfer: "TRANSFER",
    Status: "STATUS",
    PutMany: "PUT_MANY",
    GetMany: "GET_MANY",
}


def status_of(data: bytes) -> Status | None:
    """An answer, None where it is none."""
    try:
        header = decode_header(data)
        answer = decode_body(header, data) if header.name == "STATUS" else None
    except PeerFault:
        return None
    return answer if isinstance(answer, Status) else None


def is_answer(data: Octets) -> bool:
    """Whether this is a STATUS, whatever its words say."""
    try:
        header = decode_header(data)
    except PeerFault:
        return False
    return header.name == "STATUS" and len(header.words) in (2, 3)


def why_not_for(what: str, takes: Sequence[str], others: str, name: str) -> str:
    """What a proxy or server (`what`) says of a message that is none of those that it `takes`, but for `others`."""
    if name == "STATUS":
        return "STATUS is an answer, but there was no request"
    return f"{what} accepts {', '.join(takes[:-1])} and {takes[-1]}; {name} is for {others}"


def reason_of(status: Status) -> str:
    """What an error says, of which a peer may have written much."""
    return status.body[:REASON_SIZE_MAX].decode(errors="backslashreplace")


def status_word_of(data: bytes) -> str:
    """The word of an answer, "" where it is none."""
    answer = status_of(data)
    return "" if answer is None else answer.status


def says_given(data: bytes) -> bool:
    """Whether an answer to MERGE says that it is done: a server of ours says that it is under way."""
    answer = status_of(data)
    return answer is not None and answer.status == StatusWord.OK and answer.body != UNDER_WAY


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_message(message: Message) -> bytes:
    """A message's bytes. Raises `Refused("bad-word")` where something in it cannot be said in a header."""
    fields, body = _PARTS[type(message)](message)
    for kind, word in fields:
        check_word(kind, word)
    return b"".join((" ".join((_NAMES[type(message)], *(word for _, word in fields))).encode(), END_OF_HEADER, body))


_Parts: TypeAlias = tuple[Sequence[tuple[str, str]], bytes]


def _parts_of_subscribe(m: Subscribe) -> _Parts:
    left = b" %d" % m.left if m.wish and m.left else b""
    return (("id", m.sender), ("topic", m.topic)), _wish_said(m.wish) + left


def _parts_of_unsubscribe(m: Unsubscribe) -> _Parts:
    return (("id", m.sender), ("topic", m.topic)), _wish_said(m.wish)


def _wish_said(wish: int) -> bytes:
    return b"%d" % wish if wish else b""


def _parts_of_get(m: Get) -> _Parts:
    return (("id", m.sender), ("topic", m.topic), ("message id", m.last_id)), b""


def _parts_of_put(m: Put) -> _Parts:
    return (("id", m.sender), ("topic", m.topic), ("counter", str(m.counter))), m.body


def _parts_of_put_many(m: PutMany) -> _Parts:
    return (("id", m.sender), ("topic", m.topic), ("counter", str(m.counter))), m.body


def _parts_of_get_many(m: GetMany) -> _Parts:
    fields = (("id", m.sender), ("topic", m.topic), ("message id", m.last_id), ("count", str(m.count_max)))
    return fields, b""


def _parts_of_periodic(m: Periodic) -> _Parts:
    body = " ".join(m.topics)
    if not body.isprintable() or "" in m.topics or body.count(" ") != len(m.topics) - 1:
        for topic in m.topics:
            check_word("topic", topic)
    return (("id", m.sender),), body.encode()


def _parts_of_merge(m: Merge) -> _Parts:
    return (("id", m.sender), ("topic", m.topic), ("address", m.other)), b""


def _parts_of_transfer(m: Transfer) -> _Parts:
    return (("id", m.sender), ("topic", m.topic)), write_transfer(Carried(m.subscribers, m.messages, m.beyond))


def _parts_of_status(m: Status) -> _Parts:
    fields = [("id", m.sender), ("status", m.status)]
    return fields + ([("message id", m.message_id)] if m.message_id else []), m.body


_PARTS: dict[type, Callable[..., _Parts]] = {
    Subscribe: _parts_of_subscribe,
    Unsubscribe: _parts_of_unsubscribe,
    Get: _parts_of_get,
    Put: _parts_of_put,
    Periodic: _parts_of_periodic,
    Merge: _parts_of_merge,
    Transfer: _parts_of_transfer,
    Status: _parts_of_status,
    PutMany: _parts_of_put_many,
    GetMany: _parts_of_get_many,
}


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Header(NamedTuple):
    """What a message says before its body: enough to refuse it, whatever the size of the rest."""

    name: str
    words: Sequence[str]
    """The sender and the fields, of any number."""
    size: int
    """Up to and with the empty line."""

    def word(self, at: int) -> str:
        """The word at this place, the sender's id at 0 and the topic at 1; "" where it is missing."""
        return self.words[at] if at < len(self.words) else ""


def decode_header(data: Octets) -> Header:
    """The header of these bytes. Raises `PeerFault("bad-message")` where they begin no message that is known."""
    head = bytes(data[: HEADER_SIZE_MAX + len(END_OF_HEADER)])
    end = head.find(END_OF_HEADER)
    if end < 0:
        said = f"an empty line ends a header, and there is none in the first {min(len(head), HEADER_SIZE_MAX)} bytes"
        raise PeerFault("bad-message", f"{said} ({beginning(head)})")
    name, *words = words_of(head[:end])
    if name not in _READERS:
        raise PeerFault("bad-message", f"unknown message {beginning(name.encode())}; known: {', '.join(_READERS)}")
    return Header(name, words, end + len(END_OF_HEADER))


def decode_body(header: Header, data: Octets) -> Message:
    """The message that these bytes are, which begin with `header`. Raises `PeerFault("bad-message")`.

    A body of 16 MiB may take seconds: whoever can refuse its header does so first.
    """
    return _READERS[header.name](header.words, bytes(data[header.size :]))


def decode_message(data: Octets) -> Message:
    """The message that these bytes are. Raises `PeerFault("bad-message")` that says what is wrong with them."""
    return decode_body(decode_header(data), data)


def _fields(name: str, words: Sequence[str], kinds: Sequence[str], body: bytes | None = None) -> Sequence[str]:
    """The words, if there is one of each kind; and no body where `body` is given."""
    if len(words) != len(kinds):
        form = " ".join((name, *(f"<{kind.upper().replace(' ', '_')}>" for kind in kinds)))
        raise PeerFault("bad-message", f"{form} has {len(kinds)} fields, this one has {len(words)}")
    if body:
        raise PeerFault("bad-message", f"{name} has no body, this one has {len(body)} bytes")
    return words


def _read_subscribe(words: Sequence[str], body: bytes) -> Message:
    sender, topic = _fields("SUBSCRIBE", words, ("sender id", "topic"))
    return Subscribe(sender, topic, *map(_read_wish, body.split(b" ", 1) if body else ()))


def _read_unsubscribe(words: Sequence[str], body: bytes) -> Message:
    sender, topic = _fields("UNSUBSCRIBE", words, ("sender id", "topic"))
    return Unsubscribe(sender, topic, _read_wish(body) if body else 0)


def _read_wish(digits: bytes) -> int:
    # What is longer is no number either, and need not be read.
    return _number("wish", digits[:REASON_SIZE_MAX].decode(errors="replace"), U63_MAX)


def _read_get(words: Sequence[str], body: bytes) -> Message:
    return Get(*_fields("GET", words, ("sender id", "topic", "last message id"), body))


def _read_put(words: Sequence[str], body: bytes) -> Message:
    sender, topic, counter = _fields("PUT", words, ("sender id", "topic", "counter"))
    return Put(sender, topic, _number("counter", counter, COUNTER_MAX, 0), body)


def _read_put_many(words: Sequence[str], body: bytes) -> Message:
    sender, topic, counter = _fields("PUT_MANY", words, ("sender id", "topic", "counter"))
    most = COUNTER_MAX + 1 - count_of(body)
    return PutMany(sender, topic, _number("counter", counter, most, 0), body)


def _read_get_many(words: Sequence[str], body: bytes) -> Message:
    kinds = ("sender id", "topic", "last message id", "count")
    sender, topic, last_id, count = _fields("GET_MANY", words, kinds, body)
    return GetMany(sender, topic, last_id, _number("count", count, U63_MAX))


def _number(kind: str, digits: str, most: int, least: int = 1) -> int:
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(most))
    if not is_number or not least <= int(digits) <= most:
        raise PeerFault("bad-message", f"a {kind} must be a whole number from {least} to {most}, not {digits!r}")
    return int(digits)


def _read_periodic(words: Sequence[str], body: bytes) -> Message:
    (sender,) = _fields("PERIODIC", words, ("sender id",))
    return Periodic(sender, tuple(words_of(body)) if body else ())


def _read_merge(words: Sequence[str], body: bytes) -> Message:
    return Merge(*_fields("MERGE", words, ("sender id", "topic", "other server address"), body))


def _read_transfer(words: Sequence[str], body: bytes) -> Message:
    sender, topic = _fields("TRANSFER", words, ("sender id", "topic"))
    return Transfer(sender, topic, *read_transfer(body))


def _read_status(words: Sequence[str], body: bytes) -> Message:
    if len(words) == 3:
        sender, status, message_id = words
        return Status(sender, status, message_id, body)
    sender, status = _fields("STATUS", words, ("id", "status"))
    return Status(sender, status, "", body)


_READERS: dict[str, Callable[[Sequence[str], bytes], Message]] = {
    "SUBSCRIBE": _read_subscribe,
    "UNSUBSCRIBE": _read_unsubscribe,
    "GET": _read_get,
    "PUT": _read_put,
    "PERIODIC": _read_periodic,
    "MERGE": _read_merge,
    "TRANSFER": _read_transfer,
    "STATUS": _read_status,
    "PUT_MANY": _read_put_many,
    "GET_MANY": _read_get_many,
}
