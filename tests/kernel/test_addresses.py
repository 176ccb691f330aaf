"""Addresses, and the ways in which one may be written."""

import pytest

from veredus.kernel.addresses import check_reached, is_same_address


@pytest.mark.parametrize(
    "other",
    [
        "localhost:7081", "LocalHost.:7081", "127.0.0.1:07081", "127.1:7081", "127.0.1:7081", "2130706433:7081",
        "0x7f000001:7081", "0177.0.0.1:7081", "[::ffff:127.0.0.1]:7081", "[0:0:0:0:0:ffff:7f00:1]:7081",
    ],
)  # fmt: skip
def test_an_address_is_known_however_it_is_written(other: str) -> None:
    assert is_same_address("127.0.0.1:7081", other)
    assert is_same_address(other, "localhost:7081")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("127.0.0.1:7081", "127.0.0.1:7082"),
        ("127.0.0.1:7081", "127.0.0.2:7081"),
        ("127.0.0.1:7081", "127.2:7081"),
        ("127.0.0.1:7081", "[::1]:7081"),
        ("127.0.0.1:7081", "127.0.0.1.example:7081"),
        ("127.0.0.1:7081", "127.0.0.256:7081"),
        ("127.0.0.1:7081", "4294967296:7081"),
        ("127.0.0.1:7081", "127.0.0.09:7081"),
        ("p1", "p1:1"),
        ("a:1", "b:1"),
    ],
)
def test_another_address_is_another_one(one: str, other: str) -> None:
    assert not is_same_address(one, other)
    assert not is_same_address(other, one)


def test_hosts_are_the_same_in_large_letters_and_with_the_dot_of_the_root_and_so_are_long_addresses() -> None:
    assert is_same_address("node.example:1", "Node.Example.:1")
    assert is_same_address("[2001:db8::1]:1", "[2001:0DB8:0:0:0:0:0:1]:1")


@pytest.mark.parametrize("text", ["*:7081", "0.0.0.0:7081", "0:7081", "0x0:7081", "[::]:7081", "[0::0]:7081"])
def test_nobody_is_reached_at_any_address(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address at which others reach anybody"):
        check_reached(text)
