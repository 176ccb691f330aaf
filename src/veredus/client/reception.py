"""Receiving a stream by multicast: what is published live comes in datagrams, all else from the node's journal.

    LIVE ── a hole, another life of the stream, silence ──► ASKING ── something is missing ──► MENDING
      ◄──────────── nothing is missing, or no answer ─────────┘                                   │
      ◄───────────────────────── all before the node's head is here ──────────────────────────────┘

LIVE     Messages come out of datagrams, as long as each is the one that is expected.
ASKING   The node is asked what there is, and for a subscription: across calls, where their time is over before.
MENDING  A subscription brings what is missing. Datagrams wait in the socket meanwhile; what has no room there is
         missing later, and is mended again.

Anybody may send to a group, so only the node's word counts for what there is: a datagram that says more, or speaks of
another life, makes the node be asked; where the node refutes it, not again for a while. So does silence, since a
network may carry no datagram at all.

Invariants
    (1) Sequences grow, and each is handed out once; they fall only behind a gap of the code `lost`.
    (2) No sequence is passed over but one that the keys leave out, or that was told as a gap.
    (3) What a signal's handler raises changes nothing of that: what has come, and up to where, is assigned at once,
        without a call between, as in veredus.client.feed.
Source: seed 004, "Multicast Output"; docs/reference/wire/zeps-1-multicast.md ("How to receive").
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from math import ceil, inf
from select import POLLIN, poll
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from veredus.kernel.addresses import split_address
from veredus.kernel.errors import Misuse, PeerFault, Refused, Unavailable, VeredusError
from veredus.kernel.terms import Terms
from veredus.matching.wanted import Filter
from veredus.protocols.zeps.ahead import check_not_ahead
from veredus.protocols.zeps.datagrams import Datagram, decode_datagram
from veredus.streams.exchange import Start, StartKind

from .arguments import check_seconds, check_whole
from .ends import Opened, Subscription
from .other_library import Blocking
from .publication import Batch
from .wanting import Gap, GapPolicy, Wanted

SILENCE_S = 3.0
LISTEN_S_MAX = 60.0
RECEIVE_BUFFER_SIZE = 4 << 20
_DATAGRAM_SIZE_MAX = 1 << 16

Subscribe: TypeAlias = Callable[[Wanted], Opened]


class Message(NamedTuple):
    """What a datagram has of a publication: attributes, times and source stay in the journal."""

    sequence: int
    key: bytes
    body: bytes


class Reception(Blocking):
    """Gives what a stream holds and will hold, in order, each message once; to be used by one thread at a time."""

    def __init__(
        self,
        subscribe: Subscribe,
        stream: str,
        group: str,
        interface: str,
        filter_: Filter | None,
        start: Start,
        on_gap: GapPolicy,
        silence_s: float,
    ) -> None:
        """A reception of the group `host:port`; `subscribe` opens what mends. Raises `Misuse`, or a refusal."""
        self.datagram_count = 0
        """Datagrams of the stream that came."""
        self.mended_count = 0
        """Messages that came from the journal."""
        self.position = 0
        """The sequence behind the last message that was handed out."""
        self._subscribe_to = subscribe
        self._stream = stream
        self._name = stream.encode()
        self._filter = filter_
        from veredus.matching import compile_pattern  # a lot to import for who receives nothing by multicast

        if start.kind is StartKind.TIME:
            # Datagrams do not say when something was appended.
            check_not_ahead(start.value, time.time_ns() // 1000, "this machine's clock")
        self._patterns = [compile_pattern(key) for key in filter_.keys] if filter_ is not None else []
        self._on_gap = on_gap
        self._silence_s = silence_s
        self._expected = 0
        """The sequence behind the last one that came, or that a gap was told of; while it mends, as it was before."""
        self._life = (b"", 0)
        self._terms: Terms = ()
        self._due_s = 0.0
        """When the node is asked what there is, unless a datagram says so before."""
        self._doubted_s = 0.0
        """When the node was last asked about another life."""
        self._refuted_s = -silence_s
        """When the node last said that there is less than a datagram had said."""
        self._ready: list[Message] = []
        """What has come and was not handed out: what lies before `_ready_index` was."""
        self._ready_index = 0
        self._batch: Batch | None = None
        """What has come out of the journal, and is not ready yet."""
        self._mending: Subscription | None = None
        self._opening: Opened | None = None
        self._opened: Callable[[Subscription], None] = self._hear
        """What becomes of what is being opened."""
        self._until = 0
        self._socket = _joined(group, interface)
        try:
            self._wait_opened(self._open(start, 1, self._begin), None)
        except BaseException:
            self.close()
            raise

    # ── take ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_message(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when `timeout_s` is over. Raises gaps, and what ended it."""
        return next(iter(self.next_messages(1, timeout_s)), None)

    def next_messages(self, count_max: int | None = None, timeout_s: float | None = None) -> list[Message]:
        """The next messages, as many as are there, at least one; none when `timeout_s` is over."""
        check_seconds("timeout_s", timeout_s)
        if count_max is not None:
            check_whole("count_max", count_max, 1)
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while self._ready_index == len(self._ready):
            left_s = None if end_s is None else end_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return []
            if self._opening is not None:
                self._wait_mended(self._opening, left_s)
            elif self._batch is not None:
                self._open_mended(self._batch)
            elif self._mending is not None:
                self._take_mended(self._mending, left_s)
            else:
                self._listen(left_s)
        start, end = self._ready_index, len(self._ready)
        if count_max is not None:
            end = min(start + count_max, end)
        messages = self._ready[start:end]
        self.position, self._ready_index = messages[-1].sequence + 1, end
        return messages

    def __iter__(self) -> Iterator[Message]:
        while (message := self.next_message()) is not None:
            yield message

    def _listen(self, left_s: float | None) -> None:
        silent_s = self._due_s - time.monotonic()
        if silent_s <= 0:
            self._mend(0)
            return
        waiting = poll()
        waiting.register(self._socket, POLLIN)
        # No time-out of the socket's own: that raises what a signal's handler may raise meanwhile.
        if not waiting.poll(ceil(1000 * min(silent_s, LISTEN_S_MAX, inf if left_s is None else left_s))):
            return
        try:
            octets = self._socket.recv(_DATAGRAM_SIZE_MAX)
        except BlockingIOError:
            return
        try:
            datagram = decode_datagram(octets)
        except PeerFault:
            return
        if datagram.stream == self._name:
            self.datagram_count += 1
            self._take(datagram)

    def _take(self, datagram: Datagram) -> None:
        if (datagram.incarnation, datagram.term) != self._life:
            now_s = time.monotonic()
            if now_s - self._doubted_s >= self._silence_s:
                self._doubted_s, self._due_s = now_s, 0.0
            return
        self._rest()
        ready, expected = [], self._expected
        for sequence, key, body in datagram.delivered:
            if sequence > expected:
                break
            if sequence == expected:
                expected += 1
                if not self._patterns or any(pattern.matches(key) for pattern in self._patterns):
                    ready.append(Message(sequence, key, body))
        self._expected, self._ready, self._ready_index = expected, ready, 0
        if self._expected < datagram.next:
            again_s = self._refuted_s + self._silence_s
            if time.monotonic() < again_s:
                # Somebody forges datagrams, and would have us ask without end: what is missing is asked for then.
                self._due_s = again_s
            else:
                self._mend(datagram.next)

    def _rest(self) -> None:
        self._due_s = time.monotonic() + self._silence_s

    # ── mend ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _mend(self, until: int) -> None:
        """Have what is missing before `until`, or before the node's head where that is 0, and no more than there is."""
        self._rest()
        self._until = until
        self._open(Start(StartKind.SEQUENCE, self._expected), 1, self._hear)

    def _wait_mended(self, opening: Opened, left_s: float | None) -> None:
        try:
            self._wait_opened(opening, left_s)
        except Refused as error:
            floor = error.details.get("floor")
            if error.code != "below-floor" or not isinstance(floor, int):
                raise
            self._tell_gap(Gap(self._expected, floor, "trimmed"), floor)
        except Unavailable as error:
            if error.code == "gap":
                raise
            # The group may go on meanwhile; the node is asked again when that is due.
            self._rest()

    def _begin(self, probe: Subscription) -> None:
        """The node says where this begins."""
        self._expected, _ = self._told(probe)
        self.position = self._expected

    def _hear(self, probe: Subscription) -> None:
        """The node says what there is: have what is missing."""
        place, behind = self._told(probe)
        if place < self._expected:
            self._tell_gap(Gap(place, self._expected, "lost"), place)
            return
        if self._until > behind:
            self._refuted_s = time.monotonic()
        self._until = min(self._until or behind, behind)
        if self._until > place:
            self._open(Start(StartKind.SEQUENCE, place), self._until, self._take_from)

    def _take_from(self, mending: Subscription) -> None:
        self._mending = mending

    def _told(self, probe: Subscription) -> tuple[int, int]:
        """Where the node lets a subscription begin, and the sequence behind its head."""
        grant = probe.channel.grant
        probe.close()
        assert grant is not None
        self._life, self._terms = (grant.stream_incarnation, grant.term), grant.terms
        return grant.position, grant.head + 1

    def _open(self, start: Start, until: int, then: Callable[[Subscription], None]) -> Opened:
        """Ask the node for a subscription; `then` has it once it is granted."""
        incarnation, term = self._life
        self._opened = then
        opening = self._opening = self._subscribe_to(
            Wanted(
                self._stream,
                filter=self._filter,
                start=start,
                until=until,
                on_gap=self._on_gap,
                stream_incarnation=incarnation,
                term=term,
                terms=self._terms,
            )
        )
        return opening

    def _wait_opened(self, opening: Opened, left_s: float | None) -> None:
        """Wait so long for what is being opened. Raises what it was refused with, or `Unavailable`."""
        try:
            subscription = opening.wait(left_s)
        except VeredusError:
            self._opening = None
            raise
        if subscription is not None:
            self._opening = None
            self._opened(subscription)

    def _tell_gap(self, gap: Gap, expected: int) -> None:
        first, following, code = gap
        message = f"sequences {first} to {following - 1} cannot be had any more ({code}); what follows can"
        error = Unavailable("gap", message, first_sequence=first, next_sequence=following, cause=code)
        self._expected, self._due_s = expected, 0.0
        if self._on_gap == "raise":
            raise error
        self._on_gap(gap)

    def _take_mended(self, mending: Subscription, left_s: float | None) -> None:
        self._batch = mending.next_batch(left_s)
        if self._batch is None and mending.is_ended:
            self._rest()
            self._expected, self._mending = self._until, None
            mending.close()

    def _open_mended(self, batch: Batch) -> None:
        ready = [Message(each.sequence, each.key, each.body) for each in batch]
        mended_count = self.mended_count + len(ready)
        self._ready, self._ready_index, self._batch, self.mended_count = ready, 0, None, mended_count

    # ── leave ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Leave the group."""
        self._socket.close()
        mending, self._mending = self._mending, None
        opening, self._opening = self._opening, None
        if mending is not None:
            mending.close()
        if opening is not None:
            opening.give_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _joined(group: str, interface: str) -> socket.socket:
    """A socket that hears the group `host:port` by the interface of that address. Raises `Misuse`, `Unavailable`."""
    try:
        host, port = split_address(group)
        if not IPv4Address(host).is_multicast:
            raise ValueError(f"{host} is not a multicast address (224.0.0.0 to 239.255.255.255)")
    except ValueError as error:
        message = f"group must be a multicast address and a port, such as 239.195.0.1:7074: {error}"
        raise Misuse("bad-argument", message, argument="group") from None
    try:
        joined = IPv4Address(host).packed + IPv4Address(interface).packed
    except ValueError:
        message = f"interface must be the IPv4 address of an interface of this machine, not {interface!r}"
        raise Misuse("bad-argument", message, argument="interface") from None
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setblocking(False)
    try:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_SIZE)
        receiver.bind((host, port))
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
    except OSError as error:
        receiver.close()
        message = f"cannot join {group} by {interface}: {error.strerror or error}"
        raise Unavailable("unreachable", message) from None
    return receiver
