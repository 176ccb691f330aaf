"""What an application gives back is tried again, or becomes a dead letter that says from where, why and how often."""

from typing import Any

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.delivery.batch import read_header
from veredus.delivery.payload import read_columns
from veredus.delivery.record import ENVELOPE_SIZE, read_envelope
from veredus.streams import exchange as x
from veredus.streams.parking import Parking
from veredus.streams.returning import REASONS_MAX
from veredus.streams.tables import StreamsLimits

OWN = {"mode": x.SettleMode.INDIVIDUAL, "parked_to": "dead"}


def rig_of(count: int, **more: Any) -> Rig:
    rig = Rig(**more)
    grant = rig.attach(1)
    rig.attach(2, stream="dead")
    rig.publish(grant, 1, count)
    return rig


def give_back(rig: Rig, session: int, sequence: int, reason: str = "", is_retry: bool = False) -> Any:
    said = rig.do(x.ReturnRequested(session, sequence, is_retry, reason))
    return next(one for one in said if one.session == session and isinstance(one, x.ConfirmReturned | x.Refuse))


def try_again(rig: Rig, session: int, sequence: int) -> bool:
    """The application has tried it in vain; whether it is parked, else it takes it again."""
    is_parked: bool = give_back(rig, session, sequence, is_retry=True).is_parked
    if not is_parked:
        rig.do(x.ReturnRequested(session, sequence, is_retry=True, is_taken=True))
    return is_parked


def letters(rig: Rig, session: int) -> list[dict[str, object]]:
    """What the dead letters say of themselves."""
    rig.subscribe(session, stream="dead")
    found: list[dict[str, object]] = []
    for push in rig.pushes(session):
        for memory in push.buffers:
            envelope = read_envelope(memory)
            assert envelope is not None
            batch = memoryview(memory)[ENVELOPE_SIZE : ENVELOPE_SIZE + envelope.size]
            attributes = read_columns(batch, read_header(batch)).attributes
            rows = zip(*(array.to_pylist() for array in attributes.values()), strict=True)
            found += [{n.removeprefix("veredus."): v for n, v in zip(attributes, row, strict=True)} for row in rows]
    return found


@pytest.mark.parametrize("is_retry", [False, True])
@pytest.mark.parametrize("sequence", [0, 5, (1 << 63) - 1])
def test_what_was_never_pushed_cannot_be_given_back(sequence: int, is_retry: bool) -> None:
    rig = rig_of(4)
    rig.subscribe(5, "bob", **OWN)
    refusal = give_back(rig, 5, sequence, is_retry=is_retry)
    assert isinstance(refusal, x.Refuse)
    assert (refusal.code, refusal.is_final, refusal.details) == ("not-pushed", False, {"returned": sequence})


@pytest.mark.parametrize("tail_size_max", [1 << 20, 0], ids=["in memory", "in the journal"])
def test_what_is_rejected_is_a_dead_letter_at_once_and_settled_for_good(tail_size_max: int) -> None:
    rig = rig_of(4, limits=StreamsLimits(tail_size_max=tail_size_max))
    rig.subscribe(5, "bob", **OWN)
    assert give_back(rig, 5, 3, "no such flight") == x.ConfirmReturned(5, 3, is_parked=True)
    (letter,) = letters(rig, 90)
    wanted = {
        "stream": "s", "sequence": 3, "source": "alpha", "number": 3, "reason": "no such flight", "attempts": 1,
        "subscription": "bob/main",
    }  # fmt: skip
    assert {name: letter[name] for name in wanted} == wanted
    rig.restart()
    rig.subscribe(6, "bob", who=6, **OWN)
    assert rig.pushed(6) == [1, 2, 4]
    assert len(letters(rig, 91)) == 1


def test_what_is_rejected_again_or_settled_already_is_no_second_letter() -> None:
    rig = rig_of(3)
    rig.subscribe(5, "bob", **OWN)
    rig.settle(5, (2, 2))
    for sequence in (1, 1, 2):
        assert give_back(rig, 5, sequence, "bad") == x.ConfirmReturned(5, sequence, is_parked=True)
    assert [letter["sequence"] for letter in letters(rig, 90)] == [1]


