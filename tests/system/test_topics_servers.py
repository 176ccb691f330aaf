"""A server of topics as a process of its own, and clients that were written from the page and know nothing of ours."""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.processes import ended
from tests.system.serving_topics import ANSWER_MS, Said, Server, said

pytestmark = pytest.mark.slow

CLIENTS_COUNT = 200
PUTTERS_COUNT = 40


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "journal")
    try:
        one.start()
        yield one
    finally:
        one.end()


def test_the_four_operations_of_the_page_work_as_it_says(server: Server) -> None:
    assert server.ask("PUT bob prices 1", b"before") == Said(server.address, "OK", "", b"")
    assert server.ask("GET alice prices -1").status == "NOT_SUBSCRIBED"
    assert server.ask("SUBSCRIBE alice prices ") == Said(server.address, "OK", "", b"")
    assert server.ask("SUBSCRIBE alice prices").status == "ALREADY_SUBSCRIBED"
    bodies = [b"one", b"", bytes(range(256)), b"\r\n\r\n", bytes(1 << 20)]
    for counter, body in enumerate(bodies, 2):
        assert server.ask(f"PUT bob prices {counter}", body).status == "OK"
    assert server.get_all("alice", "prices") == bodies
    assert server.ask("UNSUBSCRIBE alice prices").status == "OK"
    assert server.ask("PUT bob prices 7", b"behind").status == "OK"
    assert server.ask("GET alice prices -1").status == "NOT_SUBSCRIBED"


def test_a_put_whose_answer_is_lost_with_the_server_is_put_once(server: Server) -> None:
    server.ask("SUBSCRIBE alice prices")
    for counter in range(1, 6):
        with server.socket() as asking:
            asking.send(f"PUT bob prices {counter}\r\n\r\n".encode() + str(counter).encode())
            if counter % 2:
                # Its answer is there, and nobody reads it: so it came to the disk. Else nobody knows.
                assert asking.poll(ANSWER_MS)
            server.served.kill()
        server.start()
        assert server.ask(f"PUT bob prices {counter}", str(counter).encode()).status == "OK"
        assert server.ask(f"PUT bob prices {counter}", str(counter).encode()).status == "OK"
        assert server.ask(f"PUT bob prices {counter}", b"other").status == "REFUSED"
    assert server.get_all("alice", "prices") == [b"1", b"2", b"3", b"4", b"5"]


def test_a_get_whose_answer_is_lost_with_the_server_is_given_again(server: Server) -> None:
    server.ask("SUBSCRIBE alice prices")
    for counter in (1, 2, 3):
        server.ask(f"PUT bob prices {counter}", str(counter).encode())
    first = server.ask("GET alice prices -1")
    server.kill()
    assert server.ask("GET alice prices -1")[1:] == first[1:]
    second = server.ask(f"GET alice prices {first.message_id}")
    with server.socket() as asking:
        asking.send(f"GET alice prices {first.message_id}\r\n\r\n".encode())
        server.served.kill()
    server.start()
    assert server.ask(f"GET alice prices {first.message_id}")[1:] == second[1:]
    third = server.ask(f"GET alice prices {second.message_id}")
    assert [first.body, second.body, third.body] == [b"1", b"2", b"3"]
    server.kill()
    assert server.ask(f"GET alice prices {third.message_id}").status == "NO_MESSAGES"


def command(server: Server, *arguments: str, file: Path | None = None) -> str:
    more = ["--file", str(file)] if file is not None else []
    ran = ended([sys.executable, "-m", "veredus", *arguments, *more, "--address", server.served.address])
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("compression", [(), ("--compression", "zstd")])
def test_what_is_published_natively_is_got_and_what_is_put_is_pushed(
    server: Server, tmp_path: Path, compression: Sequence[str]
) -> None:
    server.ask("SUBSCRIBE alice prices")
    lines = [f"line {number} of many that are much the same" for number in range(500)]
    file = tmp_path / "lines"
    file.write_text("\n".join(lines) + "\n")
    command(server, "pub", "prices", "--source", "feed", "--key", "k", "--attribute", "n=1", *compression, file=file)
    server.ask("PUT bob prices 1", b"put")
    assert server.get_all("alice", "prices") == [*(line.encode() for line in lines), b"put"]
    assert command(server, "sub", "prices", "--no-follow").splitlines() == [*lines, "put"]


