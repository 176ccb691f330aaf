"""What Spark asks for raises what the user reads: the sentence that says what to do, and not all calls before it.

Spark shows the whole traceback of its Python worker, first call first, in front of the sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from veredus.kernel.errors import VeredusError

P = ParamSpec("P")
T = TypeVar("T")


def plainly(method: Callable[P, T]) -> Callable[P, T]:
    """The method; what it raises tells of none of its own calls."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except VeredusError as error:
            raise error.bare() from None

    return called


def plainly_each(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """As `plainly`, for a method that gives one after the other."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*args, **kwargs)
        except VeredusError as error:
            raise error.bare() from None

    return called
