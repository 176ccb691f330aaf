"""What servers and proxies do with whom a connection has proved to be, and for whom it speaks."""

from dataclasses import replace

from tests.protocols.topics.floor import LINK, SETTINGS, ServerScene
from tests.protocols.topics.proxy_scene import Scene, said
from veredus.kernel.effects import Note
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked
from veredus.protocols.topics.messages import (
    Get,
    Merge,
    Message,
    Periodic,
    Put,
    Status,
    Subscribe,
    Transfer,
    encode_message,
)

LOWER = "127.0.0.1:8999"
GET = b"GET alice t -1\r\n\r\n"


def ask_as(
    scene: ServerScene, question: Message, principal: str, speaks_for: str = "", is_member: bool = True
) -> Status:
    """The answer to somebody who has proved to be `principal`."""
    scene.peer += 1
    scene.tell(Asked(scene.peer, encode_message(question), LINK, b"", principal, speaks_for, is_member))
    scene.sync()
    ((answered, status),) = scene.answers()
    assert answered == scene.peer
    return status


def test_a_proxy_asks_for_each_principal_by_itself_what_two_of_them_ask_alike() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    (first,) = scene.tell(Asked(1, GET, principal="alice"))
    (second,) = scene.tell(Asked(2, GET, principal="mallory"))
    assert (first, second) == (Ask("s1:1", 1, GET, "alice"), Ask("s1:1", 2, GET, "mallory"))
    assert scene.tell(Answered(2, b"STATUS s1:1 REFUSED\r\n\r\n")) == [Answer(2, b"STATUS s1:1 REFUSED\r\n\r\n")]
    assert scene.tell(Answered(1, b"STATUS s1:1 OK 1\r\n\r\nhers")) == [Answer(1, b"STATUS s1:1 OK 1\r\n\r\nhers")]


def test_a_proxy_hears_servers_from_members_alone() -> None:
    scene = Scene()
    periodic = encode_message(Periodic("s1:1", ("t",)))
    ((_, status, text),) = said(scene.tell(Asked(1, periodic, principal="mallory", is_member=False)))
    assert (status, "mallory is not a proxy or a server" in text) == ("REFUSED", True)
    assert scene.met == []
    assert said(scene.tell(Asked(2, periodic, principal="s1"))) == [(2, "OK", "")]


def test_a_proxy_passes_on_for_whom_another_proxy_asks() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    assert scene.tell(Asked(1, GET, principal="proxy", speaks_for="alice")) == [Ask("s1:1", 1, GET, "alice")]
    refused = scene.tell(Asked(2, GET, principal="bob", speaks_for="alice", is_member=False))
    assert [status for _, status, _ in said(refused)] == ["REFUSED"]


def test_a_server_asks_the_rules_of_the_principal_and_not_of_the_proxy() -> None:
    scene = ServerScene()
    asked: list[tuple[str, str]] = []

    def may(principal: str, verb: str, resource: object) -> bool:
        asked.append((principal, verb))
        return principal != "mallory"

    scene.rig.may = may
    scene.rig.boot()
    scene.boot()
    assert ask_as(scene, Subscribe("alice", "t"), "proxy", "alice").status == "OK"
    assert ask_as(scene, Put("bob", "t", 1, b"x"), "bob").status == "OK"
    assert ask_as(scene, Put("bob", "t", 2, b"y"), "proxy", "mallory").status == "REFUSED"
    assert ask_as(scene, Get("alice", "t", "-1"), "proxy", "mallory").status == "REFUSED"
    assert ask_as(scene, Get("alice", "t", "-1"), "proxy", "alice").body == b"x"
    assert "proxy" not in {principal for principal, _ in asked}


def test_the_id_of_a_client_belongs_to_the_principal_that_used_it_first() -> None:
    scene = ServerScene()
    scene.rig.may = lambda principal, verb, resource: verb != "take-over"
    scene.rig.boot()
    scene.boot()
    assert ask_as(scene, Subscribe("alice", "t"), "alice").status == "OK"
    assert ask_as(scene, Put("alice", "t", 1, b"x"), "alice").status == "OK"
    for question in (Put("alice", "t", 2, b"y"), Subscribe("alice", "t"), Get("alice", "t", "-1")):
        told = ask_as(scene, question, "bob")
        assert (told.status, b"another principal owns" in told.body) == ("REFUSED", True), told
    assert ask_as(scene, Put("alice", "t", 2, b"y"), "alice").status == "OK"
    assert ask_as(scene, Get("alice", "t", "-1"), "alice").body == b"x"


def test_two_principals_that_may_both_be_a_source_do_not_take_it_from_each_other_while_they_rest() -> None:
    scene = ServerScene()
    for counter in range(1, 10):
        principal = ("first", "second")[counter % 2]
        assert ask_as(scene, Put("alice", "t", counter, b"x"), principal).status == "OK"


