"""What people write first, and what they are told, or get."""

import asyncio
import pickle
from typing import Any

import pytest

import veredus
from tests.client.test_documents import blocks_in
from veredus.client.embedded import Embedded
from veredus.kernel.errors import Refused
from veredus.matching.patterns import has_bare_wildcards


@pytest.mark.parametrize("keys", ["stock.*", "stock*", "bond.>", "*", ">", "*.SUN", "a.b*.c"])
def test_a_wildcard_without_a_scheme_is_refused_with_what_to_write(node: Embedded, stream: str, keys: str) -> None:
    with pytest.raises(Refused, match=r"write 'tokens:.*or 'prefix:") as caught:
        node.subscribe(stream, keys=["tokens:fine.*", keys])
    assert (caught.value.code, caught.value.details["pattern"]) == ("bad-pattern", keys)


def test_a_scheme_that_is_none_is_named(node: Embedded, stream: str) -> None:
    with pytest.raises(Refused, match=r"begins with 'glob', which is no scheme \(literal, prefix, tokens, regex\)"):
        node.subscribe(stream, keys="glob:stock.*")


@pytest.mark.parametrize(
    "keys", ["stock.", "a>b", "a*b", "tokens:stock.*", "prefix:stock.*", r"regex:a.*", "literal:*"]
)
def test_what_says_what_it_is_or_has_no_wildcard_is_taken_as_it_stands(keys: str) -> None:
    assert not has_bare_wildcards(keys)


def test_the_tutorial_names_no_keys_that_would_be_refused() -> None:
    assert not any('"stock.*"' in block for block in blocks_in("tutorial.md"))


def test_two_equals_signs_are_told_to_be_one(node: Embedded, stream: str) -> None:
    with pytest.raises(Refused, match="write = for equality") as caught:
        node.subscribe(stream, where="quote == 5")
    assert caught.value.details["position"] == 6


def test_connecting_without_an_address_uses_the_variable(node: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEREDUS_ADDRESS", node.served.address)
    with veredus.connect() as far:
        assert far.name == node.name


async def _publish_gathered(address: str, stream: str, count: int, **settings: Any) -> list[int]:
    async with veredus.connect_async(address) as far, far.publisher(stream, **settings) as publisher:
        return await asyncio.gather(*[publisher.publish("k", b"%d" % index * 50) for index in range(count)])


@pytest.mark.parametrize("settings", [{}, {"outbox_size_max": 4_000, "batch_size": 1_000}], ids=["room", "no room"])
def test_gathered_calls_are_numbered_in_their_order(node: Embedded, stream: str, settings: dict[str, Any]) -> None:
    numbers = asyncio.run(_publish_gathered(node.served.address, stream, 200, **settings))
    assert numbers == list(range(1, 201))
    with node.subscribe(stream, until=201) as subscription:
        assert [publication.body[:3] for publication in subscription] == [(b"%d" % n * 50)[:3] for n in range(200)]


async def _publish_and_not_await(address: str, stream: str) -> int:
    async with veredus.connect_async(address) as far, far.publisher(stream) as publisher:
        publisher.publish("k", b"not awaited").close()
        receipt = await publisher.flush()
        assert receipt is not None
        return receipt.number


def test_a_publication_whose_call_is_not_awaited_is_published_all_the_same(node: Embedded, stream: str) -> None:
    assert asyncio.run(_publish_and_not_await(node.served.address, stream)) == 1


async def _use_before_it_is_open(address: str, stream: str) -> None:
    async with veredus.connect_async(address) as far:
        publisher: Any = far.publisher(stream)
        with pytest.raises(AttributeError, match=r"no 'publish': await it, or enter it"):
            publisher.publish("k", b"b")


def test_what_is_used_before_it_is_open_says_how_to_open_it(node: Embedded, stream: str) -> None:
    asyncio.run(_use_before_it_is_open(node.served.address, stream))


def test_waiting_before_anything_was_published_is_told_so(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="a") as publisher:
        with pytest.raises(veredus.Misuse, match="this source has assigned no number yet"):
            publisher.wait(1)
        publisher.publish("k", b"x")
        with pytest.raises(veredus.Misuse, match="this source has assigned the numbers 1 to 1"):
            publisher.wait(2)


@pytest.mark.parametrize("what", [None, b"body", "5"])
def test_what_cannot_be_settled_is_told_what_can(node: Embedded, stream: str, what: Any) -> None:
    subscription = node.subscribe(stream, subscriber="a")
    with pytest.raises(veredus.Misuse, match="settle takes a publication, a batch or a sequence, not"):
        subscription.settle(what)


def test_an_embedded_node_says_what_its_settings_and_its_directory_are() -> None:
    with pytest.raises(veredus.Misuse, match=r"settings must be NodeSettings, not 'node.toml': name sect") as caught:
        veredus.embedded(settings="node.toml")  # type: ignore[arg-type]
    assert caught.value.code == "bad-argument"
    with pytest.raises(veredus.Misuse, match="directory must be a path, not 5"):
        veredus.embedded(5)  # type: ignore[arg-type]


def test_what_belongs_to_a_process_says_so_when_it_is_pickled(node: Embedded, stream: str) -> None:
    with node.publisher(stream) as publisher, node.subscribe(stream) as subscription:
        publisher.publish("k", b"x")
        publication = next(iter(subscription))
        for local in (node, publisher, subscription):
            with pytest.raises(TypeError, match=f"{type(local).__name__} belongs to this process .* connect there"):
                pickle.dumps(local)
        with pytest.raises(TypeError, match="send its key, body and attributes"):
            pickle.dumps(publication)
