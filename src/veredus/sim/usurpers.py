"""Somebody who may do all but take names over, and asks for everybody's; see `owners`.

It presents epochs, which it guesses: so a name that is not there yet is not made by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from veredus.streams import exchange as x

from .network import Network
from .owners import USURPER
from .peers import Peer
from .world import MILLISECOND, Violation, World

_CHANNELS_MAX = 500


class Usurper(Peer):
    """Somebody who would be somebody else."""

    def __init__(
        self, world: World, network: Network, address: str, streams: Sequence[str], names: Callable[[], list[str]]
    ) -> None:
        """Who knows the names of streams, and of everybody."""
        super().__init__(world, network, f"{USURPER}-1", address, USURPER)
        self.is_resting = False
        self._streams = streams
        self._names = names
        self._channel = 0
        self._request = 0

    def attach(self) -> None:
        """Begin to ask."""
        self._channel = 0
        self._try_later()

    def hear(self, order: Any) -> None:
        """It gets nothing."""
        match order:
            case x.Refuse() | x.Fence():
                self.world.counts["usurpers refused"] += 1
            case x.AnswerAdmin(result={"dropped": []}):
                # Of a sink that is not there, or not yet.
                pass
            case _:
                raise Violation("rights", f"{self.name} was told {order!r}")

    def lose(self) -> None:
        """Nothing that is not answered matters."""

    def _try_later(self) -> None:
        port = self.port
        self.later(self.die.spread(MILLISECOND // 2, 50 * MILLISECOND), lambda: self._try(port))

    def _try(self, port: object) -> None:
        if self.is_resting or self.port is None or self.port is not port:
            return
        self._channel += 1
        if self._channel > _CHANNELS_MAX:
            self.leave()
            return
        kinds = (self._attach, self._subscribe, self._open_run, self._open_stage, self._administer)
        self.ask(kinds[self.die.between(0, len(kinds) - 1)]())
        self._try_later()

    # ── what it tries ────────────────────────────────────────────────────────────────────────────────────────────────

    def _one(self, names: Sequence[str]) -> str:
        return names[self.die.between(0, len(names) - 1)]

    def _named(self, kind: str) -> str:
        return self._one([name for name in self._names() if name.startswith(kind)] or [f"{kind}-1"])

    def _attach(self) -> object:
        stream, source = self._one(self._streams), self._named("source")
        return x.SourceAttachRequested(
            self._channel, USURPER, stream, source, self.die.octets(16), self.die.between(1, 3)
        )

    def _subscribe(self) -> object:
        return x.SubscribeRequested(
            self._channel, USURPER, self._one(self._streams), self._named("subscriber"), "main",
            incarnation=self.die.octets(16), epoch=self.die.between(1, 3), credit=1 << 20,
        )  # fmt: skip

    def _open_run(self) -> object:
        return x.RunOpenRequested(
            self._channel, USURPER, self._named("sink"), self.die.octets(16), self.die.between(1, 3)
        )

    def _open_stage(self) -> object:
        sink, stream, epoch = self._named("sink"), self._one(self._streams), self.die.between(1, 3)
        return x.StageOpenRequested(self._channel, USURPER, sink, epoch, stream, self.die.octets(16))

    def _administer(self) -> object:
        cursor: dict[str, object] = {
            "stream": self._one(self._streams), "subscriber": self._named("subscriber"), "name": "main",
        }  # fmt: skip
        sink: dict[str, object] = {"sink": self._named("sink")}
        requests = (
            ("subscription.remove", cursor),
            ("subscription.renew", cursor),
            ("subscription.advance", {**cursor, "floor": 0}),
            ("sink.remove", sink),
            ("stage.drop", sink),
        )
        verb, arguments = requests[self.die.between(0, len(requests) - 1)]
        self._request += 1
        return x.AdminRequested(self._channel, self._request, USURPER, verb, arguments)
