"""Dead letters go back to the streams that they came from, each once, however often that is asked for."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import veredus
from veredus.client import redriving
from veredus.client.embedded import Embedded
from veredus.client.wanting import Gap
from veredus.delivery.batch import (
    HEADER_SIZE,
    BatchFlags,
    BatchHeader,
    BatchLimits,
    Layout,
    check_header,
    read_header,
    signed_record,
)
from veredus.delivery.record import ENVELOPE_SIZE
from veredus.kernel.errors import PeerFault, Refused


def fail(node: Embedded, streams: list[str], letters: str, count: int, first: int = 1) -> None:
    """Publish so many to each stream, and reject all of them."""
    for stream in streams:
        with node.publisher(stream, source="desk") as publisher:
            for n in range(first, first + count):
                publisher.publish(b"k%d" % n, b"%d" % n, {"n": n}, 1_700_000_000_000_000 + n)
        until = node.streams.show(stream)["head"] + 1
        with node.subscribe(
            stream, subscriber="worker", mode="individual", parked_to=letters, until=until
        ) as subscription:
            for publication in subscription:
                if int(publication.attributes["n"]) >= first and publication.source == "desk":  # type: ignore[arg-type]
                    publication.reject("bad")
                else:
                    subscription.settle(publication)


def source(node: Embedded, letters: str) -> str:
    """Who moves them."""
    return f"redrive/{letters}/{node.streams.show(letters)['incarnation'][:8].hex()}"


def moved(node: Embedded, stream: str, letters: str) -> list[tuple[bytes, bytes, dict[str, Any]]]:
    """What was published again, in order."""
    with node.subscribe(stream, until=node.streams.show(stream)["head"] + 1) as subscription:
        found = [p for p in subscription if p.source == source(node, letters)]
    assert [p.number for p in found] == list(range(1, len(found) + 1))
    return [(p.key, p.body, p.attributes) for p in found]


@pytest.fixture
def letters(node: Embedded, stream: str) -> str:
    node.streams.create(f"{stream}.dead")
    return f"{stream}.dead"


def test_they_go_back_as_they_were_and_once(node: Embedded, stream: str, letters: str) -> None:
    streams = [f"{stream}.a", f"{stream}.b"]
    fail(node, streams, letters, 3)
    assert node.redrive(letters) == dict.fromkeys(streams, 3)
    assert node.redrive(letters) == dict.fromkeys(streams, 0)
    fail(node, streams[:1], letters, 2, first=10)
    assert node.redrive(letters)[streams[0]] == 2
    assert moved(node, streams[0], letters) == [(b"k%d" % n, b"%d" % n, {"n": n}) for n in (1, 2, 3, 10, 11)]
    assert moved(node, streams[1], letters) == [(b"k%d" % n, b"%d" % n, {"n": n}) for n in (1, 2, 3)]


@pytest.mark.parametrize("is_stored", [True, False], ids=["behind a token", "in doubt"])
def test_whoever_comes_after_a_crash_moves_what_is_missing(
    node: Embedded, stream: str, letters: str, is_stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(node, [stream], letters, 9)
    begin_and_die(node, letters, 6, monkeypatch, is_stored)
    node.redrive(letters)
    assert [body for _, body, _ in moved(node, stream, letters)] == [b"%d" % n for n in range(1, 10)]


def begin_and_die(
    node: Embedded, letters: str, at: int, monkeypatch: pytest.MonkeyPatch, is_stored: bool = False
) -> None:
    """A run that ends before it moves that letter: the ones before are taken, those behind the last token in doubt."""
    move, calls = redriving._Target.move, itertools.count(1)

    def die(target: Any, letter: Any) -> None:
        if next(calls) == at:
            if not is_stored:
                target._publisher.publish_many(*_columns(target._batch))
                target._publisher._intake.close_run(b"")
            target._publisher.wait(target._publisher.number, timeout_s=10)
            raise KeyboardInterrupt
        move(target, letter)

    with monkeypatch.context() as context:
        context.setattr(redriving, "BATCH_COUNT", 2)
        context.setattr(redriving._Target, "move", die)
        with pytest.raises(KeyboardInterrupt):
            node.redrive(letters)


def _columns(letters: list[Any]) -> tuple[Any, ...]:
    rows = [(letter.key, letter.body, {"n": letter.attributes["n"]}, letter.event_time) for letter in letters]
    return tuple(map(list, zip(*rows, strict=True)))


def test_the_stream_has_letters_and_the_token_that_names_them_together_or_nothing(
    node: Embedded, stream: str, letters: str
) -> None:
    """So no run that is interrupted leaves anything in doubt, whatever letters look like."""
    count = 700
    with node.publisher(stream, source="desk") as publisher:
        for n in range(count):
            body = b"%d." % n + bytes(n % 9 * 40_000 if n % 50 == 0 else n % 3_000)
            publisher.publish(b"k", body, [None, {"n": n}, {"text": "x" * (n % 4_000)}][n // 7 % 3])
    with node.subscribe(
        stream, subscriber="worker", mode="individual", parked_to=letters, until=count + 1
    ) as subscription:
        for publication in subscription:
            publication.reject("bad")
    assert node.redrive(letters) == {stream: count}
    with node.subscribe(stream, until=2 * count + 1) as subscription:
        batches = [batch for batch in subscription.batches() if batch.source == source(node, letters)]
    assert sum(map(len, batches)) == count
    assert all(batch.header.token_size for batch in batches)


def test_letters_of_other_streams_go_on_where_those_of_one_are_in_doubt(
    node: Embedded, stream: str, letters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [f"{stream}.a", f"{stream}.b"]
    fail(node, streams[:1], letters, 4)
    begin_and_die(node, letters, 4, monkeypatch)
    fail(node, streams[1:], letters, 3)
    node.streams.trim(letters, 4)
    fail(node, streams, letters, 2, first=10)
    with pytest.raises(Refused, match=rf"up to 1 of those above 2 were moved to '{streams[0]}'.*letters-lost"):
        node.redrive(letters)
    assert [body for _, body, _ in moved(node, streams[0], letters)] == [b"1", b"2", b"3"]
    assert [body for _, body, _ in moved(node, streams[1], letters)] == [b"1", b"2", b"3", b"10", b"11"]


def test_letters_of_a_stream_that_was_made_anew_are_moved_though_a_run_before_was_interrupted(
    node: Embedded, stream: str, letters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(node, [stream], letters, 4)
    begin_and_die(node, letters, 4, monkeypatch)
    node.subscriptions.remove(stream, "worker")
    node.streams.delete(letters)
    node.streams.create(letters)
    fail(node, [stream], letters, 3, first=10)
    assert node.redrive(letters) == {stream: 3}
    bodies = [body for _, body, _ in moved(node, stream, letters)]
    assert bodies == [b"10", b"11", b"12"]


def damage(node: Embedded, gone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a subscription told that one letter cannot be read."""
    subscribe = node.subscribe

    def subscribe_to_the_damaged(name: str, until: int, on_gap: Any) -> Any:
        @contextmanager
        def damaged() -> Iterator[Iterator[Any]]:
            with subscribe(name, until=until) as subscription:
                yield undamaged(subscription)

        def undamaged(subscription: Any) -> Iterator[Any]:
            for letter in subscription:
                if letter.sequence == gone:
                    on_gap(Gap(gone, gone + 1, "damaged"))
                else:
                    yield letter

        return damaged()

    monkeypatch.setattr(node, "subscribe", subscribe_to_the_damaged)


