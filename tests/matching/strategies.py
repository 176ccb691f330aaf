"""What predicates and rows may look like."""

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.matching.reference import Cell
from veredus.matching.syntax import (
    Arithmetic,
    Between,
    Call,
    Comparison,
    Condition,
    Conjunction,
    Disjunction,
    Kind,
    Likeness,
    Literal,
    Membership,
    Name,
    Negation,
    Nullness,
    Sign,
    Truth,
    Value,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
EDGES = [0, 1, -1, 2, 7, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1]
INTEGERS = st.sampled_from(EDGES) | st.integers(-4, 4) | INT64
FLOAT_EDGES = [
    0.0,
    -0.0,
    0.5,
    -1.5,
    1.0,
    2.0,
    2.0**53,
    2.0**53 + 2,
    2.0**63,
    -(2.0**63),
    -(2.0**63) - 2048,
    1e300,
    5e-324,
]
FINITE = st.sampled_from(FLOAT_EDGES) | st.floats(allow_nan=False, allow_infinity=False)
FLOATS = FINITE | st.sampled_from([float("nan"), float("inf"), float("-inf")])
TEXTS = st.text("ab%_é\\'", max_size=4) | st.text(max_size=6)
OCTETS = st.binary(max_size=4) | st.sampled_from([b"a", b"b", b"ab"])
KEYS = TEXTS.map(str.encode) | st.sampled_from([b"a\xff", b"\xff", b"\xffb", "é".encode()[:1]])
# Years 1 to 9999, which is what a literal can say.
MOMENTS = st.sampled_from([0, -1, 1_000_000]) | st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)

# Column: its kind, the cells' values, and its Arrow type.
COLUMNS: dict[str, tuple[Kind, st.SearchStrategy[Any], pa.DataType]] = {
    "flag": (Kind.BOOL, st.booleans(), pa.bool_()),
    "i": (Kind.INTEGER, INTEGERS, pa.int64()),
    "j": (Kind.INTEGER, INTEGERS, pa.int64()),
    "f": (Kind.FLOAT, FLOATS, pa.float64()),
    "t": (Kind.TEXT, TEXTS, pa.string()),
    "u": (Kind.TEXT, TEXTS, pa.string()),
    "odd name": (Kind.BYTES, OCTETS, pa.binary()),
    "and": (Kind.TIMESTAMP, MOMENTS, pa.timestamp("us", "UTC")),
    "$key": (Kind.KEY, KEYS, pa.binary()),
    "$event_time": (Kind.TIMESTAMP, MOMENTS, pa.int64()),
    "$sequence": (Kind.INTEGER, INTEGERS, pa.int64()),
}
NAMES = st.sampled_from([*COLUMNS, "absent"]).map(Name)
LITERALS = st.one_of(
    st.booleans().map(lambda value: Literal(Kind.BOOL, value)),
    INTEGERS.map(lambda value: Literal(Kind.INTEGER, value)),
    FINITE.map(lambda value: Literal(Kind.FLOAT, value)),
    TEXTS.map(lambda value: Literal(Kind.TEXT, value)),
    OCTETS.map(lambda value: Literal(Kind.BYTES, value)),
    MOMENTS.map(lambda value: Literal(Kind.TIMESTAMP, value)),
)


def compound_values(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    def chain(symbols: str) -> st.SearchStrategy[Value]:
        rest = st.lists(st.tuples(st.sampled_from(symbols), values), min_size=1, max_size=2).map(tuple)
        return st.builds(Arithmetic, values, rest)

    calls = st.builds(Call, st.sampled_from(["ABS", "OCTET_LENGTH"]), st.tuples(values))
    return chain("+-") | chain("*/") | st.builds(Sign, st.sampled_from("+-"), values) | calls


VALUES: st.SearchStrategy[Value] = st.recursive(NAMES | LITERALS, compound_values, max_leaves=4)


@st.composite
def likenesses(draw: st.DrawFn) -> Likeness:
    escape = draw(st.none() | st.sampled_from("\\!%_"))
    pattern = draw(st.text("ab%_é!\\", max_size=5))
    if escape is not None:
        pattern = "".join(escape + c if c == escape else c for c in pattern)
    return Likeness(draw(VALUES), pattern, escape, draw(st.booleans()))


TESTS: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Truth, NAMES | st.booleans().map(lambda value: Literal(Kind.BOOL, value))),
    st.builds(Comparison, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), VALUES, VALUES),
    st.builds(Between, VALUES, VALUES, VALUES, st.booleans()),
    st.builds(Membership, VALUES, st.lists(LITERALS, min_size=1, max_size=4).map(tuple), st.booleans()),
    likenesses(),
    st.builds(Nullness, VALUES, st.booleans()),
)


def compound_conditions(conditions: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(conditions, min_size=2, max_size=3).map(tuple)
    return st.builds(Negation, conditions) | st.builds(Conjunction, several) | st.builds(Disjunction, several)


CONDITIONS: st.SearchStrategy[Condition] = st.recursive(TESTS, compound_conditions, max_leaves=4)


@st.composite
def batches(draw: st.DrawFn) -> tuple[dict[str, pa.Array], list[dict[str, Cell]]]:
    """Columns as Arrow arrays, some sliced, some dictionaries, and the same as rows."""
    count = draw(st.integers(0, 6))
    columns: dict[str, pa.Array] = {}
    rows: list[dict[str, Cell]] = [{} for _ in range(count)]
    for name, (kind, values, arrow_type) in COLUMNS.items():
        cells = draw(st.lists(values if name.startswith("$") else st.none() | values, min_size=count, max_size=count))
        start = draw(st.integers(0, 3))
        array = pa.array([None] * start + cells, arrow_type)
        if arrow_type in (pa.string(), pa.binary(), pa.int64()) and draw(st.booleans()):
            array = array.dictionary_encode()
        columns[name] = array.slice(start)
        for row, cell in zip(rows, cells, strict=True):
            row[name] = None if cell is None else (kind, cell)
    return columns, rows
