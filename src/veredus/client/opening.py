"""What an asyncio application opens: by `await`, or by `async with`, which also closes it again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from .other_library import Asynchronous

HOW = "await it, or enter it with `async with … as opened`"


class _Entered(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


T = TypeVar("T", bound=_Entered)


class Opening(Asynchronous, Generic[T]):
    """Something that is being opened: await it to have it, or enter it to have it closed again."""

    def __init__(self, open_: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """What `open_` opens, once it is asked for."""
        self.begin = open_
        self._opened: T | None = None

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"this is not open yet, so it has no {name!r}: {HOW}")

    def __await__(self) -> Generator[Any, Any, T]:
        return self.begin().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self.begin()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)

    def __iter__(self) -> NoReturn:
        raise TypeError(f"this is not open yet, so there is nothing to iterate over: {HOW}, and then use `async for`")

    def __aiter__(self) -> NoReturn:
        raise TypeError(f"this is not open yet, so there is nothing to iterate over: {HOW}")
