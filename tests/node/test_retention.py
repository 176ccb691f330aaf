"""What a stream may let go of, and what its cursors hold on to."""

from __future__ import annotations

from veredus.journal.catalogue import Part
from veredus.node.retention import floor_of
from veredus.streams.facts import StreamConfig

SECOND_US = 1_000_000
PARTS = [Part(1 + 100 * n, 100 + 100 * n, 1000, n * SECOND_US, (n + 1) * SECOND_US) for n in range(5)]
HEAD = 500


def test_without_limits_nothing_may_go() -> None:
    assert floor_of(StreamConfig(), PARTS, HEAD, (), 10**15) == 0


def test_by_count_the_newest_are_kept_exactly() -> None:
    assert floor_of(StreamConfig(retention_count=120), PARTS, HEAD, (), 0) == 381


def test_by_size_whole_parts_go_and_no_less_than_the_limit_is_kept() -> None:
    assert floor_of(StreamConfig(retention_size=2500), PARTS, HEAD, (), 0) == 201


def test_by_age_parts_go_whose_newest_publication_is_too_old() -> None:
    assert floor_of(StreamConfig(retention_age_s=2.5), PARTS, HEAD, (), 5 * SECOND_US) == 201


def test_a_cursor_pins_what_it_has_not_settled() -> None:
    assert floor_of(StreamConfig(retention_count=120), PARTS, HEAD, (50, 400), 0) == 50


def test_beyond_the_lag_limit_a_cursor_is_released() -> None:
    assert floor_of(StreamConfig(retention_count=120, lag_size_max=3000), PARTS, HEAD, (50,), 0) == 201


def test_everything_may_go_when_all_is_too_old() -> None:
    assert floor_of(StreamConfig(retention_age_s=1), PARTS, HEAD, (), 100 * SECOND_US) == 501
