"""Each change is journaled on behalf of whoever asked for it: on a full disk it goes on that one's share."""

from typing import Any

import pytest

from tests.journal.rig import MemoryDisk
from tests.streams.rig import Rig
from veredus.journal.exchange import AppendRequested
from veredus.journal.settings import LogSettings
from veredus.streams import exchange as x


def appended(rig: Rig, event: Any) -> list[AppendRequested]:
    """What the floor orders from the journal for this."""
    orders = list(rig.floor.handle(event, rig.now))
    return [order for order in orders if isinstance(order, AppendRequested)]


@pytest.mark.parametrize(
    ("verb", "arguments", "is_freeing"),
    [
        ("stream.create", {"name": "new"}, False),
        ("stream.trim", {"name": "s", "floor": 1}, True),
        ("stream.delete", {"name": "s"}, True),
        ("subscription.remove", {"stream": "s", "subscriber": "who", "name": "never-was", "wish": 7}, False),
    ],
)
def test_a_request_goes_on_the_share_of_whoever_asks(verb: str, arguments: dict[str, Any], is_freeing: bool) -> None:
    rig = Rig()
    rig.tell(x.AdminRequested(9, 1, "local", "stream.create", {"name": "s"}))
    rig.carry_out()
    (order,) = appended(rig, x.AdminRequested(9, 2, "evil", verb, arguments))
    assert (order.payer, order.is_freeing) == ("evil", is_freeing)


def test_what_the_node_does_by_itself_goes_on_no_share() -> None:
    rig = Rig()
    rig.tell(x.AdminRequested(9, 1, "evil", "stream.create", {"name": "s"}))
    rig.carry_out()
    orders = rig.floor.trim(rig.floor.tables.streams["s"], 1, rig.now)
    assert [order.payer for order in orders if isinstance(order, AppendRequested)] == [None]


def test_on_a_full_disk_nobody_uses_up_what_the_others_need_to_go_on() -> None:
    disk = MemoryDisk()
    disk.held_size_max = 0
    rig = Rig(
        settings=LogSettings(segment_size=64 << 10, checkpoint_interval_size=1 << 30, held_back_size=0), disk=disk
    )
    assert not rig.log.has_space

    def ask(principal: str, verb: str, **arguments: Any) -> str:
        rig.said.clear()
        rig.tell(x.AdminRequested(9, 1, principal, verb, arguments))
        rig.carry_out()
        (answer,) = (said for said in rig.said if isinstance(said, x.AnswerAdmin | x.Refuse))
        return answer.code if isinstance(answer, x.Refuse) else "done"

    assert ask("alice", "stream.create", name="s") == "done"
    wishes = [
        ask("evil", "subscription.remove", stream="s", subscriber="evil-" + "u" * 200, name=str(n), wish=1)
        for n in range(50)
    ]
    assert {wishes[0], wishes[-1]} == {"unknown-subscription", "disk-full"}
    assert ask("bob", "stream.create", name="bobs") == "done"
    assert ask("alice", "stream.trim", name="s", floor=1) == "done"
    assert ask("evil", "stream.delete", name="bobs") == "done"
