"""Clocks that jump, and times that others write: nothing is let go of for them, and no place is given twice."""

from __future__ import annotations

from tests.spec.known_failures.scenes import STREAM, Scene, numbered
from tests.streams.rig import Rig
from veredus.delivery.batch import BatchHeader
from veredus.node.retention import Retention
from veredus.sim.content import Identity, batch_record
from veredus.sim.ports import batch_offered
from veredus.sim.world import SECOND
from veredus.streams.facts import StreamConfig
from veredus.streams.tables import StreamsLimits

HOUR_NS = 3_600 * SECOND
DAY_NS = 24 * HOUR_NS
ONE_HOUR = StreamConfig(retention_age_s=3600.0)


def test_times_that_publishers_write_make_retention_neither_hasty_nor_blind() -> None:
    """Messages with timestamps of long ago were deleted minutes after they were acknowledged; those with timestamps of
    the future were kept for ever, and all others behind them.

    Seen in: Kafka, which ages records by the time that their producer wrote: confluentinc/librdkafka#1238,
    openmeterio/openmeter#5005 (too early), apache/kafka#4473 and redpanda-data/redpanda#9820 (never); Pulsar:
    apache/pulsar#21940.
    Here: one hour is kept. Publications of 1970 and of 2100 come in; an hour counts from when they came.
    """
    rig = Rig(StreamsLimits(config=ONE_HOUR))
    grant = rig.attach(1)
    for first, event_time_us in ((1, 0), (11, 4_102_444_800_000_000)):
        rows = [Identity("alpha", number) for number in range(first, first + 10)]
        ids = (grant.stream_id, grant.source_id, grant.epoch)
        header = BatchHeader(0, 0, 0, 0, 0, *ids, 0, first, event_time_us, event_time_us)
        rig.do(batch_offered(1, batch_record(header, rows)))
    stream = rig.floor.tables.streams["s"]
    assert stream.head_durable == 20
    rig.time_ns += HOUR_NS // 2
    assert Retention().due(rig.floor, rig.log, rig.now) == []
    rig.time_ns += HOUR_NS
    assert Retention().due(rig.floor, rig.log, rig.now) == [(stream, 21)]


def test_a_clock_that_was_set_back_and_put_right_takes_nothing_and_repeats_nothing() -> None:
    """A clock was wrong for a while; ages and ids that came from it deleted what was new, or were given twice.

    Seen in: Snowflake, Twitter's maker of ids, which gave them twice after its clock had gone back:
    twitter-archive/snowflake#6; messages that expire by clocks of others: apache/pulsar#21940.
    Here: an hour is kept. The node's clock is a day late while somebody publishes, the node is killed and started, and
    the clock is put right. Nothing has gone, append times never fall; two hours later all of it goes.
    """
    scene = Scene(5, config=ONE_HOUR)
    sources = []
    for name, step_ns in (("before", -DAY_NS), ("meanwhile", 0), ("restarted", DAY_NS), ("after", 0)):
        source = scene.source(total=50, name=name)
        scene.wait(lambda source=source: source.is_done)
        assert source.process is not None
        source.process.stop("has published all")
        sources.append(source)
        scene.clock.step(step_ns)
        if name == "meanwhile":
            scene.machine.kill("while its clock is late")
            scene.start()
        scene.pass_ns(20 * SECOND)
    expected = [identity for source in sources for identity in numbered(source.name, 50)]
    assert scene.read() == expected
    assert scene.machine.engine is not None
    stream = scene.machine.engine.floor.tables.streams[STREAM]
    times = [part.last_append_time_us for part in scene.machine.engine.log.parts(stream.stream_id)]
    assert times == sorted(times)
    assert stream.floor == 1
    scene.pass_ns(2 * HOUR_NS)
    assert stream.floor == 201
