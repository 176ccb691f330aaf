"""A peer of version 1 that is played by hand, and a place that holds something for it."""

from __future__ import annotations

from veredus.protocols.zeps import frames
from veredus.protocols.zeps.frames import CommandParser

from .place import Place

MUCH = 1 << 40


class Peer:
    """A client of version 1 that sends what it is told, and keeps what it hears."""

    def __init__(
        self, place: Place, link: int = 1, stream: str = "s", door: str = "tcp", principal: str = "local"
    ) -> None:
        self.place, self.link, self.is_framed = place, link, door == "zeromq"
        place.open(link, door, principal)
        self.parser = CommandParser(1 << 30)
        self.heard: list[frames.Command] = []
        self.say(frames.encode_attach(stream))

    def say(self, *commands: bytes) -> list[frames.Command]:
        before = len(self.heard)
        for command in commands:
            self.hear(self.place.receive(self.link, command))
        self.listen()
        return self.heard[before:]

    def hear(self, data: bytes) -> None:
        self.heard += self.parser.feed(data)
        assert self.parser.fault is None

    def listen(self) -> None:
        self.hear(self.place.take(self.link))

    def publish(self, *pairs: tuple[str, str]) -> list[frames.Command]:
        commands = [frames.encode_publish(key.encode(), body.encode()) for key, body in pairs]
        return self.say(*commands) if self.is_framed else self.say(b"".join(commands))

    @property
    def delivered(self) -> list[tuple[int, bytes]]:
        self.listen()
        return [(command.sequence, command.key) for command in self.heard if isinstance(command, frames.Deliver)]

    @property
    def invalid(self) -> str:
        self.listen()
        last = self.heard[-1]
        assert isinstance(last, frames.Invalid), self.heard
        return last.reason.decode()


def filled(count: int = 20, keys: str = "ab") -> Place:
    """A place whose stream `s` holds publications with keys a, b, a, b, … one batch each."""
    place = Place()
    writer = Peer(place, 99)
    for number in range(1, count + 1):
        writer.publish((keys[(number - 1) % len(keys)], str(number)))
    return place
