"""Filters: patterns of keys and conditions over attributes, compiled and asked of rows, or refused with a position.

What is compiled judges rows whatever they hold, a row alone as it does among others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.driver import main
from veredus.kernel.errors import Refused
from veredus.matching.filters import CompiledFilter, union_of
from veredus.matching.index import FilterIndex
from veredus.matching.needs import needs_of
from veredus.matching.patterns import EVERY_KEY, Pattern, compile_pattern
from veredus.matching.predicate import Predicate, compile_predicate

# More than are judged one by one.
KEYS = pa.array([b"", b"a", b"a.b", b"stock.de.sap", b"\xff\x00", None, b"a" * 300, "é.ü".encode()] * 3, pa.binary())
COLUMNS = {
    "price": pa.array([0.0, -1.5, float("nan"), None, 1e300, 2.0**53, 5e-324, float("inf")]),
    "size": pa.array([0, 1, -1, None, 2**63 - 1, -(2**63), 2**53 + 1, 7]),
    "name": pa.array(["", "a", "a%b", None, "é", "a_b", "\U0001f40e", "x" * 99]),
    "flag": pa.array([True, False, None, True, False, None, True, False]),
    "when": pa.array([0, 1, -1, None, 10**15, 2**62, -(2**62), 5], pa.timestamp("us", "UTC")),
}
ROWS = range(8)
SEEDS = (
    b"stock.",
    b"literal:a.b",
    b"prefix:%ff",
    b"tokens:stock.*.>",
    b"regex:a(b|c)*\\.d{2,9}",
    b"price > 1.5 AND NOT (size IN (1, 2, 3) OR name LIKE 'a!%%' ESCAPE '!')",
    b"flag OR size BETWEEN -1 AND 2 * price",
    b"name IS NOT NULL AND abs(size) >= octet_length(name)",
    b"\"when\" < TIMESTAMP '2013-01-01 00:00:00' AND name <> 'it''s'",
    b"price / size + 1e300 * -2 = 0x10",
)


Compiled = TypeVar("Compiled", Pattern, Predicate)


def compiled(kind: Callable[[str], Compiled], text: str) -> Compiled | None:
    """What `text` says, which its canonical text says again; nothing where it is refused at a place within it."""
    try:
        wanted = kind(text)
    except Refused as error:
        position = error.details["position"]
    else:
        assert kind(str(wanted)) == wanted
        return wanted
    assert 0 <= position <= len(text), position
    return None


def target(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    pattern = compiled(compile_pattern, text)
    if pattern is not None:
        alone = [key is not None and pattern.matches(key) for key in KEYS.to_pylist()]
        assert pattern.select(KEYS).tolist() == alone
    predicate = compiled(compile_predicate, text)
    if predicate is not None:
        alone = [
            predicate.select({name: cells[row : row + 1] for name, cells in COLUMNS.items()}, 1)[0] for row in ROWS
        ]
        assert predicate.select(COLUMNS, len(ROWS)).tolist() == alone
    check_index(pattern, predicate)


def check_index(pattern: Pattern | None, predicate: Predicate | None) -> None:
    """An index names a filter that wants any of the rows."""
    keys = KEYS[: len(ROWS)]
    wanted = CompiledFilter(union_of([pattern or EVERY_KEY]), predicate)
    needs = needs_of(wanted)
    if needs:
        index: FilterIndex[str] = FilterIndex()
        index.add("it", needs)
        named = index.match({**COLUMNS, "$key": keys}.get, len(ROWS), COLUMNS)
        assert named or not wanted.select(keys, COLUMNS.get, len(ROWS)).any()
        index.remove("it")


if __name__ == "__main__":
    main("filters", target, SEEDS)
