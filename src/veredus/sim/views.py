"""What the oracles know: of each incarnation of a stream, of each session of a subscriber, of each subscription."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .attempts import Attempts
from .content import Identity, Row, Taste, body_of, key_of
from .world import Violation

Span = tuple[int, int]
PARKED = "parked-"
"""What the name of a stream begins with in which one subscription's publications are parked."""
REDRIVING = "redrive/"
"""What the name of a source begins with that moves dead letters back."""


def is_within(sequence: int, spans: Iterable[Span]) -> bool:
    """Whether one of these inclusive ranges covers the sequence."""
    return any(first <= sequence <= last for first, last in spans)


@dataclass(slots=True)
class StreamView:
    """What is known of one incarnation of a stream."""

    name: str
    incarnation: bytes
    rows: dict[int, Row] = field(default_factory=dict)
    places: dict[Identity, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    """The greatest number acknowledged, by source."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The newest epoch granted, by source."""
    tokens: dict[str, int] = field(default_factory=dict)
    """Up to which number the newest resume token that was taken speaks, by source."""
    head: int = 0
    """The greatest sequence that anybody was told of."""
    floor: int = 1
    """The greatest floor that anybody asked for, or that retention said."""
    floor_told: int = 1
    """The greatest floor that anybody was told of: it is there."""
    floor_asked: int = 1
    """The greatest floor that anybody asked for: it need not heed cursors."""
    heads: list[tuple[int, int]] = field(default_factory=list)
    """When (ns) the head was first known to be there: (time, head), ascending."""
    holes: list[Span] = field(default_factory=list)
    """Sequences of which it was said that they cannot be had."""
    unread: list[Span] = field(default_factory=list)
    """Those of which it was said while the disk failed: they may be had later, unless they were let go of by then."""
    term: int = 0
    """The greatest term that anybody was told of."""
    losses: list[tuple[int, int]] = field(default_factory=list)
    """From which sequence on what was there was lost, and the greatest term that anybody had been told of by then."""
    redriving: dict[int, str] = field(default_factory=dict)
    """By source id: the stream whose dead letters a source moves here."""
    redriven: dict[int, str] = field(default_factory=dict)
    """By sequence: the stream from which somebody moved the row that stands there."""
    is_dying: bool = False
    """Whether somebody asked for its deletion."""
    is_gone: bool = False
    """Whether it was said to be deleted, or was lost with everything in it."""
    was_replaced: bool = False
    """Whether there was another of this name before."""
    may_repeat: bool = False
    """Whether what is parked there may come again: from two streams of one name, of which the first was deleted, or
    redriven and parked once more.
    """
    is_shaken: bool = False
    """Whether what the node knew of it was damaged, and reported as that."""

    @property
    def may_hide(self) -> bool:
        """Whether something may have stood here that nobody could read."""
        never = (s for first, last in self.unread for s in range(first, last + 1) if s not in self.rows)
        return self.is_shaken or bool(self.holes) or any(never)

    @property
    def letters(self) -> set[tuple[int, Identity]]:
        """What was parked here: the sequences where it came from, and whose it is."""
        return {(row.origin, row.identity) for row in self.rows.values()}

    def learn(self, sequence: int, row: Row) -> None:
        """A row was seen at a place."""
        known = self.rows.get(sequence)
        if known is not None:
            if known != row:
                raise Violation("once", f"{self.name}/{sequence} was {known.identity}, now it is {row.identity}")
            return
        if row.body != body_of(row.identity) or row.key != key_of(row.identity):
            raise Violation("once", f"{self.name}/{sequence}: the bytes of {row.identity} are not what was offered")
        if row.source_id in self.redriving:
            # It stands here once more.
            self.redriven[sequence] = self.redriving[row.source_id]
            self.rows[sequence] = row
            self.head = max(self.head, sequence)
            return
        place = self.places.get(row.identity)
        if place is not None and place != sequence and not (self.is_shaken or self.may_repeat):
            raise Violation("once", f"{row.identity} stands at {place} and at {sequence} of {self.name}")
        self.rows[sequence] = row
        self.places[row.identity] = sequence
        self.head = max(self.head, sequence)

    def note_head(self, head: int, now_ns: int) -> None:
        """Somebody was told of this head."""
        self.head = max(self.head, head)
        if not self.heads or head > self.heads[-1][1]:
            self.heads.append((now_ns, head))

    def head_before(self, at_ns: int) -> int:
        """The greatest head that was known at that time."""
        return max((head for told_ns, head in self.heads if told_ns <= at_ns), default=0)

    def forget_above(self, head: int) -> None:
        """What lies above was lost; its sequences may come again with something else."""
        if head < self.head:
            self.losses.append((self.term, head + 1))
        for sequence in [sequence for sequence in self.rows if sequence > head]:
            self.places.pop(self.rows.pop(sequence).identity, None)
        self.head = min(self.head, head)
        self.heads = [told for told in self.heads if told[1] <= head]


Candidates = tuple[Taste, ...]
"""The tastes of which one is in force: several where it is not known which of them was journaled."""
Course = list[tuple[int, Candidates]]
"""From which sequence on which tastes count."""


def in_force(course: Course, sequence: int) -> Candidates:
    """The tastes of which one counts there."""
    return next(candidates for first, candidates in reversed(course) if sequence >= first)


@dataclass(slots=True)
class SessionView:
    """One session of a subscriber: where it began, and what it was pushed."""

    position: int
    tastes: Course
    """One that was not confirmed counts nowhere."""
    is_ordered: bool = True
    asked: list[tuple[Taste, int]] = field(default_factory=list)
    """Changes of taste that were not answered yet, in order, and behind what each was asked for."""
    changed_from: int = 1 << 62
    """From where on a taste counts that this session has changed to: nobody has passed anything there."""
    may_be_refused: bool = False
    """Whether something was refused while a change of taste was not answered: it may have been that."""
    pushed: list[int] = field(default_factory=list)
    handed_to: int = 0
    """What of that its application was handed, by its client's word."""
    returned: dict[int, None] = field(default_factory=dict)
    """What its application gave back or took again, so it was handed that: the client's word of it may be lost."""
    gaps: list[Span] = field(default_factory=list)
    excused: dict[int, None] = field(default_factory=dict)
    """Sequences that it need not have been pushed, since they were settled by then."""

    def may_have_tried(self, sequence: int) -> bool:
        """Whether its application was handed this, by anything that the node heard."""
        return sequence in self.returned or (sequence <= self.handed_to and sequence in self.pushed)

    def may_want(self, sequence: int, identity: Identity) -> bool:
        """Whether a taste that may count there matches."""
        return any(taste.wants(identity) for taste in in_force(self.tastes, sequence))

    def must_want(self, sequence: int, identity: Identity) -> bool:
        """Whether every taste that may count there matches."""
        return all(taste.wants(identity) for taste in in_force(self.tastes, sequence))

    def may_have_passed(self, sequence: int, identity: Identity) -> bool:
        """Whether it may have settled this by rejecting it, as it does where each is settled by itself."""
        return not self.is_ordered and sequence >= self.position and not self.must_want(sequence, identity)

    def confirm_taste(self, position: int) -> Candidates:
        """A change counts from there on: the oldest one, or one of all, if others were perhaps refused."""
        asked = tuple(self.asked) if self.may_be_refused else (self.asked.pop(0),)
        if position < min(taken_to for _, taken_to in asked):
            raise Violation("delivered", f"a filter counts from {position} on, behind that its subscriber was: {asked}")
        confirmed = tuple(taste for taste, _ in asked)
        self.tastes.append((position, confirmed))
        self.changed_from = min(self.changed_from, position)
        self.excused = {sequence: None for sequence in self.excused if sequence < position}
        return confirmed


@dataclass(slots=True)
class SubscriptionView:
    """What is known of one durable subscription, or of one ephemeral session."""

    stream: StreamView
    name: str
    tastes: list[Taste]
    """All that it ever had."""
    journaled: Candidates
    """Which one is in the journal."""
    doubtful: list[Taste] = field(default_factory=list)
    """Those that were asked for since the node last knew its journal, and were not answered."""
    course: Course = field(default_factory=list)
    """Which of them count where, for whoever keeps them."""
    owner: bytes = b""
    """The incarnation of the owner that was granted it last."""
    asking: list[bytes] = field(default_factory=list)
    """The incarnations that asked for it, and were not granted it: each may be the owner in the journal."""
    epoch: int = 0
    """The newest epoch granted to an owner."""
    start: int = 0
    is_durable: bool = True
    attempts_max: int = 0
    parked_to: str = ""
    sessions: list[SessionView] = field(default_factory=list)
    attempts: Attempts = field(default_factory=Attempts)
    """What was confirmed of them, while it has one taste: another one makes the node count anew, from somewhere on."""
    taken_again: dict[int, int] = field(default_factory=dict)
    """How often each was handed out once more after it was given back."""
    rejected: dict[int, None] = field(default_factory=dict)
    """Those that were given back for good."""
    missing: list[Span] = field(default_factory=list)
    """What was told to be missing in sessions that are forgotten."""
    pushed: dict[int, None] = field(default_factory=dict)
    requested: dict[int, None] = field(default_factory=dict)
    """Sequences whose settling was asked for."""
    requested_to: int = 0
    """Everything up to here was asked for, in order."""
    floor: int = 0
    settled: dict[int, None] = field(default_factory=dict)
    """Above the floor, settled durably."""
    passed_to: int = 0
    """Everything up to here was done with, by sessions that are as if they had not been."""

    def hand_on_attempts(self, incarnation: bytes, attempts_max: int) -> None:
        """Another session has it, perhaps of another application, or under another limit."""
        if attempts_max != self.attempts_max:
            self.attempts.forget()
        self.attempts.hand_on(is_same=incarnation == self.owner)
        self.attempts_max = attempts_max

    def tried(self) -> dict[int, int]:
        """How often each was tried at least."""
        return self.attempts.ended if self.attempts_max and len(self.tastes) == 1 else {}

    def is_settled(self, sequence: int) -> bool:
        """Whether it was confirmed that this is settled durably."""
        return sequence <= self.floor or sequence in self.settled

    def is_asked(self, sequence: int) -> bool:
        """Whether anybody asked to settle this."""
        return sequence <= self.requested_to or sequence in self.requested

    def lose_letter(self, sequence: int) -> None:
        """It was to become a dead letter, and is gone: whoever gave it back, for good or once too often, is done with
        it, and the node settles it.
        """
        self.missing.append((sequence, sequence))
        self.requested[sequence] = None

    def is_told_missing(self, sequence: int) -> bool:
        """Whether it was told that this cannot be had."""
        return is_within(sequence, self.missing) or any(is_within(sequence, s.gaps) for s in self.sessions)

    def must_want(self, identity: Identity) -> bool:
        """Whether this is owed, whichever of its tastes was in force."""
        return all(taste.wants(identity) for taste in self.tastes)

    def ask_taste(self, taste: Taste) -> None:
        """It may have this taste from now on."""
        self.doubtful.append(taste)
        if taste not in self.tastes:
            self.tastes.append(taste)

    def hand_on(self, incarnation: bytes, asked: Taste | None) -> Course:
        """Which tastes count where for an owner that was granted it, and asked for this one, or for those there are.

        Of an owner that was there before, the taste that it has anyway changes nothing.
        """
        if incarnation in self.asking:
            self.asking.remove(incarnation)
        is_same = incarnation == self.owner
        may_be_same = is_same or incarnation in self.asking
        self.owner = incarnation
        others = list(self.doubtful)
        if asked in others:
            others.remove(asked)
        prior = {*self.journaled, *others}
        if asked is None or (may_be_same and asked in prior):
            if others or len(prior) > 1 or not (asked is None or is_same):
                self._blur()
        else:
            self.course = [(0, (asked,))]
        if asked is not None:
            self.confirm_taste((asked,))
        return list(self.course)

    def refuse_taste(self, taste: Taste) -> None:
        """A change to this one was refused, and is nowhere."""
        if taste in self.doubtful:
            self.doubtful.remove(taste)

    def change(self, position: int, candidates: Candidates) -> None:
        """One of these counts from there on."""
        self.course.append((position, candidates))
        self.confirm_taste(candidates)

    def _blur(self) -> None:
        """Which of all these counts where is not known."""
        known = (*self.candidates, *(taste for _, tastes in self.course for taste in tastes))
        self.course = [(0, tuple(dict.fromkeys(known)))]

    def confirm_taste(self, candidates: Candidates) -> None:
        """One of these is in the journal."""
        self.journaled = candidates
        for taste in candidates:
            # It was asked for of another incarnation of the stream, where a power cut undid that one's end.
            if taste not in self.tastes:
                self.tastes.append(taste)
            if taste in self.doubtful:
                self.doubtful.remove(taste)

    @property
    def candidates(self) -> Candidates:
        """The tastes of which one is in the journal."""
        return (*self.journaled, *self.doubtful)

    def know_taste(self, taste: Taste, is_sure: bool) -> None:
        """The node read its journal: there is this one. `is_sure`: all is there that was in it."""
        if taste not in self.tastes:
            self.tastes.append(taste)
        if not is_sure:
            # It may have gone back to a former owner's, and to what counted where for that one.
            self.course = [(0, tuple(self.tastes))]
        elif self.candidates != (taste,):
            self._blur()
        self.journaled = (taste,)
        self.doubtful.clear()

    def forget(self, floor: int, settled: Iterable[Span], head: int) -> None:
        """The node went back to this cursor; what it pushed and was asked since then is as if it had not been."""
        self.attempts.forget()
        self.missing += [gap for session in self.sessions for gap in session.gaps if gap[1] <= head]
        self.sessions.clear()
        self.floor = self.passed_to = floor
        self.settled = {s: None for first, last in settled for s in range(first, last + 1)}
        self.pushed = {s: None for s in self.pushed if s <= head and self.is_settled(s)}
        self.requested = {s: None for s in self.requested if s <= head}
        self.requested_to = min(self.requested_to, head)
