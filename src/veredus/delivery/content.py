"""What a sink says that one commit of it holds."""

from __future__ import annotations

from typing import NamedTuple

DIGEST_SIZE_MAX = 32


class Content(NamedTuple):
    """What a sink says that a commit holds for one stream: how many rows, and a digest of them that does not depend on
    their order, at most `DIGEST_SIZE_MAX` bytes.
    """

    stream: str
    row_count: int
    digest: bytes = b""
