"""What a stream may let go of, and what its cursors hold on to."""

from __future__ import annotations

import math

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


def test_an_endless_age_that_an_older_node_took_keeps_everything() -> None:
    assert floor_of(StreamConfig(retention_age_s=math.inf), PARTS, HEAD, (), 5 * SECOND_US) == 0


def test_a_cursor_pins_what_it_has_not_settled() -> None:
    assert floor_of(StreamConfig(retention_count=120), PARTS, HEAD, (50, 400), 0) == 50


def test_beyond_the_lag_limit_a_cursor_is_released() -> None:
    assert floor_of(StreamConfig(retention_count=120, lag_size_max=3000), PARTS, HEAD, (50,), 0) == 201


def test_everything_may_go_when_all_is_too_old() -> None:
    assert floor_of(StreamConfig(retention_age_s=1), PARTS, HEAD, (), 100 * SECOND_US) == 501


def test_a_clock_that_was_ahead_keeps_what_lies_with_that_time_and_behind_it_until_it_has_caught_up() -> None:
    ahead_us = 7200 * SECOND_US
    stuck = [Part(501 + 100 * n, 600 + 100 * n, 1000, 5 * SECOND_US, ahead_us) for n in range(2)]
    config = StreamConfig(retention_age_s=60)
    assert floor_of(config, [*PARTS, *stuck], 700, (), 3600 * SECOND_US) == 501
    assert floor_of(config, [*PARTS, *stuck], 700, (), ahead_us + 61 * SECOND_US) == 701
    assert floor_of(StreamConfig(retention_age_s=60, retention_count=50), [*PARTS, *stuck], 700, (), 0) == 651


def test_a_step_forward_lets_go_at_once_of_what_is_too_old_by_the_new_time() -> None:
    config = StreamConfig(retention_age_s=3600)
    assert floor_of(config, PARTS, HEAD, (), 6 * SECOND_US) == 0
    assert floor_of(config, PARTS, HEAD, (), 3606 * SECOND_US) == 501
    assert floor_of(config, PARTS, HEAD, (201,), 3606 * SECOND_US) == 201
