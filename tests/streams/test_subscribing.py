"""The way out: flow between tail and journal, settlement, redelivery, owners, and streams that are cut or gone."""

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.kernel.errors import Refused
from veredus.matching import Filter
from veredus.streams import cursors
from veredus.streams import exchange as x
from veredus.streams.tables import StreamsLimits

TINY = StreamsLimits(tail_size_max=700)
EVEN = Filter(where="even")


def published(count: int, per_batch: int = 1, limits: StreamsLimits | None = None) -> Rig:
    """A stream with publications 1 to `count` of source alpha."""
    rig = Rig(limits or StreamsLimits())
    grant = rig.attach(1)
    for first in range(1, count + 1, per_batch):
        rig.publish(grant, first, min(per_batch, count + 1 - first))
    return rig


def floor_shown(rig: Rig) -> object:
    """Where bob's subscription stands, as whoever looks at it is shown."""
    arguments = {"stream": "s", "subscriber": "bob", "name": "main"}
    (answer,) = rig.do(x.AdminRequested(90, 1, "local", "subscription.show", arguments))
    return answer.result["floor"]


# ── flow ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_subscriber_gets_everything_kept_and_then_what_comes() -> None:
    rig = published(30, per_batch=3)
    rig.subscribe(5)
    rig.publish(rig.attach(1), 31, 4)
    assert rig.pushed(5) == list(range(1, 35))


@pytest.mark.parametrize("tail_size_max", [0, 1, 300, 700, 5000])
@pytest.mark.parametrize("filter_", [None, EVEN])
def test_the_seam_between_journal_and_tail_is_never_seen(tail_size_max: int, filter_: Filter | None) -> None:
    rig = Rig(StreamsLimits(tail_size_max=tail_size_max))
    grant = rig.attach(1)
    rig.subscribe(5, filter=filter_, credit=1)
    number = 0
    for burst in range(1, 40):
        for _ in range(burst % 5 + 1):
            rig.publish(grant, number + 1, burst % 3 + 1)
            number += burst % 3 + 1
        rig.do(x.CreditGranted(5, 40 * burst))
        rig.give_turns()
    rig.do(x.CreditGranted(5, 1 << 40))
    rig.give_turns()
    wanted = [n for n in range(1, number + 1) if filter_ is None or n % 2 == 0]
    assert rig.pushed(5) == wanted


def test_credit_is_overdrawn_by_one_frame_at_most() -> None:
    rig = published(20)
    rig.subscribe(5, credit=1)
    assert rig.pushed(5) == [1]
    push = rig.pushes(5)[0]
    rig.do(x.CreditGranted(5, push.size + x.PUSH_OVERHEAD - 1))
    assert rig.pushed(5) == [1], "the debt is paid, and nothing more"
    rig.do(x.CreditGranted(5, 1))
    assert len(rig.pushed(5)) == 2


def test_a_stalled_subscriber_holds_up_no_other_and_keeps_its_place() -> None:
    rig = published(1, limits=TINY)
    rig.subscribe(5, credit=0)
    rig.subscribe(6)
    grant = rig.attach(1)
    for number in range(2, 200):
        rig.publish(grant, number)
        rig.give_turns()
    assert rig.pushed(6) == list(range(1, 200))
    assert rig.pushed(5) == []
    assert rig.floor.tables.budget.size <= TINY.tail_size_max
    rig.do(x.CreditGranted(5, 1 << 40))
    rig.give_turns()
    assert rig.pushed(5) == list(range(1, 200))


def test_a_congested_link_is_pushed_nothing_until_it_has_drained() -> None:
    rig = published(5)
    rig.subscribe(5, start=x.Start(x.StartKind.HEAD))
    rig.said += rig.floor.set_congested(5, True, rig.now)
    grant = rig.attach(1)
    rig.publish(grant, 6, 2)
    assert rig.pushed(5) == []
    rig.said += rig.floor.set_congested(5, False, rig.now)
    assert rig.pushed(5) == [6, 7]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (x.Start(), 1),
        (x.Start(x.StartKind.SEQUENCE, 7), 7),
        (x.Start(x.StartKind.SEQUENCE, 21), 21),
        (x.Start(x.StartKind.HEAD), 21),
        (x.Start(x.StartKind.TAIL, 3), 18),
        (x.Start(x.StartKind.TAIL, 300), 1),
        (x.Start(x.StartKind.AFTER_MINE, 0, "alpha"), 21),
        (x.Start(x.StartKind.AFTER_MINE, 0, "nobody"), 1),
    ],
)
def test_a_subscription_begins_where_it_asked(start: x.Start, first: int) -> None:
    rig = published(20, per_batch=4)
    assert rig.subscribe(5, start=start).position == first
    rig.publish(rig.attach(1), 21)
    assert rig.pushed(5) == list(range(first, 22))


