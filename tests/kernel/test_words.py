"""Sentences speak of one as of one."""

from veredus.kernel.words import are, counted, spanned, were


def test_one_is_said_to_be_one_and_others_to_be_many() -> None:
    assert [counted(count, "line") for count in (0, 1, 2)] == ["0 lines", "1 line", "2 lines"]
    assert [counted(count, "client of topics", "clients of topics") for count in (1, 2)] == [
        "1 client of topics",
        "2 clients of topics",
    ]
    assert [spanned("sequence", 5, last) for last in (5, 7)] == ["sequence 5", "sequences 5 to 7"]
    assert [f"{count} {are(count)}, {count} {were(count)}" for count in (1, 2)] == ["1 is, 1 was", "2 are, 2 were"]
