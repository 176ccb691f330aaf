"""A bad argument is told to its caller, before anything changes; nothing else on the connection notices."""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

import veredus
from tests.certificates import CERTIFICATES
from veredus.client.embedded import Embedded
from veredus.kernel.errors import Misuse, Refused, Unavailable

Call = Callable[[Any, str], object]
NO_TEXT = "caf\udce9"
"""What Python makes of a byte that is not UTF-8, in a file's name or on the command line."""
IN_YEAR_10000 = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))


def subscribe(**bad: Any) -> Call:
    return lambda node, stream: node.subscribe(stream, **bad)


def publisher(**bad: Any) -> Call:
    return lambda node, stream: node.publisher(stream, **bad)


CALLS: list[tuple[str, str, Call]] = [
    ("bad-start", r"use veredus\.beginning\(\)", subscribe(start="earliest")),
    ("bad-start", r"use veredus\.head\(\)", subscribe(start="latest")),
    ("bad-start", r"use veredus\.at\(5\)", subscribe(start=5)),
    ("bad-start", r"-1 is not a valid start: use veredus\.beginning\(\)", subscribe(start=-1)),
    ("bad-start", r"use veredus\.since\(when\)", subscribe(start=timedelta(hours=1))),
    ("bad-start", r"use veredus\.since\(when\)", subscribe(start=IN_YEAR_10000)),
    ("bad-start", r"use veredus\.head\(…\): call it", subscribe(start=veredus.head)),
    ("bad-start", r"use veredus\.beginning\(\), head\(\)", subscribe(start=object())),
    ("bad-start", "0 is no sequence, they begin with 1", lambda _node, _stream: veredus.at(0)),
    ("bad-start", "whole number", lambda _node, _stream: veredus.tail(-1)),
    ("bad-start", "a timedelta before now", lambda _node, _stream: veredus.since("yesterday")),  # type: ignore[arg-type]
    ("bad-start", "is after now", lambda _node, _stream: veredus.since(timedelta(hours=-1))),
    ("bad-start", "source must be text, not None", lambda _node, _stream: veredus.after(None)),  # type: ignore[arg-type]
    ("bad-argument", "a key pattern must be text, not b'stock.'", subscribe(keys=b"stock.")),
    ("bad-start", "years 1 to 9999", lambda _node, _stream: veredus.since(timedelta.max)),
    ("bad-name", "must be text, not None", lambda node, _: node.subscribe(None)),
    ("bad-name", "position 1", lambda node, _: node.subscribe("a b")),
    ("bad-name", "subscriber", subscribe(subscriber=5)),
    ("bad-name", "at most 255", subscribe(subscriber="s" * 256)),
    ("bad-name", "subscription", subscribe(subscriber="a", name="b c")),
    ("bad-argument", "a key pattern must be text", subscribe(keys=5)),
    ("bad-argument", "a key pattern must be text", subscribe(keys=[b"k"])),
    ("bad-argument", "keys is empty: leave it out", subscribe(keys=[])),
    ("bad-argument", "where must be text", subscribe(where=b"a = 1")),
    ("bad-argument", "until", subscribe(until="5")),
    ("bad-argument", "until", subscribe(until=-1)),
    ("bad-mode", "did you mean 'in-order'", subscribe(mode="in_order")),
    ("bad-window", "window_size", subscribe(window_size="8 MiB")),
    ("bad-argument", "on_gap", subscribe(on_gap="ignore")),
    ("bad-argument", "attempts_max", subscribe(subscriber="a", attempts_max=True, parked_to="b")),
    ("bad-name", "for dead letters", subscribe(subscriber="a", attempts_max=1, parked_to=7)),
    ("bad-name", "stream", lambda node, _: node.publisher(b"s")),
    ("bad-name", "source", publisher(source="a b")),
    ("bad-argument", "did you mean 'token'", publisher(source="a", resume="tokens")),
    ("bad-argument", "on_full", publisher(on_full="block")),
    ("bad-argument", "on_gone", publisher(on_gone=None)),
    ("bad-argument", "outbox_size_max", publisher(outbox_size_max=1.5)),
    ("bad-argument", "batch_size", publisher(batch_size=0)),
    ("bad-argument", "linger_ms", publisher(linger_ms="1")),
    ("bad-argument", "linger_ms", publisher(linger_ms=float("inf"))),
    ("bad-argument", "compression", publisher(compression="gzip")),
    ("bad-name", "sink", lambda node, _: node.sink("a b")),
    ("bad-argument", "incarnation must have 16 bytes", lambda node, _: node.sink("k").open_run(b"short")),
    ("bad-argument", "epoch", lambda node, _: node.sink("k").join_run("1")),
    ("bad-table", "must be a pyarrow.Table", lambda node, stream: node.publisher(stream).publish_table([1], "k", "b")),
    (
        "bad-table",
        "must be a list of columns",
        lambda node, stream: node.publisher(stream).publish_table(pa.table({"k": ["a"]}), "k", "k", attributes="n"),
    ),
    ("bad-argument", "group must be a multicast address", lambda node, stream: node.receive(stream, "10.0.0.1:5")),
    (
        "bad-argument",
        "interface must be the IPv4 address",
        lambda node, stream: node.receive(stream, "239.195.0.1:7074", interface="eth0"),
    ),
    ("bad-argument", "cannot be sent", lambda node, stream: node.subscriptions.list(object())),
]


