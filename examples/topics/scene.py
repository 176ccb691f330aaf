"""What every process of a run is told: who puts and gets what, where the proxies are, and how fast it goes.

<directory>/scene.json        written once, before the first client begins
<directory>/flights           a line for each flight: its topic, and its line of the data set
<directory>/open              the clock (monotonic) at which the puts began; there once all are subscribed
<directory>/end               there once nothing more is put, and every topic is at one server
<directory>/accounts/<id>     what a client wrote down
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

OPEN, END = "open", "end"


@dataclass(frozen=True)
class Scene:
    """The plan of a run; the same everywhere."""

    seed: int
    seconds: float
    """How long the flights are spread over."""
    proxies: list[str]
    subscriptions: dict[str, list[str]]
    """By client, the topics that it gets."""
    workers_count: int

    def store(self, directory: Path) -> None:
        """Write it where every process finds it."""
        (directory / "scene.json").write_text(json.dumps(asdict(self)))

    @property
    def clients(self) -> list[str]:
        """Their ids, in order."""
        return list(self.subscriptions)

    def clients_of(self, worker: int) -> list[str]:
        """The clients that live in one worker process."""
        return self.clients[worker :: self.workers_count]

    def putter_of(self, index: int) -> str:
        """Who puts a flight."""
        return self.clients[index % len(self.clients)]

    def proxies_of(self, client: str) -> list[str]:
        """In the order in which a client tries them: half of them begin with the one, half with the other."""
        is_odd = self.clients.index(client) % 2
        return self.proxies[::-1] if is_odd else self.proxies

    def is_by_page(self, client: str) -> bool:
        """Whether it knows the specification alone: half of the clients of each proxy do."""
        return self.clients.index(client) // 2 % 2 == 1


def load_scene(directory: Path) -> Scene:
    """What `Scene.store` wrote."""
    return Scene(**json.loads((directory / "scene.json").read_text()))


def deal(seed: int, topics: list[str], clients_count: int, topics_count: int) -> dict[str, list[str]]:
    """By client, `topics_count` topics to get; each topic has somebody if there are enough to be dealt."""
    dice = Random(f"{seed} topics")
    deck: list[str] = []
    dealt: dict[str, list[str]] = {}
    for number in range(clients_count):
        hand: list[str] = []
        while len(hand) < topics_count:
            fresh = [topic for topic in deck if topic not in hand]
            if fresh:
                hand.append(fresh[0])
                deck.remove(fresh[0])
            else:
                deck += dice.sample(topics, len(topics))
        dealt[f"client-{number:02}"] = hand
    return dealt


def store_flights(directory: Path, flights: list[tuple[str, str]]) -> None:
    """Write topics and lines of the data set."""
    text = "".join(f"{topic}\t{line}\n" for topic, line in flights)
    (directory / "flights").write_text(text, encoding="utf-8")


def read_flights(directory: Path) -> list[tuple[str, str]]:
    """Topic and line of each flight, in order."""
    pairs = (line.split("\t") for line in (directory / "flights").read_text(encoding="utf-8").splitlines())
    return [(topic, flight) for topic, flight in pairs]
