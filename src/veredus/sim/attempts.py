"""How often each publication of a subscription was tried at least: what the node has confirmed, and never takes back.

An attempt begins when the application is handed a publication, or takes it again; it ends when the application gives it
back, or its process is followed by another one. What was not confirmed may count or not, and is left out; so is what
was said of a publication before the answer to what was said of it earlier, since nobody can tell which one was meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from veredus.streams.exchange import ReturnRequested


@dataclass(slots=True)
class Attempts:
    """Owns what was confirmed of the attempts of one subscription."""

    ended: dict[int, int] = field(default_factory=dict)
    """How many have ended, of each."""
    _waiting: dict[int, None] = field(default_factory=dict)
    """Given back, and not known to be taken again."""
    _handed: dict[int, None] = field(default_factory=dict)
    """What the present owner's application was handed."""
    _asked: dict[int, list[ReturnRequested]] = field(default_factory=dict)
    """What was said of each, and not answered, in the present session."""
    _unclear: dict[int, None] = field(default_factory=dict)
    """Of which something was said before the answer, in the present session."""

    def hear(self, asked: ReturnRequested) -> None:
        """The application gives something back, or takes it again."""
        self._asked.setdefault(asked.sequence, []).append(asked)

    def confirm(self, sequence: int) -> None:
        """The node has answered, and it is no dead letter."""
        asked = self._asked.pop(sequence, [])
        if len(asked) != 1 or sequence in self._unclear:
            self._unclear[sequence] = self._waiting[sequence] = None
        elif asked[0].is_taken:
            self._waiting.pop(sequence, None)
        elif sequence not in self._waiting:
            self.ended[sequence] = self.ended.get(sequence, 0) + 1
            self._waiting[sequence] = None

    def refuse(self, sequence: int) -> None:
        """The node cannot store it now: it may count or not."""
        if len(self._asked.pop(sequence, ())) > 1:
            self._unclear[sequence] = self._waiting[sequence] = None

    def confirm_handed(self, sequence: int, pushed: Iterable[int]) -> None:
        """What of this was pushed up to a sequence was handed out."""
        self._handed.update(dict.fromkeys(place for place in pushed if place <= sequence))

    def hand_on(self, *, is_same: bool) -> None:
        """Another session has it; of another application, unless it `is_same`: then what is under way has ended."""
        self._asked.clear()
        self._unclear.clear()
        if not is_same:
            for sequence in self._handed:
                if sequence not in self._waiting:
                    self.ended[sequence] = self.ended.get(sequence, 0) + 1
            self._handed.clear()
            self._waiting.clear()

    def forget(self) -> None:
        """Nothing counts any more."""
        for known in (self.ended, self._waiting, self._handed, self._asked, self._unclear):
            known.clear()
