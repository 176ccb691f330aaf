"""Which publications are wanted, by what they say: the SQL-92 subset of JMS message selectors, a column at a time.

A condition is true, false or unknown, and only what is true is wanted. An absent attribute is null; whatever is asked
of null, or of a value of another kind than asked for, is unknown. docs/reference/filters.md has the grammar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from veredus.matching.evaluation import evaluate
from veredus.matching.lexer import refusal
from veredus.matching.parser import PREDICATE_SIZE_MAX, parse
from veredus.matching.selection import Mask
from veredus.matching.syntax import Condition, names_of, text_of


@dataclass(frozen=True)
class Predicate:
    """A condition on the attributes and pseudo-columns of a publication; equal if its tree is.

    `names`: the columns that it reads, each once, in the order in which they are written.
    """

    condition: Condition
    names: tuple[str, ...] = field(compare=False)

    def __str__(self) -> str:
        return text_of(self.condition)

    def select(self, columns: Mapping[str, pa.Array], count: int) -> Mask:
        """Where the condition is true, as a mask of `count` rows.

        `columns`: by name an array of `count` rows of bool, int64, float64, text, bytes or timestamp (us), or a
        dictionary of these; a missing one is null in every row. `$event_time` and `$append_time` may also be int64,
        microseconds since 1970, UTC. Raises `Misuse("bad-column")` for anything else.
        """
        return evaluate(self.condition, columns, count).true


def compile_predicate(text: str) -> Predicate:
    """The predicate that `text` says; its canonical text is within the same bounds and gives an equal one.

    Raises `Refused("bad-predicate")` with the `position` (a 0-based index into `text`) where it does not parse, or
    exceeds one of the bounds on its length, depth and number of terms.
    """
    condition = parse(text)
    size = len(text_of(condition))
    if size > PREDICATE_SIZE_MAX:
        raise refusal(0, f"its canonical form has {size} characters, and the limit is {PREDICATE_SIZE_MAX}")
    return Predicate(condition, names_of(condition))
