"""What counts as an attempt: what an application was handed, by its client's word, and nothing else."""

import pytest

from tests.streams.rig import Rig
from veredus.matching import Filter
from veredus.streams import exchange as x
from veredus.streams.cursors import CURSOR_INTERVAL_NS
from veredus.streams.tables import StreamsLimits

PARKING = {"attempts_max": 2, "parked_to": "parked"}


def rig_of(count: int, limits: StreamsLimits | None = None) -> Rig:
    """A stream with so many publications, and somewhere to park."""
    rig = Rig(limits=limits or StreamsLimits())
    grant = rig.attach(1)
    rig.attach(2, stream="parked")
    for number in range(1, count + 1):
        rig.publish(grant, number)
    return rig


def place_of(rig: Rig, text: bytes) -> tuple[bytearray, int]:
    """The segment that holds this, and where."""
    (octets,) = [octets for name, octets in rig.disk.files.items() if name.endswith(".segment") and text in octets]
    return octets, octets.index(text)


def live(rig: Rig, session: int, handed_to: int, who: int = 0) -> list[int]:
    """A life of an application: it is handed what it is pushed up to a sequence, and dies; what it was pushed."""
    rig.subscribe(session, "bob", who=who or session, **PARKING)
    if handed_to:
        rig.do(x.HandedOut(session, handed_to))
    rig.do(x.SessionClosed(session))
    return rig.pushed(session)


def parked(rig: Rig, session: int) -> list[int]:
    rig.subscribe(session, stream="parked")
    return [row.number for _, row in rig.rows(session)]


def test_what_was_pushed_and_handed_to_nobody_is_never_parked() -> None:
    rig = rig_of(6)
    for session in range(5, 9):
        live(rig, session, handed_to=2)
    assert parked(rig, 90) == [1, 2]
    assert live(rig, 10, handed_to=0) == [3, 4, 5, 6]


@pytest.mark.parametrize("kill", [False, True])
def test_what_was_handed_out_is_remembered_with_the_cursor(kill: bool) -> None:
    rig = rig_of(3)
    live(rig, 5, handed_to=1)
    live(rig, 6, handed_to=1)
    if kill:
        rig.restart()
    else:
        rig.checkpoint()
    assert live(rig, 7, handed_to=0) == [2, 3]
    assert parked(rig, 90) == [1]


def test_an_application_whose_client_subscribes_again_counts_once() -> None:
    rig = rig_of(2)
    for session in range(5, 10):
        live(rig, session, handed_to=2, who=5)
    assert live(rig, 10, handed_to=2) == [1, 2], "one application had them"
    assert live(rig, 11, handed_to=0) == []


@pytest.mark.parametrize("sequence", [2, 1 << 40, (1 << 64) - 1])
def test_the_session_of_a_client_that_says_it_handed_out_what_it_was_not_pushed_ends(sequence: int) -> None:
    rig = rig_of(2)
    for session in (5, 6):
        rig.subscribe(session, "bob", who=session, credit=1, **PARKING)
        (refusal,) = rig.do(x.HandedOut(session, sequence))
        assert isinstance(refusal, x.Refuse)
        assert (refusal.code, refusal.is_final, refusal.details) == ("not-pushed", True, {"pushed_to": 1})
        rig.do(x.SessionClosed(session))
    assert live(rig, 7, handed_to=0) == [1, 2], "nothing was tried"


def test_what_an_earlier_session_was_pushed_may_be_reported_before_it_is_pushed_again() -> None:
    rig = rig_of(2)
    live(rig, 5, handed_to=0)
    rig.subscribe(6, "bob", who=5, credit=0, **PARKING)
    assert rig.do(x.HandedOut(6, 2)) == [x.ConfirmHanded(6, 2)]


def test_a_session_without_a_cursor_reports_what_it_was_pushed_and_no_more() -> None:
    rig = rig_of(3)
    rig.subscribe(5, credit=1)
    assert rig.pushed(5) == [1]
    assert rig.do(x.HandedOut(5, 1)) == [x.ConfirmHanded(5, 1)]
    (refusal,) = rig.do(x.HandedOut(5, 2))
    assert isinstance(refusal, x.Refuse)
    assert (refusal.code, refusal.is_final, refusal.details) == ("not-pushed", True, {"pushed_to": 1})


