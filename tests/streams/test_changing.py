"""Changes of a durable subscription: what was not journaled has not happened, and they come one after the other."""

from typing import Any

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.matching import Filter
from veredus.streams import exchange as x
from veredus.streams.cursors import CURSOR_INTERVAL_NS
from veredus.streams.refiltering import FILTERS_MAX
from veredus.streams.subscription import Subscription

EVEN = Filter(where="even")
ODD = Filter(where="NOT even")
ALL = 1 << 40
COUNTING: dict[str, Any] = {"mode": x.SettleMode.INDIVIDUAL, "attempts_max": 3, "parked_to": "parked"}
PLACE: dict[str, object] = {"stream": "s", "subscriber": "bob", "name": "main"}


def published(count: int) -> Rig:
    """A stream with publications 1 to `count` of source alpha, each in a batch of its own."""
    rig = Rig()
    grant = rig.attach(1)
    for number in range(1, count + 1):
        rig.publish(grant, number)
    return rig


def bob(rig: Rig) -> Subscription:
    """The subscription as the node knows it."""
    return rig.floor.tables.streams["s"].subscriptions["bob", "main"]


def ask(session: int, who: int, **more: Any) -> x.SubscribeRequested:
    """Somebody asks to be bob."""
    return x.SubscribeRequested(session, "local", "s", "bob", "main", incarnation=incarnation(who), credit=ALL, **more)


def remove(rig: Rig) -> None:
    """Ask that bob's subscription be removed; nothing is carried out."""
    rig.tell(x.AdminRequested(9, 1, "local", "subscription.remove", PLACE))


# ── another filter ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_pushed_or_passed_under_a_filter_before_it_is_in_the_journal() -> None:
    rig = published(8)
    rig.subscribe(5, "bob", credit=1)
    rig.tell(x.FilterChangeRequested(5, EVEN), x.CreditGranted(5, ALL))
    assert (rig.pushed(5), rig.floor.flows[5].position, rig.floor.flows[5].waits_for) == ([1], 2, "journal")
    assert (bob(rig).filter, rig.said_to(5, x.ConfirmFilter)) == (Filter(), [])
    rig.carry_out()
    assert [confirmed.position for confirmed in rig.said_to(5, x.ConfirmFilter)] == [2]
    assert rig.pushed(5) == [1, 2, 4, 6, 8]


def test_a_filter_that_the_journal_refuses_leaves_the_one_before_and_the_flow_goes_on() -> None:
    rig = published(6)
    rig.subscribe(5, "bob", filter=EVEN, credit=1)
    before = rig.floor.snapshot().crc
    rig.is_full = True
    (refusal,) = rig.do(x.FilterChangeRequested(5, ODD))
    assert (refusal.code, refusal.is_final, rig.said_to(5, x.ConfirmFilter)) == ("disk-full", False, [])
    assert rig.floor.snapshot().crc == before
    rig.do(x.CreditGranted(5, ALL))
    assert rig.pushed(5) == [2, 4, 6]
    rig.restart()
    rig.subscribe(6, "bob", who=2)
    assert rig.pushed(6) == [2, 4, 6]


def test_a_filter_that_a_crash_forgot_has_passed_over_nothing() -> None:
    rig = published(6)
    rig.subscribe(5, "bob", filter=EVEN, credit=1)
    rig.settle(5, (2, 2))
    rig.tell(x.FilterChangeRequested(5, Filter(keys=("nothing",))), x.CreditGranted(5, ALL))
    rig.time_ns += 2_000_000_000
    rig.wake()
    rig.restart()
    rig.subscribe(6, "bob", who=2)
    assert rig.pushed(6) == [4, 6]


@pytest.mark.parametrize(
    ("fails", "pushed"), [("neither", [1, 3, 5]), ("the first", [1, 3, 5]), ("the last", [1, 2, 4, 6])]
)
def test_of_two_filters_in_a_row_the_last_that_was_journaled_counts(fails: str, pushed: list[int]) -> None:
    rig = published(6)
    rig.subscribe(5, "bob", credit=1)
    rig.is_full = fails == "the first"
    rig.tell(x.FilterChangeRequested(5, EVEN), x.FilterChangeRequested(5, ODD), x.CreditGranted(5, ALL))
    rig.is_full = fails == "the last"
    rig.carry_out()
    rig.is_full = False
    rig.carry_out()
    assert len(rig.said_to(5, x.ConfirmFilter)) == (2 if fails == "neither" else 1)
    assert rig.pushed(5) == pushed
    known = bob(rig).filter
    rig.restart()
    assert bob(rig).filter == known


