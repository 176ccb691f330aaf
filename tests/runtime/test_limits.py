"""What the settings mean to the floors below."""

from __future__ import annotations

from veredus.node.settings import NodeSettings
from veredus.runtime.limits import batch_limits_of, durability_of, log_settings_of, streams_limits_of
from veredus.streams.exchange import Durability
from veredus.streams.tables import StreamsLimits


def test_the_floors_below_get_what_the_settings_say() -> None:
    settings = NodeSettings()
    assert streams_limits_of(settings) == StreamsLimits()
    assert batch_limits_of(settings).payload_size_max < settings.limits.frame_size_max
    assert durability_of(settings) is Durability.GROUP
    assert log_settings_of(settings).segment_size == settings.journal.segment_size
