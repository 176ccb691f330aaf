"""What a subscription wants, as it is written; to try it on publications it is compiled."""

from __future__ import annotations

import msgspec


class Filter(msgspec.Struct, frozen=True):
    """A filter as it is written, sent and journaled: key patterns, any of which will do, and a condition.

    Without patterns every key will do, without a condition every publication of these keys.
    """

    keys: tuple[str, ...] = ()
    where: str | None = None
