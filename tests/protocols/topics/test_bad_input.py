"""What a server says to what it cannot take, to the letter; and nothing is changed by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.protocols.topics.floor import LINK, SERVER, SETTINGS, ServerScene
from veredus.kernel.names import U63_MAX
from veredus.protocols.topics.exchange import Asked
from veredus.protocols.topics.messages import Get, Put, Subscribe

BODY_SIZE_MAX = 1000
TOPIC = "prices"
NAMES = "SUBSCRIBE, UNSUBSCRIBE, GET, PUT, PERIODIC, MERGE, TRANSFER, STATUS, PUT_MANY, GET_MANY"
NO_END = "an empty line ends a header, and there is none in the first"
WISH = f"a wish must be a whole number from 1 to {U63_MAX}, not"
COUNTER = f"a counter must be a whole number from 0 to {U63_MAX - 1}, not"
FOR_OTHERS = "a server accepts SUBSCRIBE, UNSUBSCRIBE, GET, GET_MANY, PUT, PUT_MANY, MERGE and TRANSFER;"
LETTERS = "(allowed: A-Z, a-z, 0-9 and _.:@/+=-; the first is one of A-Z, a-z, 0-9 and _) [bad-name]"
GIVEN = "name the last one, or -1 for none"
MERGED = "retry until both are merged; or, if that server is lost for good, name -1 to get the messages of this server"
ELSEWHERE = f"received from this server, but maybe from another server that also has the topic: {MERGED}"


def control_in(word: str, character: str, position: int, header: str) -> str:
    where = f"character '{character}' at position {position}"
    return f"word '{word}': {where} is not allowed in a header, where a space ends a word ({header})"


BAD_MESSAGES = {
    "nothing": (b"", f"{NO_END} 0 bytes ('')"),
    "no-end": (b"GET alice prices -1\r\n", NO_END + r" 21 bytes ('GET alice prices -1\r\n')"),
    "newlines": (b"GET alice prices -1\n\n", NO_END + r" 21 bytes ('GET alice prices -1\n\n')"),
    "late-end": (
        b"PUT alice prices 1" + b" " * 3000 + b"\r\n\r\n",
        f"{NO_END} 2048 bytes ('PUT alice prices 1                      '…)",
    ),
    "unknown": (b"FETCH alice prices\r\n\r\n", f"unknown message 'FETCH'; known: {NAMES}"),
    "lower-case": (b"get alice prices -1\r\n\r\n", f"unknown message 'get'; known: {NAMES}"),
    "no-topic": (b"SUBSCRIBE alice\r\n\r\n", "SUBSCRIBE <SENDER_ID> <TOPIC> has 2 fields, this one has 1"),
    "nobody": (b"UNSUBSCRIBE\r\n\r\n", "UNSUBSCRIBE <SENDER_ID> <TOPIC> has 2 fields, this one has 0"),
    "no-id": (b"GET alice prices\r\n\r\n", "GET <SENDER_ID> <TOPIC> <LAST_MESSAGE_ID> has 3 fields, this one has 2"),
    "no-counter": (b"PUT bob prices\r\n\r\nx", "PUT <SENDER_ID> <TOPIC> <COUNTER> has 3 fields, this one has 2"),
    "spaced-topic": (
        b"SUBSCRIBE alice the prices\r\n\r\n",
        "SUBSCRIBE <SENDER_ID> <TOPIC> has 2 fields, this one has 3",
    ),
    "two-spaces": (
        b"SUBSCRIBE  alice prices\r\n\r\n",
        "a word must have at least one character ('SUBSCRIBE  alice prices')",
    ),
    "control-in-id": (
        b"SUBSCRIBE al\x07ice prices\r\n\r\n",
        control_in(r"al\x07ice", r"\x07", 2, r"'SUBSCRIBE al\x07ice prices'"),
    ),
    "newline-in-topic": (
        b"PUT bob pri\nces 3\r\n\r\nx",
        control_in(r"pri\nces", r"\n", 3, r"'PUT bob pri\nces 3'"),
    ),
    "later-control": (
        "GET alice pri\u0085ces -1\r\n\r\n".encode(),
        control_in(r"pri\x85ces", r"\x85", 3, r"'GET alice pri\x85ces -1'"),
    ),
    "not-utf-8": (
        b"SUBSCRIBE al\xffice prices\r\n\r\n",
        r"a header must be UTF-8: byte 12 of 'SUBSCRIBE al\\xffice prices' is not",
    ),
    "get-with-body": (b"GET alice prices -1\r\n\r\nbody", "GET has no body, this one has 4 bytes"),
    "subscribe-with-body": (b"SUBSCRIBE alice prices\r\n\r\n\x00", f"{WISH} '\\x00'"),
    "subscribe-left-alone": (b"SUBSCRIBE alice prices\r\n\r\n 6", f"{WISH} ''"),
    "subscribe-left-nothing": (b"SUBSCRIBE alice prices\r\n\r\n6 ", f"{WISH} ''"),
    "subscribe-left-twice": (b"SUBSCRIBE alice prices\r\n\r\n7 6 5", f"{WISH} '6 5'"),
    "unsubscribe-number-zero": (b"UNSUBSCRIBE alice prices\r\n\r\n0", f"{WISH} '0'"),
    "counter-below": (b"PUT bob prices -3\r\n\r\nx", f"{COUNTER} '-3'"),
    "counter-large": (b"PUT bob prices 9223372036854775808\r\n\r\nx", f"{COUNTER} '9223372036854775808'"),
    "counter-long": (b"PUT bob prices " + b"9" * 99 + b"\r\n\r\nx", f"{COUNTER} '{'9' * 99}'"),
    "counter-word": (b"PUT bob prices three\r\n\r\nx", f"{COUNTER} 'three'"),
    "counter-elsewhere": ("PUT bob prices ٣\r\n\r\nx".encode(), f"{COUNTER} '٣'"),
    "periodic": (b"PERIODIC s2 \r\n\r\nprices", f"{FOR_OTHERS} PERIODIC is for proxies"),
    "status": (b"STATUS alice OK\r\n\r\n", "STATUS is an answer, but there was no request"),
}

OTHERS = {
    "get-unsubscribed": (
        b"GET carol prices -1\r\n\r\n",
        "NOT_SUBSCRIBED",
        "carol is not subscribed to prices: subscribe first",
    ),
    "get-nowhere": (
        b"GET alice nowhere -1\r\n\r\n",
        "NOT_SUBSCRIBED",
        "alice is not subscribed to nowhere: subscribe first",
    ),
    "leave-nowhere": (
        b"UNSUBSCRIBE alice nowhere\r\n\r\n",
        "NOT_SUBSCRIBED",
        "alice is not subscribed to nowhere",
    ),
    "never-given": (
        b"GET alice prices ffffffffffffffff-1\r\n\r\n",
        "SERVER_UNAVAILABLE ffffffffffffffff-1",
        f"ffffffffffffffff-1 is not a message of prices that alice {ELSEWHERE}",
    ),
    "no-message-id": (
        b"GET alice prices bob-1\r\n\r\n",
        "SERVER_UNAVAILABLE bob-1",
        f"bob-1 is not a message of prices that alice {ELSEWHERE}",
    ),
    "counter-back": (
        b"PUT bob prices 2\r\n\r\nx",
        "REFUSED 3",
        "counter 2 of bob on prices is below its last one, 3: it may be done; put another body under a counter above 3",
    ),
    "other-body": (
        b"PUT bob prices 3\r\n\r\nother",
        "REFUSED 3",
        "counter 3 of bob on prices was used for another body: put this body under a counter above 3",
    ),
    "body-large": (
        b"PUT bob prices 4\r\n\r\n" + bytes(1001),
        "REFUSED",
        "the body has 1001 bytes, and the limit is 1000: put it in parts",
    ),
    "source-name": (
        "PUT ä prices 1\r\n\r\nx".encode(),
        "REFUSED",
        f"source name 'ä': character 'ä' at position 0 is not allowed {LETTERS}",
    ),
    "source-name-elsewhere": (
        "PUT ä fresh 1\r\n\r\nx".encode(),
        "REFUSED",
        f"source name 'ä': character 'ä' at position 0 is not allowed {LETTERS}",
    ),
    "subscriber-name-elsewhere": (
        b"SUBSCRIBE *alice fresh\r\n\r\n",
        "REFUSED",
        f"subscriber name '*alice': character '*' at position 0 is not allowed {LETTERS}",
    ),
    "body-large-elsewhere": (
        b"PUT bob fresh 4\r\n\r\n" + bytes(1001),
        "REFUSED",
        "the body has 1001 bytes, and the limit is 1000: put it in parts",
    ),
    "stream-name": (
        b"PUT bob a*b 1\r\n\r\nx",
        "REFUSED",
        f"stream name 'a*b': character '*' at position 1 is not allowed {LETTERS}",
    ),
    "subscriber-name": (
        b"SUBSCRIBE *alice prices\r\n\r\n",
        "REFUSED",
        f"subscriber name '*alice': character '*' at position 0 is not allowed {LETTERS}",
    ),
    "topic-name": (
        "SUBSCRIBE alice prä\r\n\r\n".encode(),
        "REFUSED",
        f"stream name 'prä': character 'ä' at position 2 is not allowed {LETTERS}",
    ),
    "long-name": (
        b"PUT bob " + b"t" * 256 + b" 1\r\n\r\nx",
        "REFUSED",
        "the name of a stream may have at most 255 characters, this one has 256 [bad-name]",
    ),
    "get-strange-topic": (
        "GET alice ä -1\r\n\r\n".encode(),
        "NOT_SUBSCRIBED",
        "alice is not subscribed to ä: subscribe first",
    ),
}


@pytest.fixture(scope="module")
def scene() -> ServerScene:
    """A server with one topic: two messages behind a subscription, the last counter 3."""
    scene = ServerScene(replace(SETTINGS, body_size_max=BODY_SIZE_MAX))
    scene.say(Subscribe("alice", TOPIC))
    scene.say(Put("bob", TOPIC, 2, b"two"))
    scene.say(Put("bob", TOPIC, 3, b"three"))
    scene.say(Get("alice", TOPIC, "-1"))
    return scene


def state(scene: ServerScene) -> tuple[Any, ...]:
    """All streams, sources and subscriptions, and what alice is given next."""
    streams = list(scene.rig.floor.tables.streams)
    return streams, [scene.listed(name) for name in streams], scene.say(Get("alice", TOPIC, "-1"))


def check(scene: ServerScene, data: bytes, status: str, text: str) -> None:
    before = state(scene)
    scene.peer += 1
    scene.tell(Asked(scene.peer, data, LINK))
    scene.sync()
    ((peer, said),) = [(order.peer, order.data) for order in scene.ended if hasattr(order, "peer")]
    scene.ended.clear()
    assert (peer, said.decode()) == (scene.peer, f"STATUS {SERVER} {status}\r\n\r\n{text}")
    assert state(scene) == before


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_what_is_no_message_of_the_page_is_answered_with_what_is_wrong(scene: ServerScene, name: str) -> None:
    data, text = BAD_MESSAGES[name]
    check(scene, data, "BAD_MESSAGE", text)


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_done_is_answered_with_why(scene: ServerScene, name: str) -> None:
    check(scene, *OTHERS[name])


def test_an_id_above_what_was_given_is_refused_and_the_message_given_again(scene: ServerScene) -> None:
    given, _, sequence = scene.say(Get("alice", TOPIC, "-1")).message_id.partition("-")
    assert sequence == "1"
    wrong = f"{given}-2"
    restored = "if the server was put back to an earlier state, forget it (veredus topics forget)"
    text = f"{wrong} is not a message of prices that alice received: {GIVEN}; {restored}"
    check(scene, f"GET alice prices {wrong}\r\n\r\n".encode(), "REFUSED", text)
