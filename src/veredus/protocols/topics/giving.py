"""The giver's side of a merge: it copies a topic to its keeper while it serves it, and gives it away at the end.

    look ──► Begin ──► Sources … ──► Rows … ──► (caught up) hold ──► mark ──► look ──► Rows … ──► End ──► delete
      ▲                                                                │
      └── any failure: not marked, given up; marked, tried again for ever ┘

While it copies, the topic is served here. Once nearly all is there it is *held*, and *marked*: a durable subscription
of the keeper's, under the name `GIVEN`, says that from now on the topic may be the keeper's, whatever becomes of either
process. So a marked topic is not served here any more before the keeper has said that it took it. The stream is deleted
as it was given: if somebody published to it meanwhile, by another listener, that goes too.

Invariants
    (1) What was given is held from before the last look at it until it is deleted.
    (2) One part is on its way at a time.
Source: seed 000, sections 3.1.6 and 3.1.7; docs/decisions/0012.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

from veredus.kernel.engine import Now
from veredus.streams import exchange as x
from veredus.streams.departures import LEFT_MAX
from veredus.streams.facts import Gone, Had
from veredus.streams.lives import Lives
from veredus.streams.removed import GIVEN, with_more
from veredus.streams.stream import Left

from .conflicts import NOT_GIVEN_NS
from .desk import Desk
from .ids import SUBSCRIPTION, shown_of
from .messages import Status, StatusWord, Transfer, encode_message, reason_of
from .transfer import Begin, End, Heard, Part, Row, Sources, Standing, decode_heard, encode_beyond, part_of, rows_in

PART_SIZE = 256 << 10
"""A part has at most so many bytes, or one row."""
SOURCES_COUNT = 1000
"""A part has at most so many sources."""
RETRY_NS = 1_000_000_000
_ROW_SIZE = 64
_CREDIT = 2 * PART_SIZE


class Giving:
    """Owns one topic's way to its keeper."""

    def __init__(self, desk: Desk, topic: str, keeper: str, is_marked: bool, done: Callable[[], None]) -> None:
        """`is_marked`: an earlier process had marked it. `done` is called when it is over, one way or the other."""
        self.failure = ""
        """Why the last attempt came to nothing; "" for none, and once the keeper takes of the next one."""
        self.noted = ("", 0)
        """Why it came to nothing as the log has it, and until when it does not say so again (monotonic)."""
        self.topic = topic
        self.keeper = keeper
        self.sent_count = 0
        self.retry_at_ns: int | None = None
        self._desk = desk
        self._done = done
        self._is_marked = is_marked
        self._is_held = False
        self._attempt = 0
        """Answers to what an earlier attempt asked count for nothing."""
        self._session = 0
        self._lives = Lives.of(b"")
        self._head = 0
        self._appended_us = 0
        """When something was appended last, as far as is known."""
        self._position = 0
        """Everything below it was read."""
        self._gone: tuple[Gone, ...] = ()
        """What merges into the stream did not bring."""
        self._merged: tuple[bytes, ...] = ()
        """The lives of what they took, and of earlier streams of this name that were removed."""
        self._names: dict[int, str] = {0: ""}
        self._owners: dict[str, str] = {}
        """Whose each source is, as the keeper knows by now."""
        self._rows: list[Row] = []
        self._freed_size = 0
        self._is_sending = False
        self._is_ending = False
        self._asked_us = 0
        self._offset_us = (-(1 << 62), 1 << 62)

    def begin(self, now: Now) -> None:
        """Give; a marked topic is held from the beginning."""
        self.retry_at_ns = None
        self._attempt += 1
        self._rows, self._freed_size, self._is_sending, self._is_ending = [], 0, False, False
        self._names, self._owners = {0: ""}, {}
        if self._is_marked and not self._is_held:
            self._is_held = True
            self._desk.hold(self.topic, self._why(), self._look, now)
        else:
            self._look(now)

    def _why(self) -> str:
        return f"{self.topic} goes from {self._desk.server_id} to {self.keeper}, which has not confirmed it yet"

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, now: Now) -> None:
        self._administer("stream.show", {"name": self.topic}, self._looked)

    def _looked(self, shown: dict[str, Any], now: Now) -> None:
        self._head, self._appended_us = shown["head"], shown["append_time_us"]
        if self._session:
            self._pump(now)
            return
        lives = Lives.of(shown["incarnation"], shown["terms"])
        # One that was made anew bears no mark.
        self._is_marked &= self._lives.present in (b"", lives.present)
        self._lives = lives
        self._ask(Begin(self._lives.present, list(self._lives.known)), self._begun, now)

    def _begun(self, heard: Heard, now: Now) -> None:
        self._position = max(heard.committed, heard.staged, 0) + 1
        self._list_sources(None, self._subscribe)

    def _list_sources(self, after: object, then: Callable[[], None]) -> None:
        arguments = {"stream": self.topic, "limit": SOURCES_COUNT, "after": after}
        self._administer("source.list", arguments, partial(self._listed, then))

    def _listed(self, then: Callable[[], None], page: dict[str, Any], now: Now) -> None:
        """Say how far sources have come, and whose they are; at the end, when rows have said the former, only this."""
        known = [s for s in page["rows"] if s["is_sparse"] and s["last_number"]]
        owners = {s["name"]: s["owner"] for s in known if s["owner"] and self._owners.get(s["name"]) != s["owner"]}
        self._owners |= owners
        sources = [
            (s["name"], s["last_number"], s["token"]) for s in known if not self._is_ending or s["name"] in owners
        ]
        go_on = then if page["next"] is None else partial(self._list_sources, page["next"], then)
        if sources:
            self._ask(Sources(self._lives.present, sources, owners), lambda _heard, _at: go_on(), now)
        else:
            go_on()

    # ── copying ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _subscribe(self) -> None:
        self._session = self._desk.open(self._told)
        start = x.Start(value=self._position)
        who = self._desk.principal
        self._desk.order(
            x.SubscribeRequested(self._session, who, self.topic, start=start, credit=_CREDIT, is_whole=True)
        )

    def _told(self, event: object, now: Now) -> None:
        match event:
            case x.GrantSubscription() if not self._is_of(event):
                self._fail(f"{self.topic} was removed and made anew", now)
            case x.GrantSubscription(position=position, head=head, gone=gone, removed=removed, merged=merged):
                self._gone, self._merged = gone, with_more(removed, merged)
                self._position, self._head = position, max(self._head, head)
                self._pump(now)
            case x.Push(_, buffers, size, _, last, _, names):
                self._names.update(names)
                self._rows += (row for row in rows_in(buffers, self._names) if row.sequence >= self._position)
                self._freed_size += size + x.PUSH_OVERHEAD
                self._position = last + 1
                self._pump(now)
            case x.PushProgress(_, position):
                self._position = max(self._position, position)
                self._pump(now)
            case x.PushGap(_, first, following, code):
                self._desk.note(
                    "warning", "topic-gap-given", topic=self.topic, first=first, before=following, code=code
                )
                self._position = following
                self._pump(now)
            case x.Refuse(_, "below-floor", _, details):
                self._desk.close(self._session)
                self._position = int(details["floor"])  # type: ignore[call-overload]
                self._subscribe()
            case x.Refuse(_, code, message):
                self._session = 0
                self._fail(f"{message} [{code}]", now)

    def _is_of(self, grant: x.GrantSubscription) -> bool:
        """Whether it is the stream that was looked at, and not one that was made anew since that was removed."""
        return Lives.of(grant.stream_incarnation, grant.terms).present == self._lives.present

    def _pump(self, now: Now) -> None:
        """Send what was read, and go on to the next step where nothing is left to be."""
        if self._is_sending or not self._session:
            return
        if self._rows:
            self._send(now)
        elif self._position <= self._head:
            return
        elif not self._is_held:
            self._is_held = self._is_sending = True
            self._desk.hold(self.topic, self._why(), self._mark, now)
        elif not self._is_marked:
            self._is_sending = True
            self._mark(now)
        elif not self._is_ending:
            # Nothing is in hand any more: what is there now is all there is.
            self._is_ending = True
            self._look(now)
        else:
            self._is_sending = True
            self._list_sources(None, self._end)

    def _send(self, now: Now) -> None:
        count = size = 0
        for row in self._rows[: self._desk.part_count_max]:
            size += len(row.body) + len(row.key) + _ROW_SIZE
            if count and size > PART_SIZE:
                break
            count += 1
        rows, self._rows = self._rows[:count], self._rows[count:]
        messages = tuple((f"{shown_of(self._lives.at(row.sequence))}-{row.sequence}", row.body) for row in rows)
        self._is_sending = True
        if not self._rows:
            self._desk.order(x.CreditGranted(self._session, self._freed_size))
            self._freed_size = 0
        self.sent_count += count
        self._ask(part_of(self._lives.present, rows, self._offset_us), self._sent, now, messages)

    def _sent(self, heard: Heard, now: Now) -> None:
        self._is_sending = False
        self._pump(now)

    # ── giving ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _mark(self, now: Now) -> None:
        """The topic is held. Let it be known after any crash that it may be the keeper's."""
        attempt = self._attempt
        session = 0

        def marked(event: object, at: Now) -> None:
            self._desk.close(session)
            if isinstance(event, x.GrantSubscription):
                self._is_marked |= self._is_of(event)
            if attempt != self._attempt:
                return
            self._is_sending = False
            if self._is_marked:
                self._pump(at)
            elif isinstance(event, x.GrantSubscription):
                self._fail(f"{self.topic} was removed and made anew", at)
            elif isinstance(event, x.Refuse):
                self._fail(f"{event.message} [{event.code}]", at)

        session = self._desk.open(marked)
        self._desk.order(
            x.SubscribeRequested(
                session, self._desk.principal, self.topic, name_of(self.keeper), GIVEN, start=x.Start(x.StartKind.HEAD),
                incarnation=self._desk.new_incarnation(),
            )
        )  # fmt: skip

    def _end(self) -> None:
        self._head = max(self._head, self._position - 1)
        self._administer("subscription.list", {"stream": self.topic, "name": SUBSCRIPTION}, self._end_with)

    def _end_with(self, listed: list[dict[str, object]], _: Now) -> None:
        named: dict[str, object] = {"stream": self.topic, "name": SUBSCRIPTION}
        self._administer("subscription.left", named, partial(self._give, standings_of(listed)))

    def _give(self, standings: dict[str, Standing], left: list[tuple[str, int, int, str, Had]], now: Now) -> None:
        lives, lefts = self._lives, left_of(left)
        known = self._appended_us, self._gone, self._merged
        end = End(lives.present, self._head, self._offset_us, standings, lefts, *known)
        subscribers = tuple((who, ()) for who in end.standings)
        self._ask(end, self._ended, now, (), subscribers)

    def _ended(self, heard: Heard, now: Now) -> None:
        if heard.committed < self._head:
            self._fail(f"{self.keeper} has the topic only up to {heard.committed}", now)
            return
        # The stream goes as it is, or if somebody published meanwhile, more of it is sent.
        self._desk.close(self._session)
        self._session, self._names = 0, {0: ""}
        attempt = self._attempt

        def deleted(answer: x.AnswerAdmin | x.Refuse, at: Now) -> None:
            if attempt != self._attempt:
                return
            if isinstance(answer, x.AnswerAdmin) or answer.code == "unknown-stream":
                self._finish(at)
            elif answer.code == "stream-moved-on":
                self._is_sending = self._is_ending = False
                self._subscribe()
            else:
                self._fail(f"{answer.message} [{answer.code}]", at)

        self._desk.administer("stream.delete", {"name": self.topic, "head": self._head, "given": True}, deleted)

    def _finish(self, now: Now) -> None:
        self._close()
        self._desk.note("info", "topic-given", topic=self.topic, keeper=self.keeper, publications=self.sent_count)
        self._desk.pass_on(self.topic, self.keeper, now)
        self._desk.announce()
        self._done()

    # ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────

    def _fail(self, reason: str, now: Now) -> None:
        """Try again later, if the topic may be the keeper's; otherwise go on serving it, until the next MERGE."""
        self._close()
        self.failure = reason
        noted, until_ns = self.noted
        if reason != noted or now.monotonic_ns >= until_ns:
            self.noted = (reason, now.monotonic_ns + NOT_GIVEN_NS)
            self._desk.note("warning", "topic-not-given", topic=self.topic, keeper=self.keeper, reason=reason)
        if self._is_marked:
            self.retry_at_ns = now.monotonic_ns + RETRY_NS
            return
        self._give_up(now)

    def _give_up(self, now: Now) -> None:
        self._attempt += 1
        if self._is_held:
            self._desk.release(self.topic, now)
        self._done()

    def _close(self) -> None:
        self._attempt += 1
        if self._session:
            self._desk.close(self._session)
            self._session = 0

    def _compare_clocks(self, low_us: int, high_us: int) -> None:
        """By one exchange the keeper's clock is so far before this one: what all exchanges say, unless one was set."""
        low, high = max(self._offset_us[0], low_us), min(self._offset_us[1], high_us)
        self._offset_us = (low, high) if low <= high else (low_us, high_us)

    # ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _administer(self, verb: str, arguments: dict[str, object], then: Callable[..., None]) -> None:
        attempt = self._attempt

        def answered(answer: x.AnswerAdmin | x.Refuse, now: Now) -> None:
            if attempt != self._attempt:
                return
            if isinstance(answer, x.AnswerAdmin):
                then(answer.result, now)
            elif answer.code == "unknown-stream":
                # Somebody else deleted it: there is nothing to give.
                self._close()
                self._give_up(now)
            else:
                self._fail(f"{answer.message} [{answer.code}]", now)

        self._desk.administer(verb, arguments, answered)

    def _ask(
        self,
        part: Part,
        then: Callable[[Heard, Now], None],
        now: Now,
        messages: tuple[tuple[str, bytes], ...] = (),
        subscribers: tuple[tuple[str, tuple[str, ...]], ...] = (),
    ) -> None:
        attempt, asked_us = self._attempt, now.wall_us

        def answered(status: Status | None, at: Now) -> None:
            if attempt != self._attempt:
                return
            heard = None if status is None or status.status != StatusWord.OK else decode_heard(status.body)
            if heard is not None:
                self.failure = ""
                self._compare_clocks(heard.clock_us - at.wall_us, heard.clock_us - asked_us)
                then(heard, at)
            elif status is None:
                self._fail(f"{self.keeper} does not answer", at)
            elif status.status == StatusWord.OK:
                said = "is a server written by others, which cannot take a topic from this one"
                self._fail(f"{self.keeper} {said}: give it a higher id", at)
            else:
                self._fail(f"{self.keeper}: {reason_of(status)} ({status.status})", at)

        beyond = encode_beyond(part)
        data = encode_message(Transfer(self._desk.server_id, self.topic, subscribers, messages, beyond))
        self._desk.ask(self.keeper, data, answered, now)


