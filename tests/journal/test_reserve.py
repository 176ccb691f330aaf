"""What facts may take on a full disk is given out in shares: nobody uses up what the others need."""

import pytest

from tests.journal.rig import Rig, batch_entry
from veredus.journal.exchange import AppendFailed, AppendRequested, fact_entry
from veredus.journal.layout import GROUP_RECORD_SIZE
from veredus.journal.reserve import Reserve

HEAD = GROUP_RECORD_SIZE
"""What each takes beside its facts: it may be a group of its own."""


def test_a_payer_has_a_share_and_the_others_have_theirs() -> None:
    reserve = Reserve(4000)
    assert reserve.take(600 - HEAD, "evil", is_freeing=False)
    assert not reserve.take(600 - HEAD, "evil", is_freeing=False)
    assert reserve.take(400 - HEAD, "evil", is_freeing=False)
    assert reserve.take(1000 - HEAD, "bob", is_freeing=False)
    assert not reserve.take(1, "bob", is_freeing=False)


def test_whoever_has_used_up_its_share_can_let_go_of_space_still() -> None:
    reserve = Reserve(4000)
    assert reserve.take(1000 - HEAD, "a", is_freeing=False)
    assert reserve.take(1000 - HEAD, "a", is_freeing=True)
    assert not reserve.take(1, "a", is_freeing=True)
    assert reserve.take(0, "a", is_freeing=False), "it takes no room"


def test_the_last_share_is_for_what_lets_go_of_space() -> None:
    reserve = Reserve(4000)
    assert all(reserve.take(1000 - HEAD, payer, is_freeing=False) for payer in ("a", "b", "c"))
    assert not reserve.take(1, "d", is_freeing=False)
    assert not reserve.take(1, None, is_freeing=False)
    assert reserve.take(800 - HEAD, "d", is_freeing=True)
    assert reserve.take(200 - HEAD, None, is_freeing=True)
    assert not reserve.take(1, None, is_freeing=True)


def test_it_has_as_much_as_there_is_room_for_when_it_is_refilled_and_the_last_share_stays_what_it_was() -> None:
    reserve = Reserve(4000)
    assert reserve.take(1000 - HEAD, "a", is_freeing=False)
    reserve.refill(4000)
    assert reserve.take(1000 - HEAD, "a", is_freeing=False)
    reserve.refill(1500)
    assert not reserve.take(600 - HEAD, "a", is_freeing=False)
    assert reserve.take(500 - HEAD, "a", is_freeing=False)
    assert reserve.take(1000 - HEAD, "b", is_freeing=True)


def ask(rig: Rig, payer: str, is_freeing: bool = False) -> bool:
    """Ask for a fact of 400 bytes, and carry it out; whether it is appended."""
    token = rig.token()
    rig.tell(AppendRequested(token, (fact_entry(bytes(400), 1),), payer=payer, is_freeing=is_freeing))
    rig.settle()
    return rig.is_appended(token)


def filled_up(rig: Rig) -> None:
    """Publish until the disk is full."""
    sequence = 1
    while not any(isinstance(said, AppendFailed) for said in rig.said):
        rig.append(batch_entry(1, sequence, size=2000))
        rig.settle()
        sequence += 1


def test_on_a_full_disk_whoever_has_used_up_its_share_is_refused_and_the_others_go_on() -> None:
    rig = Rig()
    rig.disk.size_max = 80 << 10
    filled_up(rig)
    taken = [ask(rig, "evil") for _ in range(10)]
    assert taken.count(True) == rig.settings.reserve_size // 4 // (440 + HEAD)
    assert not taken[-1]
    assert ask(rig, "bob")
    assert ask(rig, "evil", is_freeing=True)
    while ask(rig, "carl") or ask(rig, "eve"):
        pass
    assert ask(rig, "alice", is_freeing=True), "what lets go of space is taken whatever else was"
    while ask(rig, "alice", is_freeing=True) or ask(rig, "dan", is_freeing=True):
        pass
    barrier = rig.append()
    rig.settle()
    assert rig.is_appended(barrier), "what needs no space is answered as ever"


@pytest.mark.parametrize("restarts", [0, 1, 5])
def test_facts_alone_do_not_use_up_what_lets_go_of_space(restarts: int) -> None:
    rig = Rig()
    rig.disk.size_max = 80 << 10
    if restarts:
        filled_up(rig)
    for restart in range(max(restarts, 1)):
        if restarts:
            disk = rig.disk
            rig, _ = rig.reopened()
            rig.disk.size_max = disk.size_max
        # A fleet that comes back: nobody has published yet, so nothing was refused.
        number = 0
        while ask(rig, f"payer-{restart}-{number % 50}"):
            number += 1
    assert not ask(rig, "another")
    assert ask(rig, "alice", is_freeing=True)


def test_facts_that_wait_as_the_disk_becomes_full_are_taken_as_far_as_there_is_room() -> None:
    rig = Rig()
    rig.disk.size_max = 80 << 10
    filled_up(rig)
    disk = rig.disk
    rig, _ = rig.reopened()
    rig.disk.size_max = disk.size_max
    tokens = [rig.token() for _ in range(40)]
    for token in tokens:
        rig.tell(AppendRequested(token, (fact_entry(bytes(400), 1),), payer=f"payer-{token % 8}"))
    rig.settle()
    taken = [rig.is_appended(token) for token in tokens]
    assert any(taken)
    assert taken == sorted(taken, reverse=True), "in their order"
    assert ask(rig, "alice", is_freeing=True)


def test_no_fact_goes_on_behind_rows_that_are_refused_for_it_may_rest_on_them() -> None:
    rig = Rig()
    rig.disk.size_max = 80 << 10
    sequence = 1
    while rig.log.position.segment < 2 and not any(isinstance(said, AppendFailed) for said in rig.said):
        tokens = [rig.append(batch_entry(1, sequence, size=2000))]
        token = rig.token()
        rig.tell(AppendRequested(token, (fact_entry(bytes(400), 1),), payer="bob"))
        tokens.append(token)
        rig.settle()
        sequence += 1
    assert [rig.is_appended(token) for token in tokens] == [False, False]
    assert ask(rig, "bob")
