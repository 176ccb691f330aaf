"""A proxy of the topic service: its engine, its sockets, and a timer. Source: seed 000, section 3."""

from __future__ import annotations

import asyncio
import time

import structlog

from cursus.kernel.effects import Note
from cursus.kernel.engine import Now
from cursus.kernel.events import DeadlineReached
from cursus.protocols.topics.messages import HEADER_SIZE_MAX
from cursus.protocols.topics.proxy import Event, Proxy, ProxySettings

from .topics_sockets import TopicsSockets


class TopicsProxy:
    """Owns a proxy's sockets, and drives its engine on the running loop; made and closed on that loop."""

    def __init__(self, settings: ProxySettings, address: str, body_size_max: int) -> None:
        """Listen at `address` ("127.0.0.1:5551"; port 0 takes any) for messages of up to `body_size_max` bytes.

        Raises `Unavailable("port-in-use")`.
        """
        self.engine = Proxy(settings)
        self._log = structlog.get_logger("cursus")
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._sockets = TopicsSockets(address, HEADER_SIZE_MAX + body_size_max, self._tell)
        self.address = self._sockets.address

    def close(self) -> None:
        """Close every socket; what was answered has half a second to leave."""
        if self._timer is not None:
            self._timer.cancel()
        self._sockets.close()

    def _tell(self, event: Event) -> None:
        for effect in self.engine.handle(event, Now(time.monotonic_ns(), time.time_ns())):
            if isinstance(effect, Note):
                getattr(self._log, effect.level)(effect.event, **effect.fields)
            else:
                self._sockets.carry_out(effect)
        self._wake_in_time()

    def _wake_in_time(self) -> None:
        at_ns = self.engine.deadline()
        if at_ns is None or (self._timer is not None and self._timer_ns <= at_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = at_ns
        self._timer = self._loop.call_later(max(0.0, (at_ns - time.monotonic_ns()) / 1e9), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._tell(DeadlineReached())
