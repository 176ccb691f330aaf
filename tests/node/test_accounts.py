"""What those who ask for topics may have: who is greedy leaves as much for others as it has itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.engine import Now
from veredus.node.accounts import Accounts, InHand, Share
from veredus.node.connections import Connections
from veredus.node.pacing import Pacing
from veredus.node.quotas import BURST_NS, Quotas

NOW = Now(1_000_000_000, 0)


def accounts_of(requests_max: int = 100, size_max: int = 1 << 20, rates_max: tuple[int, int] = (0, 0)) -> Accounts:
    return Accounts(Connections(2), Quotas(*rates_max, Pacing()), requests_max, size_max)


def take_all(accounts: Accounts, payer: str, size: int = 1) -> list[InHand]:
    """As many requests of the payer's as are taken."""
    taken = []
    while not accounts.why_not(payer, payer, size, NOW):
        taken.append(accounts.take(payer, payer, size, NOW))
    accounts.check()
    return taken


def test_one_greedy_payer_has_half_of_all_requests_and_the_next_one_finds_room() -> None:
    accounts = accounts_of(requests_max=100)
    assert len(take_all(accounts, "greedy")) == 50
    assert accounts.why_not("greedy", "greedy", 1, NOW).startswith("50 requests of greedy are being handled")
    assert len(take_all(accounts, "another")) == 25
    assert not accounts.why_not("victim", "victim", 1, NOW)


def test_the_bytes_in_hand_are_shared_in_the_same_way() -> None:
    accounts = accounts_of(size_max=100)
    assert len(take_all(accounts, "greedy", 10)) == 5
    assert not accounts.why_not("victim", "victim", 10, NOW)


def test_a_first_request_is_taken_where_there_is_room_for_it_at_all() -> None:
    accounts = accounts_of(size_max=100)
    assert len(take_all(accounts, "large", 90)) == 1
    assert accounts.why_not("other", "other", 11, NOW)
    assert not accounts.why_not("other", "other", 10, NOW)


def test_what_is_answered_leaves_its_share_to_the_next() -> None:
    accounts = accounts_of(requests_max=10)
    for asked in take_all(accounts, "greedy"):
        accounts.answer(asked, 1, NOW)
    accounts.check()
    assert len(take_all(accounts, "other")) == 5


def test_over_its_quota_a_principal_is_told_to_try_again_until_time_has_paid_for_it() -> None:
    accounts = accounts_of(rates_max=(1000, 0))
    accounts.take("p", "p", 3000, NOW)
    assert accounts.why_not("p", "p", 1, NOW) == "p has used up limits.received_per_principal_max: try again"
    assert not accounts.why_not("other", "other", 1, NOW)
    assert not accounts.why_not("p", "p", 1, Now(NOW.monotonic_ns + 2 * BURST_NS, 0))


def test_answers_count_in_the_quota_of_whoever_asked() -> None:
    accounts = accounts_of(rates_max=(0, 1000))
    accounts.answer(accounts.take("p", "p", 1, NOW), 3000, NOW)
    assert accounts.why_not("p", "p", 1, NOW) == "p has used up limits.sent_per_principal_max: try again"


def test_what_is_refused_does_not_count_in_a_quota() -> None:
    accounts = accounts_of(rates_max=(1000, 0))
    accounts.take("p", "p", 3000, NOW)
    before = accounts.quotas.received.deadline()
    for _ in range(100):
        accounts.why_not("p", "p", 1000, NOW)
    assert accounts.quotas.received.deadline() == before


def test_a_principal_has_no_more_connections_than_it_may_with_those_of_the_node() -> None:
    accounts = accounts_of()
    assert accounts.admit(-1, "a", "p").principal == "p"
    assert accounts.admit(-2, "b", "p").principal == "p"
    refused = accounts.admit(-3, "c", "p")
    assert (refused.principal, refused.code) == (None, "too-many-connections")
    assert accounts.admit(-4, "d", "other").principal == "other"
    accounts.forget(-1)
    assert accounts.admit(-5, "e", "p").principal == "p"


@given(st.integers(1, 40), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 5), st.booleans())))
def test_whoever_asks_no_more_is_held_than_there_is(most: int, steps: list[tuple[str, int, bool]]) -> None:
    share: Share[str] = Share(most)
    held: list[tuple[str, int]] = []
    for payer, size, is_taken in steps:
        if is_taken and share.has_room(payer, size):
            share.take(payer, size)
            held.append((payer, size))
        elif held and not is_taken:
            share.give_back(*held.pop())
        share.check()
        assert share.size <= most
