"""What facts may take on a full disk is given out in shares: nobody uses up what the others need."""

from tests.journal.rig import Rig, batch_entry
from veredus.journal.exchange import AppendFailed, AppendRequested, fact_entry
from veredus.journal.reserve import Reserve


def test_a_payer_has_a_share_and_the_others_have_theirs() -> None:
    reserve = Reserve(400)
    assert reserve.take(60, "evil", is_freeing=False)
    assert not reserve.take(60, "evil", is_freeing=False)
    assert reserve.take(40, "evil", is_freeing=False)
    assert reserve.take(100, "bob", is_freeing=False)
    assert not reserve.take(1, "bob", is_freeing=False)


def test_whoever_has_used_up_its_share_can_let_go_of_space_still() -> None:
    reserve = Reserve(400)
    assert reserve.take(100, "a", is_freeing=False)
    assert reserve.take(100, "a", is_freeing=True)
    assert not reserve.take(1, "a", is_freeing=True)


def test_the_last_share_is_for_what_lets_go_of_space() -> None:
    reserve = Reserve(400)
    assert all(reserve.take(100, payer, is_freeing=False) for payer in ("a", "b", "c"))
    assert not reserve.take(1, "d", is_freeing=False)
    assert not reserve.take(1, None, is_freeing=False)
    assert reserve.take(90, "d", is_freeing=True)
    assert reserve.take(10, None, is_freeing=True)
    assert not reserve.take(1, None, is_freeing=True)


def test_it_is_full_again_when_it_is_refilled() -> None:
    reserve = Reserve(400)
    assert reserve.take(100, "a", is_freeing=False)
    reserve.refill()
    assert reserve.take(100, "a", is_freeing=False)


def test_on_a_full_disk_whoever_has_used_up_its_share_is_refused_and_the_others_go_on() -> None:
    rig = Rig()
    rig.disk.size_max = 80 << 10
    sequence = 1
    while not any(isinstance(said, AppendFailed) for said in rig.said):
        rig.append(batch_entry(1, sequence, size=2000))
        rig.settle()
        sequence += 1

    def asked(payer: str, is_freeing: bool = False) -> bool:
        token = rig.token()
        rig.tell(AppendRequested(token, (fact_entry(bytes(400), 1),), payer=payer, is_freeing=is_freeing))
        rig.settle()
        return rig.is_appended(token)

    taken = [asked("evil") for _ in range(10)]
    assert taken.count(True) == rig.settings.reserve_size // 4 // 440
    assert not taken[-1]
    assert asked("bob")
    assert asked("evil", is_freeing=True)
    while asked("alice", is_freeing=True) or asked("carl") or asked("dan", is_freeing=True) or asked("eve"):
        pass
    barrier = rig.append()
    rig.settle()
    assert rig.is_appended(barrier), "what needs no space is answered as ever"
