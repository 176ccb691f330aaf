"""A condition that is valid and hardly meant gets a hint; one that is meant gets none."""

import pytest

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
    ],
)
def test_what_is_meant_gets_none(where: str) -> None:
    assert hints_of(where) == []