def test_what_was_handed_out_is_confirmed_so_that_a_client_may_wait_for_that() -> None:
    rig = rig_of(2)
    live(rig, 5, handed_to=0)
    rig.subscribe(6, "bob", who=6, **PARKING)
    rig.tell(x.HandedOut(6, 2))
    assert rig.said_to(6, x.ConfirmHanded) == [], "the journal does not have it"
    rig.carry_out()
    assert rig.said_to(6, x.ConfirmHanded) == [x.ConfirmHanded(6, 2)]
    assert rig.do(x.HandedOut(99, 2)) == [], "a session that is over"


def test_what_nobody_waits_for_is_confirmed_in_a_while_or_with_what_is_settled() -> None:
    rig = rig_of(4)
    rig.subscribe(5, "bob", **PARKING)
    assert rig.do(x.HandedOut(5, 1), x.HandedOut(5, 2)) == []
    rig.time_ns += CURSOR_INTERVAL_NS
    assert rig.do() == [x.ConfirmHanded(5, 2)]
    assert rig.do(x.HandedOut(5, 3), x.SettleRequested(5, ((1, 1),))) == [
        x.ConfirmHanded(5, 3),
        x.ConfirmSettled(5, 1),
    ]


def test_what_lies_where_an_end_was_lost_was_tried_by_nobody() -> None:
    rig = rig_of(3)
    live(rig, 5, handed_to=3)
    live(rig, 6, handed_to=3)
    rig.floor.tables.streams["s"].raise_term(2, 2)
    assert live(rig, 7, handed_to=0) == [2, 3], "what lies from 2 on is not what was tried twice"
    assert parked(rig, 90) == [1]


ENDS, ALL = Filter(where="n = 1 or n = 4"), Filter(where="n > 0")


def test_what_another_filter_passed_over_was_handed_to_nobody() -> None:
    rig = rig_of(4)
    rig.subscribe(5, "bob", who=5, filter=ENDS, **PARKING)
    rig.do(x.HandedOut(5, 4), x.FilterChangeRequested(5, ALL), x.SessionClosed(5))
    rig.subscribe(6, "bob", who=6, filter=ALL, **PARKING)
    rig.do(x.SessionClosed(6))
    assert (rig.pushed(5), rig.pushed(6)) == ([1, 4], [1, 2, 3, 4])
    live(rig, 7, handed_to=4)
    assert live(rig, 8, handed_to=0) == [1, 2, 3, 4], "life 7 alone was handed 2 and 3"


def test_what_was_handed_out_before_a_filter_came_is_not_counted_behind_it() -> None:
    rig = rig_of(4)
    rig.subscribe(5, "bob", who=5, filter=ENDS, **PARKING)
    rig.do(x.HandedOut(5, 4), x.SessionClosed(5))
    rig.subscribe(6, "bob", who=5, filter=None, credit=0, **PARKING)
    rig.do(x.FilterChangeRequested(6, ALL), x.CreditGranted(6, 1 << 40), x.SessionClosed(6))
    live(rig, 7, handed_to=4)
    assert live(rig, 8, handed_to=0) == [1, 2, 3, 4], "life 7 alone was handed 2 and 3"


def test_what_an_application_was_told_that_cannot_be_had_is_no_attempt_at_it() -> None:
    rig = rig_of(4, StreamsLimits(tail_size_max=1))
    octets, place = place_of(rig, b"alpha|2|")
    octets[place] ^= 1
    for session in (5, 6):
        assert 2 not in live(rig, session, handed_to=4, who=session)
    octets[place] ^= 1
    assert live(rig, 7, handed_to=2) == [2], "the disk reads it again; the others were tried twice"
    assert live(rig, 8, handed_to=2) == [2], "it was tried once"
    assert live(rig, 9, handed_to=0) == []
    assert parked(rig, 90) == [1, 3, 4, 2]


def test_what_an_application_was_handed_before_it_could_not_be_had_was_tried() -> None:
    rig = rig_of(4, StreamsLimits(tail_size_max=1))
    rig.subscribe(5, "bob", who=5, **PARKING)
    rig.do(x.HandedOut(5, 4))
    octets, place = place_of(rig, b"alpha|2|")
    octets[place] ^= 1
    assert 2 not in live(rig, 6, handed_to=4, who=5)
    assert rig.said_to(6, x.PushGap) != []
    octets[place] ^= 1
    assert live(rig, 7, handed_to=4) == [1, 2, 3, 4]
    assert live(rig, 8, handed_to=0) == []
    assert parked(rig, 90) == [1, 2, 3, 4]
