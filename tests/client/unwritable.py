"""A body that is taken by the call, and that no batch can hold: what the loop finds only when it writes the batch."""


class Unwritable(str):
    """Text that fails to become bytes, as what is changed after it was given can."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        raise ValueError("this text has no bytes")