@pytest.mark.parametrize("tail_size_max", [0, 1 << 20])
def test_who_wants_whole_batches_is_pushed_the_one_whole_in_which_it_begins(tail_size_max: int) -> None:
    rig = Rig(StreamsLimits(tail_size_max=tail_size_max))
    grant = rig.attach(1)
    rig.publish(grant, 1, 2)
    rig.publish(grant, 3, 4, b"token")
    rig.publish(grant, 7, 2)
    whole = rig.subscribe(5, start=x.Start(value=5), is_whole=True)
    cut = rig.subscribe(6, start=x.Start(value=5))
    assert whole.position == cut.position == 5
    assert rig.pushed(5) == [3, 4, 5, 6, 7, 8]
    assert rig.pushed(6) == [5, 6, 7, 8]
    rig.subscribe(7, "bob", start=x.Start(value=5), is_whole=True)
    assert rig.pushed(7) == [5, 6, 7, 8], "a cursor counts what it is pushed"


def test_a_start_by_time_is_exact_to_the_record() -> None:
    rig = Rig()
    grant = rig.attach(1)
    for number in range(1, 11):
        rig.time_ns += 1_000_000_000
        rig.publish(grant, number)
    seventh_us = rig.now.wall_us - 3_000_000
    assert rig.subscribe(5, start=x.Start(x.StartKind.TIME, seventh_us)).position == 7
    assert rig.subscribe(6, start=x.Start(x.StartKind.TIME, seventh_us + 1)).position == 8


@pytest.mark.parametrize(("value", "code"), [(22, "above-head"), (3, "below-floor")])
def test_a_start_outside_of_the_stream_is_refused(value: int, code: str) -> None:
    rig = published(20)
    rig.do(x.AdminRequested(9, 1, "local", "stream.trim", {"name": "s", "floor": 5}))
    rig.do(x.SubscribeRequested(5, "local", "s", start=x.Start(x.StartKind.SEQUENCE, value)))
    (refusal,) = rig.said_to(5, x.Refuse)
    assert (refusal.code, refusal.details["floor"], refusal.details["head"]) == (code, 5, 20)


@pytest.mark.parametrize("names", [("risk", ""), ("", "main")])
def test_a_durable_subscription_that_lacks_one_of_its_names_is_told_which_it_needs(names: tuple[str, str]) -> None:
    rig = Rig()
    (refusal,) = rig.do(x.SubscribeRequested(5, "local", "s", *names, incarnation=bytes(16)))
    assert refusal.code == "no-subscriber"
    assert refusal.message == "a durable subscription needs a subscriber and a name, and an ephemeral one has neither"


def test_a_start_above_the_newest_is_told_by_a_sequence_that_is_not_there_and_may_be_the_last_one_known() -> None:
    rig = published(5)
    rig.do(x.SubscribeRequested(5, "local", "s", start=x.Start(x.StartKind.SEQUENCE, 7)))
    (refusal,) = rig.said_to(5, x.Refuse)
    assert refusal.message == "stream 's' has no sequence 7 yet, the newest is 5: begin at 6 or before"


def test_a_subscription_with_an_end_gets_what_lies_before_it_and_no_more() -> None:
    rig = published(20, per_batch=4)
    rig.subscribe(5, until=7)
    assert rig.pushed(5) == [1, 2, 3, 4, 5, 6]
    assert [end.next_sequence for end in rig.said_to(5, x.EndSubscription)] == [7]


def test_a_filter_that_does_not_parse_is_refused_with_its_place() -> None:
    rig = published(1)
    rig.do(x.SubscribeRequested(5, "local", "s", filter=Filter(where="n > > 3")))
    (refusal,) = rig.said_to(5, x.Refuse)
    assert refusal.code == "bad-predicate"
    assert refusal.details["position"] == 4


