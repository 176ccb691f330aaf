"""Stages and commits through a real node: all at once, once, by the newest run alone."""

import pytest

import veredus
from tests.client.cutter import Cutter
from veredus.client.embedded import Embedded


def bodies(node: veredus.Node, stream: str) -> list[bytes]:
    head = node.streams.show(stream)["head"]
    with node.subscribe(stream, until=head + 1) as subscription:
        return [publication.body for publication in subscription]


def staged(run: veredus.Run, stream: str, rows: list[bytes]) -> veredus.Stage:
    stage = run.stage(stream)
    for row in rows:
        stage.publish("k", row)
    stage.close()
    return stage


def test_staged_rows_are_unseen_until_one_commit_shows_them_all(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    with node.sink(stream).open_run() as run:
        assert run.commit_id == -1
        first = staged(run, stream, [b"1", b"2"])
        second = staged(run, stream, [b"3"])
        assert bodies(node, stream) == []
        done = run.commit(0, [first, second.stage])
    assert done == veredus.Committed(0, False, ((stream, 1, 3),))
    assert bodies(node, stream) == [b"1", b"2", b"3"]


def test_a_commit_that_is_asked_for_again_answers_as_before_and_does_nothing(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    with node.sink(stream).open_run() as run:
        stage = staged(run, stream, [b"1"])
        run.commit(7, [stage])
        again = run.commit(7, [stage])
    assert again == veredus.Committed(7, True, ((stream, 1, 1),))
    with node.sink(stream).open_run() as run:
        assert (run.commit_id, run.streams) == (7, ((stream, 1, 1),))
    assert bodies(node, stream) == [b"1"]


def test_a_newer_run_fences_the_older_and_drops_what_it_left_open(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    older = node.sink(stream).open_run()
    stage = staged(older, stream, [b"old"])
    newer = node.sink(stream).open_run()
    assert newer.epoch > older.epoch
    with pytest.raises(veredus.Fenced):
        older.commit(0, [stage])
    with pytest.raises(veredus.Fenced):
        node.sink(stream).join_run(older.epoch)
    newer.commit(0, [staged(newer, stream, [b"new"])])
    assert bodies(node, stream) == [b"new"]
    newer.close()


def test_tasks_elsewhere_join_a_run_by_its_epoch(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    with node.sink(stream).open_run() as driver, veredus.connect(node.served.address) as elsewhere:
        with elsewhere.sink(stream).join_run(driver.epoch) as task:
            number = staged(task, stream, [b"1", b"2"]).stage
        driver.commit(0, [number])
    assert bodies(node, stream) == [b"1", b"2"]


def test_dropped_stages_are_gone_and_cannot_be_committed(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    with node.sink(stream).open_run() as run:
        stage = staged(run, stream, [b"1"])
        run.drop([stage])
        with pytest.raises(veredus.Refused):
            run.commit(0, [stage])
    assert bodies(node, stream) == []


@pytest.mark.parametrize("down_max", [200, 300, 400])
def test_a_commit_whose_answer_is_cut_off_is_asked_for_again_and_done_once(
    node: Embedded, stream: str, down_max: int
) -> None:
    node.streams.create(stream)
    with node.sink(stream).open_run() as run:
        stages = [staged(run, stream, [b"%d" % index]) for index in range(3)]
    limits = [(1 << 60, down_max + 31 * cut) for cut in range(3)]
    with (
        Cutter(node.served.address, limits) as cutter,
        veredus.connect(cutter.address) as far,
        far.sink(stream).join_run(run.epoch) as joined,
    ):
        for commit_id, stage in enumerate(stages):
            assert joined.commit(commit_id, [stage]).commit_id == commit_id
    assert bodies(node, stream) == [b"0", b"1", b"2"]


def test_a_removed_sink_is_forgotten_and_what_it_committed_stays(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    sink = node.sink(stream)
    with sink.open_run() as run:
        stage = staged(run, stream, [b"1"])
        with pytest.raises(veredus.Refused) as refused:
            sink.remove()
        assert refused.value.code == "sink-in-use"
        run.commit(7, [stage])
    sink.remove()
    with pytest.raises(veredus.Refused) as refused:
        sink.remove()
    assert refused.value.code == "unknown-sink"
    with sink.open_run() as anew:
        assert (anew.commit_id, anew.streams) == (-1, ())
    assert bodies(node, stream) == [b"1"]


def test_the_last_commit_of_a_run_is_the_one_that_it_made(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    with node.sink(stream).open_run() as run:
        for row in (b"1", b"2", b"3"):
            done = run.commit(run.commit_id + 1, [staged(run, stream, [row])])
            assert (run.commit_id, run.streams) == (done.commit_id, done.streams)
    assert bodies(node, stream) == [b"1", b"2", b"3"]