def test_a_filter_counts_though_its_owner_left_before_it_was_journaled() -> None:
    rig = published(6)
    rig.subscribe(5, "bob", credit=0)
    rig.tell(x.FilterChangeRequested(5, EVEN), x.FilterChangeRequested(5, ODD), x.SessionClosed(5))
    rig.carry_out()
    assert rig.said_to(5, x.ConfirmFilter) == []
    rig.subscribe(6, "bob", who=2)
    assert rig.pushed(6) == [2, 4, 6], "the second was not in the journal's hands when its owner left"


def test_a_newer_owner_that_keeps_the_filter_gets_the_one_that_was_on_its_way() -> None:
    rig = published(6)
    rig.subscribe(5, "bob")
    rig.tell(x.FilterChangeRequested(5, EVEN), ask(6, 2), x.FilterChangeRequested(5, ODD))
    rig.carry_out()
    assert [type(said) for said in rig.said if said.session == 5][-2:] == [x.ConfirmFilter, x.Fence]
    assert rig.pushed(6) == [1, 2, 3, 4, 5, 6], "the filter counts from 7 on"
    assert (bob(rig).filter, bob(rig).filter_sequence) == (EVEN, 7)


@pytest.mark.parametrize("verb", ["subscription.remove", "stream.delete"])
@pytest.mark.parametrize("is_filter_first", [True, False])
def test_a_filter_beside_the_end_of_what_it_is_for_brings_nothing_back(verb: str, is_filter_first: bool) -> None:
    rig = published(6)
    rig.subscribe(5, "bob", credit=0)
    end = x.AdminRequested(9, 1, "local", verb, PLACE if verb.startswith("sub") else {"name": "s"})
    change = x.FilterChangeRequested(5, EVEN)
    rig.tell(*((change, end) if is_filter_first else (end, change)))
    rig.carry_out()
    assert len(rig.said_to(9, x.AnswerAdmin)) == 1
    assert [refusal.is_final for refusal in rig.said_to(5, x.Refuse)] == [True]
    assert rig.floor.flows == {}
    rig.restart()
    streams = rig.floor.tables.streams
    assert "s" not in streams or streams["s"].subscriptions == {}


@pytest.mark.parametrize("kill", [False, True])
def test_an_ordered_cursor_owes_another_filter_all_that_lies_above_its_floor(kill: bool) -> None:
    rig = published(5)
    rig.subscribe(5, "bob", filter=EVEN)
    assert rig.settle(5, (1, 2)) == [x.ConfirmSettled(5, 2)], "5 was passed, and is not settled"
    if kill:
        rig.restart()
    rig.subscribe(6, "bob", who=2, filter=ODD)
    assert rig.pushed(6) == [3, 5]


# ── another owner ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_owner_whom_the_journal_refuses_has_changed_nothing() -> None:
    rig = published(6)
    rig.attach(2, stream="parked")
    rig.subscribe(5, "bob", filter=EVEN, credit=1)
    before = rig.floor.snapshot().crc
    rig.is_full = True
    said = rig.do(ask(6, 2, filter=ODD, mode=x.SettleMode.INDIVIDUAL, attempts_max=2, parked_to="parked"))
    assert [(answer.session, answer.code) for answer in said] == [(6, "disk-full")]
    assert rig.floor.snapshot().crc == before
    rig.is_full = False
    rig.do(x.CreditGranted(5, ALL))
    assert rig.pushed(5) == [2, 4, 6]
    assert rig.settle(5, (1, 2)) == [x.ConfirmSettled(5, 2)]
    assert rig.subscribe(7, "bob", who=3).epoch == 2


def test_an_owner_is_fenced_once_the_newer_one_is_in_the_journal_and_pushed_nothing_until_then() -> None:
    rig = published(6)
    rig.subscribe(5, "bob", credit=1)
    rig.tell(ask(6, 2), x.CreditGranted(5, ALL))
    assert (rig.said_to(5, x.Fence), rig.pushed(5), bob(rig).epoch) == ([], [1], 1)
    rig.carry_out()
    assert [fence.epoch for fence in rig.said_to(5, x.Fence)] == [2]
    assert (rig.pushed(5), rig.pushed(6)) == ([1], [1, 2, 3, 4, 5, 6])
    assert {push.redelivered_to for push in rig.pushes(6)} == {1}


