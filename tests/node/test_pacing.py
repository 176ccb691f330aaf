"""Who has had its share of work waits for its turn, is not read from meanwhile, and keeps its order."""

from __future__ import annotations

from veredus.kernel.effects import PauseReading, ResumeReading
from veredus.kernel.engine import Now
from veredus.kernel.events import LinkClosed, Received
from veredus.kernel.turns import QUANTUM_NS
from veredus.node.pacing import BEHIND, Pacing
from veredus.protocols.links import TurnGiven

GLUTTON, MODEST = "glutton", "modest"


def at(turn: int) -> Now:
    return Now(turn, 0)


def test_what_comes_from_a_principal_that_has_had_its_share_is_held_and_its_link_not_read_from() -> None:
    pacing = Pacing()
    pacing.charge(GLUTTON, QUANTUM_NS, at(1))
    first, second = Received(1, b"first"), Received(1, b"second")
    assert not pacing.may_tell(first, GLUTTON, at(1))
    assert not pacing.may_tell(second, GLUTTON, at(1))
    assert pacing.may_tell(Received(2, b"mine"), MODEST, at(1))
    assert list(pacing.take_changes()) == [PauseReading(1)]
    assert list(pacing.due(at(2))) == [TurnGiven(1)]
    assert pacing.next_of(TurnGiven(1)) is first
    pacing.end_turn(1, GLUTTON)
    assert list(pacing.take_changes()) == []
    assert list(pacing.due(at(3))) == [TurnGiven(1)]
    assert pacing.next_of(TurnGiven(1)) is second
    pacing.end_turn(1, GLUTTON)
    assert list(pacing.take_changes()) == [ResumeReading(1)]
    assert pacing.deadline() is None


def test_what_a_link_has_begun_comes_before_what_it_received_later_and_that_it_is_gone_comes_last() -> None:
    pacing = Pacing()
    pacing.charge(GLUTTON, 1, at(1))
    pacing.want(1, GLUTTON)
    later, gone = Received(1, b"later"), LinkClosed(1, "closed")
    assert not pacing.may_tell(later, GLUTTON, at(1))
    assert not pacing.may_close(gone, GLUTTON)
    told: list[object] = []
    turn = 1
    while pacing.deadline() is not None:
        turn += 1
        for given in pacing.due(at(turn)):
            told.append(pacing.next_of(given))
            pacing.end_turn(1, GLUTTON)
    assert told == [TurnGiven(1), later, gone]
    assert pacing.may_close(gone, GLUTTON)


def test_a_link_that_only_delivers_is_told_between_what_it_received_and_that_it_is_gone() -> None:
    pacing = Pacing()
    pacing.charge(GLUTTON, 1, at(1))
    pacing.want(1, GLUTTON, is_behind=True)
    later, gone = Received(1, b"later"), LinkClosed(1, "closed")
    assert not pacing.may_tell(later, GLUTTON, at(1))
    assert not pacing.may_close(gone, GLUTTON)
    told: list[object] = []
    for turn in range(2, 5):
        for given in pacing.due(at(turn)):
            told.append(pacing.next_of(given))
            pacing.want(1, GLUTTON, is_behind=True)
    assert told == [TurnGiven(1), later, gone]


def test_a_link_that_awaits_answers_is_not_read_from_and_has_no_turn_until_it_wants_one() -> None:
    pacing = Pacing()
    pacing.pause(1)
    assert list(pacing.take_changes()) == [PauseReading(1)]
    assert pacing.deadline() is None
    pacing.want(1, GLUTTON)
    assert list(pacing.due(at(2))) == [TurnGiven(1)]
    assert pacing.next_of(TurnGiven(1)) == TurnGiven(1)
    pacing.end_turn(1, GLUTTON)
    assert list(pacing.take_changes()) == [ResumeReading(1)]


def test_a_link_that_waits_is_not_read_from_when_the_disk_has_caught_up() -> None:
    pacing = Pacing()
    pacing.charge(GLUTTON, QUANTUM_NS, at(1))
    pacing.may_tell(Received(1, b"much"), GLUTTON, at(1))
    list(pacing.take_changes())
    pacing.hold_back(1, BEHIND)
    pacing.hold_back(2, BEHIND)
    assert list(pacing.take_changes()) == [PauseReading(2)]
    pacing.let_go(1, BEHIND)
    pacing.let_go(2, BEHIND)
    assert list(pacing.take_changes()) == [ResumeReading(2)]


def test_a_link_whose_peer_does_not_read_is_asked_for_nothing_until_it_does() -> None:
    pacing = Pacing()
    pacing.congest(1, 0)
    asked = Received(1, b"list")
    assert not pacing.may_tell(asked, MODEST, at(1))
    assert list(pacing.take_changes()) == [PauseReading(1)]
    assert pacing.deadline() is None
    pacing.drain(1, MODEST)
    assert list(pacing.due(at(2))) == [TurnGiven(1)]
    assert pacing.next_of(TurnGiven(1)) is asked
    pacing.end_turn(1, MODEST)
    assert list(pacing.take_changes()) == [ResumeReading(1)]


def test_a_link_that_has_more_to_do_and_does_not_read_goes_on_when_it_reads() -> None:
    pacing = Pacing()
    pacing.want(1, MODEST)
    pacing.congest(1, 0)
    assert list(pacing.due(at(2))) == []
    pacing.end_turn(1, MODEST)
    pacing.drain(1, MODEST)
    assert pacing.next_of(*pacing.due(at(3))) == TurnGiven(1)


