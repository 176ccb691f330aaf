"""The keeper's side of a merge: it stages what comes, and shows it at once, with everybody's cursors, at the end.

    Begin ──► a run of the sink `topics-merge/<the giver's present life>`; what it has committed is known
    Rows ───► sources raised ──► own rows read up to then ──► twins left out ──► staged, durable ──► Heard
    End ────► held ──► own rows read to the head ──► cursors placed, in turns
                                                       ──► one commit, its id the giver's head ──► Heard

A put that was tried at both servers is taken once: before rows are staged, those who put them are raised to their
counters here, so that it cannot be taken here later; what was taken here before is found among the rows of this stream,
which is read for that once, from its floor on: what the giver had from a third server may be older than its stream, and
times are no proof.

Invariants
    (1) A row of the giver's is staged once, in the order of its sequences, or is a twin.
    (2) Whoever asks for a part is answered when it is durable.
Source: seed 000, section 3.1.7; docs/decisions/0012.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault
from veredus.kernel.turns import QUANTUM_NS
from veredus.streams import exchange as x
from veredus.streams.lives import Lives
from veredus.streams.raising import RAISED_MAX

from .desk import Desk
from .giving import left_of, name_of, standings_of
from .ids import SINK, SUBSCRIPTION
from .losing import all_of, on_record
from .merged import Merged
from .messages import StatusWord, Transfer
from .placing import (
    Side,
    floor_of,
    lost_of,
    moves,
    placing_cost_of,
    those_that_stay,
    without_what_came_there,
)
from .transfer import (
    PAGE_SOURCE,
    TIME_MAX_US,
    Begin,
    End,
    Heard,
    Row,
    RowsPart,
    Sources,
    Standing,
    encode_beyond,
    in_batches,
    rows_in,
    rows_of,
    staged_record,
)
from .twins import KnownPuts
from .weaving import Legs, woven

QUIET_NS = 30_000_000_000
"""A merge of which nothing is heard for so long is forgotten; it may begin again."""
_CREDIT = 256 << 10
"""So much of this stream is read at once: questions wait for no more."""
_COMMIT = 1
Placed: TypeAlias = Callable[[list[x.CursorMove], Now], None]
"""Hears where subscriptions are to stand."""


class Keeping:
    """Owns what comes of one topic from one giver."""

    def __init__(
        self,
        desk: Desk,
        topic: str,
        giver: str,
        incarnation: bytes,
        done: Callable[[], None],
        is_of_page: bool = False,
    ) -> None:
        """`incarnation` is the present life of the giver's stream; `done` is called when all is over, well or not.

        `is_of_page`: the giver knows the page alone, and says each time where its subscriptions stand.
        """
        self._is_of_page = is_of_page
        self.topic = topic
        self.giver = giver
        self.incarnation = incarnation
        self.heard_ns = 0
        """When the giver was heard last."""
        self._desk = desk
        self._done = done
        self._sink = SINK + incarnation.hex()
        self._run = 0
        self._epoch = 0
        self._committed = -1
        self._stage = 0
        self._stage_session = 0
        self._stream_id = 0
        self._scan = 0
        self._position = 0
        """Everything below it of this stream was read."""
        self._names: dict[int, str] = {0: ""}
        self._puts = KnownPuts()
        """Those that this stream has."""
        self._given = KnownPuts()
        """Those that are staged, by their rows."""
        self._merged = Merged(Lives.of(b""), Lives.of(incarnation))
        self._taken = 0
        """Up to there the giver's rows came with merges in earlier lives of its stream."""
        self._staged = 0
        self._count = 0
        self._appended_us = 0
        """When something was appended to this stream last."""
        self._peers: list[int] = []
        """Who waits for the part that is worked on."""
        self._working_on: object = None
        self._waits_for_head: int | None = None
        self._then: Callable[[Now], None] | None = None
        self._batches: list[list[Row]] = []
        self._last = 0
        self._is_held = False
        self._go_on: Callable[[Now], None] | None = None
        self.turn_ns: int | None = None
        """When what takes turns has its next one."""

    @property
    def is_working(self) -> bool:
        """Whether a part is being worked on."""
        return bool(self._peers)

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, peer: int, part: Begin | Sources | RowsPart | End, transfer: Transfer, now: Now) -> None:
        """A part came, or came again."""
        self.heard_ns = now.monotonic_ns
        key = (transfer.messages[:1], transfer.beyond)
        if self._peers:
            if key == self._working_on:
                self._peers.append(peer)
            else:
                self._desk.answer(peer, StatusWord.SERVER_UNAVAILABLE, b"another part is worked on: try again")
            return
        self._peers, self._working_on = [peer], key
        match part:
            case Begin():
                self._begin(Lives(part.lives or [(part.incarnation, 1)]), now)
            case Sources():
                self._raise(part.sources, self._heard, part.owners)
            case RowsPart():
                self._merged.note_arrivals(part.sequences, part.times_us, part.attributes)
                self._take_rows([row for row in rows_of(part, transfer) if row.sequence > self._staged], now)
            case End():
                self._end(part, now)

    def _heard(self, now: Now) -> None:
        """The part is worked on no more."""
        body = encode_beyond(Heard(self._committed, self._staged, now.wall_us))
        peers, self._peers = self._peers, []
        for peer in peers:
            self._desk.answer(peer, StatusWord.OK, body)

    def _refuse(self, word: StatusWord, reason: str) -> None:
        peers, self._peers = self._peers, []
        for peer in peers:
            self._desk.answer(peer, word, reason.encode(errors="backslashreplace"))

    # ── begin ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, lives: Lives, now: Now) -> None:
        if self._stage:
            self._heard(now)
            return
        self._merged.giver_lives = lives

        def found(listed: Any, _: Now) -> None:
            self._taken = _taken_in(lives, {sink["sink"]: sink["commit_id"] for sink in listed})
            self._open_run()

        if len(lives.known) > 1:
            self._administer("sink.list", {}, found)
        else:
            self._open_run()

    def _open_run(self) -> None:
        def granted(event: object, at: Now) -> None:
            if isinstance(event, x.GrantRun):
                self._epoch, self._committed = event.epoch, event.commit_id
                self._staged = max(0, event.commit_id)
                self._open_stage()
            elif isinstance(event, x.ConfirmCommitted):
                self._shown(at)
            elif isinstance(event, x.Refuse) and event.request == _COMMIT:
                self._put_off(event, at)
            else:
                self._fault(event, at)

        self._run = self._desk.open(granted)
        own = self._desk.new_incarnation()
        self._desk.order(x.RunOpenRequested(self._run, self._desk.principal, self._sink, own))

    def _open_stage(self) -> None:
        def granted(event: object, at: Now) -> None:
            if isinstance(event, x.GrantStage):
                self._stage, self._stream_id = event.stage, event.stream_id
                self._subscribe()
            elif isinstance(event, x.ConfirmTaken):
                self._stored(at)
            elif isinstance(event, x.RefuseBatch):
                self._put_off(event, at)
            else:
                self._fault(event, at)

        session = self._stage_session = self._desk.open(granted)
        key = self._desk.new_incarnation()
        self._desk.order(x.StageOpenRequested(session, self._desk.principal, self._sink, self._epoch, self.topic, key))

    def _subscribe(self) -> None:
        """Read what this stream has."""
        self._scan = self._desk.open(self._read)
        who = self._desk.principal
        self._desk.order(x.SubscribeRequested(self._scan, who, self.topic, credit=_CREDIT, is_whole=True))

    def _read(self, event: object, now: Now) -> None:
        match event:
            case x.GrantSubscription(
                stream_incarnation=incarnation, position=position, terms=terms, gone=gone, merged=merged
            ):
                self._merged.keeper_lives = Lives.of(incarnation, terms)
                self._merged.keeper_gone, self._merged.keeper_merged = gone, merged
                self._position = position
                self._heard(now)
            case x.Push(_, buffers, size, _, last, _, names):
                self._names.update(names)
                for row in rows_in(buffers, self._names):
                    if row.sequence >= self._position:
                        self._note(row)
                self._position = last + 1
                self._desk.order(x.CreditGranted(self._scan, size + x.PUSH_OVERHEAD))
                self._look(now)
            case x.PushGap(next_sequence=position) | x.PushProgress(position=position):
                self._position = max(self._position, position)
                self._look(now)
            case _:
                self._fault(event, now)

    def _note(self, row: Row) -> None:
        self._merged.note_own(row.sequence, row.time_us, row.attributes)
        if row.client:
            self._puts.note(row.client, row.counter, row.digest, row.sequence)

    def _await_head(self, head: int, then: Callable[[Now], None], now: Now) -> None:
        """Go on once this stream has been read up to `head`."""
        self._waits_for_head, self._then = head, then
        self._look(now)

    def _look(self, now: Now) -> None:
        if self._waits_for_head is not None and self._position > self._waits_for_head:
            then, self._waits_for_head, self._then = self._then, None, None
            assert then is not None
            then(now)

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _raise(
        self, sources: Iterable[tuple[str, int, bytes]], then: Callable[[Now], None], owners: Mapping[str, str] = {}
    ) -> None:
        """Let clients have put up to their counters, here too; go on when this stream was read up to then."""
        raised = list(sources)
        for client, counter, digest in raised:
            self._desk.learn(self.topic, client, counter, digest)

        def answered(result: Any, now: Now) -> None:
            if raised:
                ask()
            else:
                self._merged.head, self._appended_us = int(result["head"]), int(result["append_time_us"])
                self._await_head(self._merged.head, then, now)

        def ask() -> None:
            part = raised[:RAISED_MAX]
            del raised[:RAISED_MAX]
            theirs = {client: owners[client] for client, _, _ in part if owners.get(client)}
            self._administer("source.raise", {"stream": self.topic, "sources": part, "owners": theirs}, answered)

        ask()

    def _take_rows(self, rows: list[Row], now: Now) -> None:
        if not rows:
            self._heard(now)
            return
        newest = {row.client: row for row in rows if row.client}
        raised = (row.put for row in newest.values())

        def stage(at: Now) -> None:
            others = [row for row in rows if not self._is_twin(row) and row.sequence > self._taken]
            self._last = rows[-1].sequence
            self._batches = list(in_batches(others))
            self._store(at)

        self._raise(raised, stage)

    def _is_twin(self, row: Row) -> bool:
        """Whether this stream has the same put already."""
        place = self._puts.place_of(row.client, row.counter, row.digest) if row.client else None
        if place is not None:
            self._merged.note_twin(row.sequence, place, row.time_us)
        return place is not None

    def _store(self, now: Now) -> None:
        """Stage the next batch, or be done with the part."""
        if not self._batches:
            self._staged = self._last
            self._heard(now)
            return
        try:
            record, header = staged_record(self._batches[0], self._stream_id, self._count + 1)
        except PeerFault as fault:
            self._refuse(StatusWord.BAD_MESSAGE, fault.message)
            return
        self._desk.order(x.BatchOffered(self._stage_session, record, header))

    def _stored(self, now: Now) -> None:
        if not self._batches:
            return
        batch = self._batches.pop(0)
        for place, row in enumerate(batch, self._count):
            self._merged.sequences.append(row.sequence)
            self._merged.row_times.note(place, row.time_us)
            if row.client:
                self._given.note(row.client, row.counter, row.digest, place)
        self._count += len(batch)
        self._staged = batch[-1].sequence
        self._store(now)

    # ── end ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _end(self, part: End, now: Now) -> None:
        if self._committed >= part.head:
            self._heard(now)
            self.close()
            return

        def held(_: Now) -> None:
            self._raise((), lambda then: self._place(part, then))

        self._is_held = True
        why = f"{self.topic} is moving from {self.giver} to {self._desk.server_id}"
        self._desk.hold(self.topic, why, held, now)

    def _place(self, part: End, now: Now) -> None:
        self._merged.giver_head, self._merged.offset_us = part.head, part.offset_us
        self._merged.giver_gone, self._merged.giver_merged = on_record(part.gone, TIME_MAX_US), part.merged
        self._merged.end_arrivals(self._appended_us, part.appended_us)
        # A server from the page has no sequences: where its messages lie says nothing of what it had.
        self._merged.known_to = part.head if self._is_of_page else max(self._committed, self._taken, 0)
        # What was committed before had its subscriptions with it: they go on here.
        giver = Side(part.standings, part.left) if self._committed < 0 or self._is_of_page else Side({})
        named: dict[str, object] = {"stream": self.topic, "name": SUBSCRIPTION}

        def listed(result: Any, _: Now) -> None:
            self._administer("subscription.left", named, partial(left, standings_of(result)))

        def left(standings: dict[str, Standing], result: Any, at: Now) -> None:
            keeper = Side(standings, left_of(result))
            each = moves(self._stage, SUBSCRIPTION, keeper, giver, self._merged)
            self._place_some(each, [], partial(self._end_with, part.head, keeper, giver), at)

        self._administer("subscription.list", named, listed)

    def _place_some(
        self, each: Iterator[x.CursorMove | None], placed: list[x.CursorMove], then: Placed, now: Now
    ) -> None:
        """Find out where subscriptions are to stand, as many as in one turn; of the others in the next."""
        cost_ns = 0
        for move in each:
            placed += () if move is None else (move,)
            cost_ns += placing_cost_of(move)
            if cost_ns >= QUANTUM_NS:
                self._go_on, self.turn_ns = partial(self._place_some, each, placed, then), now.monotonic_ns + 1
                return
        then(placed, now)

    def give_turn(self, now: Now) -> None:
        """Go on with what takes turns."""
        go_on, self._go_on, self.turn_ns = self._go_on, None, None
        if go_on is not None and self._peers:
            go_on(now)

    def _end_with(self, head: int, keeper: Side, giver: Side, placed: list[x.CursorMove], now: Now) -> None:
        """All rows are staged, and it is known where each subscription is to stand."""
        if self._is_of_page:
            source = PAGE_SOURCE + name_of(self.giver)
            places = sorted(place for place, _ in self._puts.puts_of(source, 0))
            placed = without_what_came_there(placed, keeper, giver, self._merged, places)
        order = woven(self._puts, self._given, self._merged.head, self._count, floor_of(keeper, placed))
        if order.legs:
            placed += those_that_stay(self._stage, SUBSCRIPTION, keeper, placed, self._merged)
        if order.unkept:
            self._desk.note("warning", "topic-order-not-kept", topic=self.topic, giver=self.giver, reason=order.unkept)
        if told := sum(move.lost != lost_of(keeper, giver, move.subscriber) for move in placed):
            lost = all_of(one for move in placed for one in move.lost)
            gone = sum(one.last - one.first + 1 for one in lost)
            self._desk.note(
                "warning", "topic-messages-gone", topic=self.topic, giver=self.giver, publications=gone, told=told
            )
        self._commit(head, tuple(placed), order.legs, now)

    def _administer(self, verb: str, arguments: dict[str, object], then: Callable[[Any, Now], None]) -> None:
        """Ask the streams floor, unless the part is given up meanwhile; what it refuses puts the part off."""

        def answered(answer: x.AnswerAdmin | x.Refuse, now: Now) -> None:
            if not self._peers:
                return
            if isinstance(answer, x.AnswerAdmin):
                then(answer.result, now)
            else:
                self._put_off(answer, now)

        self._desk.administer(verb, arguments, answered)

    def _commit(self, head: int, placed: tuple[x.CursorMove, ...], legs: Legs, now: Now) -> None:
        who, stages, weaves = self._desk.principal, (self._stage,), ((self._stage, legs),) if legs else ()
        known = self._stage, self._merged.gone(now.wall_us), self._merged.lives
        self._desk.order(
            x.CommitRequested(
                self._run, _COMMIT, who, self._sink, self._epoch, head, stages, placed, weaves=weaves,
                merged=(known,),
            )
        )  # fmt: skip
        self._last = head

    def _shown(self, now: Now) -> None:
        """The rows and the cursors are there, for good."""
        self._committed, self._stage = self._last, 0
        counts: dict[str, Any] = {"publications": self._count, "twins": len(self._merged.twins)}
        self._desk.note("info", "topic-merged", topic=self.topic, giver=self.giver, **counts)
        self._let_go(now)
        self._heard(now)
        self.close()

    # ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────

    def _put_off(self, refusal: x.Refuse | x.RefuseBatch, now: Now) -> None:
        """The node could not store it, or not now: what was staged stays, and the giver tries again."""
        self._batches = []
        self._let_go(now)
        self._refuse(StatusWord.INTERNAL_ERROR, f"{refusal.message} [{refusal.code}]")

    def _fault(self, event: object, now: Now) -> None:
        """Something was refused or fenced: the giver begins again, what was staged is dropped."""
        if isinstance(event, x.Refuse):
            reason = f"{event.message} [{event.code}]"
        elif isinstance(event, x.Fence):
            reason = event.message
        else:
            return
        self._desk.note("warning", "topic-not-merged", topic=self.topic, giver=self.giver, reason=reason)
        self._let_go(now)
        self._refuse(StatusWord.INTERNAL_ERROR, reason)
        self.close()

    def _let_go(self, now: Now) -> None:
        if self._is_held:
            self._is_held = False
            self._desk.release(self.topic, now)

    def close(self) -> None:
        """Leave every session; an open stage is dropped, since nobody will go on with it."""
        if self._stage and self._run:
            who, stages = self._desk.principal, (self._stage,)
            dropped = x.StagesDropRequested(self._run, _COMMIT, who, self._sink, self._epoch, stages)
            self._desk.order(dropped)
        for session in (self._stage_session, self._scan, self._run):
            if session:
                self._desk.close(session)
        self._run = self._stage = self._stage_session = self._scan = 0
        self._done()


def _taken_in(lives: Lives, commits: Mapping[str, int]) -> int:
    """Up to where merges in the earlier lives of a stream took its rows, by the last commit of each sink."""
    former = ((life, following - 1) for (life, _), (_, following) in pairwise(lives.known))
    return max((min(commits.get(SINK + life.hex(), -1), last) for life, last in former), default=0)