def test_what_is_tried_again_too_often_is_a_dead_letter_that_says_how_often() -> None:
    rig = rig_of(2)
    rig.subscribe(5, "bob", attempts_max=3, **OWN)
    assert [try_again(rig, 5, 1) for _ in range(3)] == [False, False, True]
    (letter,) = letters(rig, 90)
    assert (letter["sequence"], letter["reason"], letter["attempts"]) == (1, "attempts", 3)


def test_attempts_in_one_life_and_in_the_next_count_together() -> None:
    rig = rig_of(2)
    rig.subscribe(5, "bob", attempts_max=3, **OWN)
    rig.hand_out(5)
    assert not try_again(rig, 5, 1)
    rig.do(x.SessionClosed(5))
    rig.subscribe(6, "bob", who=6, attempts_max=3, **OWN)
    assert give_back(rig, 6, 1, is_retry=True).is_parked, "one that was tried again, one that it died of, and this"
    assert not give_back(rig, 6, 2, is_retry=True).is_parked


def test_without_a_limit_it_is_tried_again_for_ever() -> None:
    rig = rig_of(1)
    rig.subscribe(5, "bob", **OWN)
    assert not any(try_again(rig, 5, 1) for _ in range(20))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_waits_to_be_taken_again_was_tried_as_often_as_it_was_handed_out(is_restarted: bool) -> None:
    rig = rig_of(3)
    rig.subscribe(5, "bob", attempts_max=2, **OWN)
    rig.hand_out(5)
    for sequence in (1, 1, 3):
        assert not give_back(rig, 5, sequence, is_retry=True).is_parked, "it may be said once more"
    rig.do(x.ReturnRequested(5, 3, is_retry=True, is_taken=True))
    if is_restarted:
        rig.checkpoint()
        rig.restart()
    rig.subscribe(6, "bob", who=6, attempts_max=2, **OWN)
    assert rig.pushed(6) == [1, 2]
    assert [letter["sequence"] for letter in letters(rig, 90)] == [3], "that alone was handed out twice"


def test_the_same_owner_goes_on_with_what_it_has_given_back() -> None:
    rig = rig_of(2)
    rig.subscribe(5, "bob", who=5, attempts_max=2, **OWN)
    rig.hand_out(5)
    give_back(rig, 5, 1, is_retry=True)
    rig.subscribe(6, "bob", who=5, attempts_max=2, **OWN)
    assert not give_back(rig, 6, 1, is_retry=True).is_parked, "it has not taken it"
    rig.do(x.ReturnRequested(6, 1, is_retry=True, is_taken=True))
    assert give_back(rig, 6, 1, is_retry=True).is_parked


@pytest.mark.parametrize("is_full", [False, True])
def test_what_a_new_session_was_not_pushed_yet_is_given_back_all_the_same(is_full: bool) -> None:
    rig = rig_of(0)
    for number in range(1, 5):
        rig.publish(rig.attach(1), number)
    rig.subscribe(5, "bob", who=5, **OWN)
    rig.subscribe(6, "bob", who=5, credit=1, **OWN)
    assert rig.pushed(6) == [1]
    rig.is_full = is_full
    assert isinstance(give_back(rig, 6, 3, "bad"), x.Refuse if is_full else x.ConfirmReturned)
    rig.is_full = False
    rig.do(x.CreditGranted(6, 1 << 40))
    assert rig.pushed(6) == ([1, 2, 3, 4] if is_full else [1, 2, 4])
    assert [letter["sequence"] for letter in letters(rig, 90)] == ([] if is_full else [3])
    rig.check()


def test_what_the_journal_does_not_park_is_unsettled_again() -> None:
    rig = rig_of(2)
    rig.subscribe(5, "bob", **OWN)
    rig.is_full = True
    refused = give_back(rig, 5, 1, "bad")
    assert (refused.code, refused.is_final, refused.details["returned"]) == ("disk-full", False, 1)
    rig.is_full = False
    assert give_back(rig, 5, 1, "bad").is_parked
    assert [letter["sequence"] for letter in letters(rig, 90)] == [1]


