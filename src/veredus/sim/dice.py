"""The dice of a world: one seed, and from it one die for each concern, so that a new throw in one shifts no other."""

from __future__ import annotations

import math
from hashlib import blake2b
from random import Random


class Die(Random):
    """A seeded die of one concern, with the throws that worlds ask for."""

    def chance(self, probability: float) -> bool:
        """True with this probability; a probability of 0 is not thrown for."""
        return probability > 0 and self.random() < probability

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both possible, every one as likely."""
        return low + int(self.random() * (high - low + 1))

    def spread(self, low: int, high: int) -> int:
        """A whole number from `low` (at least 1) to `high`, every order of magnitude as likely."""
        return min(high, int(math.exp(self.random() * math.log((high + 1) / low)) * low))

    def rate(self, high: float, never: float = 0.4) -> float:
        """A probability for a fault in this world: often 0, else up to `high`, small ones more likely."""
        return 0.0 if self.chance(never) else high * self.random() ** 2

    def octets(self, size: int) -> bytes:
        """`size` random bytes."""
        return self.getrandbits(8 * size).to_bytes(size, "little") if size else b""


class Dice:
    """Owns the dice of one world."""

    def __init__(self, seed: int) -> None:
        """`seed`: what the world is drawn from."""
        self.seed = seed
        self._dice: dict[str, Die] = {}

    def die(self, concern: str) -> Die:
        """The die of this concern; the same one each time it is asked for."""
        die = self._dice.get(concern)
        if die is None:
            digest = blake2b(f"{self.seed}/{concern}".encode(), digest_size=8).digest()
            die = self._dice[concern] = Die(int.from_bytes(digest, "big"))
        return die
