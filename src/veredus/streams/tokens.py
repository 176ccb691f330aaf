"""A resume token that no publication carries: the source has got on in its input, and published nothing since.

Part of the language of veredus.streams.exchange.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenStoreRequested:
    """Store the resume token of the source that the session publishes as; it speaks up to `number`, which is durable.

    Answered by `AnswerAdmin` once it is stored, or one that speaks further is.
    """

    session: int
    request: int
    number: int
    token: bytes
