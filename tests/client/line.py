"""The end of a connection that a channel hangs on, without a connection: what is said is kept."""

from collections.abc import Callable
from typing import Any

from veredus.client.links import ConnectionSettings
from veredus.client.losses import Losses


class Line:
    """The end of a connection that a channel hangs on; timers end when the test says so."""

    is_open = True
    settings = ConnectionSettings(())

    def __init__(self) -> None:
        self.said: list[object] = []
        self.opened: list[object] = []
        self.timers: list[Callable[[], None]] = []
        self.losses = Losses(lambda: ("", ""))

    def begin(self, channel: Any) -> None:
        channel.begin()

    def check_loop(self) -> None: ...

    def open_channel(self, channel: object, message: object) -> int:
        self.opened.append(message)
        return 1

    def handle(self, request: object) -> None:
        self.said.append(request)

    def call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.timers.append(action)
