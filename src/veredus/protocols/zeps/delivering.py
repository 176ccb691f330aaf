"""What one version 1 attachment is delivered: its subscriptions, found out one by one, and the credit they share.

    SUBSCRIBE ──► asked ── a probe is granted ──► joins the interests ── nothing else is asked ──► a leg walks on
                    └───── the probe is refused: the attachment ends

A probe is a subscription without credit: it finds out whether that one can be had, and where it begins. A leg is the
subscription that brings publications; it begins anew whenever the interests change (`Interests`). What was pushed by
then and is not delivered is recalled, and pushed again in its turn: another interest may begin before it.

Invariants
    (1) Each sequence is delivered at most once on an attachment, and exactly once as credit allows (`Interests`).
    (2) What waits here for credit is at most what `WINDOW_SIZE` of credit let the streams floor push. Where it is too
        much over all links it is let go: its leg ends, and the next one, which begins with credit, brings it again.
    (3) The probe and the leg are each closed by exactly one `SessionClosed`, unless the streams floor has ended them.
    (4) What a client gives credit for is taken in turns of its principal: the streams floor pushes a window, and the
        next one when there is time for it, so that the link can say before that it is congested. A window may hold far
        more when it is decompressed: of that a turn brings about a quantum, too, and its principal pays for it.
    (5) No DELIVER is said while a SUBSCRIBE-OK is owed, or while the link is congested.
    (6) Between two SUBSCRIBE-OKs sequences only grow. What waits here for credit is of the present leg: the next one
        begins when it is delivered.
Source: seed 004, "Detailed Design Notes"; docs/internals/DESIGN.md, "ZEPS 1".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from veredus.kernel.effects import Send
from veredus.kernel.errors import Refused
from veredus.kernel.words import are, spanned
from veredus.matching import Filter
from veredus.protocols.links import WorkDone
from veredus.streams import exchange as x

from .answers import Answers
from .asking import Asked
from .interests import Interests
from .orders import SessionCongested, SessionDrained
from .packing import OCTET_NS, Unpacker, buffers_of
from .undelivered import Undelivered

WINDOW_SIZE = 256 << 10
"""Credit that the streams floor is given at a time, in bytes, whatever the client has given."""
CREDIT_MAX = 1 << 62


class Delivering:
    """Owns an attachment's subscriptions and credit; what follows is added to the attachment's `effects`."""

    __slots__ = (
        "_answers", "_asked", "_credit", "_effects", "_floor_credit", "_incarnation", "_interests",
        "_is_congested", "_is_ending", "_is_framed", "_is_leg_due", "_leg", "_link", "_next_session", "_probe",
        "_stream", "_undelivered", "_unpacker", "is_turn_due", "principal",
    )  # fmt: skip

    def __init__(
        self,
        link: int,
        stream: str,
        is_framed: bool,
        answers: Answers,
        effects: list[object],
        next_session: Callable[[], int],
        undelivered: Undelivered,
    ) -> None:
        """Nothing is subscribed to yet; `principal` must be set before anything is. What waits is counted in
        `undelivered`.
        """
        self._link = link
        self._stream = stream
        self._is_framed = is_framed
        self._answers = answers
        self._effects = effects
        self._next_session = next_session
        self.principal = ""
        self._asked: deque[Asked] = deque()
        self._probe = 0
        self._interests = Interests()
        self._incarnation = b""
        """Of the stream that was subscribed to first: another one of its name has other sequences."""
        self._leg = 0
        self._is_leg_due = False
        """Whether the next leg begins when nothing waits here any more."""
        self._credit = 0
        self._floor_credit = 0
        self._unpacker = Unpacker(undelivered.payloads)
        self._undelivered = undelivered
        self._is_congested = False
        self._is_ending = False
        self.is_turn_due = False
        """Whether what waits here goes on in the link's next turn, and not before."""

    # ── subscribe ────────────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, asked: Asked) -> None:
        """One more subscription is asked for. Raises `Refused("bad-filter")` where that is one too many."""
        self._interests.check_room(one.pattern for one in (*self._asked, asked))
        self._asked.append(asked._replace(behind=self._answers.number_offered))
        self._answers.owe_subscription()
        self.go_on()

    def _ask_next(self) -> None:
        """Find out whether the next subscription can be had, and where it begins, before it joins the others.

        The last known sequence may be that of the client's own PUBLISH in front of it: not before that is stored.
        """
        self._probe = 0
        if not self._asked:
            return
        start, is_stored = self._asked[0].start, self._asked[0].behind <= self._answers.number_taken
        if is_stored or start.kind is not x.StartKind.SEQUENCE:
            self._probe = self._next_session()
            self._effects.append(
                x.SubscribeRequested(
                    self._probe, self.principal, self._stream, start=start, stream_incarnation=self._incarnation
                )
            )

    def go_on(self) -> None:
        """Another subscription is asked for, or more of what the client has published is stored."""
        if not self._probe:
            self._ask_next()

    def grant(self, said: x.GrantSubscription) -> None:
        """The streams floor has granted a probe, whose SUBSCRIBE-OK may be said now, or a leg."""
        if said.session == self._probe:
            self._join(said)
        elif said.session == self._leg:
            self._interests.advance(said.position)
            if self._is_congested:
                self._effects.append(SessionCongested(self._leg))

    def _join(self, said: x.GrantSubscription) -> None:
        pattern, start, latest, _ = self._asked.popleft()
        self._incarnation = said.stream_incarnation
        self._end_session(self._probe)
        self._interests.add(pattern, latest if start.kind is x.StartKind.SEQUENCE else said.position - 1)
        self._ask_next()
        if not self._asked and not self._is_ending:
            self._recall()
            self._begin_leg()
        self._answers.grant_subscription()

    def _recall(self) -> None:
        """What was pushed and is not delivered is forgotten: the next leg brings it again."""
        recalled = self._unpacker.recall()
        if recalled:
            self._interests.retreat(recalled)
        self._undelivered.count(self)

    def is_probe(self, session: int) -> bool:
        """Whether a refusal of this session answers the SUBSCRIBE that is being found out about."""
        return session == self._probe

    def is_leg(self, session: int) -> bool:
        """Whether a refusal of this session ends what is being delivered."""
        return session == self._leg

    def forget_asked(self) -> None:
        """The streams floor has refused the probe: nothing that was asked for behind it is found out about."""
        self._asked.clear()
        self._probe = 0

    def forget_leg(self) -> None:
        """The streams floor has ended the leg."""
        self._leg = 0

    def _begin_leg(self) -> None:
        self._end_leg()
        self._is_leg_due = False
        self._leg = self._next_session()
        leg = self._interests.next_leg()
        self._floor_credit = self._wanted_credit()
        self._effects.append(
            x.SubscribeRequested(
                self._leg,
                self.principal,
                self._stream,
                filter=Filter(leg.keys),
                start=x.Start(x.StartKind.SEQUENCE, leg.start),
                until=leg.until,
                credit=self._floor_credit,
                stream_incarnation=self._incarnation,
                octet_ns=OCTET_NS,
            )
        )

    def end(self) -> None:
        """Deliver nothing more; what was asked for is still found out about, since answers are owed."""
        self._is_ending = True
        self._is_leg_due = self.is_turn_due = False
        self._end_leg()
        self._unpacker = Unpacker(self._undelivered.payloads)
        self._undelivered.count(self)

    def close(self) -> None:
        """The attachment is over."""
        self.end()
        self._asked.clear()
        self._end_session(self._probe)
        self._probe = 0

    def _end_leg(self) -> None:
        self._end_session(self._leg)
        self._leg = 0

    def _end_session(self, session: int) -> None:
        if session:
            self._effects.append(x.SessionClosed(session))

    # ── what the streams floor pushes ────────────────────────────────────────────────────────────────────────────────

    def push(self, said: x.Push) -> None:
        """Take records, and deliver of them what credit allows."""
        if said.session == self._leg:
            self._floor_credit -= said.size + x.PUSH_OVERHEAD
            self._unpacker.add(said.buffers, self._interests.covered)
            self._interests.advance(said.last_sequence + 1)
            self.deliver()

    def push_progress(self, said: x.PushProgress) -> None:
        """Nothing matched up to there."""
        if said.session == self._leg:
            self._interests.advance(said.position)

    def push_gap(self, said: x.PushGap) -> None:
        """Version 1 cannot say a gap: raises `Refused("gap")`."""
        if said.session == self._leg:
            last = said.next_sequence - 1
            gone = f"{spanned('sequence', said.first_sequence, last)} {are(last - said.first_sequence + 1)}"
            raise Refused("gap", f"{gone} not available: {said.code}")

    def finish_leg(self, said: x.EndSubscription) -> None:
        """The leg has come to where another interest is: they walk on together, once its last is delivered."""
        if said.session == self._leg:
            self._interests.advance(said.next_sequence)
            self._end_leg()
            self._is_leg_due = True
            self._go_on_walking()

    def _go_on_walking(self) -> None:
        if self._is_leg_due and self._unpacker.is_empty and not self._asked:
            self._begin_leg()

    # ── credit ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def give_credit(self, credit: int) -> None:
        """The client is ready to take so many bytes more."""
        self._credit = min(self._credit + credit, CREDIT_MAX)
        self.deliver()

    def deliver(self) -> None:
        """Deliver what credit allows and a turn has room for; when nothing is left, the streams floor may push more."""
        if not (self._is_congested or self.is_turn_due or self._answers.withholds_deliveries):
            commands, self._credit = self._unpacker.take(self._credit)
            self.is_turn_due = self._credit > 0 and not self._unpacker.is_empty
            cost_ns = self._unpacker.take_cost()
            if cost_ns:
                self._effects.append(WorkDone(self._link, cost_ns))
            if self._is_framed:
                self._effects += [Send(self._link, buffers_of((command,))) for command in commands]
            elif commands:
                self._effects.append(Send(self._link, buffers_of(commands)))
            self._go_on_walking()
        wanted = self._wanted_credit()
        if self._leg and wanted and self._floor_credit <= 0:
            self._effects.append(x.CreditGranted(self._leg, wanted - self._floor_credit))
            self._floor_credit = wanted
        self._undelivered.count(self)

    def take_turn(self) -> None:
        """It is the link's turn."""
        self.is_turn_due = False
        self.deliver()

    @property
    def waiting_size(self) -> int:
        """How many bytes of memory wait here for credit."""
        return self._unpacker.size

    def let_go(self) -> None:
        """What waits here is too much for the node: the next leg brings it again, and begins with credit and room.

        The streams floor hears that the leg is over when the link is told something next: it has no room for more.
        """
        self._recall()
        self._end_leg()
        self._is_leg_due = True

    def _wanted_credit(self) -> int:
        return min(self._credit, WINDOW_SIZE) if self._unpacker.is_empty and self._credit > 0 else 0

    def congest(self) -> None:
        """The link takes no more for now: what is published meanwhile comes from history."""
        self._is_congested = True
        if self._leg:
            self._effects.append(SessionCongested(self._leg))

    def relieve(self) -> None:
        """The link takes more again."""
        self._is_congested = False
        if self._leg:
            self._effects.append(SessionDrained(self._leg))
        self.deliver()

    def check(self) -> None:
        """Repeat the invariants."""
        self._interests.check()
        assert not (self._is_ending and (self._leg or self._is_leg_due))
        assert not (self._leg and self._is_leg_due)
        assert not (self._is_ending and self.is_turn_due)
        assert self._asked or not self._probe