def test_a_changed_filter_counts_from_the_next_unexamined_sequence() -> None:
    rig = published(10)
    rig.subscribe(5, "bob", filter=EVEN)
    (confirmed,) = [s for s in rig.do(x.FilterChangeRequested(5, Filter())) if isinstance(s, x.ConfirmFilter)]
    rig.publish(rig.attach(1), 11, 3)
    assert (confirmed.position, rig.pushed(5)) == (11, [2, 4, 6, 8, 10, 11, 12, 13])


# ── settlement ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_settling_in_order_settles_all_before_and_is_confirmed_once_it_is_durable() -> None:
    rig = published(10)
    rig.subscribe(5, "bob")
    rig.tell(x.SettleRequested(5, ((1, 6),)))
    assert rig.said_to(5, x.ConfirmSettled) == []
    rig.carry_out()
    assert rig.said_to(5, x.ConfirmSettled) == [x.ConfirmSettled(5, 6)]
    rig.restart()
    rig.subscribe(5, "bob")
    assert rig.pushed(5) == [7, 8, 9, 10]


def test_settling_individually_settles_these_alone_for_ever() -> None:
    rig = published(10)
    rig.subscribe(5, "bob", mode=x.SettleMode.INDIVIDUAL)
    assert rig.settle(5, (2, 3), (7, 7)) == [x.ConfirmSettled(5, 0, ((2, 3), (7, 7)))]
    for _ in range(2):
        rig.restart()
        rig.subscribe(5, "bob", mode=x.SettleMode.INDIVIDUAL)
        assert rig.pushed(5) == [1, 4, 5, 6, 8, 9, 10]
    assert rig.settle(5, (1, 1)) == [x.ConfirmSettled(5, 3)], "what was not asked for is not named"