@pytest.mark.parametrize(
    ("sequence", "is_retry", "own", "code"),
    [
        (1, False, {"mode": x.SettleMode.INDIVIDUAL}, "no-dead-letters"),
        (9, False, OWN, "not-pushed"),
        (1, True, {}, "not-individual"),
    ],
)
def test_what_cannot_be_given_back_is_refused_and_the_session_goes_on(
    sequence: int, is_retry: bool, own: dict[str, Any], code: str
) -> None:
    rig = rig_of(2)
    rig.subscribe(5, "bob", **own)
    refused = give_back(rig, 5, sequence, is_retry=is_retry)
    assert (refused.code, refused.is_final) == (code, False)
    assert rig.settle(5, (1, 2))


def trimmed_rig(**own: Any) -> Rig:
    """A subscriber that was pushed 1 to 4, and a stream that holds nothing below 4 any more."""
    rig = rig_of(0, limits=StreamsLimits(tail_size_max=0))
    grant = rig.attach(1)
    for number in range(1, 5):
        rig.publish(grant, number)
    rig.subscribe(5, "bob", **(OWN | own))
    assert rig.pushed(5) == [1, 2, 3, 4]
    rig.do(x.AdminRequested(9, 1, "local", "stream.trim", {"name": "s", "floor": 4}))
    return rig


def test_what_is_rejected_and_no_longer_kept_is_settled_and_no_dead_letter() -> None:
    rig = trimmed_rig()
    for sequence in (2, 2):
        assert give_back(rig, 5, sequence, "bad") == x.ConfirmReturned(5, sequence, is_parked=True)
    assert [note.fields for note in rig.notes if note.event == "letter-gone"] == [
        {"stream": "s", "sequence": 2, "subscription": "bob/main", "parked_to": "dead", "cause": "trimmed"}
    ]
    rig.settle(5, (1, 1))
    rig.restart()
    rig.subscribe(6, "bob", who=6, **OWN)
    assert rig.said_to(6, x.Refuse) == []
    assert rig.floor.tables.streams["s"].subscriptions["bob", "main"].floor >= 2
    assert letters(rig, 90) == []


def test_what_was_tried_in_vain_for_the_last_time_and_is_no_longer_kept_is_settled() -> None:
    rig = trimmed_rig(attempts_max=1)
    assert give_back(rig, 5, 2, is_retry=True) == x.ConfirmReturned(5, 2, is_parked=True)
    assert give_back(rig, 5, 4, is_retry=True) == x.ConfirmReturned(5, 4, is_parked=True)
    assert [letter["sequence"] for letter in letters(rig, 90)] == [4]


def test_what_is_no_longer_kept_and_cannot_be_settled_in_the_journal_is_unsettled_again() -> None:
    rig = trimmed_rig()
    rig.is_full = True
    refused = give_back(rig, 5, 2, "bad")
    assert (refused.code, refused.is_final, refused.details["returned"]) == ("disk-full", False, 2)
    rig.is_full = False
    assert give_back(rig, 5, 2, "bad").is_parked


def test_a_full_flow_goes_on_behind_what_was_rejected() -> None:
    rig = rig_of(1, limits=StreamsLimits(unsettled_max=1))
    grant = rig.attach(1, who=2)
    rig.publish(grant, 2)
    rig.publish(grant, 3)
    rig.subscribe(5, "bob", credit=1, **OWN)
    rig.do(x.CreditGranted(5, 1 << 30))
    pushed = rig.pushed(5)
    give_back(rig, 5, pushed[0], "bad")
    assert rig.pushed(5) >= pushed


def test_what_is_on_its_way_to_the_dead_letters_is_settled_by_no_other_fact() -> None:
    rig = rig_of(4)
    rig.subscribe(5, "bob", **OWN)
    rig.is_full = True
    rig.tell(x.ReturnRequested(5, 3, False, "bad"))
    rig.is_full = False
    rig.tell(x.SettleRequested(5, ((2, 2),)))
    rig.kill_behind_the_disk()
    rig.subscribe(6, "bob", who=6, **OWN)
    assert 3 in rig.pushed(6), "there is no dead letter of it"


def test_who_asks_again_is_told_of_a_dead_letter_only_when_it_is_stored() -> None:
    rig = rig_of(2)
    rig.subscribe(5, "bob", attempts_max=1, **OWN)
    before = len(rig.said)
    for is_retry, is_taken in ((True, False), (True, True), (False, False)):
        rig.tell(x.ReturnRequested(5, 1, is_retry, is_taken=is_taken))
    assert rig.said[before:] == []
    rig.carry_out()
    assert rig.said[before:] == [x.ConfirmReturned(5, 1, is_parked=True)]


