"""Mistakes that Python, or some part inside, would answer first: each is told as the caller's, and what to write."""

import asyncio
import inspect
from collections.abc import AsyncIterable, Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import veredus
from veredus.client.embedded import Embedded
from veredus.kernel.errors import Misuse
from veredus.node.rules import Rule

Call = Callable[[Any, str], object]

READER = {"principal": "*", "may": ["subscribe"], "streams": "a.*"}


def test_rules_of_an_embedded_node_are_written_as_in_a_file() -> None:
    with veredus.embedded(security={"rules": [READER, Rule(principal="local", may=("*",))]}) as node:
        rules = node.served.settings.security.rules
        assert rules[0] == Rule(principal="*", may=("subscribe",), streams=("a.*",))
        assert node.principal == "local"


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"security": {"rules": READER}}, "security.rules must be a list of rules, not {'principal'"),
        ({"security": {"rules": [5]}}, "security.rules[0] must be a dict like {"),
        ({"security": {"rules": [READER, {"principal": "a", "can": "all"}]}}, "security.rules[1]: a rule has no 'can'"),
        ({"security": {"rules": [{"may": "subscribe"}]}}, "security.rules[0]: a rule needs a principal"),
        ({"security": {"rules": [{"principal": "a", "may": "fly"}]}}, "security.rules[0]: 'fly' is not a verb"),
        ({"port": 7071}, "no section 'port' of settings; there are node, listen"),
        ({"port": 7071}, 'listen={"tcp": "127.0.0.1:7071"}'),
        ({"sync": "none"}, "'sync' is a setting of a section: write journal={\"sync\": …}"),
    ],
)
def test_an_embedded_node_says_where_its_settings_are_wrong(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(Misuse) as caught:
        veredus.embedded(**sections)
    assert caught.value.code == "bad-settings"
    assert said in caught.value.message


def test_an_embedded_node_that_was_closed_says_so_when_it_is_started() -> None:
    with veredus.embedded() as node:
        served = node.served
    with pytest.raises(Misuse, match=r"was closed: make another one with veredus\.embedded") as caught:
        served.start()
    assert caught.value.code == "closed"
    served.stop()
    served.close()


def run_that_is_closed(node: Embedded, stream: str) -> object:
    with node.sink(stream).open_run() as run:
        pass
    return run.stage(stream)


CALLS: list[tuple[str, str, Call]] = [
    ("bad-config", "a stream has no setting 'retention'; there are retention_age, retention_age_s, retention_size",
     lambda node, stream: node.streams.create(stream, retention="7d")),
    ("bad-config", "no setting 'source_max'; did you mean sources_max",
     lambda node, stream: node.streams.alter(stream, source_max=5)),
    ("bad-name", "the name of a stream for dead letters must be text, not 5", lambda node, _: node.redrive(5)),
    ("bad-name", "the name of a stream must be text, not 5", lambda node, _: node.streams.show(5)),
    ("bad-name", "the name of a stream must be text, not 5", lambda node, _: node.streams.trim(5, 1)),
    ("bad-name", "the name of a stream must be text, not 5", lambda node, _: node.streams.alter(5)),
    ("bad-config", r"streams\.alter needs a setting to change: retention_age, ",
     lambda node, stream: node.streams.alter(stream)),
    ("bad-attribute", "attributes must be a list with a mapping, or None, for each publication, .*publish_table",
     lambda node, stream: node.publisher(stream).publish_many(["a"], [b"1"], {"x": [1]})),
    ("bad-name", "the name of a stream must be text, not 5", lambda node, _: node.streams.delete(5)),
    ("bad-name", "the name of a stream must be text, not 5", lambda node, _: node.subscriptions.show(5, "a")),
    ("bad-name", "the name of a subscriber must be text, not 5", lambda node, _: node.subscriptions.remove("s", 5)),
    ("bad-argument", "floor must be a whole number", lambda node, _: node.subscriptions.advance("s", "a", "main", "5")),
    ("bad-name", "the name of a sink must be text, not 5", lambda node, _: node.sinks.drop_stages(5)),
    ("closed", "this run was closed", run_that_is_closed),
]  # fmt: skip


@pytest.mark.parametrize(("code", "says", "call"), CALLS, ids=[f"{code}-{says}" for code, says, _ in CALLS])
def test_what_the_node_would_refuse_is_told_before_it_is_asked(
    node: Embedded, stream: str, code: str, says: str, call: Call
) -> None:
    with pytest.raises(Misuse, match=says) as caught:
        call(node, stream)
    assert caught.value.code == code


async def _stage_of_a_closed_run(address: str) -> None:
    async with veredus.connect_async(address) as node:
        run = await node.sink("k").open_run()
        await run.close()
        with pytest.raises(Misuse, match="this run was closed"):
            run.stage("s")


def test_neither_has_a_run_that_was_closed_stages_with_asyncio(node: Embedded) -> None:
    asyncio.run(_stage_of_a_closed_run(node.served.address))


@pytest.mark.parametrize("owner", [veredus.Publisher, veredus.Stage])
def test_a_missing_argument_of_publish_is_told_by_that_name(owner: type) -> None:
    with pytest.raises(TypeError, match=r"^Publisher\.publish\(\) missing 1 required positional argument: 'body'$"):
        owner.publish(object(), "k")  # type: ignore[attr-defined]
    assert list(inspect.signature(owner.publish).parameters)[1:] == ["key", "body", "attributes", "event_time"]  # type: ignore[attr-defined]


NO_TEXT = [
    (("k", "x\ud800"), r"^body is 'x\\ud800': UTF-8 cannot hold what is at position 1"),
    (("\ud800", "x"), r"^key is '\\ud800': UTF-8 cannot hold what is at position 0"),
    (("k" * 300 + "\ud800", "x"), r"^key is 'kk.*: UTF-8 cannot hold what is at position 300"),
    (("k", "x", {"b": "y", "a": "\udce9"}), r"^attribute 'a' is '\\udce9': UTF-8 cannot hold what"),
]
BEFORE: list[tuple[Any, ...]] = [(), ({"b": "y", "a": "z"},), ({"b": "y", "a": "é"},)]
"""Attributes of the publication before: what has the same ones as that goes a shorter way."""


@pytest.mark.parametrize("before", BEFORE, ids=["plain", "with attributes", "with more than ASCII"])
@pytest.mark.parametrize(("publication", "said"), NO_TEXT)
@pytest.mark.parametrize("kind", ["publisher", "stage"])
def test_text_that_utf8_cannot_hold_is_an_error_of_its_argument_and_of_nothing_else(
    node: Embedded, stream: str, publication: tuple[Any, ...], said: str, kind: str, before: tuple[Any, ...]
) -> None:
    with node.sink("texts").open_run() as run:
        owner: Any = run.stage(stream) if kind == "stage" else node.publisher(stream, source="a")
        assert owner.publish("k", "good", *before) == 1
        with pytest.raises(Misuse, match=said) as told:
            owner.publish(*publication)
        assert told.value.code == "bad-publication"
        assert owner.publish("schlüssel", "gut", *before) == 2
        owner.flush()
        owner.close()


@pytest.mark.parametrize(
    ("keys", "bodies", "attributes", "said"),
    [
        (["k", "\ud800", "l"], ["", b"", ""], None, r"^keys\[1\] is '\\ud800': UTF-8 cannot hold"),
        (["k", b"k", "é"], ["é", b"", "\ud800"], None, r"^bodies\[2\] is '\\ud800': UTF-8 cannot hold"),
        (
            ["k"] * 3,
            [""] * 3,
            [{"a": "é"}, None, {"b": 1, "a": "\ud800"}],
            r"^attributes\[2\]\['a'\] is '\\ud800': UTF-8",
        ),
    ],
)
def test_so_is_that_among_many(
    node: Embedded, stream: str, keys: list[Any], bodies: list[Any], attributes: Any, said: str
) -> None:
    with node.publisher(stream, source="a") as publisher:
        with pytest.raises(Misuse, match=said) as told:
            publisher.publish_many(keys, bodies, attributes)
        assert told.value.code == "bad-publication"
        assert publisher.publish_many(["é", b"k"], ["é", b""], [{"a": "é"}, None]) == 2


UNSOUND: list[tuple[object, str]] = [
    ([1, 2], r"must be bool, int, float, str, bytes, a datetime .* or None, not \[1, 2\] \(list\); encode it first"),
    ({"x": 1}, r"or None, not {'x': 1} \(dict\); encode it first"),
    (Decimal("1.5"), r"or None, not Decimal\('1.5'\) \(Decimal\) \["),
    (bytearray(b"x"), r"or None, not bytearray"),
    (HTTPStatus.OK, r"or None, not <HTTPStatus.OK: 200>"),
    (np.float64(1.5), r"or None, not np\.float64\(1\.5\); convert it with \.item\(\)"),
    (np.int64(1), r"convert it with \.item\(\)"),
    (np.True_, r"convert it with \.item\(\)"),
    (2**63, r"must fit 64 bits, from -2\*\*63 to 2\*\*63 - 1, not 9223372036854775808 \["),
    (-(2**63) - 1, "must fit 64 bits"),
    (datetime.fromisoformat("2026-01-01"), r"a datetime with a time zone, or .*; write datetime\.now\(UTC\)"),
    (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "must be of the years 1 to 9999 in UTC, not datetime"),
]
SOUND = (True, 2**63 - 1, -(2**63), 0.5, "é", b"x", datetime(2026, 1, 1, tzinfo=UTC), None)
"""An attribute of each type, and both ends of the whole numbers."""


@pytest.mark.parametrize(("value", "said"), UNSOUND, ids=[repr(value) for value, _ in UNSOUND])
@pytest.mark.parametrize("kind", ["publisher", "stage"])
def test_so_is_what_no_attribute_can_be(node: Embedded, stream: str, value: Any, said: str, kind: str) -> None:
    with node.sink("values").open_run() as run:
        owner: Any = run.stage(stream) if kind == "stage" else node.publisher(stream, source="a")
        for number, before in enumerate(SOUND, 1):
            good, bad = {"b": 1, "a": before}, {"b": 1, "a": value}
            assert owner.publish("k", "good", good) == number
            for call in (
                partial(owner.publish, "k", "bad", bad),
                partial(owner.publish, "k", "bad", MappingProxyType({"a": value})),
                partial(owner.publish, "k", "bad", bad, datetime.now(UTC)),
                partial(owner.publish_many, ["k"] * 3, ["bad"] * 3, [good, bad, None]),
            ):
                with pytest.raises(Misuse, match=said) as told:
                    call()
                assert told.value.code == "bad-argument"
                assert told.value.details["argument"] == "attributes"
                assert told.value.message.startswith(("attribute 'a' must ", "attributes[1]['a'] must "))
        owner.flush()
        owner.close()


async def entered(thing: Any) -> None:
    async with thing:
        pass


def test_what_is_of_the_blocking_library_says_so_at_async_with_and_is_taken_for_nothing_else(
    node: Embedded, stream: str
) -> None:
    with (
        veredus.connect(node.served.address) as far,
        far.publisher(stream) as publisher,
        far.subscribe(stream) as subscription,
        far.sink(stream).open_run() as run,
        run.stage(stream) as stage,
    ):
        for thing in (far, node, publisher, subscription, run, stage):
            with pytest.raises(Misuse, match=r"blocking library.*connect_async") as caught:
                asyncio.run(entered(thing))
            assert caught.value.code == "other-library"
            assert not inspect.isawaitable(thing)
            assert not isinstance(thing, AsyncIterable)


def test_what_is_of_asyncio_says_so_where_it_is_entered_without(node: Embedded) -> None:
    with pytest.raises(Misuse, match="write `async with`, not `with`") as caught, veredus.connect_async("x"):
        pass
    assert caught.value.code == "other-library"
