"""Members that speak ZEPS 1 as its page has it, by raw sockets: over TCP, or over ZeroMQ with its handshake by hand.

A source has no name for the node. Each attachment goes by a name of its own in the recordings, so that what is known of
an anonymous source can be asked of it: its publications are in order, each at most once, and what PING-OK or DETACH-OK
followed is there. What a lost attachment had published behind that is in doubt, and nobody publishes it again.

A subscriber has no cursor at the node. It keeps what it has done with in a file, and names that as `latest`.
Source: docs/reference/wire/zeps-1.md.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections import deque
from pathlib import Path
from random import Random

from veredus.recording import Recording
from veredus.sim import page_codec as page
from veredus.sim.page_codec import Ear, Word

from .content import body_of, identity_in, key_of
from .layout import Layout
from .plan import Member
from .zmtp_by_hand import ANSWER_S, Framed, Lost, Stream

AGAIN_S = 0.1
CREDIT = 256 << 10
UNCONFIRMED_MAX = 500
"""So many publications may be behind the last PING-OK before a source waits."""
_GAP = re.compile(r"gap: sequences (\d+) to (\d+) are not available: (\w+)")
_STATE = struct.Struct(">QQ")


class Wire:
    """Owns a connection and what was heard of it: commands go out whole, words come in."""

    def __init__(self, address: str) -> None:
        """Connect to `scheme://host:port`; over ZeroMQ where the scheme is `tcp`. Raises `Lost` and `OSError`."""
        self._stream = Stream(address)
        self._framed = Framed(self._stream, b"DEALER") if address.startswith("tcp:") else None
        self._ear = Ear()
        self._words: deque[Word] = deque()

    def say(self, *commands: bytes) -> None:
        """Send commands: one behind the other, or each in a message."""
        if self._framed is None:
            self._stream.say(b"".join(commands))
        else:
            self._framed.say(*((command,) for command in commands))

    def hear(self, timeout_s: float) -> list[Word]:
        """What has come, after at most so long. PINGs are answered. Raises `Lost` for an end, and `OSError`."""
        timeout_s = 0.0 if self._words else timeout_s
        octets = self._stream.hear(timeout_s) if self._framed is None else b"".join(self._framed.hear(timeout_s))
        words = [*self._words, *self._ear.hear(octets)]
        self._words.clear()
        if any(word.name == "ping" for word in words):
            self.say(page.PING_OK)
        return [word for word in words if word.name != "ping"]

    def wait_for(self, name: str) -> list[Word]:
        """Hear until such a word has come; what came before it. Raises `Lost` where it does not come in time."""
        before: list[Word] = []
        until = time.monotonic() + ANSWER_S
        while time.monotonic() < until:
            words = self.hear(0.2)
            for place, word in enumerate(words):
                if word.name == name:
                    self._words.extend(words[place + 1 :])
                    return before
                if word.name in ("invalid", "detach"):
                    raise _lost(word)
                before.append(word)
        raise Lost(f"no {name} came in time")

    def close(self) -> None:
        """Hang up."""
        self._stream.close()


def _lost(word: Word) -> Lost:
    octets = word.fields[0] if word.fields else b""
    return Lost(page.reason_of(octets) if isinstance(octets, bytes) else word.name)


# ── a source ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def run_page_source(layout: Layout, member: Member, address: str, recording: Recording) -> None:
    """Publish by one attachment after the other until no more is wanted."""
    life = 0
    while not layout.no_more.exists():
        life += 1
        try:
            wire = Wire(address)
        except (OSError, Lost):
            time.sleep(AGAIN_S)
            continue
        try:
            _Publishing(layout, member, wire, recording, f"{member.name}.{os.getpid()}.{life}").run()
        except (OSError, Lost):
            time.sleep(AGAIN_S)
        finally:
            wire.close()


class _Publishing:
    """One attachment of a source: what was published, and up to where it is confirmed."""

    def __init__(self, layout: Layout, member: Member, wire: Wire, recording: Recording, who: str) -> None:
        self._layout = layout
        self._member = member
        self._wire = wire
        self._recording = recording
        self._who = who
        self._number = self._confirmed = 0
        self._pinged: deque[int] = deque()
        self._dice = Random()

    def run(self) -> None:
        wire = self._wire
        wire.say(page.attach(self._member.stream))
        wire.wait_for("attach_ok")
        while not self._layout.no_more.exists():
            self._publish(self._dice.randint(1, self._member.burst_max))
            self._take(wire.hear(0.0))
            until = time.monotonic() + ANSWER_S
            while self._number - self._confirmed > UNCONFIRMED_MAX:
                if time.monotonic() > until:
                    raise Lost("no PING-OK came in time")
                self._take(wire.hear(0.1))
            time.sleep(self._member.pause_ms / 1_000)
        wire.say(page.DETACH)
        self._take(wire.wait_for("detach_ok"))
        self._confirm(self._number)

    def _publish(self, count: int) -> None:
        numbers = range(self._number + 1, self._number + count + 1)
        keys = [key_of(self._who, number) for number in numbers]
        bodies = [body_of(self._who, number) for number in numbers]
        self._recording.offered(self._member.stream, self._who, numbers[0], keys, bodies)
        self._number = numbers[-1]
        self._pinged.append(self._number)
        self._wire.say(*(page.publish(key, body) for key, body in zip(keys, bodies, strict=True)), page.PING)

    def _take(self, words: list[Word]) -> None:
        for word in words:
            if word.name != "ping_ok":
                raise _lost(word)
            self._confirm(self._pinged.popleft())

    def _confirm(self, number: int) -> None:
        if number > self._confirmed:
            self._recording.acknowledged(self._member.stream, self._who, self._confirmed + 1, number)
            self._confirmed = number


# ── a subscriber ─────────────────────────────────────────────────────────────────────────────────────────────────────


def run_page_subscriber(layout: Layout, member: Member, address: str, recording: Recording) -> None:
    """Take what comes by one attachment after the other, until all of the stream was had."""
    known = _Known(layout.known_by(member.name))
    while not _has_all(layout, member, known):
        try:
            wire = Wire(address)
        except (OSError, Lost):
            time.sleep(AGAIN_S)
            continue
        try:
            _follow(layout, member, wire, recording, known)
        except (OSError, Lost) as error:
            gap = _GAP.match(str(error))
            if gap is not None:
                first, last = int(gap[1]), int(gap[2])
                recording.gap(member.stream, member.name, first, last, gap[3])
                known.settle(last)
            time.sleep(AGAIN_S)
        finally:
            wire.close()


class _Known:
    """What a subscriber has done with, and what it may have had, in a file that outlives it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        state = os.pread(self._file, _STATE.size, 0)
        self.latest, self.begun = _STATE.unpack(state) if len(state) == _STATE.size else (0, 0)
        self.redelivered_to = self.begun

    def begin(self, sequence: int) -> None:
        """What lies up to here is about to be written down."""
        self.begun = max(self.begun, sequence)
        self._keep()

    def settle(self, sequence: int) -> None:
        """What lies up to here is done with."""
        self.latest = max(self.latest, sequence)
        self._keep()

    def _keep(self) -> None:
        os.pwrite(self._file, _STATE.pack(self.latest, self.begun), 0)


