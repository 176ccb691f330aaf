"""Taste: which publications an interest covers, by key pattern and by predicate, a column at a time."""

from veredus.matching.filters import (
    PATTERN_COUNT_MAX,
    CompiledFilter,
    Filter,
    KeyUnion,
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

__all__ = [
    "DEPTH_MAX",
    "EVERY_KEY",
    "PATTERN_COUNT_MAX",
    "PATTERN_SIZE_MAX",
    "PREDICATE_SIZE_MAX",
    "REGEX_PROGRAM_SIZE_MAX",
    "TERM_COUNT_MAX",
    "CompiledFilter",
    "Filter",
    "KeyUnion",
    "Mask",
    "Pattern",
    "PatternTable",
    "Predicate",
    "compile_filter",
    "compile_pattern",
    "compile_predicate",
    "prefix_text",
    "union_of",
]
