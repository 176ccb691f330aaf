"""A program that is interrupted in its requests, a thousand times and at any moment, goes on with the same objects."""

import gc
import random

from tests.alarms import Interrupted, alarm_set, interrupting
from veredus.client.embedded import Embedded

COUNT = 15_000


@interrupting
def test_requests_that_are_interrupted_at_any_moment_hang_nothing(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    dice, interrupted_count = random.Random(7), 0
    with alarm_set() as alarm:
        for _ in range(COUNT):
            try:
                alarm.ring_in(dice.uniform(2e-5, 1e-3))
                node.streams.show(stream)
                alarm.is_armed = False
            except Interrupted:
                interrupted_count += 1
    gc.collect()
    assert interrupted_count > COUNT // 10
    assert node.streams.show(stream)["name"] == stream