def test_what_a_congested_link_said_before_it_was_gone_is_still_told() -> None:
    pacing = Pacing()
    pacing.congest(1, 0)
    said, gone = Received(1, b"last words"), LinkClosed(1, "closed")
    assert not pacing.may_tell(said, MODEST, at(1))
    assert not pacing.may_close(gone, MODEST)
    told = []
    for turn in (2, 3):
        told += [pacing.next_of(given) for given in pacing.due(at(turn))]
        pacing.end_turn(1, MODEST)
    assert told == [said, gone]


def test_a_link_that_is_pushed_nothing_is_heard_as_long_as_there_is_room_for_its_answers() -> None:
    pacing = Pacing()
    pacing.congest(1, 100)
    pacing.answer(1, 60)
    assert pacing.may_tell(Received(1, b"first"), MODEST, at(1))
    pacing.congest(1, 1000)
    assert not pacing.is_unheard(1)
    pacing.answer(1, 40)
    assert list(pacing.take_changes()) == [PauseReading(1)], "that it is told again gives no room"
    assert not pacing.may_tell(Received(1, b"second"), MODEST, at(1))
    assert not pacing.is_unheard(1), "it could read"
    pacing.drain(1, MODEST)
    assert pacing.next_of(*pacing.due(at(2))) == Received(1, b"second")
    pacing.end_turn(1, MODEST)
    pacing.answer(1, 1000)
    assert list(pacing.take_changes()) == [ResumeReading(1)]


def test_a_link_that_is_congested_goes_on_with_what_it_was_told() -> None:
    pacing = Pacing()
    pacing.want(1, MODEST)
    pacing.congest(1, 100)
    assert pacing.is_unheard(1), "it waits for its turn"
    assert pacing.next_of(*pacing.due(at(2))) == TurnGiven(1)
    pacing.end_turn(1, MODEST)
    assert list(pacing.take_changes()) == [PauseReading(1), ResumeReading(1)]
    gone = LinkClosed(1, "closed")
    assert pacing.may_close(gone, MODEST)


def test_however_many_principals_have_their_turn_the_loop_does_some_and_hears_others_before_it_goes_on() -> None:
    pacing = Pacing()
    for link in range(20):
        pacing.want(link, f"principal-{link}")
    turns: list[list[int]] = []
    while pacing.deadline() is not None:
        turns.append([])
        for given in pacing.due(at(len(turns))):
            turns[-1].append(given.link)
            pacing.next_of(given)
            pacing.charge(f"principal-{given.link}", QUANTUM_NS, at(len(turns)))
            pacing.end_turn(given.link, f"principal-{given.link}")
    assert [len(turn) for turn in turns] == [4] * 5
    assert [link for turn in turns for link in turn] == list(range(20))


def test_a_link_that_is_told_more_than_it_may_be_has_no_turn_in_the_midst_of_those_of_others() -> None:
    pacing = Pacing()
    for link in (1, 2):
        pacing.congest(link, 10)
        pacing.want(link, f"principal-{link}")
    given = []
    for turn in pacing.due(at(2)):
        given.append(turn.link)
        pacing.answer(2, 11)
    assert given == [1]


def test_a_link_whose_principal_has_its_share_of_the_disk_gets_no_turn_until_the_disk_has_caught_up() -> None:
    pacing = Pacing()
    pacing.charge(GLUTTON, QUANTUM_NS, at(1))
    first, second = Received(1, b"first"), Received(1, b"second")
    pacing.may_tell(first, GLUTTON, at(1))
    pacing.stop(1)
    assert not pacing.may_tell(second, GLUTTON, at(9))
    assert list(pacing.due(at(10))) == []
    assert pacing.deadline() is None
    assert list(pacing.take_changes()) == [PauseReading(1)]
    pacing.go_on(1, GLUTTON)
    assert list(pacing.take_changes()) == []
    for turn, event in enumerate((first, second), 11):
        assert list(pacing.due(at(turn))) == [TurnGiven(1)]
        assert pacing.next_of(TurnGiven(1)) is event
        pacing.end_turn(1, GLUTTON)
    assert list(pacing.take_changes()) == [ResumeReading(1)]


def test_what_a_link_said_that_is_gone_waits_for_the_disk_too() -> None:
    pacing = Pacing()
    pacing.stop(1)
    said, gone = Received(1, b"said"), LinkClosed(1, "closed")
    assert not pacing.may_tell(said, GLUTTON, at(1))
    assert not pacing.may_close(gone, GLUTTON)
    assert list(pacing.due(at(2))) == []
    pacing.go_on(1, GLUTTON)
    told = []
    for turn in (3, 4):
        told += [pacing.next_of(given) for given in pacing.due(at(turn))]
        pacing.end_turn(1, GLUTTON)
    assert told == [said, gone]


def test_a_link_that_is_stopped_and_reads_nothing_goes_on_when_both_are_over() -> None:
    pacing = Pacing()
    pacing.congest(1, 0)
    pacing.stop(1)
    assert not pacing.may_tell(Received(1, b"asked"), MODEST, at(1))
    pacing.go_on(1, MODEST)
    assert pacing.deadline() is None
    pacing.stop(1)
    pacing.drain(1, MODEST)
    assert pacing.deadline() is None
    pacing.go_on(1, MODEST)
    assert list(pacing.due(at(2))) == [TurnGiven(1)]
