"""What hangs on a connection, and what it is told there."""

from __future__ import annotations

from typing import Protocol, get_args

from veredus.kernel.errors import VeredusError
from veredus.protocols.zeps.client_exchange import (
    TellClosed,
    TellDelivery,
    TellHanded,
    TellMessage,
    TellOpened,
    TellReceipts,
    TellSettled,
)

from .losses import Pending

Told = TellOpened | TellReceipts | TellDelivery | TellHanded | TellSettled | TellMessage | TellClosed
"""What a channel may be told."""
TOLD = get_args(Told)


class Attachment(Pending, Protocol):
    """What hangs on a connection: a source, a subscription, a run, a stage."""

    def begin(self) -> None:
        """A link is open: ask for a channel."""

    def take(self, told: Told) -> None:
        """The channel was told something."""

    def lose(self) -> None:
        """The link is gone, and the channel with it."""

    def fail(self, error: VeredusError) -> None:
        """The connection is over, and so is this."""

    def bar(self, error: VeredusError) -> None:
        """Refuse with this whatever would have to be finished as well; in any thread."""

    def forbid(self, error: VeredusError) -> None:
        """Refuse every further use with this, and touch nothing: the loop belongs to another process."""

    def finish(self) -> str:
        """Send what waits to be sent; what the node has not confirmed yet, in words, "" for nothing."""