def test_what_was_settled_individually_stays_settled_when_the_mode_changes_to_in_order() -> None:
    rig = published(10)
    rig.subscribe(5, "bob", mode=x.SettleMode.INDIVIDUAL)
    rig.settle(5, (5, 5))
    for _ in range(3):
        rig.restart()
        rig.subscribe(5, "bob")
        assert rig.pushed(5) == [1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_what_was_pushed_and_not_settled_comes_again_marked_as_redelivered() -> None:
    rig = published(6)
    rig.subscribe(5, "bob")
    rig.settle(5, (1, 2))
    rig.do(x.SessionClosed(5))
    rig.publish(rig.attach(1), 7)
    rig.subscribe(6, "bob", who=2)
    assert rig.pushed(6) == [3, 4, 5, 6, 7]
    assert {push.redelivered_to for push in rig.pushes(6)} == {6}


def test_after_a_kill_everything_that_may_have_been_pushed_is_marked() -> None:
    rig = published(6)
    rig.subscribe(5, "bob", credit=1)
    rig.restart()
    rig.subscribe(6, "bob", who=2)
    assert {push.redelivered_to for push in rig.pushes(6)} == {6}


def test_a_settlement_that_was_sent_again_counts_for_what_this_session_was_not_pushed_yet() -> None:
    rig = published(10)
    rig.subscribe(5, "bob")
    rig.do(x.SessionClosed(5))
    rig.subscribe(6, "bob", credit=0)
    assert rig.settle(6, (1, 8)) == [x.ConfirmSettled(6, 8, ())]
    assert floor_shown(rig) == 8
    rig.do(x.CreditGranted(6, 1 << 40))
    assert rig.pushed(6) == [9, 10]


def test_the_floor_that_was_confirmed_is_shown_also_by_a_node_that_was_started_after_a_kill() -> None:
    rig = published(10)
    rig.subscribe(5, "bob")
    rig.do(x.SessionClosed(5))
    rig.subscribe(6, "bob", credit=0)
    rig.settle(6, (1, 8))
    rig.restart()
    assert floor_shown(rig) == 8


def test_what_was_settled_while_its_owner_came_back_is_in_the_floor_that_is_shown() -> None:
    rig = published(10)
    rig.subscribe(5, "bob")
    again = x.SubscribeRequested(6, "local", "s", subscriber="bob", name="main", incarnation=incarnation(1))
    rig.tell(again, x.SettleRequested(5, ((1, 8),)))
    rig.carry_out()
    assert [said for said in rig.said if isinstance(said, x.ConfirmSettled)] == [], "who asked has ended"
    assert floor_shown(rig) == 8
    assert rig.settle(6, (1, 8)) == [x.ConfirmSettled(6, 8)]


def test_settling_again_some_of_what_is_excluded_forgets_nothing_of_it() -> None:
    rig = published(12, per_batch=3)
    rig.subscribe(5, "bob", filter=EVEN, mode=x.SettleMode.INDIVIDUAL)
    rig.settle(5, (6, 6), (10, 10))
    rig.do(x.SessionClosed(5))
    rig.subscribe(6, "bob", credit=1, mode=x.SettleMode.INDIVIDUAL)
    (confirmed,) = rig.settle(6, (2, 2), (4, 4), (8, 8), (12, 12))
    assert (confirmed.floor, confirmed.ranges) == (12, ())
    rig.restart()
    rig.subscribe(7, "bob", mode=x.SettleMode.INDIVIDUAL)
    assert rig.pushed(7) == []


def test_nothing_above_what_was_pushed_can_be_settled() -> None:
    rig = published(10)
    rig.subscribe(5, "bob", credit=1)
    (refusal,) = rig.settle(5, (1, 5))
    assert (refusal.code, refusal.is_final, refusal.details["pushed_to"]) == ("not-pushed", False, 1)


def test_a_settlement_that_would_leave_too_many_ranges_is_refused_and_can_be_joined_with_others() -> None:
    rig = published(9, per_batch=9, limits=StreamsLimits(unsettled_max=2))
    rig.subscribe(5, "bob", mode=x.SettleMode.INDIVIDUAL)
    assert rig.settle(5, (3, 3)) == [x.ConfirmSettled(5, 0, ((3, 3),))]
    (refusal,) = rig.settle(5, (6, 6))
    assert (refusal.code, refusal.is_final) == ("too-many-ranges", False)
    assert rig.settle(5, (4, 9)) == [x.ConfirmSettled(5, 0, ((3, 9),))]
    assert rig.settle(5, (1, 2)) == [x.ConfirmSettled(5, 9)]


def test_what_an_earlier_session_was_pushed_is_settled_in_few_ranges_or_refused_and_nothing_settled_is_lost() -> None:
    rig = published(20, per_batch=20, limits=StreamsLimits(unsettled_max=3))
    rig.subscribe(5, "bob", mode=x.SettleMode.INDIVIDUAL)
    rig.do(x.SessionClosed(5))
    rig.subscribe(6, "bob", mode=x.SettleMode.INDIVIDUAL, credit=0)
    assert rig.settle(6, (10, 10), (12, 12), (14, 14))[-1] == x.ConfirmSettled(6, 0, ((10, 10), (12, 12), (14, 14)))
    (refusal,) = rig.settle(6, (2, 2), (4, 4))
    assert (refusal.code, refusal.is_final) == ("too-many-ranges", False)
    assert rig.settle(6, (11, 13))[-1] == x.ConfirmSettled(6, 0, ((10, 14),))
    rig.restart()
    rig.subscribe(7, "bob", mode=x.SettleMode.INDIVIDUAL)
    assert rig.pushed(7) == [*range(1, 10), *range(15, 21)]


def test_a_record_that_a_filter_cuts_into_many_ranges_is_pushed_as_far_as_they_have_room() -> None:
    rig = published(40, per_batch=40, limits=StreamsLimits(unsettled_max=4))
    rig.subscribe(5, "bob", mode=x.SettleMode.INDIVIDUAL, filter=Filter(where="even"))
    assert rig.pushed(5) == [2, 4, 6, 8]
    rig.settle(5, (2, 4))
    assert rig.pushed(5) == [2, 4, 6, 8, 10, 12]


def test_cursors_of_very_many_ranges_are_journaled_in_turns_and_one_of_another_owner_at_once() -> None:
    rig = published(40, per_batch=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cursors, "RANGE_NS", 1_000_000)
        for session, name in ((5, "bob"), (6, "eve"), (7, "joe")):
            rig.subscribe(session, name, mode=x.SettleMode.INDIVIDUAL)
            rig.settle(session, (2, 2), (4, 4), (6, 6))
        rig.subscribe(8, "ann", principal="ann")
        assert rig.settle(8, (1, 40)) == [x.ConfirmSettled(8, 40)]
        assert not rig.settle(5, (8, 8)), "its owner has had its share"
        turns = 0
        while not any(isinstance(said, x.ConfirmSettled) and (8, 8) in said.ranges for said in rig.said):
            rig.time_ns += 1
            rig.carry_out()
            turns += 1
            assert turns < 100
        assert turns > 1


def test_one_principal_has_so_many_durable_subscriptions_and_no_more_whether_or_not_anybody_is_there() -> None:
    limits = StreamsLimits(subscriptions_per_principal_max=2)
    rig = published(3, limits=limits)
    for session, name in ((5, "a"), (6, "b")):
        rig.subscribe(session, name, principal="joe")
        rig.do(x.SessionClosed(session))
    rig.restart()
    (refusal,) = rig.do(asked(7, "c", "joe"))
    assert (refusal.code, refusal.details) == ("too-many-subscriptions", {"subscriptions_max": 2})
    rig.subscribe(8, "c", principal="ann")
    rig.subscribe(9, "a", principal="joe")
    rig.do(x.AdminRequested(1, 1, "joe", "subscription.remove", {"stream": "s", "subscriber": "b", "name": "main"}))
    rig.subscribe(10, "c2", principal="joe")
    assert [refusal.code for refusal in rig.do(asked(11, "d", "joe"))] == ["too-many-subscriptions"]


def test_one_principal_has_so_many_ephemeral_subscriptions_open_and_no_more() -> None:
    rig = published(3, limits=StreamsLimits(ephemeral_subscriptions_per_principal_max=2))
    for session in (5, 6):
        rig.subscribe(session, principal="eve")
    asks = x.SubscribeRequested(7, "eve", "s")
    (refusal,) = rig.do(asks)
    assert (refusal.code, refusal.details) == ("too-many-subscriptions", {"subscriptions_max": 2})
    assert refusal.is_final
    assert "limits.ephemeral_subscriptions_per_principal_max" in refusal.message
    rig.subscribe(8, principal="ann")
    rig.subscribe(9, "durable", principal="eve")
    rig.do(x.SessionClosed(9))
    assert [said.code for said in rig.do(asks)] == ["too-many-subscriptions"], "a durable one leaves the count alone"
    rig.do(x.SessionClosed(5))
    rig.subscribe(10, principal="eve")


def test_ephemeral_subscriptions_that_begin_at_a_time_are_counted_when_their_places_are_found() -> None:
    rig = published(3, limits=StreamsLimits(ephemeral_subscriptions_per_principal_max=2))
    start = x.Start(x.StartKind.TIME, 1)
    said = rig.do(*(x.SubscribeRequested(session, "eve", "s", start=start) for session in range(5, 10)))
    assert [type(one) for one in said] == [x.GrantSubscription] * 2 + [x.Refuse] * 3


def test_ephemeral_subscriptions_that_have_ended_make_room_for_others() -> None:
    rig = published(3, limits=StreamsLimits(ephemeral_subscriptions_per_principal_max=1))
    for session in range(5, 8):
        rig.subscribe(session, principal="eve", until=3)
        assert rig.said_to(session, x.EndSubscription)


def test_the_filters_that_one_principal_keeps_have_a_size_together() -> None:
    rig = published(3, limits=StreamsLimits(filters_size_per_principal_max=50))
    rig.subscribe(5, "a", principal="joe", filter=Filter(keys=("k" * 40,)))
    rig.do(x.SessionClosed(5))
    (refusal,) = rig.do(asked(6, "b", "joe", Filter(keys=("é" * 6,))))
    assert (refusal.code, refusal.details) == ("filters-too-large", {"size_max": 50})
    rig.subscribe(7, "b", principal="joe", filter=Filter(keys=("k" * 10,)))
    (refused,) = rig.do(x.FilterChangeRequested(7, Filter(keys=("k" * 11,))))
    assert refused.code == "filters-too-large"
    (again,) = rig.do(asked(8, "a", "joe", Filter(keys=("k" * 41,))))
    assert again.code == "filters-too-large"
    rig.subscribe(9, "a", principal="joe", filter=Filter(keys=("j" * 40,)))


def asked(session: int, subscriber: str, principal: str, wanted: Filter | None = None) -> x.SubscribeRequested:
    """A new durable subscription to `s` that is asked for."""
    return x.SubscribeRequested(session, principal, "s", subscriber, "main", wanted, incarnation=incarnation(1))


def test_a_cursor_moves_over_what_its_filter_rejects_without_anybody_settling() -> None:
    rig = published(100)
    rig.subscribe(5, "bob", filter=Filter(keys=("prefix:nothing",)))
    rig.time_ns += 2_000_000_000
    rig.carry_out()
    subscription = rig.floor.tables.streams["s"].subscriptions["bob", "main"]
    assert (subscription.floor, subscription.floor_durable) == (100, 100)
    rig.restart()
    assert rig.subscribe(6, "bob").position == 101


# ── owners ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_newer_owner_takes_over_where_the_older_settled_and_the_older_is_fenced() -> None:
    rig = published(6)
    rig.subscribe(5, "bob")
    rig.settle(5, (1, 2))
    granted = rig.subscribe(6, "bob", who=2)
    assert (granted.epoch, granted.position) == (2, 3)
    assert len(rig.said_to(5, x.Fence)) == 1
    before = len(rig.pushed(5))
    rig.publish(rig.attach(1), 7)
    assert len(rig.pushed(5)) == before
    assert rig.settle(5, (1, 6))[0].code == "not-subscribed"


def test_of_two_owners_that_ask_at_once_the_first_is_pushed_nothing_and_fenced() -> None:
    rig = published(3)
    rig.tell(
        x.SubscribeRequested(5, "local", "s", "bob", "main", incarnation=incarnation(1), credit=1 << 40),
        x.SubscribeRequested(6, "local", "s", "bob", "main", incarnation=incarnation(2), credit=1 << 40),
    )
    rig.carry_out()
    assert [len(rig.said_to(session, x.Fence)) for session in (5, 6)] == [1, 0]
    assert [grant.epoch for grant in rig.said_to(6, x.GrantSubscription)] == [2]
    assert (rig.pushed(5), rig.pushed(6)) == ([], [1, 2, 3])


def test_two_owners_that_begin_by_time_at_once_share_one_cursor() -> None:
    rig = published(3)
    start = x.Start(x.StartKind.TIME, 1)
    for session in (5, 6):
        fact = x.SubscribeRequested(session, "local", "s", "bob", "main", start=start, incarnation=incarnation(session))
        rig.tell(fact)
    rig.carry_out()
    assert len(rig.said_to(5, x.Fence)) == 1
    (granted,) = rig.said_to(6, x.GrantSubscription)
    assert granted.epoch == 2
    subscription = rig.floor.tables.streams["s"].subscriptions["bob", "main"]
    assert rig.floor.flows[6].subscription is subscription


def test_a_stale_epoch_of_an_owner_is_fenced_also_after_a_kill() -> None:
    rig = published(3)
    rig.subscribe(5, "bob")
    rig.subscribe(6, "bob", who=2)
    rig.restart()
    said = rig.do(x.SubscribeRequested(7, "local", "s", "bob", "main", incarnation=incarnation(1), epoch=1))
    assert [type(one) for one in said] == [x.Fence]


def test_whoever_comes_back_to_a_subscription_that_was_made_again_does_not_fence_its_new_owner() -> None:
    rig = published(3)
    epoch = rig.subscribe(5, "bob", who=1).epoch
    rig.do(x.AdminRequested(9, 1, "local", "subscription.remove", {"stream": "s", "subscriber": "bob", "name": "main"}))
    assert rig.subscribe(6, "bob", who=2).epoch == epoch
    said = rig.do(x.SubscribeRequested(7, "local", "s", "bob", "main", incarnation=incarnation(1), epoch=epoch))
    assert [type(one) for one in said] == [x.Fence]
    assert rig.said_to(6, x.Fence) == []


def test_a_reattached_owner_keeps_its_epoch() -> None:
    rig = published(3)
    epoch = rig.subscribe(5, "bob").epoch
    assert rig.subscribe(6, "bob", epoch=epoch).epoch == epoch
    assert rig.said_to(5, x.Fence) == []


def test_a_removed_subscription_is_gone_and_its_owner_told() -> None:
    rig = published(3)
    rig.subscribe(5, "bob")
    place = {"stream": "s", "subscriber": "bob", "name": "main"}
    rig.tell(x.AdminRequested(9, 1, "local", "subscription.remove", place))
    rig.carry_out()
    assert [refusal.code for refusal in rig.said_to(5, x.Refuse)] == ["subscription-removed"]
    rig.restart()
    assert rig.subscribe(7, "bob").epoch == 1
    assert rig.pushed(7) == [1, 2, 3]


# ── what is cut, damaged or deleted ──────────────────────────────────────────────────────────────────────────────────


def test_a_cursor_below_the_floor_is_told_of_the_gap_and_goes_on_behind_it() -> None:
    rig = published(20, limits=TINY)
    rig.subscribe(5, "bob")
    rig.settle(5, (1, 3))
    rig.do(x.SessionClosed(5))
    rig.do(x.AdminRequested(9, 1, "local", "stream.trim", {"name": "s", "floor": 11}))
    rig.subscribe(6, "bob")
    assert rig.said_to(6, x.PushGap) == [x.PushGap(6, 4, 11, "trimmed")]
    assert rig.pushed(6) == list(range(11, 21))


@pytest.mark.parametrize("mode", [x.SettleMode.IN_ORDER, x.SettleMode.INDIVIDUAL])
def test_a_gap_is_told_to_each_owner_until_one_has_settled_it(mode: x.SettleMode) -> None:
    rig = published(20, limits=TINY)
    rig.subscribe(5, "bob", who=1, mode=mode)
    rig.settle(5, (1, 3))
    rig.do(x.SessionClosed(5))
    rig.do(x.AdminRequested(9, 1, "local", "stream.trim", {"name": "s", "floor": 11}))
    for session in (6, 7):
        rig.subscribe(session, "bob", who=session, mode=mode)
        assert rig.said_to(session, x.PushGap) == [x.PushGap(session, 4, 11, "trimmed")]
        rig.do(x.SessionClosed(session))
        rig.restart()
    rig.subscribe(8, "bob", who=8, mode=mode)
    rig.settle(8, (4, 10))
    rig.restart()
    rig.subscribe(9, "bob", who=9, mode=mode)
    assert rig.said_to(9, x.PushGap) == []
    assert rig.pushed(9) == list(range(11, 21))


def test_a_gap_that_was_settled_is_told_to_nobody_though_something_before_it_is_not() -> None:
    rig = published(20, per_batch=5, limits=StreamsLimits(tail_size_max=1))
    (name,) = [name for name in rig.disk.files if name.endswith(".segment") and b"alpha|12|" in rig.disk.files[name]]
    rig.disk.files[name][rig.disk.files[name].index(b"alpha|12|")] ^= 1
    rig.subscribe(5, "bob", who=1, mode=x.SettleMode.INDIVIDUAL)
    assert rig.said_to(5, x.PushGap) == [x.PushGap(5, 11, 16, "damaged")]
    rig.settle(5, (1, 4), (6, 20))
    for session in (6, 7):
        rig.subscribe(session, "bob", who=session, mode=x.SettleMode.INDIVIDUAL)
        assert rig.said_to(session, x.PushGap) == []
        assert rig.pushed(session) == [5]


def test_what_an_owner_had_in_hands_when_it_was_trimmed_is_told_to_the_next_one() -> None:
    rig = published(20, limits=TINY)
    rig.subscribe(5, "bob", who=1, mode=x.SettleMode.INDIVIDUAL)
    rig.settle(5, (1, 3), (6, 6))
    rig.do(x.AdminRequested(9, 1, "local", "stream.trim", {"name": "s", "floor": 11}))
    rig.subscribe(6, "bob", who=2, mode=x.SettleMode.INDIVIDUAL)
    assert rig.said_to(6, x.PushGap) == [x.PushGap(6, 4, 11, "trimmed")]
    rig.settle(6, (4, 10))
    assert rig.floor.tables.streams["s"].subscriptions["bob", "main"].floor == 10


def test_damage_is_told_as_a_gap_and_what_was_pushed_before_it_is_still_to_be_settled() -> None:
    rig = published(20, per_batch=5, limits=StreamsLimits(tail_size_max=1))
    (name,) = [name for name in rig.disk.files if name.endswith(".segment") and b"alpha|12|" in rig.disk.files[name]]
    rig.disk.files[name][rig.disk.files[name].index(b"alpha|12|")] ^= 1
    rig.subscribe(5, "bob")
    assert rig.said_to(5, x.PushGap) == [x.PushGap(5, 11, 16, "damaged")]
    assert rig.pushed(5) == [*range(1, 11), *range(16, 21)]
    rig.do(x.SessionClosed(5))
    rig.subscribe(6, "bob")
    assert rig.pushed(6)[:10] == list(range(1, 11))


def test_a_deleted_stream_ends_its_subscriptions_and_a_new_one_of_its_name_is_another() -> None:
    rig = published(3)
    first = rig.subscribe(5, "bob")
    rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s"}))
    assert [refusal.code for refusal in rig.said_to(5, x.Refuse)] == ["stream-deleted"]
    second = rig.subscribe(6, "bob")
    assert second.stream_incarnation != first.stream_incarnation
    assert (second.epoch, second.head, rig.pushed(6)) == (1, 0, [])
    fact = x.SubscribeRequested(7, "local", "s", stream_incarnation=first.stream_incarnation)
    (refusal,) = [said for said in rig.do(fact) if isinstance(said, x.Refuse)]
    assert refusal.code == "stream-replaced"


def test_whoever_subscribes_while_the_stream_is_deleted_is_told() -> None:
    rig = published(3)
    rig.tell(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s"}))
    for session, start in ((5, x.Start()), (6, x.Start(x.StartKind.TIME, 1))):
        fact = x.SubscribeRequested(session, "local", "s", "bob", str(session), incarnation=incarnation(1), start=start)
        rig.tell(fact)
    rig.carry_out()
    answers = [[type(s) for s in rig.said if getattr(s, "session", 0) == session] for session in (5, 6)]
    assert all(kinds and kinds[-1] in (x.Refuse, x.GrantSubscription) for kinds in answers)
    assert [f for f in rig.floor.flows.values() if f.stream.is_deleted] == []


def test_a_limit_that_is_met_behind_the_journal_is_answered_too() -> None:
    rig = published(3, limits=StreamsLimits(subscriptions_max=1))
    rig.subscribe(5, "bob")
    fact = x.SubscribeRequested(
        6, "local", "s", "eve", "main", start=x.Start(x.StartKind.TIME, 1), incarnation=incarnation(1)
    )
    assert [refusal.code for refusal in rig.do(fact)] == ["too-many-subscriptions"]


def test_a_stream_may_have_to_be_created_first() -> None:
    rig = Rig(StreamsLimits(creates_on_use=False))
    (refusal,) = rig.do(x.SubscribeRequested(5, "local", "s"))
    assert refusal.code == "unknown-stream"
    with pytest.raises(Refused):
        rig.floor.tables.existing("s")


# ── parking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_that_was_pushed_nothing_is_no_attempt() -> None:
    rig = published(2)
    rig.attach(2, stream="parked")
    parking = {"attempts_max": 2, "parked_to": "parked"}
    for session in range(5, 12):
        rig.subscribe(session, "sub", who=session, credit=1 if session == 5 else 0, **parking)
        rig.hand_out(session)
        rig.do(x.SessionClosed(session))
    rig.subscribe(20, "sub", who=20, **parking)
    assert rig.pushed(5) == [1]
    assert rig.pushed(20) == [1, 2], "the first was pushed once before, the second never"
    rig.hand_out(20)
    rig.subscribe(21, "sub", who=21, **parking)
    assert rig.pushed(21) == [2]


def test_what_was_durable_and_is_not_in_the_journal_is_told_as_damaged() -> None:
    rig = published(3, limits=StreamsLimits(tail_size_max=0))
    stream = rig.floor.tables.streams["s"]
    stream.become_durable(5)
    rig.subscribe(5)
    assert rig.pushed(5) == [1, 2, 3]
    (gap,) = rig.said_to(5, x.PushGap)
    assert (gap.first_sequence, gap.next_sequence, gap.code) == (4, 6, "damaged")
