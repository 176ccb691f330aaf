"""Dead letters go back to the streams that they came from, each once, however often that is asked for."""

import itertools
from typing import Any

import pytest

from veredus.client import redriving
from veredus.client.embedded import Embedded
from veredus.kernel.errors import Refused


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


def moved(node: Embedded, stream: str, letters: str) -> list[tuple[bytes, bytes, dict[str, Any]]]:
    """What was published again, in order."""
    with node.subscribe(stream, until=node.streams.show(stream)["head"] + 1) as subscription:
        found = [p for p in subscription if p.source == f"redrive/{letters}"]
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
    monkeypatch.setattr(redriving, "FLUSH_COUNT", 2)
    publish, calls = redriving._Target.move, itertools.count(1)

    def die(target: Any, letter: Any) -> None:
        if next(calls) == 6:
            if not is_stored:
                target._publisher.close_run(b"")
            target._publisher.wait(target._publisher.number, timeout_s=10)
            raise KeyboardInterrupt
        publish(target, letter)

    with monkeypatch.context() as context:
        context.setattr(redriving._Target, "move", die)
        with pytest.raises(KeyboardInterrupt):
            node.redrive(letters)
    node.redrive(letters)
    assert [body for _, body, _ in moved(node, stream, letters)] == [b"%d" % n for n in range(1, 10)]


def test_what_is_no_dead_letter_is_passed_over(node: Embedded, stream: str, letters: str) -> None:
    with node.publisher(letters) as publisher:
        publisher.publish("k", b"somebody's own")
    assert node.redrive(letters) == {}


def test_letters_that_were_trimmed_while_in_doubt_are_refused(node: Embedded, stream: str, letters: str) -> None:
    fail(node, [stream], letters, 4)
    with node.publisher(stream, source=f"redrive/{letters}", resume="token") as publisher:
        publisher.publish("k1", b"1")
        publisher.flush()
    node.streams.trim(letters, 3)
    with pytest.raises(Refused, match="letters-trimmed"):
        node.redrive(letters)


def test_an_empty_stream_of_letters_has_nothing_to_move(node: Embedded, letters: str) -> None:
    assert node.redrive(letters) == {}