@pytest.mark.parametrize("is_retry", [False, True])
@pytest.mark.parametrize("sequences", [(1, 1), (2, 2)], ids=["at the floor", "above it"])
def test_what_is_settled_and_given_back_is_answered_when_the_settlement_is_stored(
    sequences: tuple[int, int], is_retry: bool
) -> None:
    rig = rig_of(3)
    rig.subscribe(5, "bob", attempts_max=3, **OWN)
    before = len(rig.said)
    rig.tell(x.SettleRequested(5, (sequences,)), x.ReturnRequested(5, sequences[0], is_retry, "bad"))
    assert rig.said[before:] == []
    rig.carry_out()
    confirmed = x.ConfirmReturned(5, sequences[0], is_parked=True)
    assert rig.said_to(5, x.ConfirmReturned) == [confirmed]
    assert rig.do(x.ReturnRequested(5, sequences[0], is_retry, "bad")) == [confirmed], "it stays so"
    rig.restart()
    rig.subscribe(6, "bob", who=6, attempts_max=3, **OWN)
    assert sequences[0] not in rig.pushed(6)


@pytest.mark.parametrize("is_retry", [False, True])
def test_what_is_given_back_and_whose_settlement_the_journal_does_not_take_is_not_called_done_with(
    is_retry: bool,
) -> None:
    rig = rig_of(3)
    rig.subscribe(5, "bob", attempts_max=3, **OWN)
    rig.is_full = True
    said = rig.do(x.SettleRequested(5, ((2, 2),)), x.ReturnRequested(5, 2, is_retry, "bad"))
    assert [one.code for one in said if isinstance(one, x.Refuse)] == ["disk-full", "disk-full"]
    rig.is_full = False
    assert give_back(rig, 5, 2, "bad", is_retry) == x.ConfirmReturned(5, 2, is_parked=True)
    rig.restart()
    rig.subscribe(6, "bob", who=6, attempts_max=3, **OWN)
    assert rig.pushed(6) == [1, 3]


def test_what_is_parked_by_itself_and_rejected_meanwhile_is_a_letter_when_the_journal_has_it() -> None:
    rig = rig_of(3)
    rig.subscribe(5, "bob", attempts_max=1, **OWN)
    rig.hand_out(5)
    rig.do(x.SessionClosed(5))
    rig.subscribe(6, "bob", who=6, attempts_max=1, credit=0, **OWN)
    before = len(rig.said)
    rig.tell(x.CreditGranted(6, 1 << 40), x.ReturnRequested(6, 2, False, "bad"))
    assert rig.said[before:] == []
    rig.carry_out()
    assert rig.said_to(6, x.ConfirmReturned) == [x.ConfirmReturned(6, 2, is_parked=True)]
    assert [letter["sequence"] for letter in letters(rig, 90)] == [1, 2, 3]


def test_what_is_settled_before_its_turn_to_be_parked_is_answered_when_the_settlement_is_stored() -> None:
    rig = rig_of(3)
    rig.subscribe(5, "bob", **OWN)
    before = len(rig.said)
    rig.tell(x.ReturnRequested(5, 1, False, "bad"), x.ReturnRequested(5, 2, False, "bad"))
    rig.tell(x.SettleRequested(5, ((2, 2),)))
    assert rig.said[before:] == []
    rig.carry_out()
    rig.give_turns()
    parked = [x.ConfirmReturned(5, sequence, is_parked=True) for sequence in (1, 2)]
    assert rig.said[before:][-2:] == [x.ConfirmSettled(5, 2, ()), parked[1]]
    assert parked[0] in rig.said[before:]
    assert [letter["sequence"] for letter in letters(rig, 90)] == [1]


