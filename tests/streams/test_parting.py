"""Where two parted that knew the same terms of a stream once."""

import pytest

from veredus.kernel.terms import Terms, parted_at


@pytest.mark.parametrize(
    ("terms", "others", "place"),
    [
        (((1, 1),), ((1, 1),), 0),
        (((1, 1), (7, 40)), ((1, 1),), 40),
        (((1, 1), (7, 40)), ((1, 1), (8, 30)), 30),
        (((1, 1), (7, 40), (9, 60)), ((1, 1), (7, 40), (8, 50)), 50),
        (((2, 1),), ((1, 1),), 1),
        ((), ((1, 1),), 0),
        (((1, 1),), (), 0),
    ],
)
def test_they_part_where_the_first_term_begins_that_one_of_them_does_not_know(
    terms: Terms, others: Terms, place: int
) -> None:
    assert parted_at(terms, others) == parted_at(others, terms) == place


def test_the_oldest_terms_that_are_taken_for_one_part_nobody() -> None:
    all_of_them = ((1, 1), (5, 10), (7, 40), (9, 60))
    for merged in (((5, 1), *all_of_them[2:]), ((7, 1), *all_of_them[3:]), ((9, 1),)):
        assert parted_at(all_of_them, merged) == parted_at(merged, all_of_them) == 0
        assert parted_at((*merged, (11, 80)), all_of_them) == 80
    assert parted_at(((7, 1), (9, 60)), ((1, 1), (5, 10), (8, 30))) == 1, "where is not known any more"
