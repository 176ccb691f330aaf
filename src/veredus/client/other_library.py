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
    """What belongs to the blocking library: `await`, `async with` and `async for` are told what to write."""

    __slots__ = ()

    def __await__(self) -> NoReturn:
        raise self._misused()

    def __aenter__(self) -> NoReturn:
        raise self._misused()

    def __aexit__(self, *_: object) -> NoReturn:
        raise self._misused()

    def __aiter__(self) -> NoReturn:
        raise self._misused()

    def _misused(self) -> Misuse:
        name = type(self).__name__
        message = (
            f"this {name} is of the blocking library: use it without `await` and `async`, or open it with asyncio's:"
            " connect_async, embedded_async, veredus.topics.AsyncClient"
        )
        return Misuse(CODE, message)
