"""In which order a version 1 client is delivered what several subscriptions bring, and where it can go on from."""

from random import Random

import pytest

from veredus.kernel.events import LinkCongested, LinkDrained
from veredus.protocols.links import session_of
from veredus.protocols.zeps import frames
from veredus.streams import exchange as x

from .peer import MUCH, Peer
from .place import Place

PATTERNS = (b"", b"a", b"b", b"c", b"regex:[ab]")


def wants(pattern: bytes, key: bytes) -> bool:
    if pattern.startswith(b"regex:"):
        return key in (b"a", b"b")
    return key.startswith(pattern)


class Story:
    """A client that subscribes and gives credit as dice fall, while somebody publishes; and what it has to hear."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        tail_size_max, undelivered_size_max = self.dice.choice([300, 1 << 20]), self.dice.choice([0, 4000, 1 << 20])
        self.place = Place(tail_size_max=tail_size_max, undelivered_size_max=undelivered_size_max)
        self.writer, self.peer = Peer(self.place, 99), Peer(self.place)
        self.keys: list[bytes] = []
        self.subscribed: list[tuple[bytes, int]] = []
        self.confirmed_count = 0
        self.delivered: set[int] = set()
        self.last = 0
        """The last one delivered since the last SUBSCRIBE-OK."""
        self.heard_count = len(self.peer.heard)

    def publish(self) -> None:
        keys = self.dice.choices("abc", k=self.dice.choice([1, 1, 2, 7, 30]))
        self.writer.publish(*[(key, "x" * self.dice.randrange(40)) for key in keys])
        self.keys += [key.encode() for key in keys]

    def subscribe(self) -> None:
        commands = []
        for _ in range(self.dice.choice([1, 1, 1, 2])):
            self.subscribed.append((self.dice.choice(PATTERNS), self.dice.randint(0, len(self.keys))))
            commands.append(frames.encode_subscribe(*self.subscribed[-1]))
        self.peer.say(b"".join(commands))

    def credit(self) -> None:
        self.peer.say(frames.encode_credit(self.dice.choice([1, 20, 100, 500, 5000])))

    def congest(self) -> None:
        self.place.tell(LinkCongested(1))

    def drain(self) -> None:
        self.place.tell(LinkDrained(1))

    def wanted(self, until: int, subscribed: list[tuple[bytes, int]]) -> set[int]:
        return {
            sequence
            for sequence, key in enumerate(self.keys[:until], 1)
            if any(latest < sequence and wants(pattern, key) for pattern, latest in subscribed)
        }

    def hear(self) -> None:
        self.peer.listen()
        for said in self.peer.heard[self.heard_count :]:
            if isinstance(said, frames.SubscribeOk):
                self.confirmed_count, self.last = self.confirmed_count + 1, 0
                continue
            assert isinstance(said, frames.Deliver)
            assert said.sequence not in self.delivered, "each once"
            assert said.sequence > self.last, "in order since the last SUBSCRIBE-OK"
            assert self.confirmed_count == len(self.subscribed), "none in front of its SUBSCRIBE-OK"
            self.delivered.add(said.sequence)
            self.last = said.sequence
            wanted = self.wanted(self.last, self.subscribed)
            assert wanted <= self.delivered, "who goes on behind the last one has everything before it"
        self.heard_count = len(self.peer.heard)


@pytest.mark.parametrize("seed", range(150))
def test_sequences_grow_from_one_subscribe_ok_to_the_next_and_nothing_is_left_out_behind_the_last(seed: int) -> None:
    story = Story(seed)
    steps = [story.publish, story.subscribe, story.credit, story.credit, story.congest, story.drain, story.drain]
    for step in (story.publish, *story.dice.choices(steps, k=40)):
        step()
        story.hear()
        story.place.undelivered.check()
    story.drain()
    story.peer.say(frames.encode_credit(MUCH))
    story.hear()
    assert story.delivered == story.wanted(len(story.keys), story.subscribed)


def test_what_is_prepared_for_one_subscription_waits_for_the_earlier_publications_of_another() -> None:
    place = Place()
    peer = Peer(place)
    peer.publish(*[("ab"[number % 2], "12345") for number in range(40)])
    peer.say(frames.encode_subscribe(b"a", 0), frames.encode_credit(19))
    assert peer.delivered == [(1, b"a")]
    peer.say(frames.encode_subscribe(b"b", 0), frames.encode_credit(MUCH))
    assert [sequence for sequence, _ in peer.delivered] == list(range(1, 41))


def test_what_was_prepared_and_is_trimmed_before_another_subscription_ends_the_attachment_with_the_reason() -> None:
    place = Place()
    writer, peer = Peer(place, 99), Peer(place)
    for _ in range(9):
        writer.publish(("a", "12345"), ("a", "12345"))
    peer.say(frames.encode_subscribe(b"a", 0), frames.encode_credit(1))
    place.tell(x.AdminRequested(session_of(99, 0), 1, "local", "stream.trim", {"name": "s", "floor": 5}))
    peer.say(frames.encode_subscribe(b"a", 18), frames.encode_credit(MUCH))
    assert peer.delivered == [(1, b"a")]
    assert peer.invalid.startswith("below-floor:_what_comes_behind_this_`latest`_is_no_longer_kept_up_to_sequence_4:")