@pytest.mark.parametrize("kill", [False, True])
def test_what_an_owner_settles_while_another_takes_over_is_settled(kill: bool) -> None:
    rig = published(6)
    rig.subscribe(5, "bob")
    rig.tell(ask(6, 2), x.SettleRequested(5, ((1, 3),)))
    rig.carry_out()
    assert [grant.position for grant in rig.said_to(6, x.GrantSubscription)] == [1], "that is what is in the journal"
    assert rig.pushed(6) == [4, 5, 6]
    assert [said for said in rig.said if isinstance(said, x.ConfirmSettled)] == [], "who asked is fenced by then"
    if kill:
        rig.restart()
        rig.subscribe(7, "bob", who=3)
        assert rig.pushed(7) == [4, 5, 6]


@pytest.mark.parametrize("who", [1, 2])
@pytest.mark.parametrize("is_gone", [False, True])
def test_what_comes_into_the_journal_with_a_newer_owner_is_confirmed_to_the_one_that_asked(
    who: int, is_gone: bool
) -> None:
    rig = published(6)
    rig.attach(2, stream="parked")
    rig.subscribe(5, "bob", **COUNTING)
    rig.tell(x.SettleRequested(5, ((1, 1),)))
    rig.tell(x.SettleRequested(5, ((2, 2), (6, 6))), x.HandedOut(5, 5), x.ReturnRequested(5, 4, is_retry=True))
    rig.tell(ask(6, who, **COUNTING))
    rig.tell(x.SettleRequested(5, ((3, 3),)), *[x.SessionClosed(5)] * is_gone)
    rig.carry_out()
    asked = [
        x.ConfirmSettled(5, 1),
        x.ConfirmSettled(5, 2, ((6, 6),)),
        x.ConfirmHanded(5, 5),
        x.ConfirmReturned(5, 4, is_parked=False),
    ]
    to_former = [said for said in rig.said if said.session == 5 and not isinstance(said, x.GrantSubscription | x.Push)]
    assert (to_former[:-1], len(to_former)) == ((asked, 5) if not is_gone else ([], 0))
    assert [grant.position for grant in rig.said_to(6, x.GrantSubscription)] == [3]
    assert {type(said) for said in rig.said if said.session == 6} == {x.GrantSubscription, x.Push}
    assert rig.pushed(6) == [4, 5]
    rig.restart()
    assert rig.subscribe(7, "bob", who=3, **COUNTING).position == 4


def test_what_was_to_come_into_the_journal_with_a_newer_owner_that_it_refuses_is_confirmed_all_the_same() -> None:
    rig = published(6)
    rig.attach(2, stream="parked")
    rig.subscribe(5, "bob", **COUNTING)
    rig.tell(x.SettleRequested(5, ((1, 1),)))
    rig.tell(x.ReturnRequested(5, 4, is_retry=True), x.HandedOut(5, 3), x.SettleRequested(5, ((2, 2),)))
    rig.is_full = True
    rig.tell(ask(6, 2))
    rig.is_full = False
    rig.tell(x.HandedOut(5, 5), x.ReturnRequested(5, 4, is_retry=True, is_taken=True), x.SettleRequested(5, ((6, 6),)))
    rig.carry_out()
    rig.time_ns += CURSOR_INTERVAL_NS
    rig.carry_out()
    assert [said.code for said in rig.said_to(6, x.Refuse)] == ["disk-full"]
    assert rig.said_to(5, x.ConfirmSettled) == [x.ConfirmSettled(5, 1), x.ConfirmSettled(5, 2, ((6, 6),))]
    assert rig.said_to(5, x.ConfirmHanded) == [x.ConfirmHanded(5, 5)]
    assert rig.said_to(5, x.ConfirmReturned) == [x.ConfirmReturned(5, 4, is_parked=False)]


@pytest.mark.parametrize("is_refused", [False, True])
def test_an_owner_that_leaves_while_another_takes_over_leaves_nothing_behind(is_refused: bool) -> None:
    rig = published(6)
    rig.subscribe(5, "bob", credit=1)
    rig.is_full = is_refused
    rig.tell(ask(6, 2), x.SessionClosed(5))
    rig.is_full = False
    rig.carry_out()
    assert (rig.pushed(6), rig.said_to(5, x.Fence)) == ([] if is_refused else [1, 2, 3, 4, 5, 6], [])
    rig.publish(rig.attach(1), 7)
    rig.restart()
    rig.subscribe(7, "bob", who=3)
    assert {push.redelivered_to for push in rig.pushes(7)} == {1 if is_refused else 7}


