"""A real streams floor and log below one part of a server of topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from tests.streams.rig import Rig

E = TypeVar("E")


class Floor(Generic[E]):
    """`ended` is what became of questions, in order: the effects of this kind; all others go down."""

    def __init__(self, kind: type[E]) -> None:
        self.rig = Rig()
        self.ended: list[E] = []
        self._kind = kind
        self._count = 0

    def join(self, handle: Callable[[Any], Sequence[Any]], check: Callable[[], None]) -> None:
        """This part stands above the floor from now on."""
        self._handle, self._check = handle, check

    def follow(self, effects: Sequence[Any]) -> None:
        """Hand orders down and answers up until nothing follows; what is ordered of the disk is left undone."""
        orders = list(effects)
        while orders:
            order = orders.pop(0)
            if isinstance(order, self._kind):
                self.ended.append(order)
            else:
                before = len(self.rig.said)
                self.rig.tell(order)
                orders += self.up(before)
            self._check()

    def up(self, before: int) -> list[Any]:
        """What follows from what the floor said since."""
        return [effect for event in self.rig.said[before:] for effect in self._handle(event)]

    def sync(self) -> None:
        """Carry out what was ordered of the disk, and what follows."""
        effects: list[Any] | None = None
        while effects is None or effects:
            before = len(self.rig.said)
            self.rig.carry_out()
            effects = self.up(before)
            self.follow(effects)

    def next_id(self) -> int:
        """A number that nobody has."""
        self._count += 1
        return self._count
