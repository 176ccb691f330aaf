"""What a client remembers: against a server that keeps its word, a client that is killed anywhere, and lost answers."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from veredus.kernel.errors import Refused
from veredus.protocols.topics import client_state as c
from veredus.protocols.topics.client_state import ClientState
from veredus.protocols.topics.messages import Get, Put, Status


class Server:
    """One topic with one subscriber, as the page wants it."""

    def __init__(self) -> None:
        self.last_counter = 0
        self.bodies: list[bytes] = []
        self.given = 0

    def put(self, put: Put) -> Status:
        if put.counter > self.last_counter:
            self.last_counter = put.counter
            self.bodies.append(put.body)
        return Status("s", "OK")

    def get(self, get: Get) -> Status:
        if get.last_id == str(self.given + 1):
            self.given += 1
        if self.given == len(self.bodies):
            return Status("s", "NO_MESSAGES")
        return Status("s", "OK", str(self.given + 1), self.bodies[self.given])


class Killed(Exception):
    """The process is gone."""


class Client:
    """Processes of one client, one after the other, on one directory."""

    def __init__(self, server: Server, die: Random) -> None:
        self.server, self.die = server, die
        self.saved = ClientState()
        self.handed_over: list[tuple[str, bytes]] = []
        self.reported: list[bytes] = []

    def step(self) -> None:
        if self.die.random() < 0.15:
            raise Killed

    def save(self, state: ClientState) -> None:
        self.step()
        self.saved = state
        self.step()

    def asked(self, answer: Status) -> Status | None:
        self.step()
        return answer if self.die.random() < 0.8 else None

    def put(self, body: bytes) -> None:
        assert c.unfinished_put(self.saved, body) is None, "it is the same that the killed process put"
        self.save(c.begin_put(self.saved, body))
        assert self.saved.putting is not None
        if not self.saved.putting.is_taken:
            status = self.asked(self.server.put(c.asked_put(self.saved, "alice", "t")))
            self.save(c.end_put(self.saved, status))
            if status is None:
                return
        self.reported.append(body)
        self.save(c.end_report(self.saved))

    def get(self) -> None:
        if self.saved.got is None:
            status = self.asked(self.server.get(c.asked_get(self.saved, "alice", "t")))
            if status is None or status.status != "OK":
                return
            self.save(c.end_get(self.saved, status))
        assert self.saved.got is not None
        self.handed_over.append((self.saved.got.message_id, self.saved.got.body))
        self.save(c.end_hand_over(self.saved))

    def run(self, operation: Callable[[], None]) -> None:
        """One process, which may be killed."""
        with suppress(Killed):
            operation()


@pytest.mark.parametrize("seed", range(50))
def test_a_client_that_is_killed_anywhere_and_run_again_neither_loses_nor_doubles(seed: int) -> None:
    die = Random(seed)
    server = Server()
    client = Client(server, die)
    wanted: list[bytes] = []
    for number in range(20):
        body = str(number).encode()
        while len(client.reported) == number:
            client.run(partial(client.put, body))
        wanted.append(body)
        for _ in range(die.randrange(4)):
            client.run(client.get)
    while client.saved.last_get_id != str(len(wanted)) or client.saved.got is not None:
        client.run(client.get)
    assert client.reported == server.bodies == wanted, "each once, and in order"
    assert list(dict.fromkeys(client.handed_over)) == [(str(at), body) for at, body in enumerate(wanted, 1)]


def test_whoever_was_told_of_a_put_in_doubt_may_leave_it_and_put_something_else() -> None:
    told = c.end_put(c.begin_put(ClientState(), b"one"), None)
    assert c.unfinished_put(told, b"two") is None
    assert c.asked_put(c.begin_put(told, b"two"), "alice", "t").counter == 2
    assert c.asked_put(c.begin_put(told, b"one"), "alice", "t").counter == 1, "the same is tried again"


def test_what_a_killed_process_was_putting_is_finished_first() -> None:
    killed = c.begin_put(ClientState(), b"one")
    unfinished = c.unfinished_put(killed, b"two")
    assert unfinished is not None
    assert (unfinished.counter, unfinished.body) == (1, b"one")
    assert c.unfinished_put(killed, b"one") is None


def test_the_same_body_may_be_put_again_once_its_caller_was_told() -> None:
    told = c.end_report(c.end_put(c.begin_put(ClientState(), b"one"), Status("s", "OK")))
    assert c.asked_put(c.begin_put(told, b"one"), "alice", "t").counter == 2


def test_a_put_that_was_taken_and_not_reported_is_reported_by_whoever_puts_the_same_again() -> None:
    taken = c.end_put(c.begin_put(ClientState(), b"one"), Status("s", "OK"))
    again = c.begin_put(taken, b"one").putting
    assert again is not None
    assert (again.counter, again.is_taken) == (1, True)
    assert c.unfinished_put(taken, b"two") is None
    assert c.asked_put(c.begin_put(taken, b"two"), "alice", "t").counter == 2


def test_a_put_that_was_refused_is_in_doubt_no_less_than_one_without_an_answer() -> None:
    refused = c.end_put(c.begin_put(ClientState(), b"one"), Status("s", "INTERNAL_ERROR"))
    assert c.asked_put(c.begin_put(refused, b"one"), "alice", "t").counter == 1


@pytest.mark.parametrize("message_id", ["", "-1", "7"])
def test_an_answer_with_no_id_or_the_same_again_is_no_message(message_id: str) -> None:
    state = ClientState(last_get_id="7")
    with pytest.raises(Refused) as raised:
        c.end_get(state, Status("s", "OK", message_id, b"x"))
    assert raised.value.code == "bad-answer"
    assert "s answers a GET after 7 with the message id" in raised.value.message


def test_a_client_that_leaves_forgets_what_it_got() -> None:
    state = c.end_get(ClientState(), Status("s", "OK", "7", b"x"))
    left = c.end_unsubscribe(state)
    assert (left.last_get_id, left.got) == ("-1", None)


def test_a_client_that_lost_its_directory_goes_on_above_the_counter_that_the_refusal_names() -> None:
    state = c.begin_put(ClientState(), b"x")
    refused = c.end_put(state, Status("s", "REFUSED", "500", b"counter 1 is below its last one, 500"))
    assert refused == ClientState(last_put_counter=500)
    assert c.asked_put(c.begin_put(refused, b"x"), "alice", "t").counter == 501
    kept = c.end_put(state, Status("s", "REFUSED", "", b"the body is too large"))
    assert kept.putting is not None
    assert kept.putting.is_in_doubt
