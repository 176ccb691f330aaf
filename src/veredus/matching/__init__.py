"""Taste: which publications an interest covers, by key pattern and by predicate, a column at a time.

Names are imported when they are first used: a short command has no need of columns.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from veredus.kernel.lazily import import_numpy

if TYPE_CHECKING:
    from veredus.matching.evaluation import ROW_NS
    from veredus.matching.filters import (
        INSTRUCTION_COUNT_MAX,
        PATTERN_COUNT_MAX,
        CompiledFilter,
        KeyUnion,
        Trial,
        check_program_size,
        compile_filter,
        union_of,
    )
    from veredus.matching.parser import DEPTH_MAX, PREDICATE_SIZE_MAX, TERM_COUNT_MAX
    from veredus.matching.patterns import (
        EVERY_KEY,
        PATTERN_SIZE_MAX,
        REGEX_PROGRAM_SIZE_MAX,
        Pattern,
        compile_pattern,
        prefix_text,
    )
    from veredus.matching.predicate import Predicate, compile_predicate
    from veredus.matching.selection import Mask
    from veredus.matching.table import PatternTable
    from veredus.matching.wanted import Filter

_HOME_OF = {
    "CompiledFilter": "filters",
    "DEPTH_MAX": "parser",
    "EVERY_KEY": "patterns",
    "Filter": "wanted",
    "INSTRUCTION_COUNT_MAX": "filters",
    "KeyUnion": "filters",
    "Mask": "selection",
    "PATTERN_COUNT_MAX": "filters",
    "PATTERN_SIZE_MAX": "patterns",
    "PREDICATE_SIZE_MAX": "parser",
    "Pattern": "patterns",
    "PatternTable": "table",
    "Predicate": "predicate",
    "REGEX_PROGRAM_SIZE_MAX": "patterns",
    "TERM_COUNT_MAX": "parser",
    "ROW_NS": "evaluation",
    "Trial": "filters",
    "check_program_size": "filters",
    "compile_filter": "filters",
    "compile_pattern": "patterns",
    "compile_predicate": "predicate",
    "prefix_text": "patterns",
    "union_of": "filters",
}

__all__ = [
    "DEPTH_MAX",
    "EVERY_KEY",
    "INSTRUCTION_COUNT_MAX",
    "PATTERN_COUNT_MAX",
    "PATTERN_SIZE_MAX",
    "PREDICATE_SIZE_MAX",
    "REGEX_PROGRAM_SIZE_MAX",
    "ROW_NS",
    "TERM_COUNT_MAX",
    "CompiledFilter",
    "Filter",
    "KeyUnion",
    "Mask",
    "Pattern",
    "PatternTable",
    "Predicate",
    "Trial",
    "check_program_size",
    "compile_filter",
    "compile_pattern",
    "compile_predicate",
    "prefix_text",
    "union_of",
]

_LIGHT = ("wanted",)
"""Those that need no columns."""


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home not in _LIGHT:
        import_numpy()
    found = globals()[name] = getattr(import_module(f".{home}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