@pytest.mark.parametrize(("code", "says", "call"), CALLS, ids=[f"{code}-{says}" for code, says, _ in CALLS])
def test_a_bad_argument_is_the_callers_and_nobody_elses(
    node: Embedded, stream: str, code: str, says: str, call: Call
) -> None:
    with node.publisher(stream, source="p") as bystander:
        with pytest.raises(Misuse, match=says) as caught:
            call(node, stream)
        assert caught.value.code == code
        bystander.publish("k", b"b")
        assert bystander.flush(timeout_s=10) is not None


WHOLE: list[tuple[str, Callable[[Any, str, Any], object]]] = [
    ("until", lambda node, stream, value: node.subscribe(stream, until=value)),
    ("window_size", lambda node, stream, value: node.subscribe(stream, window_size=value)),
    (
        "attempts_max",
        lambda node, stream, value: node.subscribe(stream, subscriber="a", attempts_max=value, parked_to="b"),
    ),
    ("outbox_size_max", lambda node, stream, value: node.publisher(stream, outbox_size_max=value)),
    ("batch_size", lambda node, stream, value: node.publisher(stream, batch_size=value)),
    ("number", lambda node, stream, value: node.publisher(stream).wait(value)),
    ("floor", lambda node, stream, value: node.streams.trim(stream, value)),
    ("floor", lambda node, stream, value: node.subscriptions.advance(stream, "a", "main", value)),
    ("epoch", lambda node, _, value: node.sink("k").join_run(value)),
    ("commit_id", lambda node, _, value: node.sink("k").open_run().commit(value, [])),
    ("a stage", lambda node, _, value: node.sink("k").open_run().drop([value])),
    ("sequence", lambda _node, _, value: veredus.at(value)),
    ("count", lambda _node, _, value: veredus.tail(value)),
    ("sources_max", lambda node, stream, value: node.streams.create(stream, sources_max=value)),
]


@pytest.mark.parametrize("value", [-1, 2**63, 2**64, -(2**70), pytest.param(10**5000, id="huge"), True, 1.5])
@pytest.mark.parametrize(("argument", "call"), WHOLE, ids=[argument for argument, _ in WHOLE])
def test_a_whole_number_that_cannot_be_is_told_its_range(
    node: Embedded, stream: str, argument: str, call: Callable[[Any, str, Any], object], value: object
) -> None:
    found = "a whole number of 16610 bits" if value == 10**5000 else repr(value)
    with pytest.raises(Misuse) as caught:
        call(node, stream, value)
    assert re.match(rf"{argument} must be a whole number from [01] to 2\*\*63 - 1, not {found}$", caught.value.message)


LARGE: list[Call] = [
    subscribe(start=2**64),
    subscribe(start=10**5000),
    lambda _node, _: veredus.since(2**64),
    lambda _node, _: veredus.since(10**5000),
    lambda node, stream: node.publisher(stream).publish("k", b"", None, 10**5000),
    lambda node, stream: node.publisher(stream).publish("k", b"", {"a": 10**5000}),
    lambda node, stream: node.publisher(stream).publish("k", [10**5000]),
    lambda node, stream: node.publisher(stream).flush(timeout_s=10**5000),
    lambda node, _: veredus.connect(node.served.address, timeout_s=10**5000),
    lambda node, stream: node.streams.create(stream, retention_age_s=10**5000),
]