@pytest.mark.parametrize("gone", [1, 3, 6])
def test_a_letter_that_cannot_be_read_stops_the_run_and_is_moved_by_the_next_that_reads_it(
    node: Embedded, stream: str, letters: str, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    fail(node, [stream], letters, 6)
    damage(node, gone, monkeypatch)
    for _ in range(2):
        with pytest.raises(Refused, match=f"cannot read dead letter {gone} of .*damaged.*--before {gone + 1}"):
            node.redrive(letters)
    monkeypatch.undo()
    if gone > 1:
        assert [int(body) for _, body, _ in moved(node, stream, letters)] == list(range(1, gone))
    assert node.redrive(letters) == {stream: 7 - gone}
    assert [int(body) for _, body, _ in moved(node, stream, letters)] == [1, 2, 3, 4, 5, 6]


def test_a_letter_that_can_never_be_read_is_given_up_by_trimming(
    node: Embedded, stream: str, letters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(node, [stream], letters, 6)
    damage(node, 3, monkeypatch)
    with pytest.raises(Refused, match="letters-damaged"):
        node.redrive(letters)
    node.streams.trim(letters, 4)
    assert node.redrive(letters) == {stream: 3}
    monkeypatch.undo()
    assert [int(body) for _, body, _ in moved(node, stream, letters)] == [1, 2, 4, 5, 6]


def test_what_is_no_dead_letter_is_passed_over(node: Embedded, stream: str, letters: str) -> None:
    with node.publisher(letters) as publisher:
        publisher.publish("k", b"somebody's own")
        publisher.publish("k", b"forged", {"veredus.stream": stream, "veredus.sequence": 1})
        publisher.publish("k", b"no name", {"veredus.stream": "no name"})
    assert node.redrive(letters) == {}
    fail(node, [stream], letters, 3)
    assert node.redrive(letters) == {stream: 3}
    assert [body for _, body, _ in moved(node, stream, letters)] == [b"1", b"2", b"3"]


def test_nobody_can_offer_what_says_that_the_node_has_parked_it() -> None:
    batch = signed_record(BatchHeader(int(Layout.ROWS), int(BatchFlags.PARKED), 0, 0, 1, 1, 1, 1, 1, 1, 0, 0), [b"x"])
    with pytest.raises(PeerFault, match="the node alone parks"):
        check_header(read_header(memoryview(batch)[ENVELOPE_SIZE:][: HEADER_SIZE + 1]), BatchLimits())


def test_letters_that_a_filter_has_selected_are_dead_letters_all_the_same(
    node: Embedded, stream: str, letters: str
) -> None:
    fail(node, [stream], letters, 4)
    with node.subscribe(letters, keys="k2", until=5) as subscription:
        assert [letter.batch.header.is_parked for letter in subscription] == [True]


def test_letters_of_a_stream_that_is_gone_or_forbidden_keep_no_others(stream: str) -> None:
    with veredus.embedded(streams={"create_on_use": False}) as node:
        names = ["gone", "kept"]
        for name in (*names, "dead"):
            node.streams.create(name)
        fail(node, names, "dead", 3)
        node.streams.delete("gone")
        for _ in range(2):
            with pytest.raises(Refused, match=r"no dead letter of 'dead' is moved to 'gone' any more.*unknown-stream"):
                node.redrive("dead")
            assert [body for _, body, _ in moved(node, "kept", "dead")] == [b"1", b"2", b"3"]


@pytest.mark.filterwarnings("ignore:source .* behind its last resume token")
def test_letters_that_were_trimmed_while_in_doubt_are_refused(node: Embedded, stream: str, letters: str) -> None:
    fail(node, [stream], letters, 4)
    with node.publisher(stream, source=source(node, letters), resume="token") as publisher:
        publisher.publish("k1", b"1")
        publisher.flush()
    node.streams.trim(letters, 3)
    with pytest.raises(Refused, match=r"1 to 2.*trimmed.*letters-lost"):
        node.redrive(letters)


def test_an_empty_stream_of_letters_has_nothing_to_move(node: Embedded, letters: str) -> None:
    assert node.redrive(letters) == {}