def test_whoever_names_a_message_of_a_topic_that_was_removed_gets_the_next_one(server: Server) -> None:
    server.ask("SUBSCRIBE alice prices")
    for counter in range(1, 4):
        server.ask(f"PUT bob prices {counter}", b"old")
    old = server.ask("GET alice prices -1")
    command(server, "stream", "rm", "prices", "--yes")
    assert server.ask(f"GET alice prices {old.message_id}").status == "NOT_SUBSCRIBED"
    server.kill()
    assert server.ask("SUBSCRIBE alice prices").status == "OK"
    assert server.ask("PUT bob prices 4", b"new").status == "OK"
    new = server.ask(f"GET alice prices {old.message_id}")
    assert (new.status, new.body) == ("OK", b"new")
    server.kill()
    assert server.ask(f"GET alice prices {old.message_id}")[1:] == new[1:], "all but the address, which is another"
    assert server.ask(f"GET alice prices {new.message_id}").status == "NO_MESSAGES"


def test_a_server_that_is_stopped_says_what_became_of_each_put_and_ends_well(server: Server) -> None:
    server.ask("SUBSCRIBE alice prices")
    sockets = [server.socket() for _ in range(PUTTERS_COUNT)]
    for putter, asking in enumerate(sockets):
        asking.send(f"PUT bob-{putter} prices 1\r\n\r\n{putter}".encode())
    # One of them was answered: others are in hand, on their way to the disk or to the server.
    assert sockets[0].poll(ANSWER_MS)
    assert server.served.process is not None
    server.served.process.send_signal(signal.SIGTERM)
    assert server.served.process.wait(30) == 0
    assert "node-stopped" in server.served.said()
    answers = {putter: said(asking.recv()).status for putter, asking in enumerate(sockets) if asking.poll(0)}
    assert set(answers.values()) <= {"OK", "SERVER_UNAVAILABLE"}
    for asking in sockets:
        asking.close()
    server.start()
    ready = [line for line in server.served.said().splitlines() if '"node-ready"' in line]
    assert '"was_clean":true' in ready[-1]
    there = command(server, "sub", "prices", "--no-follow").encode().split()
    assert {str(putter).encode() for putter, status in answers.items() if status == "OK"} <= set(there)
    assert not {str(putter).encode() for putter, status in answers.items() if status != "OK"} & set(there)
    for putter in range(PUTTERS_COUNT):
        assert server.ask(f"PUT bob-{putter} prices 1", str(putter).encode()).status == "OK"
    last, all_of_them = "-1", []
    while (told := server.ask(f"GET alice prices {last}")).status == "OK":
        last = told.message_id
        all_of_them.append(told.body)
    assert sorted(all_of_them) == sorted(str(putter).encode() for putter in range(PUTTERS_COUNT)), "and each once"


@pytest.mark.attack
def test_garbage_on_the_socket_disturbs_nobody_else(server: Server) -> None:
    host, _, port = server.address.rpartition(":")
    for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"\xff" * 64, b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03"):
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            raw.sendall(data)
    with server.socket(zmq.DEALER) as dealer:
        for parts in (
            [b"no envelope"],
            [b"", b"PUT bob prices 1", b"\r\n\r\n"],
            [b"x" * 5000, b"", b"GET alice prices -1\r\n\r\n"],
            [b""] * 300,
            [b"", b"\x00" * 100_000],
        ):
            dealer.send_multipart(parts)
        heard = [dealer.recv_multipart() for _ in range(5) if dealer.poll(ANSWER_MS)]
        assert [said(parts[-1]).status for parts in heard] == ["BAD_MESSAGE"] * 5
        dealer.send_multipart([b"", b"PUT bob prices 1\r\n\r\n" + bytes(20 << 20)])
        with server.socket(zmq.DEALER) as other:
            other.send_multipart([b"a", b"long", b"way", b"", b"SUBSCRIBE alice prices\r\n\r\n"])
            assert other.poll(ANSWER_MS)
            *envelope, data = other.recv_multipart()
            assert (envelope, said(data).status) == ([b"a", b"long", b"way", b""], "OK")
        assert not dealer.poll(0), "what is larger than anything that is read ends its connection"
    with server.socket(zmq.PUSH) as pushing:
        pushing.send(b"PUT bob prices 1\r\n\r\nx", zmq.NOBLOCK) if pushing.poll(0, zmq.POLLOUT) else None
    assert server.ask("PUT bob prices 1", b"sound").status == "OK"
    assert server.get_all("alice", "prices") == [b"sound"]
    assert server.served.stop() == 0