@pytest.mark.parametrize("call", LARGE)
def test_a_number_that_nothing_can_hold_is_misuse(node: Embedded, stream: str, call: Call) -> None:
    with pytest.raises(Misuse):
        call(node, stream)


def test_with_asyncio_it_is_told_by_the_call_itself() -> None:
    async def ask() -> list[str]:
        codes = []
        async with veredus.embedded_async() as node:
            for call in (
                lambda: node.subscribe("s", start="earliest"),  # type: ignore[arg-type]
                lambda: node.publisher("s", on_full="block"),  # type: ignore[arg-type]
                lambda: node.publisher("a b"),
            ):
                with pytest.raises(Misuse) as caught:
                    call()
                codes.append(caught.value.code)
        return codes

    assert asyncio.run(ask()) == ["bad-start", "bad-argument", "bad-name"]


PUBLICATIONS: list[tuple[str, str, Callable[[Any], object]]] = [
    ("bad-publication", "a body must be bytes or text, not None; for an empty one", lambda p: p.publish("k", None)),
    ("bad-publication", "a key must be bytes or text, not None", lambda p: p.publish(None, b"b")),
    ("bad-publication", "a body must be bytes or text, not 5", lambda p: p.publish("k", 5)),
    ("bad-publication", "a body must be bytes or text, not None", lambda p: p.publish("k", None, {"a": 1})),
    ("bad-publication", "encode it first, for example with json.dumps", lambda p: p.publish("k", {"a": 1})),
    ("bad-publication", r"a body .* not \[1\] .*; encode", lambda p: p.publish("k", [1], {"a": 1})),
    ("bad-publication", "a key must be bytes or text, not \\('k',\\)", lambda p: p.publish(("k",), b"")),
    ("bad-publication", "a body must be bytes or text, not {}", lambda p: p.publish_many(["k", "k"], [b"", {}])),
    ("bad-publication", "a key must be bytes or text, not \\[\\]", lambda p: p.publish_many([[]], [b""])),
    ("bad-event-time", "looks like seconds", lambda p: p.publish("k", b"b", None, 1_763_000_000)),
    ("bad-event-time", "looks like milliseconds", lambda p: p.publish("k", b"b", None, 1_763_000_000_000)),
    ("bad-event-time", "like seconds: give", lambda p: p.publish_many(["k"], [b""], None, [1_763_000_000])),
    ("bad-publication", "a body must be bytes or text, not None", lambda p: p.publish_many(["k", "k"], [b"", None])),
    ("bad-publication", "a key must be bytes or text, not 7", lambda p: p.publish_many([7], [b""])),
    ("bad-attribute", "a mapping", lambda p: p.publish("k", b"b", ["a"])),
    ("bad-attribute", "a mapping", lambda p: p.publish_many(["k"], [b"b"], ["a"])),
    ("bad-event-time", "aware datetime", lambda p: p.publish("k", b"b", None, "now")),
    ("bad-event-time", "of the years 1 to 9999", lambda p: p.publish("k", b"b", None, IN_YEAR_10000)),
    ("bad-argument", "number", lambda p: p.wait("1")),
    ("bad-argument", "timeout_s", lambda p: p.wait(1, "soon")),
    ("bad-argument", "resume_token must be bytes", lambda p: p.flush("token")),
]


@pytest.mark.parametrize(("code", "says", "call"), PUBLICATIONS, ids=[says for _, says, _ in PUBLICATIONS])
def test_what_is_no_publication_is_told_at_once_and_the_publisher_goes_on(
    node: Embedded, stream: str, code: str, says: str, call: Callable[[Any], object]
) -> None:
    with node.publisher(stream, source="p") as own:
        own.publish("k", b"before")
        with pytest.raises(Misuse, match=says) as caught:
            call(own)
        assert caught.value.code == code
        assert own.publish("k", b"after") == 2


