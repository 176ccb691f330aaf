"""What the journal orders while it handles one event, and the tokens that its orders carry.

Invariant: each token is given once in the life of a log.
"""

from __future__ import annotations

from .exchange import LogEffect


class Orders:
    """Owns the effects of the event that is being handled, and the last token given."""

    __slots__ = ("_effects", "_last_token")

    def __init__(self) -> None:
        self._effects: list[LogEffect] = []
        self._last_token = 0

    def say(self, effect: LogEffect) -> None:
        """Order `effect`, behind those before."""
        self._effects.append(effect)

    def token(self) -> int:
        """A token for the next order that has an outcome."""
        self._last_token += 1
        return self._last_token

    def take(self) -> list[LogEffect]:
        """What was ordered since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects
