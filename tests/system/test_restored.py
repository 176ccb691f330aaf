"""A journal is put back to an earlier state, as from a backup, while its clients run on."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import veredus
from tests.cli.conftest import ran
from tests.processes import wait_until
from tests.system.serving import ServedNode
from veredus.cli.exits import Exit
from veredus.client.blocking import Node
from veredus.client.ends import Subscription

pytestmark = [pytest.mark.slow, pytest.mark.attack]

PutBack = Callable[[ServedNode], None]
OLD, LATER, NEW = 20, 20, 50
"""What the backup has of a stream, what came behind it, and what is published when the backup was put back."""


def publish(node: Node, word: str, count: int) -> None:
    with node.publisher("s") as publisher:
        for text in words(word, count):
            publisher.publish("k", text)


def publish_one_by_one(node: Node, word: str, count: int) -> None:
    """Each a batch of its own: a small window has a few of them."""
    with node.publisher("s") as publisher:
        for text in words(word, count):
            publisher.publish("k", text)
            publisher.flush()


def words(word: str, count: int) -> list[str]:
    return [f"{word} {number}" for number in range(1, count + 1)]


def taken(subscription: Subscription, count: int, is_durable: bool = False) -> list[str]:
    """The next publications, which are settled if the subscription is durable."""
    got: list[str] = []
    for publication in subscription:
        got.append(publication.body.decode())
        if is_durable:
            subscription.settle(publication)
        if len(got) == count:
            break
    if is_durable:
        subscription.wait_settled(timeout_s=20)
    return got


def backup_of(served: ServedNode) -> Path:
    return served.directory.with_name("backup")


def back_up(served: ServedNode) -> None:
    """Stop the node, copy its directory, and start it again."""
    assert served.stop() == 0
    shutil.copytree(served.directory, backup_of(served))
    served.spawn()


def replace(served: ServedNode) -> None:
    """Kill the node, and put the backup in the place of its directory."""
    served.kill()
    shutil.rmtree(served.directory)
    shutil.copytree(backup_of(served), served.directory)


def connected(served: ServedNode) -> Node:
    return veredus.connect(served.address, timeout_s=20, refused_s=20)


@pytest.fixture
def put_back(capfd: pytest.CaptureFixture[str]) -> PutBack:
    """Puts the backup back as the page says."""

    def put_back(served: ServedNode) -> None:
        replace(served)
        marked = ran(capfd, "journal", "restored", served.directory)
        assert (marked.code, marked.err) == (Exit.OK, "the next start begins a new term in every stream\n")
        served.spawn()

    return put_back


def test_a_reader_that_had_more_than_the_backup_is_told_of_what_is_gone_and_gets_all_that_is_new(
    served: ServedNode, put_back: PutBack
) -> None:
    gaps: list[veredus.Gap] = []
    with served.start() as node:
        publish(node, "old", OLD)
        back_up(served)
        publish(node, "later", LATER)
        with node.subscribe("s", on_gap=gaps.append) as subscription:
            assert taken(subscription, OLD + LATER) == words("old", OLD) + words("later", LATER)
            for word in ("new", "newer"):
                # The second time, the first new ones are what is gone: their term is not given again.
                put_back(served)
                with connected(served) as other:
                    publish(other, word, NEW)
                assert taken(subscription, NEW) == words(word, NEW)
    assert gaps == [veredus.Gap(OLD + 1, OLD + LATER + 1, "lost"), veredus.Gap(OLD + 1, OLD + NEW + 1, "lost")]
    assert served.said().count("journal-restored") == 2


def test_a_durable_subscriber_is_told_of_what_is_gone_and_gets_all_that_is_new(
    served: ServedNode, put_back: PutBack
) -> None:
    gaps: list[veredus.Gap] = []
    with served.start() as node:
        publish(node, "old", OLD)
        with node.subscribe("s", subscriber="reader", on_gap=gaps.append) as subscription:
            taken(subscription, OLD // 2, is_durable=True)
            back_up(served)
            publish(node, "later", LATER)
            taken(subscription, OLD // 2 + LATER, is_durable=True)
            put_back(served)
            with connected(served) as other:
                publish(other, "new", NEW)
            assert taken(subscription, NEW, is_durable=True) == words("new", NEW)
            assert node.subscriptions.show("s", "reader")["floor"] == OLD + NEW
    assert gaps == [veredus.Gap(OLD + 1, OLD + LATER + 1, "lost")]


@pytest.mark.parametrize("subscriber", ["", "reader"])
def test_who_was_not_told_yet_of_what_is_gone_is_told_though_the_node_was_killed_again(
    served: ServedNode, put_back: PutBack, subscriber: str
) -> None:
    gaps: list[veredus.Gap] = []
    with served.start() as node:
        publish(node, "old", OLD)
        with node.subscribe("s", subscriber=subscriber, on_gap=gaps.append) as subscription:
            back_up(served)
            publish(node, "later", LATER)
            taken(subscription, OLD + LATER)
            put_back(served)
            with connected(served) as other:
                publish(other, "new", NEW)
                for _ in range(2):
                    wait_until(lambda: other.streams.show("s")["sessions"] == 1)
                    served.kill()
                    served.spawn()
            assert taken(subscription, NEW) == words("new", NEW)
    assert gaps == [veredus.Gap(OLD + 1, OLD + LATER + 1, "lost")]


@pytest.mark.parametrize("mode", ["in-order", "individual"])
def test_a_durable_subscriber_that_had_more_than_a_journal_that_nobody_has_marked_is_told_so(
    served: ServedNode, mode: Literal["in-order", "individual"]
) -> None:
    with served.start() as node:
        publish(node, "old", OLD)
        with node.subscribe("s", subscriber="reader", mode=mode) as subscription:
            taken(subscription, OLD, is_durable=True)
            back_up(served)
            publish(node, "later", LATER)
            taken(subscription, LATER, is_durable=True)
            replace(served)
            served.spawn()
            with pytest.raises(veredus.Refused, match="veredus journal restored") as refused:
                subscription.next_batch(timeout_s=20)
            assert refused.value.code == "above-head"


def test_a_publisher_with_a_source_hears_that_what_was_acknowledged_is_lost(
    served: ServedNode, put_back: PutBack
) -> None:
    with served.start() as node:
        publisher = node.publisher("s", source="desk")
        publisher.wait(publisher.publish("k", "old"))
        back_up(served)
        publisher.wait(publisher.publish("k", "later"), timeout_s=20)
        put_back(served)
        with pytest.raises(veredus.Refused) as refused:
            publisher.wait(publisher.publish("k", "new"), timeout_s=20)
        assert refused.value.code == "lost"
        with node.publisher("s", source="desk") as again:
            assert again.taken_number == 1
            assert again.wait(again.publish("k", "later")).sequence == 2


def test_a_reader_over_an_older_copy_and_then_a_newer_one_is_told_of_what_is_gone_and_gets_the_rest(
    served: ServedNode, put_back: PutBack
) -> None:
    gaps: list[veredus.Gap] = []
    with served.start() as node:
        publish(node, "old", OLD)
        back_up(served)
        older = backup_of(served).rename(served.directory.with_name("older"))
        publish(node, "later", LATER)
        back_up(served)
        newer = backup_of(served).rename(served.directory.with_name("newer"))
        shutil.copytree(older, backup_of(served))
        put_back(served)
        with connected(served) as other, other.subscribe("s", on_gap=gaps.append) as subscription:
            publish(other, "wrong", NEW)
            assert taken(subscription, OLD + NEW) == words("old", OLD) + words("wrong", NEW)
            shutil.rmtree(backup_of(served))
            shutil.copytree(newer, backup_of(served))
            put_back(served)
            with connected(served) as third:
                publish(third, "right", NEW)
            assert taken(subscription, LATER + NEW) == words("later", LATER) + words("right", NEW)
    assert gaps == [veredus.Gap(OLD + 1, OLD + NEW + 1, "lost")]


MODES: list[Literal["in-order", "individual"]] = ["in-order", "individual"]


@pytest.mark.parametrize("mode", MODES)
def test_who_settles_over_a_restore_what_the_backup_did_not_know_to_be_pushed_goes_on(
    served: ServedNode, put_back: PutBack, mode: Literal["in-order", "individual"]
) -> None:
    gaps: list[veredus.Gap] = []
    with served.start() as node:
        publish_one_by_one(node, "old", OLD)
        with node.subscribe("s", subscriber="d", mode=mode, window_size=300, on_gap=gaps.append) as subscription:
            assert taken(subscription, 5, is_durable=True) == words("old", OLD)[:5]
            assert node.subscriptions.show("s", "d")["pushed_to"] < OLD
            back_up(served)
            publish(node, "later", LATER)
            handed = [publication for _, publication in zip(range(OLD + LATER - 5), subscription, strict=False)]
            served.kill()
            for publication in handed:
                subscription.settle(publication)
            put_back(served)
            with connected(served) as other:
                publish(other, "new", NEW)
            assert taken(subscription, NEW, is_durable=True) == words("new", NEW)
        assert node.subscriptions.show("s", "d")["floor"] == OLD + NEW
    assert gaps == [veredus.Gap(OLD + 1, OLD + LATER + 1, "lost")]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("later", [0, LATER], ids=["nothing-is-gone", "some-are-gone"])
def test_what_a_subscriber_that_runs_on_had_settled_is_settled_over_a_restore(
    served: ServedNode, put_back: PutBack, mode: Literal["in-order", "individual"], later: int
) -> None:
    with served.start() as node:
        publish(node, "old", OLD)
        with node.subscribe("s", subscriber="d", mode=mode, on_gap=print) as subscription:
            assert taken(subscription, 5, is_durable=True) == words("old", OLD)[:5]
            back_up(served)
            publish(node, "later", later)
            assert len(taken(subscription, OLD - 5 + later, is_durable=True)) == OLD - 5 + later
            put_back(served)
            wait_until(lambda: node.subscriptions.show("s", "d")["floor"] == OLD, served.said)


def test_who_gives_back_over_a_restore_what_the_backup_did_not_know_to_be_pushed_goes_on(
    served: ServedNode, put_back: PutBack
) -> None:
    with served.start() as node:
        publish_one_by_one(node, "old", OLD)
        with node.subscribe("s", subscriber="d", mode="individual", window_size=300, on_gap=print) as subscription:
            back_up(served)
            handed = [publication for _, publication in zip(range(OLD), subscription, strict=False)]
            served.kill()
            for publication in handed:
                publication.retry()
            put_back(served)
            assert sorted(taken(subscription, OLD, is_durable=True)) == sorted(words("old", OLD))
        assert node.subscriptions.show("s", "d")["floor"] == OLD


def test_what_was_about_to_be_handed_out_again_and_is_gone_keeps_nobody_waiting(
    served: ServedNode, put_back: PutBack
) -> None:
    gaps: list[veredus.Gap] = []
    durable: dict[str, Any] = {"subscriber": "d", "mode": "individual", "attempts_max": 9, "parked_to": "letters"}
    with served.start() as node:
        node.streams.create("letters")
        publish(node, "old", OLD)
        with node.subscribe("s", on_gap=gaps.append, **durable) as subscription:
            bodies = taken(subscription, OLD)
            back_up(served)
            publish(node, "later", LATER)
            wait_until(lambda: node.subscriptions.show("s", "d")["pushed_to"] == OLD + LATER)
            link_count = subscription.channel.link_count
            served.kill()
            served.spawn()
            wait_until(lambda: subscription.channel.link_count > link_count and bool(subscription.channel.queue))
            assert served.process is not None
            served.process.send_signal(signal.SIGSTOP)
            assert subscription.next_batch(timeout_s=0.5) is None, "nobody hears that it is about to be handed out"
            put_back(served)
            with connected(served) as other:
                publish(other, "new", NEW)
            while f"new {NEW}" not in bodies:
                batch = subscription.next_batch(timeout_s=20)
                assert batch is not None, "it waits for ever"
                bodies += [publication.body.decode() for publication in batch]
    assert bodies[-NEW:] == words("new", NEW)
    assert [gap.code for gap in gaps] == ["lost"]


def test_a_stage_with_rows_that_are_gone_is_not_committed(served: ServedNode, put_back: PutBack) -> None:
    with served.start() as node:
        node.streams.create("out")
        with node.sink("job").open_run() as run:
            kept = run.stage("out")
            kept.publish("k", "kept")
            kept.flush()
            back_up(served)
            gone = run.stage("out")
            gone.publish("k", "gone")
            gone.flush()
            put_back(served)
            assert run.commit(0, [kept]).streams == (("out", 1, 1),)
            with pytest.raises(veredus.Refused) as refused:
                run.commit(1, [gone])
            assert refused.value.code in ("lost", "unknown-stage")
            with pytest.raises(veredus.Refused) as refused:
                gone.wait(gone.publish("k", "more"), timeout_s=20)
            assert refused.value.code == "stage-closed"


def test_a_closed_stage_whose_last_rows_are_gone_is_not_committed_with_the_others(
    served: ServedNode, put_back: PutBack
) -> None:
    with served.start() as node, node.sink("job").open_run() as run:
        stage = run.stage("out")
        stage.publish("k", "kept")
        stage.flush()
        back_up(served)
        stage.publish("k", "gone")
        stage.close()
        put_back(served)
        with pytest.raises(veredus.Refused) as refused:
            run.commit(0, [stage])
        assert (refused.value.code, refused.value.details["acknowledged"], refused.value.details["count"]) == (
            "lost",
            2,
            1,
        )
        again = run.stage("out")
        again.publish_many(["k", "k"], ["kept", "gone"])
        again.flush()
        assert run.commit(0, [again]).streams == (("out", 1, 2),)


def test_a_run_whose_last_commit_is_gone_does_not_go_on_behind_it(served: ServedNode, put_back: PutBack) -> None:
    with served.start() as node, node.sink("job").open_run() as run:
        run.commit(0, [])
        back_up(served)
        run.commit(1, [])
        put_back(served)
        with pytest.raises(veredus.Refused, match=r"commit 1 .* the last one that the node has is 0") as refused:
            run.commit(2, [])
        assert refused.value.code == "lost"
        with node.sink("job").open_run() as again:
            assert again.commit_id == 0
            again.commit(1, [])
            again.commit(2, [])


def test_the_number_of_a_stage_that_is_gone_is_not_given_again_where_the_copy_has_no_stream(
    served: ServedNode, put_back: PutBack
) -> None:
    with served.start() as node, node.sink("job").open_run() as run:
        back_up(served)
        gone = run.stage("out")
        gone.publish("k", "gone")
        gone.close()
        put_back(served)
        other = run.stage("out")
        other.publish("k", "other")
        other.close()
        with pytest.raises(veredus.Refused) as refused:
            run.commit(0, [gone])
        assert refused.value.code == "unknown-stage"
        assert run.commit(1, [other]).streams == (("out", 1, 1),)


def test_who_came_after_the_backup_is_ended_and_can_come_again(served: ServedNode, put_back: PutBack) -> None:
    with served.start() as node:
        publish(node, "old", OLD)
        back_up(served)
        publisher = node.publisher("s", source="desk")
        publisher.wait(publisher.publish("k", "later"), timeout_s=20)
        subscription = node.subscribe("s", subscriber="reader")
        taken(subscription, OLD, is_durable=True)
        put_back(served)
        with pytest.raises(veredus.Refused) as refused:
            publisher.wait(publisher.publish("k", "new"), timeout_s=20)
        assert refused.value.code == "unknown-source"
        with pytest.raises(veredus.Refused) as refused:
            list(subscription)
        assert refused.value.code == "unknown-subscription"


def test_a_new_term_is_begun_once_and_the_mark_is_gone(served: ServedNode, put_back: PutBack) -> None:
    with served.start() as node:
        publish(node, "old", OLD)
        back_up(served)
        put_back(served)
        term = node.streams.show("s")["term"]
        assert term > 1
        publish(node, "new", NEW)
        # Where a kill comes first, the next start begins another term: the mark goes once the terms are durable.
        wait_until(lambda: not (served.directory / "restored").exists())
        served.kill()
        served.spawn()
        assert node.streams.show("s")["term"] == term
    assert served.said().count("journal-restored") == 1


def test_a_reader_of_a_node_that_was_put_back_without_a_word_is_told_what_to_do(served: ServedNode) -> None:
    with served.start() as node:
        publish(node, "old", OLD)
        back_up(served)
        publish(node, "later", LATER)
        with node.subscribe("s") as subscription:
            taken(subscription, OLD + LATER)
            replace(served)
            served.spawn()
            with pytest.raises(veredus.Refused, match="put back to an earlier state") as refused:
                next(iter(subscription))
    assert (refused.value.code, "veredus journal restored" in refused.value.message) == ("above-head", True)


HELD = 4
"""How many publications a program has in its hands, and works on."""


@pytest.mark.parametrize("new", [0, 2, HELD + 2])
@pytest.mark.parametrize(
    ("mode", "how"),
    [("in-order", "batch"), ("individual", "batch"), ("individual", "each"), ("in-order", "number"),
     ("individual", "retry"), ("individual", "reject")],
)  # fmt: skip
def test_what_is_said_of_the_lost_says_nothing_of_what_took_its_place(
    served: ServedNode, put_back: PutBack, mode: Literal["in-order", "individual"], how: str, new: int
) -> None:
    gaps: list[veredus.Gap] = []
    named = {"subscriber": "app", "mode": mode, **({"parked_to": "dead"} if how == "reject" else {})}
    with served.start() as node:
        node.streams.create("dead")
        publish(node, "old", 1)
        with node.subscribe("s", **named, on_gap=gaps.append) as subscription:
            assert taken(subscription, 1, is_durable=True) == ["old 1"]
            back_up(served)
            publish(node, "lost", HELD)
            held = [one for _, one in zip(range(HELD), subscription, strict=False)]
            put_back(served)
            with connected(served) as other:
                publish(other, "new", new)
                wait_until(lambda: other.subscriptions.show("s", "app")["pushed_to"] == new + 1)
                wait_until(lambda: other.subscriptions.show("s", "app")["is_attached"])
            say_of(subscription, held, how)
            subscription.wait_settled(timeout_s=20)
            with connected(served) as other:
                publish(other, "newer", 1)
            expected = [*words("new", new), "newer 1"]
            assert taken(subscription, 1) == expected[:1], "it goes on"
        with connected(served) as other, other.subscribe("s", **named) as next_one:
            assert taken(next_one, len(expected)) == expected
            assert other.streams.show("dead")["head"] == 0
    assert gaps == [veredus.Gap(2, HELD + 2, "lost")]


def test_what_was_to_come_again_and_is_lost_does_not(served: ServedNode, put_back: PutBack) -> None:
    gaps: list[veredus.Gap] = []
    named: dict[str, Any] = {"subscriber": "app", "mode": "individual"}
    with served.start() as node:
        publish(node, "old", 1)
        with node.subscribe("s", **named, on_gap=gaps.append) as subscription:
            assert taken(subscription, 1, is_durable=True) == ["old 1"]
            back_up(served)
            publish(node, "lost", HELD)
            for _, publication in zip(range(HELD), subscription, strict=False):
                publication.retry()
            wait_until(lambda: len(subscription.channel.again) == HELD)
            put_back(served)
            with connected(served) as other:
                publish(other, "new", HELD + 2)
                wait_until(lambda: other.subscriptions.show("s", "app")["pushed_to"] == HELD + 3)
            assert taken(subscription, HELD + 2, is_durable=True) == words("new", HELD + 2)
            assert other_floor(served) == HELD + 3
    assert gaps == [veredus.Gap(2, HELD + 2, "lost")]


def other_floor(served: ServedNode) -> int:
    """Up to where the subscriber's cursor is settled."""
    with connected(served) as other:
        return int(other.subscriptions.show("s", "app")["floor"])


def say_of(subscription: Subscription, held: list[veredus.Publication], how: str) -> None:
    """Say of each publication, or of all, that it is done with, or given back."""
    match how:
        case "batch":
            held[0].batch.settle()
        case "number":
            subscription.settle(held[-1].sequence)
        case _:
            for publication in held:
                {
                    "each": publication.settle,
                    "retry": publication.retry,
                    "reject": lambda publication=publication: publication.reject("no"),
                }[how]()