def test_who_leaves_before_the_journal_has_answered_owns_nothing_and_has_fenced_the_one_before() -> None:
    rig = published(6)
    rig.subscribe(5, "bob", credit=1)
    rig.tell(ask(6, 2), x.SessionClosed(6))
    rig.carry_out()
    assert [fence.epoch for fence in rig.said_to(5, x.Fence)] == [2]
    assert (rig.said_to(6, x.GrantSubscription), rig.floor.flows) == ([], {})
    rig.publish(rig.attach(1), 7)
    rig.restart()
    rig.subscribe(7, "bob", who=3)
    assert {push.redelivered_to for push in rig.pushes(7)} == {1}, "nobody was pushed more"


def test_an_attach_that_is_tried_again_before_the_first_was_answered_gets_its_epoch() -> None:
    rig = published(2)
    rig.subscribe(5, "bob")
    rig.tell(ask(6, 2), x.SessionClosed(6), ask(7, 2))
    rig.carry_out()
    assert [grant.epoch for grant in rig.said_to(7, x.GrantSubscription)] == [2]


@pytest.mark.parametrize("leaves", [False, True])
def test_an_owner_that_comes_again_by_another_session_is_told_so_by_the_first(leaves: bool) -> None:
    # Packets of a link that was given up may come behind those of the next one: the owner is there, by the first.
    rig = published(6)
    rig.subscribe(5, "bob")
    rig.tell(x.SettleRequested(5, ((1, 3),)), ask(6, 1, epoch=1), *([x.SessionClosed(6)] if leaves else []))
    rig.carry_out()
    (refused,) = rig.said_to(5, x.Refuse)
    assert (refused.code, refused.is_final) == ("attached-again", True)
    assert rig.said_to(5, x.Fence) == []
    assert rig.subscribe(7, "bob", epoch=1).position == 4
    assert rig.said_to(7, x.Refuse) == []


def test_the_first_request_of_an_owner_that_was_fenced_fences_nobody_when_it_comes_late() -> None:
    rig = published(3)
    rig.subscribe(5, "bob")
    rig.subscribe(6, "bob", who=2)
    rig.do(ask(7, 1))
    assert [fence.epoch for fence in rig.said_to(7, x.Fence)] == [2]
    assert (rig.said_to(6, x.Fence), bob(rig).session) == ([], 6)
    assert rig.subscribe(8, "bob", who=2).epoch == 2


def test_a_first_subscription_that_the_journal_refuses_was_never_there_and_the_next_one_begins() -> None:
    rig = published(3)
    rig.is_full = True
    rig.tell(ask(5, 1, filter=EVEN))
    rig.is_full = False
    rig.tell(ask(6, 2))
    assert rig.floor.tables.streams["s"].subscriptions == {}
    rig.checkpoint()
    assert [refusal.code for refusal in rig.said_to(5, x.Refuse)] == ["disk-full"]
    assert [grant.epoch for grant in rig.said_to(6, x.GrantSubscription)] == [1]
    assert rig.pushed(6) == [1, 2, 3]


def test_a_checkpoint_knows_no_subscription_that_the_journal_then_refuses() -> None:
    rig = published(3)
    rig.is_full = True
    rig.tell(ask(5, 1))
    rig.checkpoint()
    rig.restart()
    assert rig.floor.tables.streams["s"].subscriptions == {}


# ── removed ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_subscribes_while_the_subscription_is_removed_begins_anew() -> None:
    rig = published(6)
    rig.subscribe(5, "bob")
    rig.settle(5, (1, 4))
    remove(rig)
    rig.tell(x.SettleRequested(5, ((1, 5),)), ask(6, 2), x.SettleRequested(5, ((1, 6),)))
    rig.carry_out()
    assert [refusal.code for refusal in rig.said_to(5, x.Refuse)] == ["subscription-removed"]
    assert rig.pushed(6) == [1, 2, 3, 4, 5, 6]
    rig.restart()
    rig.subscribe(7, "bob", who=3)
    assert rig.pushed(7) == [1, 2, 3, 4, 5, 6], "what the one before settled is none of its"


