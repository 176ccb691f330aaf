"""A subscriber that begins behind the last publication of a source does so, or the world says so."""

import pytest

from veredus.sim.running import run_seed
from veredus.streams.exchange import Start, StartKind
from veredus.streams.stream import Stream

SEED = 37
"""A world in which somebody begins there."""


def test_whoever_begins_one_publication_too_early_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    place_of = Stream.place_of

    def too_early(self: Stream, start: Start, term: int) -> int:
        place = place_of(self, start, term)
        return max(self.floor, place - 1) if start.kind is StartKind.AFTER_MINE else place

    assert run_seed(SEED).violation == ""
    monkeypatch.setattr(Stream, "place_of", too_early)
    assert run_seed(SEED).violation.startswith("matching:")
