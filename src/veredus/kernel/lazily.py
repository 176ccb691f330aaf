"""Modules that are imported when they are first used: a command that publishes a line needs no columns.

numpy and pyarrow take a tenth of a second, and `pyarrow.compute`, which makes a Python function of each of its three
hundred, as long again.

A thread of its own imports what is large: what a signal's handler raises in the middle of that, as Ctrl-C does, leaves
a numpy that this process can never import again, an asyncio without half of its names, and ends the interpreter where
msgspec is building a decoder. So it ends the wait, and the import goes on. All that imports numpy or pyarrow late has
numpy imported so before.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .unbroken import unbroken, undivided

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc


_END_S = 5.0
"""For how long who is interrupted waits for the end of an import. Where that goes on while the program ends, Python may
forget that Ctrl-C ended it, and exit with 1."""


class Lazily:
    """Stands for a module; its names are kept here as soon as they are known."""

    def __init__(self, module: str) -> None:
        """The module of that name, which is not imported yet."""
        self._module = module

    def __getattr__(self, name: str) -> Any:
        import_numpy()
        found = self.__dict__[name] = getattr(_imported(self._module), name)
        return found


def import_numpy() -> None:
    """Import it, unless that was done. Raises what its import raises, and what a signal's handler raises meanwhile."""
    import_whole("numpy")


def import_whole(name: str) -> ModuleType:
    """The module of this name, imported to its end whatever a signal's handler raises in the thread that asks for it.

    Raises what its import raises, and what a handler raises meanwhile. Not for use by what the module imports.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        return module
    return unbroken(lambda: _imported(name), end_s=_END_S)


def _imported(name: str) -> ModuleType:
    return undivided(lambda: import_module(name))


if not TYPE_CHECKING:
    np, pa, pc = Lazily("numpy"), Lazily("pyarrow"), Lazily("pyarrow.compute")

__all__ = ["Lazily", "import_numpy", "import_whole", "np", "pa", "pc"]
