"""Puts records behind one another, a group at a time, and says so when a group is as durable as was asked for.

             the queue's head does not fit, and         a segment could be made,
             no segment can be made; or `lack`          and nothing is lacking
    RUNNING ─────────────────────────────────► FULL ──────────────────► RUNNING
       │                                        │
       └───────── a write or a sync failed ─────┴──► FAILED

RUNNING   A group is under way, or the queue waits: for the host to be done with what came together, or for a segment.
FULL      What carries rows is refused at once; facts go on, as far as the reserve goes (`reserve.py`). Making a segment
          is tried again by and by.
FAILED    What was under way is in doubt and is never answered; all else is refused. Only recovery leads out.

Invariants
    (1) At most one group is under way, and all before it is answered.
    (2) Requests are answered in their order; a request is in one group, whole.
    (3) A group never reaches over the end of its segment, and nothing is written to a sealed one.
    (4) durable <= position; the catalogue knows exactly what lies before `position`.
Source: docs/internals/DESIGN.md, "Journal".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from veredus.delivery.record import Envelope, RecordKind, write_envelope
from veredus.kernel.deadlines import Deadlines
from veredus.kernel.engine import Now
from veredus.kernel.octets import Octets

from .answering import Answering
from .catalogue import Catalogue, Segment
from .exchange import (
    Appended,
    AppendFailed,
    AppendRequested,
    CreateSegment,
    Entry,
    GroupFailed,
    GroupWritten,
    LogFailed,
    RemoveSegment,
    SegmentCreated,
    SegmentFailed,
    SegmentLacking,
    SpaceMissing,
    SpaceReturned,
    SyncMode,
    WriteGroup,
)
from .index import STAGE_KEY, row_count
from .layout import (
    CONTINUED,
    GROUP_RECORD_SIZE,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    Position,
    body_size,
    encode_group,
    encode_segment_header,
    salt_at,
    salt_of,
)
from .orders import Orders
from .phases import Phase, Timer
from .pieces import Append, Group, NextSegment, append_of
from .reserve import Reserve
from .settings import LogSettings, Recovered

_PAGE_SIZE = 4096


class Appending:
    """Owns the queue, the group under way, the open segment and the one made ahead."""

    __slots__ = (
        "_catalogue", "_current", "_dropped", "_failure", "_flight", "_free", "_group_number", "_is_closed",
        "_is_next_there", "_is_sync_due", "_journal_id", "_lack", "_next", "_next_ordinal", "_on_sealed", "_orders",
        "_placed_count", "_queue", "_requested_count", "_reserve", "_settings", "_timers", "answering",
        "appended_count", "appended_size", "durable", "open_row_count", "phase", "position",
    )  # fmt: skip

    def __init__(
        self,
        settings: LogSettings,
        recovered: Recovered,
        orders: Orders,
        timers: Deadlines[Timer],
        on_sealed: Callable[[Segment], None],
    ) -> None:
        """Go on where recovery found the end. `on_sealed` hears of segments that are complete."""
        self._settings = settings
        self._orders = orders
        self._timers = timers
        self._on_sealed = on_sealed
        self._catalogue: Catalogue = recovered.catalogue
        self._journal_id = recovered.journal_id
        self._current = recovered.open_segment
        self._next: NextSegment | None = None
        self._next_ordinal = recovered.next_ordinal
        self._is_next_there = recovered.is_next_there
        self._free = recovered.free
        self._group_number = recovered.group_number
        self._queue: deque[Append] = deque()
        self._flight: Group | None = None
        self._is_sync_due = False
        self._requested_count = 0
        self._placed_count = 0
        self._dropped: dict[int, int] = {}
        self._failure = self._lack = ("", "")
        self._reserve = Reserve(settings.reserve_size)
        self._is_closed = False
        self.phase = Phase.RUNNING
        self.position = recovered.position
        self.durable = recovered.position
        self.appended_size = self.appended_count = 0
        """Bytes written in this life, with all that the journal adds, and records."""
        self.answering = Answering(settings, recovered.growth, orders, timers)
        opened = recovered.open_segment
        rows = {} if opened is None or opened.rows is None else opened.rows
        self.open_row_count = sum(map(row_count, rows.values()))
        """Rows of the open segment, which a checkpoint holds."""

    @property
    def dropped_keys(self) -> list[int]:
        """Streams and stages that were dropped while records of theirs may still have been on their way."""
        return list(self._dropped)

    @property
    def why_full(self) -> str:
        """Why there is no room to grow, "" where nothing is known to hinder it."""
        return self._hindrance[1]

    @property
    def _hindrance(self) -> tuple[str, str]:
        return self._lack if self._lack[0] else self._failure

    @property
    def ordinals(self) -> tuple[int, int]:
        """The ordinal of the segment that will be opened next, and the number of the last group."""
        return (self._next_ordinal if self._next is None else self._next.number), self._group_number

    def recycle(self, segment: Segment) -> bool:
        """Keep a segment in which nothing is wanted, to be written over; False when it is not needed for that.

        While no other can be made, its space is first of all for what is held back.
        """
        settings = self._settings
        is_scarce = self._lack[0] or (self._next is not None and self._next.has_failed)
        if is_scarce or segment.size != settings.segment_size or len(self._free) >= settings.free_count_max:
            return False
        self._free.append(segment.number)
        return True

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, event: AppendRequested, now: Now) -> None:
        """Queue the request, or refuse it."""
        append = append_of(event)
        size = append.size
        if self.phase is Phase.FAILED:
            self._refuse(event.token, "journal-failed", "the journal has failed: restart the node")
        elif self._is_closed and event.entries:
            self._refuse(event.token, "journal-closed", "the journal is closed: the node is stopping")
        elif size > self._settings.append_size_max:
            reason = f"an append may have at most {self._settings.append_size_max} bytes, this one has {size}"
            self._refuse(event.token, "too-large", reason)
        elif self.phase is Phase.FULL and not append.is_facts:
            self._refuse(event.token, *self._hindrance)
        elif self.phase is Phase.FULL and not self._reserve.take(size, event.payer, event.is_freeing):
            code, reason = self._hindrance
            self._refuse(event.token, code, f"{reason}; what was kept for this until there is space again is used up")
        elif not size and self.is_idle:
            self._orders.say(Appended(event.token, self._settings.sync))
        else:
            self._queue.append(append)
            self._requested_count += 1
            self.answering.ask(append)
            if self._flight is None:
                self._timers.set(Timer.SUBMIT, now.monotonic_ns)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, nothing is under way, and all is answered."""
        return not self._queue and self._is_ready

    @property
    def is_answered(self) -> bool:
        """Whether all that was asked for is answered."""
        return not (self._queue or self.answering or (self._flight is not None and self._flight.appends))

    @property
    def _is_ready(self) -> bool:
        """Whether another group may be sent on its way."""
        return self._flight is None and not self.answering

    def close(self) -> None:
        """Take no more records: the file that says so is about to be written."""
        self._is_closed = True

    def drop(self, keys: Iterable[int]) -> None:
        """Records of these streams or stages that are still on their way are not wanted either."""
        if self._placed_count < self._requested_count:
            self._dropped |= dict.fromkeys(keys, self._requested_count)

    def request_sync(self, now: Now) -> None:
        """Sync what is written, soon."""
        if self.durable < self.position and self.phase is not Phase.FAILED:
            self._is_sync_due = True
            self.submit(now)

    def prepare(self, now: Now) -> None:
        """Make a segment ahead of need, if the open one is half full or there is none."""
        if self._next is None and (self._current is None or self.position.offset * 2 >= self._current.size):
            self._create(self._settings.segment_size, now)

    # ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, now: Now) -> None:
        """Send the next group on its way, if none is and anything waits."""
        while self._queue and self._is_ready and self.phase is not Phase.FAILED:
            taken = self._take()
            if not taken:
                if not self._roll(self._queue[0], now):
                    break
            elif any(append.size for append in taken):
                self._write(taken, now)
            else:
                self._place(taken)
                self.answering.answer(now)
        if self._is_sync_due and self._is_ready:
            self._sync()

    def _take(self) -> list[Append]:
        """The longest run of waiting requests that fits into one group of the open segment; taken from the queue."""
        queue, taken = self._queue, list[Append]()
        current = self._current
        rest = 0 if current is None else current.size - current.end - GROUP_RECORD_SIZE
        is_next_ready = self._next is not None and self._next.is_ready
        rest_for_rows = rest if is_next_ready else rest - self._settings.reserve_size
        # The reserve is counted only while there is no space: before that, facts leave it too.
        rest_for_facts = rest if self.phase is Phase.FULL else rest_for_rows
        size = 0
        while queue:
            append = queue[0]
            total = size + append.size
            if append.size and (total > (rest_for_facts if append.is_facts else rest_for_rows)):
                break
            if size and total > self._settings.group_size_max:
                break
            size = total
            taken.append(queue.popleft())
        return taken

    def _write(self, taken: list[Append], now: Now) -> None:
        segment = self._current
        assert segment is not None
        salt = segment.salt
        offset = segment.end + GROUP_RECORD_SIZE
        placed: list[tuple[Entry, int]] = []
        buffers: list[Octets] = [b""]
        for append in taken:
            last = len(append.entries) - 1
            for index, entry in enumerate(append.entries):
                kind, record = entry.kind, entry.record
                flags = 0 if index == last else CONTINUED
                placed_salt = salt_at(salt, offset)
                envelope = Envelope(
                    kind, flags, body_size(record, kind), placed_salt, entry.first_sequence, entry.append_time_us
                )
                write_envelope(record, envelope)
                buffers.append(record)
                placed.append((entry, offset))
                offset += len(record)
        self._group_number += 1
        header = GroupHeader(_end_of(segment), offset - segment.end, self.durable, self.position)
        buffers[0] = encode_group(header, salt, self._group_number, now.wall_us)
        is_synced = self._is_sync_due or self._settings.sync is SyncMode.GROUP or any(a.is_synced for a in taken)
        size = offset - segment.end
        self._flight = Group(self._orders.token(), segment, offset, size, taken, placed, is_synced)
        self._orders.say(WriteGroup(self._flight.token, segment.number, segment.end, buffers, is_synced))

    def _sync(self) -> None:
        segment = self._current
        assert segment is not None
        self._flight = Group(self._orders.token(), segment, segment.end, 0, (), (), True)
        self._orders.say(WriteGroup(self._flight.token, segment.number, segment.end, (), True))

    def written(self, event: GroupWritten, now: Now) -> None:
        """The group under way is written: know its records, answer its requests, send the next one."""
        group = self._flight
        if group is None or group.token != event.token:
            return
        self._flight = None
        segment = group.segment
        segment.end = group.end
        self.position = _end_of(segment)
        self.appended_size += group.size
        self.appended_count += len(group.placed)
        for entry, offset in group.placed:
            if self._dropped and self._is_dropped(entry):
                continue
            ids = (entry.stream_id, entry.first_sequence, entry.count)
            self._catalogue.add(segment, entry.kind, ids, entry.append_time_us, offset, len(entry.record))
            self.open_row_count += entry.kind != RecordKind.FACT
        if group.is_synced:
            self.durable = self.position
            self._is_sync_due = False
            self._timers.clear(Timer.SYNC)
        elif self._settings.sync is SyncMode.INTERVAL and not self._timers.is_set(Timer.SYNC):
            self._timers.set(Timer.SYNC, now.monotonic_ns + self._settings.interval_ns)
        self._place(group.appends)
        self.prepare(now)
        self.answer(now)

    def _is_dropped(self, entry: Entry) -> bool:
        is_staged = entry.kind == RecordKind.STAGED
        return entry.stream_id in self._dropped or (is_staged and STAGE_KEY | entry.first_sequence in self._dropped)

    def _place(self, appends: Sequence[Append]) -> None:
        self.answering.place(appends)
        self._placed_count += len(appends)
        if self._dropped:
            placed = self._placed_count
            self._dropped = {key: count for key, count in self._dropped.items() if count > placed}

    def answer(self, now: Now) -> None:
        """Answer what is in the journal, as much as goes at once; behind all of it the next group is sent."""
        self.answering.answer(now)
        self.submit(now)

    def failed(self, event: GroupFailed) -> None:
        """What is on the disk is unknown: believe nothing, take nothing more."""
        group = self._flight
        if group is None or group.token != event.token:
            return
        self._flight = None
        for append in group.appends:
            self.answering.give_up(append)
        self.phase = Phase.FAILED
        self._timers.clear(Timer.SYNC)
        self._timers.clear(Timer.SPACE)
        self._orders.say(LogFailed(f"{event.code}: {event.reason}"))
        self._refuse_queue("journal-failed", event.reason)

    # ── segments ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _roll(self, append: Append, now: Now) -> bool:
        """Go on in the next segment, for `append` does not fit; False when that must wait, or cannot be."""
        needed = append.size + SEGMENT_HEADER_SIZE + GROUP_RECORD_SIZE + self._settings.reserve_size
        upcoming = self._next
        if upcoming is None or (upcoming.is_ready and upcoming.size < needed):
            page_count = -(-needed // _PAGE_SIZE)
            self._create(max(self._settings.segment_size, page_count * _PAGE_SIZE), now)
            return False
        if upcoming.has_failed:
            return self._become_full()
        if not upcoming.is_ready:
            return False
        if self.durable < self.position:
            self._is_sync_due = True
            return False
        if self._current is not None:
            self._on_sealed(self._current)
        salt = salt_of(self._journal_id, upcoming.number)
        self._current = Segment(upcoming.number, salt, upcoming.size, SEGMENT_HEADER_SIZE, rows={})
        self._catalogue.segments[upcoming.number] = self._current
        self.open_row_count = 0
        self._next = None
        return True

    def _create(self, size: int, now: Now) -> None:
        upcoming = self._next
        number = self._next_ordinal if upcoming is None else upcoming.number
        recycles = None if upcoming is None else upcoming.recycles
        if upcoming is None:
            self._next_ordinal += 1
        is_new = (upcoming is None or upcoming.has_failed) and recycles is None and not self._is_next_there
        self._is_next_there = False
        if is_new and size == self._settings.segment_size and self._free:
            recycles = self._free.pop(0)
        self._next = NextSegment(number, size, recycles, self._orders.token())
        header = encode_segment_header(number, size, self._journal_id, now.wall_us)
        self._orders.say(CreateSegment(self._next.token, number, size, header, recycles))

    def created(self, event: SegmentCreated, now: Now) -> None:
        """The next segment is there."""
        upcoming = self._next
        if upcoming is None or upcoming.token != event.token:
            return
        self._next = NextSegment(upcoming.number, upcoming.size, None, 0)
        self._failure = ("", "")
        self._go_on()
        self.submit(now)

    def create_failed(self, event: SegmentFailed, now: Now) -> None:
        """The next segment could not be made: try again by and by; who needs it now is refused."""
        upcoming = self._next
        if upcoming is None or upcoming.token != event.token or self.phase is Phase.FAILED:
            return
        upcoming.token = 0
        upcoming.has_failed = True
        if self._failure != (event.code, event.reason):
            # Long before the segment is needed, it may be.
            self._failure = (event.code, event.reason)
            self._orders.say(SegmentLacking(upcoming.number, upcoming.size, event.code, event.reason))
        self._timers.set(Timer.SPACE, now.monotonic_ns + self._settings.retry_ns)
        self.submit(now)

    def retry_create(self, now: Now) -> None:
        """Try again to make the segment that could not be made, if there is one."""
        upcoming = self._next
        if upcoming is not None and upcoming.has_failed and self.phase is not Phase.FAILED:
            self._timers.clear(Timer.SPACE)
            self._create(upcoming.size, now)

    def lack(self, code: str, reason: str) -> None:
        """What the next checkpoint may need could not be held back: take no rows until it is."""
        self._lack = (code, reason)
        for number in self._free:
            self._orders.say(RemoveSegment(number))
        self._free.clear()
        self._stop()

    def lack_nothing(self, now: Now) -> None:
        """What the next checkpoint needs is held back."""
        if self._lack[0]:
            self._lack = ("", "")
            self._go_on()
            self.submit(now)

    def _become_full(self) -> bool:
        """Refuse what waits; but for the facts in front that the reserve has room for, if that was not counted yet.
        Whether there are such. Nothing goes on behind what is refused: it may rest on that.
        """
        kept = list[Append]()
        is_counted = self.phase is Phase.FULL
        self._stop()
        while self._queue and not is_counted:
            append = self._queue[0]
            is_counted = not (append.is_facts and self._reserve.take(append.size, append.payer, append.is_freeing))
            if not is_counted:
                kept.append(self._queue.popleft())
        self._refuse_queue(*self._hindrance)
        self._queue.extend(kept)
        return bool(kept)

    def _stop(self) -> None:
        if self.phase is Phase.RUNNING:
            self.phase = Phase.FULL
            self._reserve.refill(self._room_for_facts)
            self._orders.say(SpaceMissing(*self._hindrance))

    @property
    def _room_for_facts(self) -> int:
        """What is left for facts behind what is under way, of the reserve at most; all of it in another segment."""
        size, current = self._settings.reserve_size, self._current
        if current is None or (self._next is not None and self._next.is_ready):
            return size
        end = current.end if self._flight is None else self._flight.end
        return min(size, max(0, current.size - end))

    def _go_on(self) -> None:
        has_failed = self._next is not None and self._next.has_failed
        if self.phase is Phase.FULL and not has_failed and not self._lack[0]:
            self.phase = Phase.RUNNING
            self._orders.say(SpaceReturned())

    # ── small things ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _refuse(self, token: int, code: str, reason: str) -> None:
        self._orders.say(AppendFailed(token, code, reason))

    def _refuse_queue(self, code: str, reason: str) -> None:
        while self._queue:
            self._refuse_queued(self._queue.popleft(), code, reason)

    def _refuse_queued(self, append: Append, code: str, reason: str) -> None:
        self._refuse(append.token, code, reason)
        self.answering.give_up(append)
        self._placed_count += 1

    def check(self) -> None:
        """Repeat the invariants."""
        flight, current = self._flight, self._current
        assert self.durable <= self.position, "(4)"
        if current is not None:
            assert current.end <= current.size, "(3)"
            assert not current.is_sealed, "(3)"
            assert flight is None or (flight.segment is current and flight.end <= current.size), "(1), (3)"
        assert flight is None or not self.answering, "(1)"
        self.answering.check((*self._queue, *(() if flight is None else flight.appends)))


def _end_of(segment: Segment) -> Position:
    return Position(segment.number, segment.end)
