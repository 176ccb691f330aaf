"""While the disk is behind, whoever has more than a share of what waits for it is not read from, and nobody else."""

from __future__ import annotations

from tests.node.test_awaited_requests import COUNT, CREATIONS
from tests.node.test_costly_frames import BOMBER, ITS_OTHER, PING, VICTIM
from tests.node.test_large_answers import SlowNode
from veredus.kernel.effects import PauseReading, ResumeReading
from veredus.kernel.engine import Now
from veredus.kernel.events import LinkOpened, Received
from veredus.node.connections import Connections
from veredus.node.disk_share import DiskShare
from veredus.node.pacing import Pacing
from veredus.protocols.zeps.orders import PrincipalKnown

SIZE_MAX = 1000


class Rig:
    """A share of the disk, with links by number and principal; `read` is what is read from."""

    def __init__(self, **links: str) -> None:
        self.connections = Connections(100)
        self.pacing = Pacing()
        self.share = DiskShare(SIZE_MAX, self.connections, self.pacing)
        self.read: set[int] = set()
        for name, principal in links.items():
            self.open(int(name[1:]), principal)

    def open(self, link: int, principal: str) -> None:
        self.connections.open(LinkOpened(link, "tcp", "1.2.3.4:5"))
        self.read.add(link)
        if principal:
            self.connections.judge(PrincipalKnown(link, principal), "")
            self.share.know(link, principal)
        self._follow()

    def put(self, node: int = 0, **sizes: int) -> set[int]:
        """So much is on its way of each principal, and of the node itself; returns the links that are read from."""
        by_payer: dict[str | None, int] = {None: node, **sizes} if node else {**sizes}
        self.share.regulate(sum(by_payer.values()), by_payer)
        self._follow()
        return self.read

    def _follow(self) -> None:
        for change in self.pacing.take_changes():
            match change:
                case PauseReading(link):
                    self.read.remove(link)
                case ResumeReading(link):
                    self.read.add(link)


def test_who_fills_the_way_to_the_disk_waits_with_all_of_its_links_and_nobody_else_does() -> None:
    rig = Rig(_1="greedy", _2="greedy", _3="modest", _4="")
    assert rig.put(greedy=950, modest=50) == {1, 2, 3, 4}
    assert rig.put(greedy=951, modest=50) == {3, 4}
    assert rig.share.waiting_count == 1


def test_who_waits_is_read_again_when_its_own_has_gone_down_however_much_others_send() -> None:
    rig = Rig(_1="greedy", _2="modest")
    assert rig.put(greedy=900, modest=101) == {2}
    assert rig.put(greedy=300, modest=400) == {2}
    assert rig.put(greedy=250, modest=490) == {1, 2}


def test_all_are_read_again_when_half_of_it_is_on_the_disk() -> None:
    rig = Rig(_1="greedy", _2="modest")
    assert rig.put(greedy=900, modest=101) == {2}
    assert rig.put(greedy=500) == {1, 2}


def test_those_who_do_not_wait_have_no_more_together_than_is_allowed() -> None:
    rig = Rig(_1="a", _2="b", _3="c", _4="d")
    assert rig.put(a=1001) == {2, 3, 4}
    assert rig.put(a=1001, b=500, c=100, d=100) == {3, 4}
    assert rig.put(a=1001, b=500, c=251, d=251) == set()


def test_a_link_that_comes_up_while_its_principal_waits_is_not_read_from_either() -> None:
    rig = Rig(_1="greedy", _2="modest")
    rig.put(greedy=1001)
    rig.open(3, "greedy")
    rig.open(4, "modest")
    assert rig.read == {2, 4}
    assert rig.put(greedy=1) == {1, 2, 3, 4}


def test_whoever_has_proved_nothing_has_one_share_and_who_has_not_greeted_is_heard() -> None:
    rig = Rig(_1="anonymous", _2="local", _3="somebody", _4="")
    rig.share.regulate(1001, {"anonymous": 500, "": 301, "somebody": 200})
    rig._follow()
    assert rig.read == {3, 4}


def test_a_link_of_many_is_read_while_none_of_those_waits_for_whom_it_asks() -> None:
    rig = Rig(_1="greedy", _2="", _3="")
    rig.share.share(2, {"modest"})
    rig.share.share(3, {"modest", "local"})
    assert rig.put(greedy=1001, modest=0) == {2, 3}
    rig.share.regulate(1502, {"greedy": 1001, "": 501})
    rig._follow()
    assert rig.read == {2}


def test_what_came_by_a_link_of_many_while_one_of_those_waited_is_told_when_none_does() -> None:
    rig = Rig(_1="greedy", _2="")
    rig.share.share(2, {"greedy", "modest"})
    assert rig.put(greedy=1001) == set()
    asked = Received(2, b"asked")
    assert not rig.pacing.may_tell(asked, "anybody", Now(1, 1))
    rig.put(greedy=1)
    assert [rig.pacing.next_of(turn) for turn in rig.pacing.due(Now(2, 2))] == [asked]
    rig.pacing.end_turn(2, "anybody")
    assert rig.put() == {1, 2}


def test_what_the_node_itself_appends_is_nobody_s_fault() -> None:
    rig = Rig(_1="a", _2="b")
    assert rig.put(node=2000, a=10, b=10) == {1, 2}


def test_while_one_fills_the_way_to_the_disk_a_neighbour_of_its_node_is_heard() -> None:
    node = SlowNode(unsynced_size_max=10_000)
    node.hold()
    node.tell(Received(BOMBER, CREATIONS))
    node.turns(COUNT)
    assert node.engine.disk_share.waiting_count == 1
    assert node.engine.pacing.is_unheard(ITS_OTHER)
    assert not node.engine.pacing.is_unheard(VICTIM)
    node.tell(Received(VICTIM, PING))
    assert node.pongs(VICTIM) == 1
    node.release()
    node.turns(2 * COUNT)
    assert node.engine.disk_share.waiting_count == 0
    assert not node.engine.pacing.is_unheard(ITS_OTHER)
