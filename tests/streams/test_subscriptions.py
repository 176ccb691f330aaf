"""Whether a stream has a subscription of some name is known without a look at any of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.streams.rig import Rig
from veredus.matching import Filter
from veredus.streams import exchange as x
from veredus.streams.facts import SubscriptionOpened, SubscriptionSettled
from veredus.streams.removed import GIVEN
from veredus.streams.subscription import Subscription
from veredus.streams.subscriptions import Subscriptions
from veredus.streams.tables import StreamsLimits

NAMES = ("main", "other", GIVEN)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from(NAMES))))
def test_a_name_is_known_while_somebody_has_a_subscription_of_it(steps: list[tuple[bool, str, str]]) -> None:
    known, one = Subscriptions(), Any
    for is_put, subscriber, name in steps:
        if is_put:
            known[subscriber, name] = one  # type: ignore[assignment]
        else:
            known.take((subscriber, name))
        assert [known.has_named(name) for name in NAMES] == [name in {of for _, of in known} for name in NAMES]


@pytest.mark.parametrize("is_given", [True, False])
def test_a_stream_is_deleted_without_a_look_at_all_that_subscribe_to_it(
    monkeypatch: pytest.MonkeyPatch, is_given: bool
) -> None:
    rig = Rig(StreamsLimits())
    rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": "s"}))
    for number in range(30):
        name = GIVEN if is_given and number == 29 else "main"
        rig.do(x.SubscribeRequested(10 + number, "local", "s", f"bob-{number}", name, incarnation=bytes(15) + b"1"))
    looked_at: list[int] = []

    def counted(subscriptions: Subscriptions) -> Iterator[Any]:
        looked_at.append(len(subscriptions))
        return dict.__iter__(subscriptions)

    monkeypatch.setattr(Subscriptions, "__iter__", counted, raising=False)
    rig.tell(x.AdminRequested(1, 2, "local", "stream.delete", {"name": "s"}))
    assert looked_at == []
    monkeypatch.undo()
    rig.carry_out()
    assert rig.floor.tables.removed.has("s") is not is_given


def test_what_a_checkpoint_knows_to_be_done_with_stays_so_behind_an_older_fact() -> None:
    """It may be made while a fact is on its way that knows less; what is done with has no attempts any more."""
    opened = SubscriptionOpened(
        1, "s", "main", 1, bytes(16), Filter(), 1, 1, 0, ((2, 2), (4, 10)), 12, attempts_max=3, attempts=((1, 1, 1),)
    )
    subscription = Subscription(opened, 100)
    for older in (((2, 2), (5, 9)), ((2, 2), (5, 9), (12, 12))):
        fact = SubscriptionSettled(1, "s", "main", 0, older, 12, False, attempts=((4, 4, 2, False),))
        subscription.apply_settled(fact, 100)
    assert subscription.settled_ranges() == ((2, 2), (4, 10), (12, 12))
    assert list(subscription.tries) == [(1, 1, 1)]
    # What was made since knows all, and what is behind that no less.
    subscription.apply_settled(SubscriptionSettled(1, "s", "main", 2, ((4, 10), (12, 12)), 12, False), 100)
    assert (subscription.floor, subscription.settled_ranges()) == (2, ((4, 10), (12, 12)))
    assert not subscription.is_reopened
