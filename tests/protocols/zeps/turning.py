"""A place that gives turns when a test asks it to, and small records that hold very many publications."""

from __future__ import annotations

from typing import Any

from veredus.delivery.batch import BatchHeader, Layout, compressed, signed_record
from veredus.delivery.columns import encode_columns
from veredus.delivery.payload import columns_of
from veredus.delivery.publication import Rows
from veredus.kernel.effects import Send
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.links import TurnGiven, TurnWanted, session_of
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.frames import CommandParser
from veredus.protocols.zeps.packing import ROW_NS
from veredus.streams import exchange as x

from .peer import Peer
from .place import Place

WRITER = 99
ROWS = 5_000
AT_ONCE_MAX = QUANTUM_NS // ROW_NS + 1


class Turning(Place):
    """Gives turns when it is asked to, and knows the most DELIVERs, and buffers, that a link said for one event."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.wanted: set[int] = set()
        self.delivered_max = self.sends_max = 0

    def _step(self, thing: Any) -> None:
        if isinstance(thing, TurnWanted):
            self.wanted.add(thing.link)
        else:
            super()._step(thing)

    def _keep_left(self, link: int, effects: list[object]) -> None:
        super()._keep_left(link, effects)
        said = b"".join(bytes(b) for effect in effects if isinstance(effect, Send) for b in effect.buffers)
        self.sends_max = max(self.sends_max, sum(isinstance(effect, Send) for effect in effects))
        delivered = [c for c in CommandParser(1 << 30).feed(said) if isinstance(c, frames.Deliver)]
        self.delivered_max = max(self.delivered_max, len(delivered))

    def give_turn(self, link: int = 1) -> None:
        self.wanted.remove(link)
        self.tell(TurnGiven(link))

    def give_turns(self, link: int = 1) -> None:
        while link in self.wanted:
            self.give_turn(link)


def offer_columns(place: Place, count: int) -> None:
    """Store so many small records of very many empty publications."""
    Peer(place, WRITER)
    rows = Rows([b""] * ROWS, [b""] * ROWS)
    payload = compressed(b"".join(bytes(part) for part in encode_columns(columns_of(rows))), "zstd")
    for first in range(1, 1 + count * ROWS, ROWS):
        header = BatchHeader(int(Layout.COLUMNS), 1, len(payload), 0, ROWS, 1, 0, 0, ROWS, first, 7, 7)
        place.tell(x.BatchOffered(session_of(WRITER, 1), signed_record(header, [payload]), header))
    place.wait(1)
