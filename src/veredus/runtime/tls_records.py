"""Where records of TLS begin in what was read, cut anywhere: so they are counted before they are opened.

Source: RFC 8446, section 5.1 (a record's head: its kind, its version, and its size in two octets).
"""

from __future__ import annotations

from typing import Final

HEAD_SIZE: Final = 5


class Records:
    """Owns how far the reader of one stream is: in the head of a record, or before its end."""

    __slots__ = ("_head", "_left_size")

    def __init__(self) -> None:
        """The stream begins with a head."""
        self._head = b""
        self._left_size = 0

    def take(self, data: memoryview, count_max: int) -> tuple[int, int]:
        """How much of `data`, the next of the stream, has at most `count_max` heads, in bytes, and how many it has.

        What is behind that comes again.
        """
        at = count = 0
        while True:
            size = min(self._left_size, len(data) - at)
            self._left_size -= size
            at += size
            if at == len(data) or count == count_max:
                return at, count
            head = bytes(data[at : at + HEAD_SIZE - len(self._head)])
            at += len(head)
            self._head += head
            if len(self._head) == HEAD_SIZE:
                self._left_size, self._head = int.from_bytes(self._head[3:], "big"), b""
                count += 1