def test_a_removal_that_the_journal_refuses_changes_nothing_and_one_of_two_is_told_that_it_came_late() -> None:
    rig = published(3)
    rig.subscribe(5, "bob", credit=1)
    rig.is_full = True
    remove(rig)
    rig.carry_out()
    rig.is_full = False
    rig.do(x.CreditGranted(5, ALL))
    assert rig.pushed(5) == [1, 2, 3]
    remove(rig)
    remove(rig)
    rig.carry_out()
    assert [refusal.code for refusal in rig.said_to(9, x.Refuse)] == ["disk-full", "unknown-subscription"]
    assert len(rig.said_to(9, x.AnswerAdmin)) == 1


# ── what counts as tried ─────────────────────────────────────────────────────────────────────────────────────────────


def parked(rig: Rig, count: int) -> list[int]:
    """Let `count` sessions come and go, with everything wanted; what the parking stream holds then."""
    for session in range(30, 30 + count):
        rig.subscribe(session, "bob", who=100 * count + session, attempts_max=2, parked_to="parked", filter=Filter())
        rig.hand_out(session)
        rig.do(x.SessionClosed(session))
    rig.subscribe(90 + count, stream="parked")
    return [row.number for _, row in rig.rows(90 + count)]


def parking_rig() -> Rig:
    """Publications 1 to 6, and somewhere to park."""
    rig = published(6)
    rig.attach(2, stream="parked")
    return rig


@pytest.mark.parametrize("kill", [False, True])
def test_what_the_filter_of_an_ordered_cursor_rejected_was_not_tried(kill: bool) -> None:
    rig = parking_rig()
    for session in (5, 6):
        rig.subscribe(session, "bob", who=session, filter=EVEN, attempts_max=2, parked_to="parked")
        assert rig.pushed(session) == [2, 4, 6]
        rig.hand_out(session)
    if kill:
        rig.restart()
    assert parked(rig, 1) == []
    assert rig.pushed(30) == [2, 3, 4, 5, 6]


def test_what_was_passed_before_another_filter_came_to_an_ordered_cursor_was_not_tried() -> None:
    rig = parking_rig()
    for session in (5, 6):
        rig.subscribe(session, "bob", who=session, filter=EVEN, credit=1, attempts_max=1, parked_to="parked")
        rig.do(x.CreditGranted(session, rig.pushes(session)[0].size + x.PUSH_OVERHEAD))
        rig.do(x.FilterChangeRequested(session, Filter()), x.CreditGranted(session, ALL))
        assert rig.pushed(session) == [2, 4, 5, 6]
        rig.hand_out(session)
    rig.subscribe(7, "bob", who=7, attempts_max=1, parked_to="parked", credit=0)
    rig.do(x.SessionClosed(7))
    rig.subscribe(8, "bob", who=8, attempts_max=1, parked_to="parked", filter=Filter())
    assert rig.pushed(8) == [2, 3, 4, 5, 6], "what counts from the floor on was tried by nobody"


def test_what_the_filter_of_before_selected_was_tried_and_what_it_rejected_was_not() -> None:
    rig = parking_rig()
    rig.subscribe(5, "bob", who=5, filter=EVEN, credit=1, attempts_max=1, parked_to="parked")
    rig.do(x.CreditGranted(5, rig.pushes(5)[0].size + x.PUSH_OVERHEAD))
    rig.do(x.FilterChangeRequested(5, Filter()), x.CreditGranted(5, ALL))
    rig.hand_out(5)
    rig.subscribe(7, "bob", who=7, attempts_max=1, parked_to="parked")
    rig.subscribe(90, stream="parked")
    assert [row.number for _, row in rig.rows(90)] == [2, 4, 5, 6]


MODES = pytest.mark.parametrize("mode", list(x.SettleMode))
KILLS = pytest.mark.parametrize("kill", [False, True])


@MODES
@KILLS
def test_each_filter_counts_for_its_own_sequences_for_whoever_keeps_them(mode: x.SettleMode, kill: bool) -> None:
    rig = published(8)
    rig.subscribe(5, "bob", filter=EVEN, credit=1, mode=mode)
    assert rig.do(x.FilterChangeRequested(5, ODD)) == [x.ConfirmFilter(5, 3)]
    assert rig.do(x.FilterChangeRequested(5, Filter(), position=7)) == [x.ConfirmFilter(5, 7)]
    rig.do(x.CreditGranted(5, ALL))
    assert rig.pushed(5) == [2, 3, 5, 7, 8]
    if kill:
        rig.restart()
    rig.subscribe(6, "bob", who=1, filter=Filter(), mode=mode)
    rig.subscribe(7, "bob", who=7, mode=mode)
    assert rig.pushed(6) == rig.pushed(7) == [2, 3, 5, 7, 8], "the same owner says its filter once more; another none"
    rig.subscribe(8, "bob", who=8, filter=Filter(), mode=mode)
    assert rig.pushed(8) == ([2, 3, 4, 5, 6, 7, 8] if mode is x.SettleMode.IN_ORDER else [2, 3, 5, 7, 8])
    assert bob(rig).before == ()


