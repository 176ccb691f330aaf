"""Somebody with few rights, who asks for the names of others, for a shut stream, and for what an operator does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from veredus.streams import exchange as x

from .network import Network
from .peers import Peer
from .rights import OPEN_SINK, OWN_SINK, SHUT, SHUT_SINK, TRESPASSER
from .world import MICROSECOND, MILLISECOND, Violation, World

_RUN_CHANNEL, _REQUEST_CHANNEL = 1, 2
_CHANNELS_MAX = 500


class Trespasser(Peer):
    """Somebody who tries what it may not."""

    def __init__(
        self, world: World, network: Network, address: str, streams: tuple[str, ...], names: Callable[[], list[str]]
    ) -> None:
        """Who knows the names of streams, and of everybody."""
        super().__init__(world, network, f"{TRESPASSER}-1", address, TRESPASSER)
        self.is_resting = False
        self._streams = streams
        self._names = names
        self._channel = _REQUEST_CHANNEL
        self._request = 0

    def attach(self) -> None:
        """Open a run of its own: a link that may commit."""
        self._channel = _REQUEST_CHANNEL
        if not self.is_resting:
            self.ask(x.RunOpenRequested(_RUN_CHANNEL, TRESPASSER, OWN_SINK, self.die.octets(16)))

    def hear(self, order: Any) -> None:
        """It is refused, again and again."""
        match order:
            case x.GrantRun(session) if session == _RUN_CHANNEL:
                self._try_later()
            case x.Refuse(code="forbidden" | "unknown-run"):
                self.world.counts["trespasses refused"] += 1
            case x.Refuse() | x.Fence():
                self.leave()
            case _:
                raise Violation("rights", f"{self.name} was told {order!r}")

    def lose(self) -> None:
        """Nothing that is not answered matters."""

    def _try_later(self) -> None:
        port = self.port
        self.later(self.die.spread(100 * MICROSECOND, 20 * MILLISECOND), lambda: self._try(port))

    def _try(self, port: object) -> None:
        if self.is_resting or self.port is None or self.port is not port:
            return
        self._channel += 1
        if self._channel > _CHANNELS_MAX:
            self.leave()
            return
        self.ask(_TRIES[self.die.between(0, len(_TRIES) - 1)](self))
        self._try_later()

    # ── what it tries ────────────────────────────────────────────────────────────────────────────────────────────────

    def _one(self, names: tuple[str, ...]) -> str:
        return names[self.die.between(0, len(names) - 1)]

    def _named(self, kind: str) -> str:
        return self._one(tuple(name for name in self._names() if name.startswith(kind)) or (f"{kind}-1",))

    def attach_source(self) -> object:
        """As somebody else's source."""
        epoch = self.die.between(0, 3)
        return x.SourceAttachRequested(
            self._channel, TRESPASSER, self._one(self._streams), self._named("source"), self.die.octets(16), epoch
        )

    def publish(self) -> object:
        """As an anonymous source, to the stream that is shut."""
        return x.SourceAttachRequested(self._channel, TRESPASSER, SHUT, "", self.die.octets(16))

    def subscribe(self) -> object:
        """By somebody else's cursor."""
        return x.SubscribeRequested(
            self._channel, TRESPASSER, self._one(self._streams), self._named("subscriber"), "main",
            incarnation=self.die.octets(16), epoch=self.die.between(0, 3),
        )  # fmt: skip

    def open_run(self) -> object:
        """Of somebody else's sink."""
        epoch = self.die.between(0, 3)
        return x.RunOpenRequested(self._channel, TRESPASSER, SHUT_SINK, self.die.octets(16), epoch)

    def open_stage(self) -> object:
        """Of somebody else's sink."""
        epoch, key = self.die.between(1, 3), self.die.octets(16)
        return x.StageOpenRequested(self._channel, TRESPASSER, SHUT_SINK, epoch, self._one(self._streams), key)

    def open_stage_where_shut(self) -> object:
        """Of its own sink, for the stream that is shut; its epoch is a guess."""
        key = self.die.octets(16)
        return x.StageOpenRequested(self._channel, TRESPASSER, OWN_SINK, self.die.between(1, 9), SHUT, key)

    def commit(self) -> object:
        """Of somebody else's sink, for ever."""
        self._request += 1
        sink, epoch = self._one((SHUT_SINK, OPEN_SINK)), self.die.between(1, 4)
        stages = (self.die.between(1, 40),)
        return x.CommitRequested(_RUN_CHANNEL, self._request, TRESPASSER, sink, epoch, (1 << 63) - 1, stages)

    def drop_stages(self) -> object:
        """Of somebody else's sink."""
        self._request += 1
        stages = tuple(range(1, 40))
        return x.StagesDropRequested(
            _RUN_CHANNEL, self._request, TRESPASSER, self._one((SHUT_SINK, OPEN_SINK)), self.die.between(1, 4), stages
        )

    def administer(self) -> object:
        """What only an operator may."""
        stream = self._one(self._streams)
        cursor: dict[str, object] = {"stream": stream, "subscriber": self._named("subscriber"), "name": "main"}
        requests: tuple[tuple[str, dict[str, object]], ...] = (
            ("stream.delete", {"name": stream}),
            ("stream.trim", {"name": stream, "floor": 1 << 40}),
            ("stream.create", {"name": "trespassed"}),
            ("source.raise", {"stream": stream, "sources": [[self._named("source"), 10**15, b""]]}),
            ("subscription.remove", cursor),
            ("sink.remove", {"sink": SHUT_SINK}),
        )
        verb, arguments = requests[self.die.between(0, len(requests) - 1)]
        self._request += 1
        return x.AdminRequested(_REQUEST_CHANNEL, self._request, TRESPASSER, verb, arguments)


_TRIES: tuple[Callable[[Trespasser], object], ...] = (
    Trespasser.attach_source,
    Trespasser.publish,
    Trespasser.subscribe,
    Trespasser.open_run,
    Trespasser.open_stage,
    Trespasser.open_stage_where_shut,
    Trespasser.commit,
    Trespasser.drop_stages,
    Trespasser.administer,
)
