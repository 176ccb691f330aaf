"""Addresses: what is read from them, and what is said of those that name no place."""

import pytest

from veredus.client.addresses import Address, parse_address, parse_addresses
from veredus.kernel.errors import Misuse


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("veredus://example.org:9000", Address("veredus://example.org:9000", "example.org", 9000)),
        ("veredus://example.org", Address("veredus://example.org", "example.org", 7071)),
        ("veredus://[::1]:80", Address("veredus://[::1]:80", "::1", 80)),
        ("127.0.0.1:7000", Address("127.0.0.1:7000", "127.0.0.1", 7000)),
        ("veredus+tls://h:1", Address("veredus+tls://h:1", "h", 1, is_tls=True)),
        ("unix:///run/node", Address("unix:///run/node", path="/run/node")),
    ],
)
def test_an_address_names_a_place(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["http://h:1", "veredus://", "veredus://h:port", "veredus://h:1/path", "unix://h/p", "a..b:1"]
)
def test_what_names_no_place_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(Misuse, match="bad-address"):
        parse_address(text)


def test_several_addresses_may_stand_in_one_text() -> None:
    assert [str(address) for address in parse_addresses(("a:1, b:2", "c:3"))] == ["a:1", "b:2", "c:3"]
    with pytest.raises(Misuse, match="at least one"):
        parse_addresses((" ",))


def test_an_address_that_is_repeated_counts_once_and_the_order_stays() -> None:
    addresses = parse_addresses(("b:1, a:1", "veredus://b:1", "veredus+tls://b:1", "a:1"))
    assert [str(address) for address in addresses] == ["b:1", "a:1", "veredus+tls://b:1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("::1", r"brackets, \[::1\]:7071"),
        ("2001:db8::7", r"brackets, \[::1\]:7071"),
        ("h:port", "a port is a number from 1 to 65535"),
        ("h:99999", "a port is a number from 1 to 65535"),
        ("h:0", "a port is a number from 1 to 65535"),
        ("h:1;g", "a port is a number from 1 to 65535"),
        ("caf\udce9:1", "UTF-8 cannot hold it"),
        ("h:1?tls=1", "what is behind"),
        ("unix:///run/node#2", "what is behind"),
    ],
)
def test_what_is_wrong_with_an_address_is_said_in_our_words(text: str, said: str) -> None:
    with pytest.raises(Misuse, match=said) as caught:
        parse_address(text)
    assert caught.value.code == "bad-address"


@pytest.mark.parametrize("text", ["me:s3cret@h:1", "veredus://s3cret@h:1", "veredus+tls://:s3cret@h:1"])
def test_an_address_with_a_password_is_refused_and_does_not_repeat_it(text: str) -> None:
    with pytest.raises(
        Misuse, match=r"no user and no password: write veredus.*//h:1, and give a token apart"
    ) as caught:
        parse_address(text)
    assert "s3cret" not in f"{caught.value}{caught.value.details}"
