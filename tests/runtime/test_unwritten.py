"""A connection whose peer reads nothing is closed in time, and named in the log with the reason."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from veredus.kernel.effects import Note
from veredus.node.sending import SendLimits, Waiting
from veredus.runtime import unwritten
from veredus.runtime.sockets import StreamDoors
from veredus.runtime.unwritten import Unwritten


class Deaf:
    """A connection whose peer takes nothing of what waits for it."""

    size_max = 0

    def __init__(self, number: int, size: int) -> None:
        self._number, self._size = number, size
        self.is_aborted = False

    @property
    def waiting(self) -> Waiting:
        return Waiting(self._number, self._size, 0, 0, is_unheard=False, is_closing=False, is_proven=True)

    def set_size_max(self, size: int) -> None:
        self.size_max = size

    def abort(self) -> None:
        self.is_aborted = True


class Freed(Deaf):
    """Nothing waits for it any more when it was closed."""

    def abort(self) -> None:
        self.is_aborted, self._size = True, 0


def test_who_is_let_go_because_too_much_waits_is_told_of_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwritten, "LOOK_S", 0.01)
    told: dict[int, str] = {}

    async def watched() -> list[Deaf]:
        limits = SendLimits(size_max=100, silence_max_ns=60_000_000_000)
        one = Unwritten(asyncio.get_running_loop(), limits, told.__setitem__)
        peers = [Deaf(7, 150), Deaf(8, 60), Deaf(9, 50)]
        for peer in peers:
            one.watch(peer)
        while not told:
            await asyncio.sleep(0.01)
        one.close()
        return peers

    peers = asyncio.run(asyncio.wait_for(watched(), 10))
    assert told == {7: "too many bytes wait to be written to it", 8: "too many bytes wait to be written to it"}
    assert [peer.is_aborted for peer in peers] == [True, True, False]


def test_much_that_waits_behind_a_write_is_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwritten, "LOOK_S", 60)
    notes: list[Note] = []

    async def written() -> list[Deaf]:
        host, arrivals = SimpleNamespace(note=notes.append), SimpleNamespace(loop=asyncio.get_running_loop())
        limits = SendLimits(size_max=1000)
        doors = StreamDoors(host, arrivals, limits, lambda _: 0, lambda _: False)  # type: ignore[arg-type]
        peers = [Freed(number, 600) for number in range(4)]
        for peer in peers:
            doors.wrote(peer, 600)  # type: ignore[arg-type]
        while not notes:
            await asyncio.sleep(0.01)
        doors.close()
        return peers

    peers = asyncio.run(asyncio.wait_for(written(), 10))
    assert [note.event for note in notes] == [unwritten.ABANDONED]
    assert [peer.is_aborted for peer in peers].count(True) == 1, "then no more than twice as much waits as may"
