"""A stage outlives the link over which it is written: its rows are there once, whatever became of the link."""

import pytest

import veredus
from veredus import Embedded


def bodies_of(node: Embedded, stream: str) -> list[bytes]:
    head = node.streams.show(stream)["head"]
    with node.subscribe(stream, start=veredus.beginning(), until=head + 1) as subscription:
        return [publication.body for publication in subscription]


def test_a_stage_goes_on_after_the_node_was_away(node: Embedded, stream: str) -> None:
    rows = [b"%d" % index for index in range(3000)]
    with node.sink(f"sink-of-{stream}").open_run() as run:
        stage = run.stage(stream)
        stage.publish_many([b"k"] * 1000, rows[:1000])
        stage.flush(timeout_s=20)
        number = stage.stage
        stage.publish_many([b"k"] * 1000, rows[1000:2000])
        node.served.stop()
        node.served.start()
        stage.publish_many([b"k"] * 1000, rows[2000:])
        stage.flush(timeout_s=20)
        assert stage.stage == number
        run.commit(1, [stage])
    assert bodies_of(node, stream) == rows


def test_a_stage_that_was_dropped_while_its_link_was_lost_does_not_go_on(node: Embedded, stream: str) -> None:
    with node.sink(f"sink-of-{stream}").open_run() as run:
        stage = run.stage(stream)
        stage.publish(b"k", b"first")
        stage.flush(timeout_s=20)
        run.drop([stage])
        node.served.stop()
        node.served.start()
        stage.publish(b"k", b"second")
        with pytest.raises(veredus.VeredusError) as caught:
            stage.flush(timeout_s=20)
        assert caught.value.code == "lost"