def test_settling_what_was_not_handed_out_is_the_callers_mistake(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="p") as own:
        own.publish_many(["k"] * 3, [b""] * 3)
    with node.subscribe(stream, subscriber="a") as one:
        publication = next(iter(one))
        for what, code in ((4, "not-pushed"), (-1, "bad-argument"), ("2", "bad-argument"), (None, "bad-argument")):
            with pytest.raises(Misuse) as caught:
                one.settle(what)  # type: ignore[arg-type]
            assert caught.value.code == code
        with pytest.raises(Misuse, match="timeout_s"):
            one.next_batch("soon")  # type: ignore[arg-type]
        one.settle(publication)
        one.wait_settled(publication, timeout_s=10)


def test_a_filter_that_does_not_parse_is_found_before_the_node_is_asked(node: Embedded, stream: str) -> None:
    for bad, code in (({"where": "a = = 1"}, "bad-predicate"), ({"keys": "tokens:a*"}, "bad-pattern")):
        with pytest.raises(Refused) as caught:
            node.subscribe(stream, **bad)  # type: ignore[arg-type]
        assert caught.value.code == code


CONNECTIONS: list[tuple[str, dict[str, Any]]] = [
    ("timeout_s", {"timeout_s": "10"}),
    ("token", {"token": b"t"}),
    ("token is .* UTF-8 cannot hold", {"token": NO_TEXT}),
    ("client is .* UTF-8 cannot hold", {"client": NO_TEXT}),
    ("client", {"client": 5}),
    ("SSLContext", {"tls": True}),
]


@pytest.mark.parametrize(("says", "bad"), CONNECTIONS, ids=[says for says, _ in CONNECTIONS])
def test_connecting_looks_at_its_arguments_before_it_tries(says: str, bad: dict[str, Any]) -> None:
    with pytest.raises(Misuse, match=says):
        veredus.connect("127.0.0.1:9", **bad)
    with pytest.raises(Misuse, match="an address is text"):
        veredus.connect(7071)  # type: ignore[arg-type]


def test_with_asyncio_a_wrong_kind_is_told_by_the_call_itself(node: Embedded, stream: str) -> None:
    async def publish() -> None:
        async with veredus.connect_async(node.served.address) as far, far.publisher(stream) as own:
            with pytest.raises(Misuse, match=r"json\.dumps"):
                own.publish("k", {"a": 1})  # type: ignore[arg-type]
            with pytest.raises(Misuse, match=r"json\.dumps"):
                own.publish_nowait("k", [1])  # type: ignore[arg-type]
            assert await own.publish("k", b"good") == 1

    asyncio.run(publish())


def test_tls_is_given_with_addresses_that_have_it_or_need_none(node: Embedded) -> None:
    context = ssl.create_default_context()
    for plain in ("127.0.0.1:9", "veredus+tls://127.0.0.1:9,veredus://127.0.0.1:9"):
        with pytest.raises(Misuse, match=r"without TLS: write veredus\+tls://"):
            veredus.connect(plain, tls=context)
    with veredus.connect(f"unix://{node.served.addresses['unix']}", tls=context) as far:
        assert far.name == node.name


def test_who_meets_another_listener_of_the_node_is_told_at_once_which() -> None:
    section = {"certificate": str(CERTIFICATES / "node.pem"), "key": str(CERTIFICATES / "node.key")}
    listen = {"tcp": "127.0.0.1:0", "tls": "127.0.0.1:0", "zeromq": "tcp://127.0.0.1:0", "metrics": "127.0.0.1:0"}
    with veredus.embedded(listen=listen, tls=section) as node:
        places = {name: place.removeprefix("tcp://") for name, place in node.served.addresses.items()}
        for listener in ("tcp", "zeromq", "metrics"):
            said = f"^veredus\\+tls://{places[listener]}: .* does not answer with TLS there"
            with pytest.raises(Refused, match=said) as told:
                veredus.connect(f"veredus+tls://{places[listener]}", timeout_s=60)
            assert told.value.code == "version-unknown"
        for listener, spoken in (("tls", "TLS"), ("zeromq", "ZeroMQ"), ("metrics", "HTTP")):
            said = f"^veredus://{places[listener]}: the server there speaks {spoken}, not Veredus' native protocol"
            with pytest.raises(Refused, match=said) as told:
                veredus.connect(f"veredus://{places[listener]}", timeout_s=60)
            assert told.value.code == "version-unknown"


