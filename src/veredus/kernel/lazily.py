"""Modules that are imported when they are first used: a command that publishes a line needs no columns.

numpy and pyarrow take a tenth of a second, and `pyarrow.compute`, which makes a Python function of each of its three
hundred, as long again.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc


class Lazily:
    """Stands for a module; its names are kept here as soon as they are known."""

    def __init__(self, module: str) -> None:
        """The module of that name, which is not imported yet."""
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = getattr(import_module(self._module), name)
        return found


if not TYPE_CHECKING:
    np, pa, pc = Lazily("numpy"), Lazily("pyarrow"), Lazily("pyarrow.compute")

__all__ = ["Lazily", "np", "pa", "pc"]
