"""What a node says of attempts, against what it has confirmed of them: none of that is ever taken back.

A publication that was tried as often as it may be is a dead letter: it is pushed to nobody, and nobody may try it
again, whatever was killed meanwhile. Source: guarantee 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from veredus.streams.exchange import ConfirmHanded, ConfirmReturned, HandedOut, Refuse, ReturnRequested
from veredus.streams.subscription import Subscription

from .views import SessionView, SubscriptionView, is_within
from .world import Violation


class Trying:
    """Judges what is said in sessions of subscribers."""

    def __init__(self, views: Mapping[int, tuple[SubscriptionView, SessionView]]) -> None:
        """The sessions of these views."""
        self._views = views

    def clear(self) -> None:
        """Another process: what was confirmed is known to the views, and holds."""

    def hear(self, fact: Any) -> None:
        """The floor was told something."""
        if getattr(fact, "session", 0) not in self._views:
            return
        view, current = self._views[fact.session]
        match fact:
            case HandedOut(_, sequence):
                current.handed_to = max(current.handed_to, sequence)
            case ReturnRequested(_, sequence):
                view.attempts.hear(fact)
                current.returned[sequence] = None
                if fact.is_taken:
                    view.taken_again[sequence] = view.taken_again.get(sequence, 0) + 1
                elif not fact.is_retry:
                    view.rejected[sequence] = None
            case _:
                pass

    def see(self, effect: Any) -> None:
        """The floor said something. Raises `Violation` where it lets somebody try what was tried often enough."""
        if getattr(effect, "session", 0) not in self._views:
            return
        view, current = self._views[effect.session]
        match effect:
            case ConfirmHanded(_, sequence):
                view.attempts.confirm_handed(sequence, current.pushed)
            case ConfirmReturned(_, sequence, is_parked=False):
                view.attempts.confirm(sequence)
                self.judge(view, sequence, "may be tried again")
            case Refuse(details={"returned": int(sequence)}):
                view.attempts.refuse(sequence)
            case _:
                pass

    def judge(self, view: SubscriptionView, sequence: int, said: str) -> None:
        """It was not tried as often as it may be. Raises `Violation`."""
        count = view.tried().get(sequence, 0)
        if 0 < view.attempts_max <= count and not view.stream.is_shaken:
            raise Violation("parked", f"{view.stream.name}/{sequence} {said} for {view.name} after {count} attempts")

    def recovered(self, view: SubscriptionView, known: Subscription) -> None:
        """A new process counts all that was confirmed. Raises `Violation`."""
        ranges = known.settled_ranges()
        for sequence, count in view.tried().items():
            counted = known.tries.at(sequence)
            if counted < count and sequence > known.floor and not is_within(sequence, ranges):
                message = f"{view.name} counts {counted} attempts at {sequence}, and has confirmed {count}"
                raise Violation("recovered", message)
