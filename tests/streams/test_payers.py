"""Each change is journaled on behalf of whoever asked for it: on a full disk it goes on that one's share."""

from typing import Any

import pytest

from tests.streams.rig import Rig
from veredus.journal.exchange import AppendRequested
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
