"""Old incarnations that come back over killed nodes: the newest one alone writes, and each commit is done once."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

import veredus
from tests.system.serving import ServedNode
from veredus.client.blocking import Node

pytestmark = pytest.mark.slow


def staged(run: veredus.Run, rows: list[bytes]) -> int:
    with run.stage("target") as stage:
        for row in rows:
            stage.publish("k", row)
        return stage.stage


def bodies_of(node: Node, stream: str) -> list[bytes]:
    head = node.streams.show(stream)["head"]
    with node.subscribe(stream, until=head + 1) as subscription:
        return [publication.body for publication in subscription]


def restarted(served: ServedNode) -> None:
    served.kill()
    served.spawn()


def test_an_old_run_that_commits_after_a_newer_one_began_is_fenced_though_the_node_was_killed_between(
    served: ServedNode,
) -> None:
    with served.start() as old_node:
        old_node.streams.create("target")
        old = old_node.sink("job").open_run()
        stage = staged(old, [b"old"])
        restarted(served)
        with veredus.connect(served.address, timeout_s=20, refused_s=20) as new_node:
            with new_node.sink("job").open_run() as new:
                restarted(served)
                with pytest.raises(veredus.Fenced):
                    old.commit(0, [stage])
                with pytest.raises(veredus.Fenced):
                    old_node.sink("job").join_run(old.epoch)
                new.commit(0, [staged(new, [b"new"])])
            assert bodies_of(new_node, "target") == [b"new"]


@pytest.mark.parametrize("ask", ["commit", "stage"])
def test_an_old_run_over_a_link_that_lives_is_fenced_when_it_asks_for_anything(served: ServedNode, ask: str) -> None:
    with served.start() as old_node, veredus.connect(served.address, timeout_s=20, refused_s=20) as new_node:
        old_node.streams.create("target")
        old = old_node.sink("job").open_run()
        stage = staged(old, [b"old"])
        with new_node.sink("job").open_run() as new:
            with pytest.raises(veredus.Fenced):
                old.commit(0, [stage]) if ask == "commit" else staged(old, [b"late"])
            new.commit(0, [staged(new, [b"new"])])
        assert bodies_of(new_node, "target") == [b"new"]


def test_a_stage_that_is_open_when_the_node_is_killed_is_committed_afterwards_with_every_row(
    served: ServedNode,
) -> None:
    with served.start() as node:
        node.streams.create("target")
        with node.sink("job").open_run() as run:
            stage = run.stage("target")
            for number in range(100):
                stage.publish("k", b"%d" % number)
            stage.flush(timeout_s=20)
            restarted(served)
            for number in range(100, 200):
                stage.publish("k", b"%d" % number)
            stage.close()
            assert run.commit(0, [stage]).streams == (("target", 1, 200),)
        assert bodies_of(node, "target") == [b"%d" % number for number in range(200)]


def test_a_commit_that_the_node_forgot_or_did_before_it_was_killed_is_done_once(served: ServedNode) -> None:
    with served.start() as node:
        node.streams.create("target")
        with node.sink("job").open_run() as run:
            for commit_id in range(5):
                stage = staged(run, [b"%d" % commit_id])
                first = run.commit(commit_id, [stage])
                restarted(served)
                again = run.commit(commit_id, [stage])
                assert (again.is_duplicate, again.streams) == (True, first.streams)
        assert bodies_of(node, "target") == [b"0", b"1", b"2", b"3", b"4"]


def test_an_old_publisher_that_comes_back_over_a_killed_node_is_fenced_and_has_written_nothing(
    served: ServedNode,
) -> None:
    with served.start() as old_node:
        old = old_node.publisher("s", source="p")
        old.wait(old.publish("k", b"1"), timeout_s=20)
        served.kill()
        old.publish("k", b"in doubt")
        assert old.taken_number == 1
        with served.start() as new_node, new_node.publisher("s", source="p") as new:
            restarted(served)
            new.wait(new.publish("k", b"new"), timeout_s=20)
            with pytest.raises(veredus.Fenced):
                old.wait(old.publish("k", b"zombie"), timeout_s=20)
            bodies = bodies_of(new_node, "s")
        assert bodies in ([b"1", b"new"], [b"1", b"in doubt", b"new"])
        assert b"in doubt" in bodies or old.taken_number == 1
        # Its receipt may have been under way still when the node fenced it.
        with nullcontext() if old.taken_number == 2 else pytest.raises(veredus.Fenced):
            old.close()
