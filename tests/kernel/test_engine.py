"""The two clocks as an engine gets them."""

from veredus.kernel.engine import Now


def test_wall_time_in_microseconds_is_rounded_down() -> None:
    assert Now(5, 1_999).wall_us == 1
    assert Now(5, 1_700_000_000_123_456_789).wall_us == 1_700_000_000_123_456
