"""`pyarrow.compute`, imported when it is first used.

It makes a Python function of each of its three hundred, which takes as long as all else that a command imports; and a
command that publishes a line, or lists streams, computes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:

    class _Compute:
        """Its functions, kept here as soon as they are known."""

        def __getattr__(self, name: str) -> object:
            import pyarrow.compute

            found = self.__dict__[name] = getattr(pyarrow.compute, name)
            return found

    pc = _Compute()

__all__ = ["pc"]
