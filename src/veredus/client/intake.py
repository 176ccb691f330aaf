"""Where publications wait between the thread that publishes them and the loop that sends them, with no lock between.

    caller's thread                                         loop
    put ──► open run ──(full, closed)──► sealed runs ─────► take ──► outbox
                 └─────(whatever there is)────────────────► take

A list is appended to by the one thread and cut from the front by the other; each step is one operation of the
interpreter. The body is appended last, so that bodies count what is whole.

Invariants
    (1) The caller's thread alone gives numbers, charges room and opens runs, and of several callers one at a time; the
        loop alone takes.
    (2) Runs are taken in the order in which they were opened: a run that is sealed is not open any more.
    (3) Before the loop sleeps with nothing on its way it becomes idle and looks once more; `put` looks for that after
        it has appended. So one of the two sees the other, and nothing is left lying.
    (4) What needs a closer look (a failure, no link, no room, attributes, a long key, a large body) goes by
        `_put_slowly`. Whoever wants that sets the reason first, and bars the short way after it.
    (5) What it holds exceeds its bound by at most a run and one publication; the bound counts bodies by a sample.
    (6) What a signal's handler raises tears no step in two. CPython notices a signal as a function begins, as a loop
        goes back, and behind most calls: so what belongs together (a publication's parts and its number) is assigned,
        and added by `+=`, without a call. Only `put` calls `list.append`, behind which none is noticed: a special case.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf

from veredus.delivery.batch import BatchLimits
from veredus.delivery.cutting import Listed, Publications, Tabled
from veredus.delivery.publication import AttributeValue
from veredus.kernel.errors import Misuse, Unavailable, VeredusError
from veredus.kernel.octets import Octets

from .arguments import check_octets
from .given import (
    INT64_MAX,
    INT64_MIN,
    OCTET_KINDS,
    PLAIN_KEY_SIZE,
    SOUND_KINDS,
    Attributes,
    EventTime,
    Policy,
    Row,
    check_assigned,
    check_one,
    getter_of,
    is_no_text,
    is_sound,
    listed_of,
)
from .turns import Turns

PUBLICATION_SIZE = 128
"""What holding one publication costs beside its body, about, in bytes."""
UNIFORM_COUNT_MIN = 64
"""A run with this many publications of equal attribute names is worth a batch of its own."""
RUN_COUNT_MAX = 16_384
ROW_SIZE = 128
"""What a publication is taken to need in a batch, in bytes, before any was seen."""
ROW_OVERHEAD = 32
BODY_FACTOR = 8
"""A body so many times as large as others are is charged by itself."""
SAMPLE_STEP = 8


class Intake(Turns):
    """Owns the publications of one source that are in no batch yet, and their numbers."""

    __slots__ = (
        "__weakref__",
        "_bodies",
        "_body_size",
        "_charged_number",
        "_cut_size",
        "_delayed",
        "_get",
        "_is_timed",
        "_key_limit",
        "_key_size",
        "_keys",
        "_large_size",
        "_limits",
        "_marks",
        "_names",
        "_number_end",
        "_on_full",
        "_on_gone",
        "_open",
        "_put_size",
        "_row_size",
        "_run_end",
        "_run_size",
        "_sealed",
        "_size_max",
        "_values",
        "check_caller",
        "closed",
        "confirm",
        "dropped_count",
        "failure",
        "first_number",
        "held_size",
        "is_gone",
        "is_idle",
        "keeps_last",
        "number",
        "wait_room",
        "wake",
    )

    def __init__(self, run_size: int, size_max: int, on_full: Policy, on_gone: Policy) -> None:
        """An intake that seals a run each `run_size` bytes, about, and holds with its outbox about `size_max` bytes."""
        super().__init__()
        self.number = 0
        """The number given last."""
        self.first_number = 0
        """The number behind which this intake began."""
        self.dropped_count = 0
        self.is_idle = False
        self.is_gone = False
        """Whether there is no node to send to at present."""
        self.failure: VeredusError | None = None
        """Why nothing can be published any more."""
        self.closed: VeredusError | None = None  # so it is here, while what was published may still be sent
        self.held_size = 0
        """Bytes in the outbox; the loop writes it."""
        self.keeps_last = False
        """Whether only sealed runs are taken, and of these not the last: a resume token may still close it."""
        self.wake: Callable[[], None] = lambda: None
        """Asks the loop to take."""
        self.check_caller: Callable[[], None] = lambda: None
        """Raises where whoever publishes could not ask the loop; before a number is given."""
        self.confirm: Callable[[int], None] = lambda _: None
        """Returns once the stream has all up to a number; for who publishes behind the end of the program."""
        self.wait_room: Callable[[], None] | None = None
        """Returns once there is room or a failure; None where the caller's thread cannot wait."""
        self._run_size, self._size_max = run_size, size_max
        self._on_full = on_full
        self._on_gone = on_gone
        self._limits = BatchLimits()
        self._key_size = self._key_limit = PLAIN_KEY_SIZE
        self._row_size = ROW_SIZE
        self._body_size = min(run_size, BODY_FACTOR * ROW_SIZE)
        self._run_end = self._number_end = max(1, run_size // ROW_SIZE)
        self._large_size = self._charged_number = self._put_size = self._cut_size = 0
        self._marks: deque[tuple[int, int]] = deque()
        self._sealed: deque[tuple[Publications, bytes]] = deque()
        self._delayed: Publications | None = None
        self._get = getter_of(())
        self._names: tuple[str, ...] = ()
        """Names of attributes that were found good."""
        self._is_timed = False
        self._open = Listed()
        self._keys, self._bodies = self._open.keys, self._open.bodies
        self._values: list[AttributeValue | None] | None = None
        """Those of the open run, where attributes are all that its publications have beside key and body."""

    # ── the caller's thread ──────────────────────────────────────────────────────────────────────────────────────────

    def put(
        self,
        key: bytes | str,
        body: Octets | str,
        attributes: Attributes | None = None,
        event_time: EventTime | None = None,
    ) -> int:
        """As `Publisher.publish`."""
        # As `_in_turn`, without the calls.
        while self._is_busy:
            self._wait_turn()
        self._is_busy = True
        try:
            if self.number >= self._number_end:
                self.check_caller()
            # Both None is the one way in which attributes and event time are the same object.
            if (
                attributes is not event_time  # type: ignore[comparison-overlap]
                or body.__class__ not in OCTET_KINDS
                or key.__class__ not in OCTET_KINDS
                or len(key) > self._key_size
                or len(body) > self._body_size
                or (key.__class__ is str and not key.isascii() and is_no_text(key))
                or (body.__class__ is str and not body.isascii() and is_no_text(body))
            ):
                values = self._values
                if (
                    values is None
                    or event_time is not None
                    or body.__class__ not in OCTET_KINDS
                    or key.__class__ not in OCTET_KINDS
                    or len(key) > self._key_limit
                    or len(body) > self._body_size
                    or (key.__class__ is str and not key.isascii() and is_no_text(key))
                    or (body.__class__ is str and not body.isascii() and is_no_text(body))
                ):
                    return self._put_slowly(key, body, attributes, event_time)
                try:
                    row = self._get(attributes)
                except (KeyError, TypeError):
                    return self._put_slowly(key, body, attributes, event_time)
                if len(attributes) != len(row):  # type: ignore[arg-type]
                    return self._put_slowly(key, body, attributes, event_time)
                for value in row:
                    kind = type(value)
                    if not (
                        kind in SOUND_KINDS
                        or (kind is int and INT64_MIN <= value <= INT64_MAX)
                        or (kind is str and value.isascii())
                        or is_sound(value)
                    ):
                        return self._put_slowly(key, body, attributes, event_time)
                values += row
            self._keys.append(key)
            self._bodies.append(body)
            self.number = number = self.number + 1
            if number > self._number_end:
                self._turn()
            return number
        finally:
            self._is_busy = False

    def _put_slowly(
        self, key: bytes | str, body: Octets | str, attributes: Attributes | None, event_time: EventTime | None
    ) -> int:
        """As `put`, whatever it takes."""
        self.check_caller()
        when, self._names = check_one(key, body, attributes, event_time, self._names, self._limits)
        if self._key_limit < 0 and not self._is_admitted():
            return 0
        if (size := len(body)) > self._body_size:
            self._large_size += size
            self._run_end -= size // self._row_size
            self._number_end = min(self._number_end, self._run_end)
        run, row, mapping = self._run_for(attributes, when)
        if run.values is not None:
            run.values += row
        elif run.mappings is not None:
            run.mappings += (mapping,)
        if run.event_times_us is not None:
            run.event_times_us += (when,)
        run.keys += (key,)
        run.bodies += (body,)
        self.number = number = self.number + 1
        if number > self._number_end:
            self._turn()
        return number

    def _run_for(
        self, attributes: Attributes | None, when: int | None
    ) -> tuple[Listed, Row, dict[str, AttributeValue | None] | None]:
        """The run that takes attributes and an event time, open now; and the attributes as it holds them."""
        if when is not None and self._open.event_times_us is None:
            self._is_timed = True
            self._open_run((), is_loose=False)
        run, row = self._open, None
        if attributes is not None or run.values is not None or run.mappings is not None:
            row = self._row_of(run, attributes)
            if row is None:
                run = self._shaped_run(attributes)
                row = self._row_of(run, attributes)
        mapping = None if run.mappings is None or attributes is None else dict(attributes)
        return run, row or (), mapping

    def _row_of(self, run: Listed, attributes: Attributes | None) -> Row | None:
        """The values in the order of the run's names, if these are the attributes' names."""
        if run.values is None or attributes is None or len(attributes) != len(run.names):
            return None
        try:
            return self._get(attributes)
        except KeyError:
            return None

    def _shaped_run(self, attributes: Attributes | None) -> Listed:
        """The open run, if it takes attributes of any names; else a new one: of these, unless they change often."""
        run = self._open
        if run.mappings is not None:
            return run
        is_regular = run.values is None or len(run.bodies) >= UNIFORM_COUNT_MIN
        return self._open_run(tuple(attributes or ()), is_loose=not attributes or not is_regular)

    def _open_run(self, names: tuple[str, ...], is_loose: bool) -> Listed:
        """Seal the open run and open one that holds plain publications, attributes of these names, or of any."""
        self._seal()
        run = Listed(event_times_us=[] if self._is_timed else None)
        if is_loose:
            run.mappings = []
        elif names:
            run.names = names
            run.values = []
            self._get = getter_of(names)
        self._become_open(run)
        return run

    def _become_open(self, run: Listed) -> None:
        is_plain = run.values is None and run.mappings is None and run.event_times_us is None
        self._open, self._keys, self._bodies = run, run.keys, run.bodies
        self._values = run.values if run.event_times_us is None else None
        self._key_limit, self._key_size = PLAIN_KEY_SIZE, PLAIN_KEY_SIZE if is_plain else -1
        if self.failure is not None or self.closed is not None or (self.is_gone and self._on_gone != "wait"):
            self._key_size = self._key_limit = -1

    def put_many(
        self,
        keys: Sequence[bytes | str],
        bodies: Sequence[Octets | str],
        attributes: Sequence[Attributes | None] | None = None,
        event_times: Iterable[EventTime | None] | None = None,
    ) -> int:
        """Publish lists of one length; returns the number of the last. As `put`, all or nothing."""
        listed, size = listed_of(keys, bodies, attributes, event_times, self._limits)
        return self._put_publications(listed, size) if len(listed) else self.number

    def put_columns(self, columns: Tabled, size: int) -> int:
        """Publish a table of `size` bytes; returns the number of its last row."""
        return self._put_publications(columns, size) if len(columns) else self.number

    def _put_publications(self, publications: Publications, size: int) -> int:
        return self._in_turn(lambda: self._put_in_turn(publications, size))

    def _put_in_turn(self, publications: Publications, size: int) -> int:
        count = len(publications)
        if self._key_limit < 0 and not self._is_admitted(count):
            return 0
        self._charge()
        self._open_run((), is_loose=False)
        step = max(1, min(RUN_COUNT_MAX, count * self._run_size // (size + count * ROW_OVERHEAD)))
        parts = [publications.part(start, min(start + step, count)) for start in range(0, count, step)]
        if self.keeps_last:
            self._release(b"")
        last = parts.pop() if self.keeps_last else None
        runs, sealed = [(part, b"") for part in parts], self._sealed
        sealed += runs
        self._delayed = last
        self.number = self._charged_number = self.number + count
        self._put_size += size + count * PUBLICATION_SIZE
        self._charge()
        self._wake_loop()
        self._wait_or_bar()
        return self.number

    @property
    def limits(self) -> BatchLimits:
        """What the node takes."""
        return self._limits

    def release(self, number: int, end_s: float = inf) -> None:
        """See that the loop may take `number`, which somebody waits for. Raises `Misuse` where it was never given."""
        if self.failure is not None and self.failure.code == "forked":
            raise self.failure.again()
        check_assigned(number, self.number)
        if self.keeps_last and (self._bodies or self._delayed is not None):
            self.close_run(b"", end_s)

    def close_run(self, token: bytes, end_s: float = inf) -> int:
        """Let the loop take all there is, closed by a resume token if one is given; the number given last by then."""
        check_octets("resume_token", token)
        if len(token) > self._limits.token_size_max:
            message = f"a resume token may have {self._limits.token_size_max} bytes, this one has {len(token)}"
            raise Misuse("too-large", message, size=len(token))
        return self._in_turn(lambda: self._close_run_in_turn(token), end_s)

    def _close_run_in_turn(self, token: bytes) -> int:
        if token and not self.keeps_last:
            raise Misuse("no-tokens", 'this publisher does not use resume tokens: open it with resume="token"')
        self._seal()
        self._release(token)
        self._open_run((), is_loose=False)
        self.wake()
        return self.number

    def _seal(self) -> None:
        """Let the loop take the open run. It is not open any more before it can be taken as a sealed one."""
        run = self._open
        if run.bodies:
            fresh, seal = Listed(), self._sealed.append
            if self.keeps_last:
                self._release(b"")
            self._open, self._keys, self._bodies, self._values = fresh, fresh.keys, fresh.bodies, None
            if self.keeps_last:
                self._delayed = run
            else:
                seal((run, b""))

    def _release(self, token: bytes) -> None:
        if self._delayed is not None:
            delayed, self._delayed = self._delayed, None
            self._sealed.append((delayed, token))

    # ── room and refusals ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def has_room(self) -> bool:
        """Whether more may be published without exceeding the bound."""
        return self._put_size - self._cut_size + self.held_size < self._size_max

    @property
    def has_much_room(self) -> bool:
        """Whether it is worth waking someone who waits for room."""
        return self._put_size - self._cut_size + self.held_size < self._size_max * 3 // 4

    def bar(self) -> None:
        """Let the next `put` look at `failure` and `is_gone`, which were set before."""
        self._key_size = self._key_limit = -1

    def _is_admitted(self, count: int = 1) -> bool:
        """Whether so many more may be published, now that the short way is barred; raises what forbids it."""
        if (failure := self.failure or self.closed) is not None:
            raise failure.again()
        if self.is_gone and self._on_gone != "wait":
            return self._turn_away(count, self._on_gone, "link-lost", "no node can be reached: publish again later")
        if not self.has_room:
            policy = "drop" if self._on_full == "drop" else "fail"
            return self._turn_away(count, policy, "outbox-full", "the outbox is full: publish again later")
        self._become_open(self._open)
        return True

    def _turn_away(self, count: int, policy: str, code: str, message: str) -> bool:
        if policy == "drop":
            self.dropped_count += count
            return False
        raise Unavailable(code, message)

    def _turn(self) -> None:
        """The loop is idle, or the run is full: wake the one, seal the other, and see whether there is more room."""
        if self.number <= self._run_end:
            self._wake_loop()
            return
        self._charge()
        if self._bodies:
            self._open_run(self._open.names, is_loose=False)
        self._wake_loop()
        self._wait_or_bar()

    def _wake_loop(self) -> None:
        self.wake()
        self._number_end = self._run_end
        if self.is_idle:
            self._number_end = -1

    def _wait_or_bar(self) -> None:
        if self.has_room or self.failure is not None:
            return
        if self._on_full == "wait" and self.wait_room is not None:
            self._wait_in_turn(self.wait_room)
        else:
            self.bar()

    def _charge(self) -> None:
        """Charge what was published since the last time, by a sample of the bodies, and say where the next run ends."""
        sample = self._bodies[::SAMPLE_STEP]
        if sample:
            self._row_size = sum(map(len, sample)) // len(sample) + ROW_OVERHEAD
            self._body_size = min(BODY_FACTOR * self._row_size, self._run_size, self._limits.body_size_max >> 2)
        count = self.number - self._charged_number
        self._put_size += max(count * self._row_size, self._large_size) + count * PUBLICATION_SIZE
        self._charged_number = self.number
        self._large_size = 0
        self._marks.append((self.number, self._put_size))
        self._run_end = self.number + max(1, min(RUN_COUNT_MAX, self._run_size // self._row_size))

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, number: int, limits: BatchLimits) -> None:
        """Go on behind `number`; called once, before anything is published."""
        self.number = self.first_number = self._charged_number = number
        self._limits = limits
        self._body_size = min(self._body_size, limits.body_size_max >> 2)
        self._run_end = self._number_end = number + max(1, self._run_size // ROW_SIZE)

    def become_idle(self) -> None:
        """Nothing is on its way: let the next `put` wake the loop, which looks once more now."""
        self.is_idle = True
        self._number_end = -1

    def take(self, is_open_taken: bool) -> tuple[Publications, bytes] | None:
        """The next run and the token that closes it, or what the open one has; None when there is nothing."""
        run = self._open
        if self._sealed:
            return self._sealed.popleft()
        count = len(run.bodies) if is_open_taken and not self.keeps_last else 0
        if not count:
            return None
        taken = run.part(0, count)
        run.drop(count)
        return taken, b""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._sealed and (self.keeps_last or not self._bodies)

    def tell_cut(self, number: int, held_size: int) -> None:
        """All up to `number` is in batches, and the outbox holds so many bytes."""
        marks = self._marks
        while marks and marks[0][0] <= number:
            self._cut_size = marks.popleft()[1]
        self.held_size = held_size
