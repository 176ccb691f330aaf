"""A condition that is valid and hardly meant gets a hint; one that is meant gets none."""

import pytest

from veredus.kernel.errors import Refused
from veredus.matching.hints import hints_of


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("Key = 'a'", "write $key"),
        ("SEQUENCE > 3 AND x = 1", "write $sequence"),
        ("NOT (quote > 3 OR body = 'a')", "cannot read the body"),
        ("$key IN ('a', 3)", "$key is a key, and 3 is a number"),
        ("$sequence BETWEEN 1 AND 'x'", "'x' is text"),
        ("$sequence LIKE '1%'", "LIKE needs text or $key"),
        ("$append_time < '2013-07-01'", "write TIMESTAMP"),
        ("ABS(x) = 'a'", "ABS(x) is a number"),
        ('carrier = "UA"', "write text in single quotes, 'UA'"),
        ("dep-delay > 5", 'dep-delay is dep minus delay here: write "dep-delay" in double quotes'),
        ("x = 1 AND was-it-late = 2", "or was - it - late with spaces"),
        ("ts > 2024-01-01", "2024-01-01 is a number here, 2024 minus 01 minus 01: write TIMESTAMP '2024-01-01'"),
    ],
)
def test_what_can_hardly_be_meant_gets_one_hint(where: str, said: str) -> None:
    (hint,) = hints_of(where)
    assert said in hint


@pytest.mark.parametrize(
    "where",
    [
        "quote > 30 AND carrier = 'UA' OR is_cargo",
        '"key" = \'a\' AND x = "source"',
        '"delay (min)" > 3 AND 3 < "delay (min)"',
        "$key LIKE 'a%' AND $source = 'desk' AND $sequence > 3.5",
        "$event_time >= TIMESTAMP '2013-07-01' AND $key = X'0a'",
        "arrived - left > 5 AND x-1 > 3 AND \"dep-delay\" = 'a-b' AND y > 2024-1",
    ],
)
def test_what_is_meant_gets_none(where: str) -> None:
    assert hints_of(where) == []


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            "veredus.reason = 'attempts'",
            "at position 7: '.' has no meaning here; put a name with dots in double quotes: \"veredus.reason\"",
        ),
        ("x > 1 AND a.b.c = 1", 'double quotes: "a.b.c"'),
        ("ts > 2024-01-01 05:15", "a date and time is written TIMESTAMP '2013-07-01 05:15'"),
        ("ts > 2024-01-01T05", "'T' cannot follow a number; a date and time is written TIMESTAMP '2024-01-01 05:15'"),
    ],
)
def test_what_does_not_parse_is_told_how_it_is_written(where: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        hints_of(where)
    assert said in caught.value.message