def test_white_space_around_a_token_is_no_part_of_it(node: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEREDUS_TOKEN", "\n")
    veredus.connect(node.served.address).close()


@pytest.mark.parametrize("token", ["", " \n"])
def test_a_token_that_is_given_and_empty_is_refused(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    for connect in (veredus.connect, veredus.connect_async):
        with pytest.raises(Misuse, match="token is empty") as told:
            connect("127.0.0.1:9", token=token)
        assert told.value.code == "bad-argument"


def test_a_token_in_the_environment_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEREDUS_TOKEN", NO_TEXT)
    with pytest.raises(Misuse, match="token is"):
        veredus.connect("127.0.0.1:9")


def test_the_name_of_a_node_that_is_no_text_is_refused_before_it_starts() -> None:
    with pytest.raises(Misuse, match=r"node\.name: 'caf\\udce9' is not UTF-8"):
        veredus.embedded(node={"name": NO_TEXT})


def test_a_reason_that_is_no_text_is_refused_and_the_subscription_goes_on(node: Embedded, stream: str) -> None:
    with node.publisher(stream) as own:
        own.publish_many(["k"] * 2, [b""] * 2)
    node.streams.create(f"{stream}.dead")
    with node.subscribe(stream, subscriber="a", mode="individual", parked_to=f"{stream}.dead", until=3) as subscription:
        for publication in subscription:
            with pytest.raises(Misuse, match="reason is"):
                publication.reject(NO_TEXT)
            publication.reject("no text")


def test_a_request_that_was_sent_and_not_answered_is_in_doubt_unless_it_only_reads(node: Embedded) -> None:
    async def ask() -> list[str]:
        is_held = False

        async def forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while octets := await source.read(1 << 16):
                if not is_held:
                    sink.write(octets)
            sink.close()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            near, far = await asyncio.open_unix_connection(node.served.addresses["unix"])
            try:
                await asyncio.gather(forward(reader, far), forward(near, writer))
            finally:
                far.close()
                writer.close()

        codes = []
        async with await asyncio.start_server(relay, "127.0.0.1") as server:
            host, port = server.sockets[0].getsockname()
            async with veredus.connect_async(f"{host}:{port}", timeout_s=1) as asked:
                is_held = True
                for call in (asked.streams.create("doubtful"), asked.streams.list()):
                    with pytest.raises(Unavailable) as caught:
                        await call
                    codes.append(caught.value.code)
        return codes

    assert asyncio.run(ask()) == ["in-doubt", "no-answer"]


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ((5, [b"x"]), "keys"),
        (("k", [b"x"]), "keys"),
        (([b"k"], None), "bodies"),
        (([b"k"], {b"x"}), "bodies"),
        (([b"k"], [b"x"], 5), "attributes"),
        (([b"k"], [b"x"], None, 5), "event_times"),
        (([b"k"], [b"x"], None, "now"), "event_times"),
    ],
)
def test_lists_of_publications_that_are_none_are_named(
    node: Embedded, stream: str, given: tuple[Any, ...], argument: str
) -> None:
    with node.publisher(stream) as publisher:
        with pytest.raises(Misuse, match=f"{argument} must be a list") as error:
            publisher.publish_many(*given)
        assert error.value.details == {"argument": argument}
        publisher.publish_many((b"k",), (b"x",), ({},), iter([None]))


@pytest.mark.parametrize(("when", "unit"), [(1_700_000_000, "seconds"), (1_700_000_000_000, "milliseconds")])
def test_a_start_by_time_that_looks_like_another_unit_is_refused(when: int, unit: str) -> None:
    with pytest.raises(Misuse, match=f"as a start looks like {unit}"):
        veredus.since(when)
    veredus.since(when * (1_000_000 if unit == "seconds" else 1_000))


def test_an_address_that_does_not_accept_the_connection_is_said_to_have_been_tried() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        with pytest.raises(veredus.Unavailable, match="the connection was not accepted in time"):
            veredus.connect(f"127.0.0.1:{address[1]}", timeout_s=0.3)
        for one in waiting:
            one.close()
