"""Members that speak the topic service's page, by sockets of REQ with the handshake by hand: they ask the proxy.

    ask ──► answer          asked again on a new socket where none comes in time, as often as it takes

A source keeps the counter of a put in a file before it asks: a new life puts the same again, which is that put. A
subscriber keeps the id of what it was given last, with what it may have had before it was killed, and names it in its
next GET. In the recordings a put is a publication whose number is its counter and one more, as in the topic's stream.
Source: seed 000, sections 2 to 5; docs/reference/wire/topics.md.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from veredus.recording import Recording
from veredus.sim import topics_page_codec as page
from veredus.sim.topics_page_codec import Said

from .content import body_of, identity_in
from .layout import Layout
from .plan import Member
from .zmtp_by_hand import Framed, Lost, Stream

ANSWER_S = 0.5
AGAIN_S = 0.1
NONE_S = 0.05
_LATER = (page.UNAVAILABLE, page.NO_SERVER, "INTERNAL_ERROR")
"""What ends by itself: the server or the proxy is away, or a disk is full."""
_GAP = re.compile(rb"messages (\d+) to (\d+) of \S+ are no longer available \((\w+)\)")
_KEPT_SIZE = 96


class Asking:
    """Owns a client's socket: one question at a time."""

    def __init__(self, address: str) -> None:
        """To ask the proxy at `address`; connects when it is first asked."""
        self._address = address
        self._stream: Stream | None = None
        self._framed: Framed | None = None

    def ask(self, octets: bytes) -> Said:
        """The answer, asked for until one comes."""
        while True:
            try:
                return page.heard(self._answer_to(octets))
            except (OSError, Lost):
                self.close()
                time.sleep(AGAIN_S)

    def _answer_to(self, octets: bytes) -> bytes:
        if self._framed is None:
            self._stream = Stream(self._address)
            self._framed = Framed(self._stream, b"REQ")
        self._framed.say((b"", octets))
        frames: list[bytes] = []
        until = time.monotonic() + ANSWER_S
        while len(frames) < 2:
            if time.monotonic() > until:
                raise Lost("no answer came in time")
            frames += self._framed.hear(until - time.monotonic() + 0.01)
        delimiter, answer = frames
        if delimiter:
            raise ValueError(f"the answer begins with {delimiter[:60]!r}, and not with an empty frame")
        return answer

    def close(self) -> None:
        """Hang up; what is asked next goes by a new socket."""
        if self._stream is not None:
            self._stream.close()
        self._stream = self._framed = None


class _Kept:
    """A few words in a file, which outlive their process."""

    def __init__(self, path: Path, *words: str) -> None:
        """What is kept there, or else these words."""
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.words = os.pread(self._file, _KEPT_SIZE, 0).decode().split() or list(words)

    def keep(self, *words: str) -> None:
        """Instead of those before: whoever is killed leaves the one or the other."""
        self.words = list(words)
        os.pwrite(self._file, " ".join(words).encode().ljust(_KEPT_SIZE), 0)


def run_topic_source(layout: Layout, member: Member, address: str, recording: Recording) -> None:
    """Put one message after the other until no more is wanted; each is asked for until it is there."""
    kept = _Kept(layout.known_by(member.name), "0")
    asking = Asking(address)
    counter = int(kept.words[0])
    while not layout.no_more.exists():
        kept.keep(str(counter))
        number = counter + 1
        body = body_of(member.name, number)
        recording.offered(member.stream, member.name, number, [b""], [body])
        _insist(asking, page.put(member.name, member.stream, counter, body), page.OK)
        recording.acknowledged(member.stream, member.name, number, number)
        counter += 1
        time.sleep(member.pause_ms / 1_000)
    asking.close()


def run_topic_subscriber(layout: Layout, member: Member, address: str, recording: Recording) -> None:
    """Get one message after the other, until there is none though nobody puts any more."""
    kept = _Kept(layout.known_by(member.name), page.NOTHING_GOT, "0")
    redelivered_to = int(kept.words[1])
    asking = Asking(address)
    _insist(asking, page.subscribe(member.name, member.stream), page.OK, page.ALREADY)
    layout.attached_as(member.name, os.getpid()).touch()
    while True:
        is_last = layout.all_done.exists()
        last_id = kept.words[0]
        said = asking.ask(page.get(member.name, member.stream, last_id))
        if said.status == page.OK:
            sequence = sequence_of(said.message_id)
            kept.keep(last_id, str(sequence))
            source, number = identity_in(said.body)
            recording.pushed(
                member.stream,
                member.name,
                [sequence],
                [source],
                [number],
                keys=[b""],
                bodies=[said.body],
                redelivered=sequence <= redelivered_to,
            )
            kept.keep(said.message_id, str(sequence))
            recording.settled(member.stream, member.name, sequence, sequence)
        elif said.status == page.NONE:
            if is_last:
                break
            time.sleep(NONE_S)
        else:
            _pass_over(member, said, recording)
        if not layout.no_more.exists():
            time.sleep(member.pause_ms / 1_000)
    asking.close()


def sequence_of(message_id: str) -> int:
    """Where a message lies in the topic's stream: only the recordings need to know that."""
    return int(message_id.rpartition("-")[2])


def _pass_over(member: Member, said: Said, recording: Recording) -> None:
    """Note what a GET says is gone; the next one asks for what follows."""
    gap = _GAP.match(said.body)
    if gap is not None:
        recording.gap(member.stream, member.name, int(gap[1]), int(gap[2]), gap[3].decode())
    elif said.status in _LATER:
        time.sleep(AGAIN_S)
    else:
        raise ValueError(f"{member.name} was told {said.status}: {said.body.decode()}")


def _insist(asking: Asking, octets: bytes, *wanted: str) -> None:
    """Ask until the answer is one of these."""
    while (said := asking.ask(octets)).status not in wanted:
        if said.status not in _LATER:
            raise ValueError(f"{octets[:60]!r} was answered {said.status}: {said.body.decode()}")
        time.sleep(AGAIN_S)
