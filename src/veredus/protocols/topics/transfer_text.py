"""The body of a TRANSFER: a line for each subscriber, then the messages: `*`, an id, a line end, a content, a line end.

`*` is written `/s` and `/` is written `//`, in ids too. The page says so of contents alone: where an id holds a `/`
that would not be written so, all ids are taken as they stand. An id in which each `/` could be written so may have been
meant either way: a client may name it in the form that stands there, and `other_form` is the one by which it is known.
Source: seed 000, section 3.1.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from veredus.kernel.errors import PeerFault

from .words import END_OF_LINE, NO_MESSAGE_ID, beginning, check_word, words_of_each

COUNT_MAX = 200_000
"""Of subscribers and messages in one body: to read more would hold everybody else up."""
_ESCAPED = re.compile(rb"(?:[^/]+|/[/s])*+")
"""Matches up to a `/` that nothing is written with."""
_MARK = b"/\0"


class Carried(NamedTuple):
    """What a body says: see `Transfer`."""

    subscribers: tuple[tuple[str, tuple[str, ...]], ...]
    messages: tuple[tuple[str, bytes], ...]
    beyond: bytes


def write_transfer(said: Carried) -> bytes:
    """The body that says this. Raises `Refused("bad-word")`."""
    pieces: list[bytes] = []
    for subscriber, ids in said.subscribers:
        check_word("id", subscriber)
        line = " ".join((subscriber, *ids)).encode()
        pieces += (_escaped(line), b" ", END_OF_LINE)
    for message_id, content in (*said.messages, *(((NO_MESSAGE_ID, said.beyond),) if said.beyond else ())):
        check_word("message id", message_id)
        pieces += (b"*", _escaped(message_id.encode()), END_OF_LINE, _escaped(content), END_OF_LINE)
    return b"".join(pieces)


def read_transfer(body: bytes) -> Carried:
    """What a body says. Raises `PeerFault("bad-message")`."""
    count = body.count(b"*") + body.count(END_OF_LINE, 0, body.find(b"*") if b"*" in body else len(body))
    if count > COUNT_MAX:
        said = f"a TRANSFER may have {COUNT_MAX} messages and lines of subscribers, and this one has {count}"
        raise PeerFault("bad-message", f"{said}: give the topic when its subscribers have received more of it")
    lines, *pieces = body.split(b"*")
    if body and not body.endswith(END_OF_LINE):
        raise PeerFault(
            "bad-message", f"a TRANSFER must end with a line end, and this one has none after {len(body)} bytes"
        )
    if lines and not lines.endswith(END_OF_LINE):
        last = beginning(lines.rpartition(END_OF_LINE)[2])
        raise PeerFault("bad-message", f"each subscriber of a TRANSFER is a line, and this one has no line end: {last}")
    parts = [piece.partition(END_OF_LINE) for piece in pieces]
    for piece, (_, separator, content) in zip(pieces, parts, strict=True):
        if not separator or not content.endswith(END_OF_LINE):
            raise PeerFault(
                "bad-message", f"a message of a TRANSFER is an id, a line and its content: {beginning(piece)}"
            )
    told = lines.split(END_OF_LINE)[:-1]
    words = words_of_each(_meant([*told, *(message_id for message_id, _, _ in parts)]))
    subscribers = tuple((line[0], tuple(line[1:])) for line in words[: len(told)])
    ids = words[len(told) :]
    for line in ids:
        if len(line) != 1:
            raise PeerFault("bad-message", f"* <MESSAGE_ID> has 1 fields, this one has {len(line)}")
    contents = [content[: -len(END_OF_LINE)] for _, _, content in parts]
    if b"/" in body:
        contents = [_content(content) if b"/" in content else content for content in contents]
    messages = [(line[0], content) for line, content in zip(ids, contents, strict=True)]
    beyond = messages.pop()[1] if messages and messages[-1][0] == NO_MESSAGE_ID else b""
    _check(subscribers, messages)
    return Carried(subscribers, tuple(messages), beyond)


def _check(subscribers: Sequence[tuple[str, tuple[str, ...]]], messages: Iterable[tuple[str, bytes]]) -> None:
    ids = [message_id for message_id, _ in messages]
    known = set(ids)
    if NO_MESSAGE_ID in known or len(known) < len(ids):
        raise PeerFault("bad-message", f"a message of a TRANSFER needs an id of its own other than {NO_MESSAGE_ID}")
    seen: set[str] = set()
    for subscriber, waiting in subscribers:
        if subscriber in seen:
            said = f"{subscriber} has two: write all messages that it has yet to receive in one"
            raise PeerFault("bad-message", f"a TRANSFER has one line for each subscriber, and {said}")
        seen.add(subscriber)
        if not known.issuperset(waiting):
            word = next(word for word in waiting if word not in known)
            said = f"{subscriber} still has to receive {word}, and that message is missing"
            raise PeerFault("bad-message", f"a TRANSFER must contain every message that it names: {said}")


def other_form(message_id: str) -> str:
    """What an id means if it was written like a content, "" where it cannot have been or means the same."""
    written = message_id.encode()
    return _original(written).decode() if b"/" in written and _wrong_at(written) is None else ""


def _meant(lines: list[bytes]) -> list[bytes]:
    """Lines of ids as they were before they were written, or as they stand if one of them was not written so."""
    together = b"\n".join(lines)
    if b"/" not in together or _wrong_at(together) is not None:
        return lines
    return [_original(line) for line in lines]


def _content(written: bytes) -> bytes:
    wrong_at = _wrong_at(written)
    if wrong_at is not None:
        said = beginning(written[wrong_at + 1 : wrong_at + 2])
        raise PeerFault("bad-message", f"in a TRANSFER, / must be followed by / or s, not by {said}")
    return _original(written)


def _wrong_at(written: bytes) -> int | None:
    """Where a `/` is that nothing is written with."""
    found = _ESCAPED.match(written)
    assert found is not None
    return None if found.end() == len(written) else found.end()


def _escaped(content: bytes) -> bytes:
    return content.replace(b"/", b"//").replace(b"*", b"/s")


def _original(written: bytes) -> bytes:
    # Each `/` begins a pair: when those of two are marked, what is left before an s is a *.
    return written.replace(b"//", _MARK).replace(b"/s", b"*").replace(_MARK, b"/")