def test_the_id_of_a_client_belongs_to_the_same_principal_when_its_topic_was_merged() -> None:
    giver, keeper = ServerScene(), ServerScene(replace(SETTINGS, server_id=LOWER))
    for scene in (giver, keeper):
        scene.rig.may = lambda principal, verb, resource: verb != "take-over" or principal == "local"
        scene.rig.boot()
        scene.boot()
    assert ask_as(giver, Subscribe("alice", "t"), "alice").status == "OK"
    assert ask_as(giver, Put("alice", "t", 1, b"x"), "alice").status == "OK"
    assert ask_as(keeper, Put("dora", "t", 1, b"y"), "dora").status == "OK"
    assert ask_as(giver, Merge("p", "t", LOWER), "p").status == "OK"
    asked = giver.take(Ask)
    assert ask_as(giver, Put("late", "t", 1, b"z"), "late").status == "OK", "while the topic is copied"
    while asked:
        for ask in asked:
            keeper.tell(Asked(ask.token, ask.data, LINK, b"", "giver", "", True))
            keeper.sync()
            ((_, status),) = keeper.answers()
            giver.tell(Answered(ask.token, encode_message(status), LINK))
            giver.sync()
        asked = [ask for ask in giver.take(Ask) if ask.data.startswith(b"TRANSFER")]
    assert [note.event for note in giver.take(Note)][-1] == "topic-given"
    keeper.restart()
    for question in (
        Put("alice", "t", 2, b"y"),
        Put("late", "t", 2, b"y"),
        Subscribe("alice", "t"),
        Get("alice", "t", "-1"),
    ):
        told = ask_as(keeper, question, "mallory")
        assert (told.status, b"another principal owns" in told.body) == ("REFUSED", True), told
    assert ask_as(keeper, Put("alice", "t", 2, b"w"), "alice").status == "OK"
    assert ask_as(keeper, Put("late", "t", 2, b"w"), "late").status == "OK"
    assert ask_as(keeper, Get("alice", "t", "-1"), "alice").status == "OK"


def test_a_server_merges_for_members_alone() -> None:
    scene = ServerScene()
    for question in (Merge("p", "t", "s2:1"), Transfer("s2:1", "t", (), ())):
        told = ask_as(scene, question, "mallory", is_member=False)
        assert (told.status, b"mallory is not a proxy or a server" in told.body) == ("REFUSED", True)
    assert ask_as(scene, Put("alice", "t", 1, b"x"), "mallory", is_member=False).status == "OK", "it may be a client"
    assert ask_as(scene, Put("alice", "t", 2, b"x"), "mallory", "alice", is_member=False).status == "REFUSED"


def test_a_server_that_gave_a_topic_away_asks_the_other_one_for_the_same_principal() -> None:
    scene = ServerScene()
    scene.server._passed_on["t"] = ("s2:1", 1 << 62)
    scene.tell(Asked(7, GET, LINK, b"", "proxy", "alice"))
    (ask,) = (order for order in scene.take(Ask) if order.data == GET)
    assert (ask.address, ask.principal) == ("s2:1", "alice")
    assert scene.take(Answer) == []


def test_what_a_header_alone_refuses_is_refused_without_a_look_at_what_follows_it() -> None:
    """Of a message that is wrong in its body too, which a neighbour would wait for: the header speaks first."""
    transfer, periodic = b"TRANSFER s2:1 t\r\n\r\n*not to be read", b"PERIODIC s1:1\r\n\r\nnot  to be read"
    for taker in ("a proxy accepts", "a server accepts"):
        scene = Scene() if taker.startswith("a proxy") else None
        data = transfer if scene else periodic
        asked = Asked(1, data, LINK, principal="mallory", is_member=False)
        status, text = said(scene.tell(asked))[0][1:] if scene else told_by_a_server(asked)
        assert (status, taker in text) == ("BAD_MESSAGE", True)
    refused = said(Scene().tell(Asked(1, periodic, principal="mallory", is_member=False)))
    assert refused[0][1:][0] == "REFUSED"
    assert told_by_a_server(Asked(1, transfer, LINK, principal="mallory", is_member=False))[0] == "REFUSED"
    assert told_by_a_server(Asked(1, transfer, LINK, principal="s2"))[0] == "BAD_MESSAGE", "a member's is looked at"


def told_by_a_server(asked: Asked) -> tuple[str, str]:
    """The word and the text of what a server answers."""
    scene = ServerScene()
    scene.tell(asked)
    scene.sync()
    ((_, status),) = scene.answers()
    return status.status, status.body.decode()