@MODES
def test_a_filter_counts_behind_all_that_any_session_has_examined_and_its_subscriber_taken(mode: x.SettleMode) -> None:
    rig = published(8)
    rig.subscribe(5, "bob", filter=EVEN, mode=mode)
    rig.do(x.SessionClosed(5))
    rig.subscribe(6, "bob", filter=EVEN, mode=mode, credit=1)
    rig.do(x.FilterChangeRequested(6, ODD, position=5))
    position = rig.said_to(6, x.ConfirmFilter)[-1].position
    assert position == (5 if mode is x.SettleMode.IN_ORDER else 8), "it has rejected 7, where each is settled by itself"
    rig.do(x.CreditGranted(6, ALL))
    assert rig.pushed(6) == ([2, 4, 5, 7] if mode is x.SettleMode.IN_ORDER else [2, 4, 6])


def test_filters_of_a_subscription_that_are_settled_are_let_go_and_too_many_are_refused() -> None:
    rig = published(40)
    rig.subscribe(5, "bob", credit=1)
    for position in range(2, FILTERS_MAX + 2):
        wanted = (EVEN, ODD)[position % 2]
        assert rig.do(x.FilterChangeRequested(5, wanted, position=position)) == [x.ConfirmFilter(5, position)]
    (refusal,) = rig.do(x.FilterChangeRequested(5, Filter(), position=30))
    assert (refusal.code, refusal.is_final) == ("too-many-filters", False)
    rig.do(x.CreditGranted(5, ALL))
    rig.settle(5, (1, 10))
    assert rig.do(x.FilterChangeRequested(5, Filter())) == [x.ConfirmFilter(5, 41)]
    rig.do(x.FilterChangeRequested(5, Filter(), position=1 << 60))
    assert rig.said_to(5, x.ConfirmFilter)[-1].position == 41, "nobody has taken what is not there"
    rig.subscribe(6, credit=1)
    answers = [rig.do(x.FilterChangeRequested(6, Filter(), position=position))[0] for position in range(3, 30)]
    assert [answer.code for answer in answers[FILTERS_MAX:]] == ["too-many-filters"] * (27 - FILTERS_MAX)


def test_a_filter_that_was_changed_back_before_it_counted_for_anything_is_none_to_keep() -> None:
    rig = published(20)
    rig.subscribe(5, "bob", credit=1)
    rig.do(x.FilterChangeRequested(5, EVEN, position=5))
    rig.do(x.FilterChangeRequested(5, Filter(), position=5))
    rig.do(x.FilterChangeRequested(5, ODD, position=9))
    assert bob(rig).before == ((Filter(), 8),)
    rig.do(x.CreditGranted(5, ALL))
    assert rig.pushed(5) == [*range(1, 9), *range(9, 21, 2)]


def test_a_filter_whose_place_was_lost_counts_from_where_the_stream_goes_on() -> None:
    rig = published(8)
    rig.subscribe(5, "bob", filter=EVEN)
    rig.do(x.FilterChangeRequested(5, ODD))
    rig.floor.tables.streams["s"].raise_term(2, 5)
    assert (bob(rig).before, bob(rig).filter_sequence) == (((EVEN, 4),), 5)
    rig.floor.tables.streams["s"].raise_term(3, 2)
    assert (bob(rig).before, bob(rig).filter_sequence) == (((EVEN, 1),), 2)


def test_what_is_pushed_again_and_again_under_its_new_filter_is_parked() -> None:
    rig = parking_rig()
    rig.subscribe(5, "bob", filter=EVEN, credit=1, attempts_max=2, parked_to="parked")
    rig.do(x.FilterChangeRequested(5, Filter()), x.CreditGranted(5, ALL))
    rig.hand_out(5)
    assert parked(rig, 2) == []
    assert parked(rig, 1) == [2, 3, 4, 5, 6]
