"""A giver that does not know of which body a client's last put was: the put that comes again is no other one."""

import pytest

from tests.streams.rig import incarnation
from veredus.protocols.topics import transfer as t
from veredus.protocols.topics.many import pack
from veredus.protocols.topics.messages import Put, PutMany, Status, Transfer
from veredus.streams import exchange as x

from .floor import ServerScene
from .test_merging import GIVER, INCARNATION, TOPIC, begin, end, part

ONE, TWO = (1, "bob", 1, b"one"), (2, "bob", 2, b"two")
BOTH = PutMany("bob", TOPIC, 1, pack([b"one", b"two"]))


def sources(number: int = 3, digest: bytes = b"") -> Transfer:
    beyond = t.Sources(INCARNATION, [("bob", number, digest)])
    return Transfer(GIVER, TOPIC, (), (), t.encode_beyond(beyond))


def taken(*parts: Transfer) -> ServerScene:
    """A keeper that was given these parts."""
    scene = ServerScene()
    for one in (begin(), *parts, end(2)):
        answer = scene.say(one)
        assert answer.status == "OK", answer
    return scene


def again(scene: ServerScene, asked: Put | PutMany) -> Status:
    answer = scene.say(asked)
    assert isinstance(answer, Status)
    return answer


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("asked", [Put("bob", TOPIC, 2, b"two"), BOTH], ids=["alone", "with-others"])
def test_the_row_that_came_says_which_body_a_put_had(asked: Put | PutMany, is_restarted: bool) -> None:
    scene = taken(sources(), part(ONE, TWO))
    if is_restarted:
        scene.restart()
    assert again(scene, asked).status == "OK"
    for other in (Put("bob", TOPIC, 2, b"too"), PutMany("bob", TOPIC, 1, pack([b"one", b"too"]))):
        refused = again(scene, other)
        assert (refused.status, refused.message_id) == ("REFUSED", "2")
    assert scene.bodies(TOPIC) == [b"one", b"two"]


def test_a_client_that_puts_while_its_rows_come_is_known_by_them() -> None:
    scene = ServerScene()
    scene.say(begin())
    assert again(scene, Put("bob", TOPIC, 0, b"before")).status == "OK"
    for one in (sources(), part(ONE, TWO)):
        scene.say(one)
    assert again(scene, Put("bob", TOPIC, 2, b"too")).status == "REFUSED"
    assert again(scene, Put("bob", TOPIC, 2, b"two")).status == "OK"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_where_the_row_is_gone_too_a_put_under_the_last_counter_is_the_one_that_was_taken(is_restarted: bool) -> None:
    scene = taken(sources(), part(ONE))
    if is_restarted:
        scene.restart()
    assert again(scene, Put("bob", TOPIC, 2, b"two")).status == "OK"
    assert again(scene, BOTH).status == "OK"
    assert again(scene, Put("bob", TOPIC, 1, b"one")).status == "REFUSED"
    assert scene.bodies(TOPIC) == [b"one"]


def test_a_digest_that_was_known_is_not_forgotten_when_the_same_comes_without() -> None:
    scene = taken(sources(), part(ONE, TWO), sources())
    scene.restart()
    assert again(scene, Put("bob", TOPIC, 2, b"too")).status == "REFUSED"
    assert again(scene, Put("bob", TOPIC, 2, b"two")).status == "OK"


def test_a_source_that_others_published_to_without_a_digest_is_no_put() -> None:
    """What is at the keeper under a client's name by another listener is not what the client puts."""
    scene = ServerScene()
    attached = x.SourceAttachRequested(900, "local", TOPIC, "bob", incarnation(900), 0, is_sparse=True)
    (grant,) = scene.rig.do(attached)
    scene.rig.publish(grant, 3, who="bob")
    refused = again(scene, Put("bob", TOPIC, 2, b"two"))
    assert (refused.status, refused.message_id) == ("REFUSED", "2")


def test_what_was_put_at_once_is_one_put_though_no_digest_of_it_is_known() -> None:
    """Whoever puts it again while it comes, or later, is told that it is there."""
    scene = ServerScene()
    scene.say(begin())
    scene.say(part(ONE, attributes=[{t.PUT_LAST: 3}]))
    assert again(scene, BOTH).status == "OK"
    scene.say(part(TWO, attributes=[{t.PUT_LAST: 3}]))
    scene.say(end(2))
    assert again(scene, BOTH).status == "OK"
    assert again(scene, Put("bob", TOPIC, 2, b"too")).status == "REFUSED"
    assert scene.bodies(TOPIC) == [b"one", b"two"]
