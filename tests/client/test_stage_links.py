"""A stage outlives the link over which it is written: its rows are there once, whatever became of the link."""

import pytest

import veredus
from tests.client.cutter import Cutter
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
        assert caught.value.code == "stage-closed"
        assert node.sinks.stages() == []


def test_a_commit_that_is_done_is_answered_again_though_its_stage_has_lost_its_link(
    node: Embedded, stream: str
) -> None:
    with Cutter(node.served.address) as cutter, veredus.connect(cutter.address) as far:
        run = far.sink(f"sink-of-{stream}").open_run()
        stage = run.stage(stream)
        stage.publish(b"k", b"row")
        stage.flush(timeout_s=20)
        first = run.commit(1, [stage])
        cutter.cut()
        with pytest.raises(veredus.Refused) as caught:
            stage.wait(stage.publish(b"k", b"late"), timeout_s=20)
        assert caught.value.code == "stage-closed"
        again = run.commit(1, [stage])
        assert (again.streams, again.is_duplicate) == (first.streams, True)
        run.drop([stage])
    assert node.sinks.stages() == []


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_stage_never_goes_on_in_a_stream_that_took_the_place_of_its_own(
    node: Embedded, stream: str, is_made_anew: bool
) -> None:
    with Cutter(node.served.address) as cutter, veredus.connect(cutter.address) as far:
        run = far.sink(f"sink-of-{stream}").open_run()
        stage = run.stage(stream)
        cutter.is_open = False
        cutter.cut()
        stage.publish(b"k", b"of the deleted stream")
        node.streams.delete(stream)
        if is_made_anew:
            node.streams.create(stream)
        cutter.is_open = True
        with pytest.raises(veredus.Refused) as caught:
            stage.flush(timeout_s=20)
        assert caught.value.code == "stage-closed"
        with pytest.raises(veredus.Refused) as refused:
            run.commit(1, [stage])
        assert refused.value.code == "unknown-stage"
    assert node.sinks.stages() == []
    assert [row["head"] for row in node.streams.list() if row["name"] == stream] == ([0] if is_made_anew else [])