def _has_all(layout: Layout, member: Member, known: _Known) -> bool:
    return layout.all_done.exists() and known.latest >= layout.heads.get(member.stream, 0)


def _follow(layout: Layout, member: Member, wire: Wire, recording: Recording, known: _Known) -> None:
    wire.say(page.attach(member.stream), page.subscribe(b"", known.latest), page.credit(CREDIT))
    wire.wait_for("attach_ok")
    wire.wait_for("subscribe_ok")
    while not _has_all(layout, member, known):
        words = wire.hear(0.2)
        delivers = [word for word in words if word.name == "deliver"]
        if delivers:
            _write_down(member, recording, known, delivers)
            sizes = (page.size_of_deliver(bytes(w.fields[1]), bytes(w.fields[2])) for w in delivers)
            wire.say(page.credit(sum(sizes)))
        for word in words:
            if word.name != "deliver":
                raise _lost(word)
        if not layout.no_more.exists():
            time.sleep(member.pause_ms / 1_000)


def _write_down(member: Member, recording: Recording, known: _Known, delivers: list[Word]) -> None:
    rows = [(int(sequence), bytes(key), bytes(body)) for sequence, key, body in (w.fields for w in delivers)]
    identities = [identity_in(body) for _, _, body in rows]
    first, last = known.latest + 1, rows[-1][0]
    known.begin(last)
    recording.pushed(
        member.stream,
        member.name,
        [sequence for sequence, _, _ in rows],
        [source for source, _ in identities],
        [number for _, number in identities],
        keys=[key for _, key, _ in rows],
        bodies=[body for _, _, body in rows],
        redelivered=[sequence <= known.redelivered_to for sequence, _, _ in rows],
    )
    known.settle(last)
    recording.settled(member.stream, member.name, first, last)