def name_of(address: str) -> str:
    """An address as a subscriber's name, which holds no brackets."""
    return "ip/" + address.removeprefix("[").replace("]:", "/") if address.startswith("[") else address


def address_of(name: str) -> str:
    """The address that has this name."""
    host, _, port = name.removeprefix("ip/").rpartition("/")
    return f"[{host}]:{port}" if name.startswith("ip/") else name


def left_of(listed: list[tuple[str, int, int, str, Had]]) -> dict[str, dict[str, Left]]:
    """When those that left did so, and what they had, as the streams floor lists it, by subscriber and principal: the
    newest, as many as another server takes.
    """
    found: dict[str, dict[str, Left]] = {}
    if len(listed) > LEFT_MAX:
        # Some came and went between the pages of the list.
        listed = sorted(listed, key=itemgetter(1))[-LEFT_MAX:]
    for who, removed_us, wish, principal, had in listed:
        found.setdefault(who, {})[principal] = Left(removed_us, wish, had)
    return found


def standings_of(listed: list[dict[str, object]]) -> dict[str, Standing]:
    """Where subscriptions stand, as the streams floor lists them, by subscriber."""
    return {
        str(one["subscriber"]): Standing(
            one["opened_us"],  # type: ignore[arg-type]
            one["start"],  # type: ignore[arg-type]
            one["floor"],  # type: ignore[arg-type]
            one["settled"],  # type: ignore[arg-type]
            one["origins"],  # type: ignore[arg-type]
            one["unwanted"],  # type: ignore[arg-type]
            one["renewed_us"],  # type: ignore[arg-type]
            one["wish"],  # type: ignore[arg-type]
            one["next"],  # type: ignore[arg-type]
            str(one["owner"]),
            one["lost"],  # type: ignore[arg-type]
        )
        for one in listed
    }
