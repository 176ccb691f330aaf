"""The verdict at a world's end: what is in the streams, against what was acknowledged, pushed, settled and committed.

Source: docs/reference/guarantees.md.
"""

from __future__ import annotations

from collections.abc import Callable

from .commits import Commits
from .content import Identity, Row
from .views import PARKED, REDRIVING, StreamView, SubscriptionView, is_within
from .world import Violation, World


class Audit:
    """Owns the views of one world, and judges them when everything is known."""

    def __init__(self, world: World) -> None:
        """Of a world in which nothing has been said yet."""
        self._world = world
        self.streams: dict[bytes, StreamView] = {}
        """By incarnation."""
        self.current: dict[str, StreamView] = {}
        """The newest incarnation of each name."""
        self.subscriptions: dict[tuple[bytes, str, str], SubscriptionView] = {}
        self.commits = Commits()
        self.anonymous: dict[str, tuple[str, int, bool]] = {}
        """Of each life of a client without a name: its stream, its last number, and whether it was told of its end."""
        self.anonymous_confirmed: dict[str, tuple[str, int]] = {}
        """What PING-OK confirmed: the stream, and the number of the last publication."""
        self.anonymous_taken: dict[str, int] = {}
        """The last number that was reported as taken, of each life of a client without a name."""
        self.redrives: dict[str, tuple[str, int]] = {}
        """By stream of dead letters: where they were moved to, and up to which of them all were."""
        self.lag_size_max = 0
        """How much a durable cursor pins at most; 0 for all."""

    def judge(self) -> None:
        """Everything is known now: hold every view against every other."""
        for stream in self.streams.values():
            if not stream.is_gone:
                self._judge_stream(stream)
                self.commits.judge(stream)
        for view in self.subscriptions.values():
            if not view.stream.is_gone:
                self.judge_subscription(view)
                self._judge_parked(view)
        for letters, (name, moved_to) in self.redrives.items():
            self._judge_redriven(letters, name, moved_to)

    def _judge_stream(self, stream: StreamView) -> None:
        if stream.name.startswith(PARKED):
            return
        numbers: dict[str, tuple[int, int, int]] = {}
        for sequence in sorted(stream.rows):
            row = stream.rows[sequence]
            who, number = row.identity
            if "/" in who or sequence < stream.floor or sequence in stream.redriven:
                continue
            last, epoch, place = numbers.get(who, (number - 1 if stream.floor > 1 else 0, 0, 0))
            is_torn = stream.is_shaken or any(first < sequence and end > place for first, end in stream.holes)
            if number != last + 1 and not is_torn:
                raise Violation("order", f"{stream.name}: {who} goes from {last} to {number} at sequence {sequence}")
            if row.epoch < epoch and not is_torn:
                raise Violation("fenced", f"{stream.name}: {who} goes back from epoch {epoch} to {row.epoch}")
            numbers[who] = (number, row.epoch, sequence)
        for who, (name, total, is_taken) in self.anonymous.items():
            last, _, _ = numbers.get(who, (0, 0, 0))
            if name == stream.name and is_taken and last < total and stream.floor == 1 and not self._may_lack(stream):
                raise Violation("taken", f"{name}: {who} was told that {total} are taken, but only {last} are there")
        for who, (name, confirmed) in self.anonymous_confirmed.items():
            last, _, _ = numbers.get(who, (0, 0, 0))
            if name == stream.name and last < confirmed and stream.floor == 1 and not self._may_lack(stream):
                raise Violation("taken", f"{name}: {who} was confirmed {confirmed}, but only {last} are there")
        for who, taken in stream.taken.items():
            if who.startswith(REDRIVING):
                continue
            last, _, _ = numbers.get(who, (0, 0, 0))
            if last < taken and stream.floor == 1 and not stream.holes and not stream.is_shaken:
                raise Violation("taken", f"{stream.name}: {who} was told {taken}, but only {last} are there")

    def _may_lack(self, stream: StreamView) -> bool:
        return bool(stream.holes) or self._world.may_forget(stream.name)

    def judge_subscription(self, view: SubscriptionView) -> None:
        """What it was owed it was pushed or told of, and what is settled somebody settled. Raises `Violation`."""
        stream = view.stream
        is_parked = self._is_parked(view)
        for index, session in enumerate(view.sessions):
            last = session.pushed[-1] if session.pushed else 0
            pushed = set(session.pushed)
            for sequence in range(max(session.position, view.passed_to + 1), last):
                row = stream.rows.get(sequence)
                if (
                    row is None
                    or sequence in pushed
                    or sequence in session.excused
                    or is_parked(sequence, row.identity)
                ):
                    continue
                if not session.must_want(sequence, row.identity) or view.is_asked(sequence):
                    continue
                earlier = view.sessions[:index]
                if 0 < view.attempts_max <= sum(sequence in before.pushed for before in earlier):
                    # It was to be parked, and the node died before it was: whoever comes next finds it there again.
                    continue
                is_told = any(is_within(sequence, told.gaps) for told in (session, *earlier))
                is_passed = any(before.may_have_passed(sequence, row.identity) for before in earlier)
                if not is_told and not (is_passed and sequence < session.changed_from):
                    raise Violation("delivered", f"{view.name} was never pushed {at_place(stream, sequence, row)}")
        if not view.is_durable:
            return
        for sequence in range(view.start, view.floor + 1):
            self.judge_settled(view, sequence, is_parked)

    def judge_settled(
        self, view: SubscriptionView, sequence: int, is_parked: Callable[[int, Identity], bool] | None = None
    ) -> None:
        """It counts as settled: somebody settled it, or it need not be.

        `is_parked`: whether a publication is parked, None while that is not known; then only what is new is looked at.
        Raises `Violation`.
        """
        stream = view.stream
        row = stream.rows.get(sequence)
        if row is None or (is_parked is None and (view.attempts_max or view.is_settled(sequence))):
            return
        if sequence < view.start or view.is_asked(sequence) or not view.must_want(row.identity):
            return
        # What cannot be had is no exception: its subscriber settles it once the application knows.
        if is_parked is None or not is_parked(sequence, row.identity):
            raise Violation("settled", f"{view.name} never settled {at_place(stream, sequence, row)}, yet it is")

    def _is_parked(self, view: SubscriptionView) -> Callable[[int, Identity], bool]:
        parked = self.current.get(view.parked_to)
        if parked is not None and parked.may_hide:
            # What was parked may have been damaged there, as anywhere; once it is trimmed, nobody can tell.
            return lambda _, __: True
        letters = set() if parked is None else parked.letters
        return lambda sequence, identity: (sequence, identity) in letters

    def _judge_parked(self, view: SubscriptionView) -> None:
        parked = self.current.get(view.parked_to)
        for sequence, identity in () if parked is None else sorted(parked.letters):
            row = view.stream.rows.get(sequence)
            if row is None or row.identity != identity or sequence in view.rejected:
                continue
            count = view.taken_again.get(sequence, 0)
            count += sum(session.may_have_tried(sequence) for session in view.sessions)
            if count < view.attempts_max and not self._world.may_forget(view.stream.name):
                where = f"{view.stream.name}/{sequence} ({identity})"
                raise Violation("parked", f"{where} was parked for {view.name} after {count} attempts")

    def _judge_redriven(self, letters: str, name: str, moved_to: int) -> None:
        """What was moved is the letters in their order, each once, and none is left out of what a run has moved."""
        parked, stream = self.current.get(letters), self.current.get(name)
        if parked is None or stream is None or self._may_lack(stream) or self._may_lack(parked):
            return
        if parked.is_shaken or stream.is_shaken or stream.floor > 1:
            return
        due = [(sequence, parked.rows[sequence].identity) for sequence in sorted(parked.rows)]
        places = [sequence for sequence in sorted(stream.redriven) if stream.redriven[sequence] == letters]
        for (sequence, identity), place in zip(due, places, strict=False):
            if stream.rows[place].identity != identity:
                found = at_place(stream, place, stream.rows[place])
                raise Violation("redriven", f"{letters}/{sequence} ({identity}) is due, and {found} was moved")
        if len(places) > len(due):
            found = at_place(stream, places[len(due)], stream.rows[places[len(due)]])
            raise Violation("redriven", f"{letters} has {len(due)} letters, and {found} was moved as well")
        for sequence, identity in due[len(places) :]:
            if sequence <= moved_to:
                raise Violation("redriven", f"{letters}/{sequence} ({identity}) was moved, and is not in {name}")

    def missing_of(self, view: SubscriptionView) -> int:
        """The first sequence that a durable subscription should have been pushed by now and was not, 0 for none.

        What is parked was pushed, be it by a node that then forgot it.
        """
        is_parked = self._is_parked(view)
        floor = view.stream.floor if self.lag_size_max else view.stream.floor_asked
        for sequence in sorted(view.stream.rows):
            if sequence < max(view.start, floor) or sequence in view.pushed:
                continue
            identity = view.stream.rows[sequence].identity
            if not is_parked(sequence, identity) and view.must_want(identity) and not view.is_told_missing(sequence):
                return sequence
        return 0

    def has_unsettled(self, view: SubscriptionView) -> bool:
        """Whether something that it was pushed is not settled; what is parked, gone, or rejected later need not be.

        Nor need what the last owner was not pushed, since one before has asked to settle it, who was fenced untold.
        """
        rows, is_parked = view.stream.rows, self._is_parked(view)
        unsettled = [s for s in view.pushed if s in rows and s >= view.stream.floor and not view.is_settled(s)]
        unsettled = [s for s in unsettled if not view.is_told_missing(s)]
        if view.sessions:
            last = set(view.sessions[-1].pushed)
            unsettled = [s for s in unsettled if s in last or not view.is_asked(s)]
        return any(not is_parked(s, rows[s].identity) and view.must_want(rows[s].identity) for s in unsettled)


def at_place(stream: StreamView, sequence: int, row: Row) -> str:
    """Where a row stands, for people."""
    return f"{stream.name}/{sequence} ({row.identity})"
