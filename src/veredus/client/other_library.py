"""What each of the two libraries says where it is used like the other one."""

from __future__ import annotations

from typing import NoReturn

from veredus.kernel.errors import Misuse

CODE = "other-library"


class Asynchronous:
    """What belongs to the asyncio library: `with` is told what to write."""

    def __enter__(self) -> NoReturn:
        raise Misuse(CODE, "this belongs to asyncio: write `async with`, not `with`")

    def __exit__(self, *_: object) -> None: ...


class Blocking:
    """What belongs to the blocking library: `async with` is told what to write.

    `await` and `async for` stay Python's errors: whoever asks whether a thing can be awaited or iterated so
    (`inspect.isawaitable`, `AsyncIterable`, and frameworks by them) must be told that it can't.
    """

    __slots__ = ()

    def __aenter__(self) -> NoReturn:
        name = type(self).__name__
        message = (
            f"this {name} is of the blocking library: use it without `await` and `async`, or open it with asyncio's:"
            " connect_async, embedded_async, veredus.topics.AsyncClient"
        )
        raise Misuse(CODE, message)

    def __aexit__(self, *_: object) -> None: ...