def test_two_hundred_clients_at_once_each_get_every_message_once(server: Server) -> None:
    sockets = [server.socket() for _ in range(CLIENTS_COUNT)]

    def ask_all(questions: Sequence[str]) -> list[Said]:
        for asking, question in zip(sockets, questions, strict=True):
            asking.send(question.encode())
        return [server.hear(asking) for asking in sockets]

    clients = range(CLIENTS_COUNT)
    topics = [f"topic-{client % 4}" for client in clients]
    assert {told.status for told in ask_all([f"SUBSCRIBE c{c} {topics[c]}\r\n\r\n" for c in clients])} == {"OK"}
    for counter in (1, 2):
        puts = [f"PUT c{c} {topics[c]} {counter}\r\n\r\n{c}-{counter}" for c in clients]
        assert {told.status for told in ask_all(puts)} == {"OK"}
    last = ["-1"] * CLIENTS_COUNT
    got: list[list[bytes]] = [[] for _ in clients]
    for _ in range(2 * CLIENTS_COUNT // 4):
        for client, told in enumerate(ask_all([f"GET c{c} {topics[c]} {last[c]}\r\n\r\n" for c in clients])):
            assert told.status == "OK"
            last[client] = told.message_id
            got[client].append(told.body)
    assert {told.status for told in ask_all([f"GET c{c} {topics[c]} {last[c]}\r\n\r\n" for c in clients])} == {
        "NO_MESSAGES"
    }
    for client in clients:
        assert got[client] == got[client % 4], "all in the same order"
        mates = range(client % 4, CLIENTS_COUNT, 4)
        assert sorted(got[client]) == sorted(f"{mate}-{counter}".encode() for mate in mates for counter in (1, 2))
        assert got[client].index(f"{client}-1".encode()) < got[client].index(f"{client}-2".encode())
    for asking in sockets:
        asking.close()


def test_the_journals_of_servers_can_be_looked_into_after_a_merge_and_kills(server: Server, tmp_path: Path) -> None:
    other = Server(tmp_path / "other")
    try:
        other.start()
        keeper, giver = sorted((server, other), key=lambda one: one.address)
        for one, client in ((keeper, "bob"), (giver, "carol")):
            assert one.ask("SUBSCRIBE alice prices").status == "OK"
            assert one.ask(f"PUT {client} prices 1", client.encode()).status == "OK"
            assert one.ask("GET alice prices -1").body == client.encode()
        assert giver.ask(f"MERGE 127.0.0.1:1 prices {keeper.address}").status == "OK"
        while '"topic-given"' not in giver.served.said():
            assert giver.served.process is not None
            assert giver.served.process.poll() is None
            time.sleep(0.01)
    finally:
        other.end()
    server.served.kill()
    facts: dict[str, dict[str, Any]] = {}
    for directory in (giver.served.directory, keeper.served.directory):
        look = [sys.executable, "-m", "veredus", "journal"]
        verified = ended([*look, "verify", str(directory), "-o", "json"])
        assert (verified.returncode, json.loads(verified.stdout)["holds"]) == (0, "streams"), verified.stderr
        dumped = ended([*look, "dump", str(directory), "-o", "jsonl"])
        assert dumped.returncode == 0, dumped.stderr
        told = [json.loads(line)["fact"] for line in dumped.stdout.splitlines()]
        facts |= {fact["type"]: fact for fact in told if fact is not None}
    assert facts["delete"] == {"type": "delete", "stream_id": 1, "is_removed": False}
    assert facts["raise"]["sources"] == [[2, "carol", 2, blake2b(b"carol", digest_size=16).hexdigest(), ""]]
    assert [stage[1:] for stage in facts["commit"]["stages"]] == [[1, 2, 1]]
