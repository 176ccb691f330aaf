"""Who is behind each link is known while it is open, and a principal has at most its number of links."""

from __future__ import annotations

from veredus.kernel.effects import Admit, Note
from veredus.kernel.events import LinkOpened
from veredus.node.connections import Connections, is_stranger
from veredus.protocols.zeps.orders import AskPrincipal, PrincipalKnown


def opened(connections: Connections, link: int, principal: str = "") -> None:
    connections.open(LinkOpened(link, "tcp", f"peer-{link}", principal))


def test_a_principal_has_no_more_links_than_its_limit_and_one_that_goes_makes_room() -> None:
    connections = Connections(1)
    opened(connections, 1)
    opened(connections, 2)
    assert Admit(1, "desk") in connections.judge(PrincipalKnown(1, "desk"), "zeps/2").orders
    refused = connections.judge(PrincipalKnown(2, "desk"), "zeps/2")
    assert (refused.told.code, refused.orders) == ("too-many-connections", ())
    assert connections.close(1, "closed") == Note(
        "debug", "disconnected", {"link": 1, "principal": "desk", "reason": "closed"}
    )
    assert Admit(2, "desk") in connections.judge(PrincipalKnown(2, "desk"), "zeps/2").orders
    connections.check()


def test_whose_link_went_before_it_was_known_who_it_is_takes_no_place_of_its_principal() -> None:
    connections = Connections(1)
    opened(connections, 1)
    connections.close(1, "closed")
    assert connections.judge(PrincipalKnown(1, "desk"), "").orders == ()
    connections.check()
    opened(connections, 2)
    assert Admit(2, "desk") in connections.judge(PrincipalKnown(2, "desk"), "zeps/2").orders


def test_a_link_that_is_known_as_another_principal_counts_as_that_ones_alone() -> None:
    connections = Connections(1)
    opened(connections, 1)
    connections.judge(PrincipalKnown(1, "anonymous"), "zeps/2")
    connections.judge(PrincipalKnown(1, "desk"), "zeps/2")
    opened(connections, 2)
    assert Admit(2, "anonymous") in connections.judge(PrincipalKnown(2, "anonymous"), "zeps/2").orders
    connections.check()


def test_whom_the_transport_has_proved_is_asked_for_no_proof_unless_it_shows_one() -> None:
    connections = Connections(2)
    opened(connections, 1, "certified")
    assert connections.principal_of(1) == "", "it counts once it has greeted"
    assert connections.known_without(AskPrincipal(1, None)) == PrincipalKnown(1, "certified")
    assert connections.known_without(AskPrincipal(1, "token")) is None
    assert connections.known_without(AskPrincipal(1, None, b"key")) is None


def test_all_links_of_one_address_that_have_not_said_who_they_are_pay_together() -> None:
    connections = Connections(9)
    for link, peer in enumerate(
        ("10.0.0.1:4000", "10.0.0.1:4001", "10.0.0.2:4000", "[2001:db8::1]:1", "[2001:db8::2]:1")
    ):
        connections.open(LinkOpened(link, "tcp", peer))
    payers = [connections.payer_of(link) for link in range(5)]
    assert payers[0] == payers[1] != payers[2]
    assert payers[3] == payers[4], "whoever has one IPv6 address has many"
    connections.judge(PrincipalKnown(0, "10.0.0.1"), "zeps/2")
    assert connections.payer_of(0) not in payers, "a principal pays for itself, whatever its name is"
    connections.close(1, "closed")
    assert connections.payer_of(1) not in payers[:1]
    connections.check()


def test_the_work_for_a_multicast_group_is_its_own_and_takes_nothing_from_the_share_of_strangers() -> None:
    connections = Connections(1)
    connections.open(LinkOpened(1, "multicast", "prices"))
    opened(connections, 2)
    assert connections.payer_of(1) == "multicast"
    assert is_stranger(connections.payer_of(2))
