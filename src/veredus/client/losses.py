"""What the node had not confirmed of what has ended, until somebody is told: who closes it, or whoever reads stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol
from weakref import ReferenceType, ref

from veredus.kernel.errors import Fenced, VeredusError

from .causes import say


class Pending(Protocol):
    """What the node is to confirm something of."""

    @property
    def failure(self) -> VeredusError | None:
        """Why it takes no more, if it does not."""

    @property
    def hindrance(self) -> str:
        """Why the node does not confirm it for now, as it has said; "" where it has said nothing."""

    def unnamed(self) -> str:
        """What the node has not confirmed yet, in words, but for what this has given before; "" for nothing; in any
        thread.
        """


class Loss(NamedTuple):
    """What is lost, in words, and why."""

    words: str
    reason: str
    of: ReferenceType[Pending]
    """What has ended; the program may have forgotten it."""


class Losses:
    """Owns what is lost of one connection, and what of it was said."""

    def __init__(self, describe: Callable[[], tuple[str, str]]) -> None:
        """Nothing is lost. `describe` tells where the node is, and why there is no link, "" where there is one."""
        self._describe = describe
        self._untold: list[Loss] = []
        self._said: list[str] = []

    @property
    def are_told(self) -> bool:
        """Whether somebody was told of all."""
        return not self._untold

    def keep(self, of: Pending, words: str, error: VeredusError) -> None:
        """Something has ended with this error, and the node had not confirmed this, in words; "" for nothing.

        The loss is there before what has ended says that nothing is pending: who looks meanwhile sees one of the two.
        """
        if words and words not in self._said:
            self._untold = [
                *(loss for loss in self._untold if loss.of() is not of),
                Loss(words, self._why(of, error), ref(of)),
            ]

    def drop(self, of: Pending) -> None:
        """Whoever closes it is told."""
        self._untold = [loss for loss in self._untold if loss.of() is not of]

    def take(self) -> list[str]:
        """All that nobody was told of yet, in words: somebody is told now."""
        untold, self._untold = self._untold, []
        return [loss.words + loss.reason for loss in untold]

    def say(self, unconfirmed: Iterable[Pending], why: str) -> None:
        """Tell whoever runs the program what is lost, each loss once: of what has not ended, and of what has."""
        pending = {
            id(each): (words, self._why(each, each.failure)) for each in unconfirmed if (words := each.unnamed())
        }
        # In this order: it may end meanwhile.
        pending |= {id(loss.of() or loss): loss[:2] for loss in self._untold}
        for words, reason in pending.values():
            if words not in self._said:
                said = f"{why}, and {self.unconfirmed(words + reason)}. Close what you open, e.g. by `with`."
                say(f"veredus: {said}")
        self._said += [words for words, _ in pending.values()]
        self._untold = []

    def unconfirmed(self, lost: str) -> str:
        """That the node has not confirmed what is lost, and where the node is."""
        return f"the node at {self._describe()[0]} has not confirmed {lost}"

    def _why(self, of: Pending, failure: VeredusError | None) -> str:
        """Why it is not confirmed, to be said behind what is lost: there is no more to hope for, or not yet."""
        if failure is not None and failure.code != "closed":
            return f", and takes no more of it: {failure.message} [{failure.code}]"
        why = self._describe()[1] or of.hindrance
        return f": {why}" if why else ""


def but_for_inherited(subscription: Pending, failure: VeredusError) -> str:
    """What is pending of a subscription, in words, but for what the newer owner that has taken it over gets again."""
    return "" if isinstance(failure, Fenced) else subscription.unnamed()