@pytest.mark.parametrize("tail_size_max", [1 << 20, 0], ids=["in memory", "in the journal"])
def test_what_is_rejected_together_is_moved_together_each_for_its_reason(tail_size_max: int) -> None:
    rig = rig_of(100, limits=StreamsLimits(tail_size_max=tail_size_max))
    rig.subscribe(5, "bob", **OWN)
    rig.do(*(x.ReturnRequested(5, sequence, False, f"bad {sequence % 2}") for sequence in range(1, 101)))
    assert len(rig.said_to(5, x.ConfirmReturned)) == 100
    found = letters(rig, 90)
    assert sorted(letter["sequence"] for letter in found) == list(range(1, 101))
    assert all(letter["reason"] == f"bad {letter['sequence'] % 2}" for letter in found)
    assert sum(len(push.buffers) for push in rig.pushes(90)) <= 6


def test_no_more_is_moved_at_once_than_has_a_few_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    park = Parking.park

    def counted(self: Parking, flow: Any, parcels: list[Any], *more: Any) -> None:
        counts.append(len(parcels))
        park(self, flow, parcels, *more)

    monkeypatch.setattr(Parking, "park", counted)
    rig = rig_of(100)
    rig.subscribe(5, "bob", **OWN)
    rig.do(*(x.ReturnRequested(5, sequence, False, f"bad {sequence}") for sequence in range(1, 101)))
    rig.give_turns()
    found = letters(rig, 90)
    assert {letter["sequence"]: letter["reason"] for letter in found} == {n: f"bad {n}" for n in range(1, 101)}
    assert max(counts) == REASONS_MAX


def test_what_else_changes_a_subscription_waits_for_its_dead_letters_and_they_for_it() -> None:
    rig = rig_of(3)
    rig.subscribe(5, "bob", who=5, **OWN)
    rig.tell(x.ReturnRequested(5, 1, False, "bad"))
    heir = {"subscriber": "bob", "name": "main", "incarnation": incarnation(6), "credit": 1 << 30, **OWN}
    rig.tell(x.SubscribeRequested(6, "local", "s", **heir))
    rig.do(x.ReturnRequested(5, 2, False, "bad"))
    assert [letter["sequence"] for letter in letters(rig, 90)] in ([1], [1, 2])
    parked = len(letters(rig, 91))
    assert rig.pushed(6) == [1, 2, 3][parked:]
    rig.restart()
    rig.subscribe(7, "bob", who=7, **OWN)
    assert rig.pushed(7) == [1, 2, 3][parked:]


def test_what_is_given_back_by_who_has_left_meanwhile_stays_unsettled() -> None:
    rig = rig_of(3, limits=StreamsLimits(tail_size_max=0))
    rig.subscribe(5, "bob", **OWN)
    rig.tell(x.ReturnRequested(5, 1, False, "bad"), x.SessionClosed(5))
    rig.carry_out()
    rig.subscribe(6, "bob", who=6, **OWN)
    assert (rig.pushed(6), letters(rig, 90)) == ([1, 2, 3], [])


@pytest.mark.parametrize("sequence", [1, 3])
def test_a_checkpoint_meanwhile_does_not_count_what_is_on_its_way_to_the_dead_letters(sequence: int) -> None:
    rig = rig_of(4)
    rig.subscribe(5, "bob", **OWN)
    rig.settle(5, (2, 2))
    rig.is_full = True
    rig.tell(x.ReturnRequested(5, sequence, False, "bad"))
    rig.is_full = False
    rig.checkpoint()
    assert rig.said[-1].code == "disk-full"
    rig.restart()
    rig.subscribe(6, "bob", who=6, **OWN)
    assert rig.pushed(6) == [1, 3, 4], "there is no dead letter"


@pytest.mark.parametrize("mode", list(x.SettleMode))
def test_nor_what_was_tried_too_often_and_is_on_its_way_there(mode: x.SettleMode) -> None:
    rig = rig_of(4)
    own = {"attempts_max": 1, "parked_to": "dead", "mode": mode}
    rig.subscribe(5, "bob", **own)
    rig.hand_out(5)
    rig.settle(5, (1, 2))
    rig.do(x.SessionClosed(5))
    rig.publish(rig.attach(1, who=2), 5, 2)
    rig.subscribe(6, "bob", who=6, credit=0, **own)
    rig.tell(x.CreditGranted(6, 1 << 30))
    rig.kill_behind_the_checkpoint()
    rig.subscribe(7, "bob", who=7, **own)
    assert (rig.pushed(7), [letter["sequence"] for letter in letters(rig, 90)]) == ([5, 6], [3, 4])
