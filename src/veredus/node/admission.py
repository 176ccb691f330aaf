"""Who gets a place of the node's connections: the places of the proven are out of reach of those that prove nothing.

    accepted ──► SILENT ── first octets ──► HEARD ── greeted, with a principal ──► PROVEN
                    └── late, or makes room ──┴──► out

SILENT  Accepted, and counted; nothing was heard yet, or the peer has perhaps gone since. It costs a file descriptor.
HEARD   Octets came: a TLS handshake, or a greeting.
PROVEN  The peer has a principal, and greeted as one. It keeps its place for as long as it lives.

A newcomer is always let in where somebody unproven can make room: at the address that has the most unproven
connections, a silent one before one that was heard, the oldest first. So who comes with many connections pushes out
its own; a peer from another address is not touched, and a peer from the same address has the time that it takes the
attacker to open as many connections as one address may have unproven.

Invariants
    (1) At most `count_max` connections have a place, at most `listener_max` of them by one listener.
    (2) At most `unproven_max` are unproven, and at most `address_max` of those are of one address at one listener.
    (3) The proven are never turned out.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

_IPV6_PREFIX_BITS = 64
"""Whoever has one IPv6 address has at least so many bits of addresses."""


class AdmissionLimits(NamedTuple):
    """How many connections have a place at once."""

    count_max: int
    """Of the whole node."""
    listener_max: int
    """By one listener."""
    unproven_max: int
    """That have not said who they are, of the whole node."""
    address_max: int
    """That have not said who they are, of one address at one listener."""
    greeting_timeout_ns: int
    """From the accept, for the handshake and the greeting together."""


def limits_within(
    count_max: int, listener_max: int, unproven_max: int, address_max: int, greeting_timeout_ns: int
) -> AdmissionLimits:
    """The limits as they are kept.

    The unproven have at most a quarter of all places, and no listener has the last tenth: also where the process may
    open fewer files than the settings allow connections.
    """
    unproven_max = min(unproven_max, max(1, count_max // 4))
    return AdmissionLimits(
        count_max,
        min(listener_max, max(1, count_max - count_max // 10)),
        unproven_max,
        min(address_max, unproven_max),
        greeting_timeout_ns,
    )


def origin_of(address: str) -> str:
    """What counts as one address: an IPv4 address, the upper 64 bits of an IPv6 address, any other text as it is."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(int(parsed) >> _IPV6_PREFIX_BITS << _IPV6_PREFIX_BITS)}/{_IPV6_PREFIX_BITS}"


def address_of(peer: str) -> str:
    """What counts as one address in `address:port`; what is not of that form is an address of its own."""
    address, colon, port = peer.rpartition(":")
    return origin_of(address.strip("[]")) if colon and port.isdigit() else peer


@dataclass(slots=True)
class _Place:
    listener: str
    address: str
    since_ns: int
    is_heard: bool = False
    is_proven: bool = False


@dataclass(slots=True)
class _Crowd:
    """The unproven of one address, each kind the oldest first."""

    silent: dict[int, None] = field(default_factory=dict)
    heard: dict[int, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.silent) + len(self.heard)

    def first(self) -> int:
        """Who makes room."""
        return next(iter(self.silent or self.heard))


class _Crowds:
    """Owns the unproven of one listener by address, and knows the address with the most of them."""

    __slots__ = ("_by_address", "_levels", "count", "proven_count")

    def __init__(self) -> None:
        self._by_address: dict[str, _Crowd] = {}
        self._levels: list[dict[str, None]] = [{}]
        """The addresses that have so many unproven connections; the last level is not empty, but for level 0."""
        self.count = 0
        self.proven_count = 0

    def count_of(self, address: str) -> int:
        crowd = self._by_address.get(address)
        return 0 if crowd is None else len(crowd)

    def add(self, key: int, address: str) -> None:
        crowd = self._by_address.get(address)
        if crowd is None:
            crowd = self._by_address[address] = _Crowd()
        crowd.silent[key] = None
        self.count += 1
        self._move(address, len(crowd) - 1, len(crowd))

    def hear(self, key: int, address: str) -> None:
        crowd = self._by_address[address]
        del crowd.silent[key]
        crowd.heard[key] = None

    def remove(self, key: int, address: str) -> None:
        crowd = self._by_address[address]
        (crowd.silent if key in crowd.silent else crowd.heard).pop(key)
        self.count -= 1
        if not crowd:
            del self._by_address[address]
        self._move(address, len(crowd) + 1, len(crowd))

    def _move(self, address: str, before: int, after: int) -> None:
        levels = self._levels
        levels[before].pop(address, None)
        if after == len(levels):
            levels.append({})
        if after:
            levels[after][address] = None
        while len(levels) > 1 and not levels[-1]:
            levels.pop()

    def first_of(self, address: str) -> int:
        """Who makes room at this address."""
        return self._by_address[address].first()

    @property
    def most(self) -> int:
        """How many unproven connections the address has that has the most."""
        return len(self._levels) - 1

    def first(self) -> int:
        """Who makes room at the address that has the most."""
        return self.first_of(next(iter(self._levels[-1])))


class Admission:
    """Owns the places of one node's connections, by key; see the module for the rule."""

    def __init__(self, limits: AdmissionLimits) -> None:
        """Nobody is there yet."""
        self.limits = limits
        self.refused_count = 0
        """How many found no place."""
        self.displaced_count = 0
        """How many unproven ones had to make room."""
        self.late_count = 0
        """How many did not greet in time."""
        self._places: dict[int, _Place] = {}
        self._unproven: dict[int, None] = {}
        """In the order in which they came, which is the order in which they are late."""
        self._crowds: dict[str, _Crowds] = {}
        self._last_key = 0

    def __len__(self) -> int:
        return len(self._places)

    @property
    def unproven_count(self) -> int:
        """How many have not proved who they are."""
        return len(self._unproven)

    def enter(self, listener: str, address: str, now_ns: int) -> tuple[int, tuple[int, ...]]:
        """A connection was accepted: its key, and the keys of those who make room for it and have no place any more.

        The key is 0 where there is no place for it: all that could make room are proven.
        """
        crowds = self._crowds.get(listener)
        if crowds is None:
            crowds = self._crowds[listener] = _Crowds()
        address = origin_of(address)
        displaced = self._displaced_by(crowds, address)
        if displaced is None:
            self.refused_count += 1
            return 0, ()
        for key in displaced:
            self.leave(key)
        self.displaced_count += len(displaced)
        self._last_key += 1
        key = self._last_key
        self._places[key] = _Place(listener, address, now_ns)
        self._unproven[key] = None
        crowds.add(key, address)
        return key, displaced

    def _displaced_by(self, crowds: _Crowds, address: str) -> tuple[int, ...] | None:
        """Who makes room for one more at these crowds; one is always enough. None where nobody can."""
        limits = self.limits
        if crowds.count_of(address) >= limits.address_max:
            return (crowds.first_of(address),)
        if crowds.count + crowds.proven_count >= limits.listener_max:
            return (crowds.first(),) if crowds.count else None
        if len(self._unproven) >= limits.unproven_max or len(self._places) >= limits.count_max:
            fullest = max(self._crowds.values(), key=lambda one: one.most)
            return (fullest.first(),) if fullest.count else None
        return ()

    def hear(self, key: int) -> None:
        """The first octets came."""
        place = self._places.get(key)
        if place is not None and not place.is_heard and not place.is_proven:
            place.is_heard = True
            self._crowds[place.listener].hear(key, place.address)

    def prove(self, key: int) -> str:
        """The peer has greeted, and has a principal: it keeps its place. Its address, "" where that was known."""
        place = self._places.get(key)
        if place is None or place.is_proven:
            return ""
        place.is_proven = True
        crowds = self._crowds[place.listener]
        crowds.remove(key, place.address)
        crowds.proven_count += 1
        del self._unproven[key]
        return place.address

    def leave(self, key: int) -> None:
        """The connection is gone, or is to go: its place is free. Harmless for a key that has none."""
        place = self._places.pop(key, None)
        if place is None:
            return
        crowds = self._crowds[place.listener]
        if place.is_proven:
            crowds.proven_count -= 1
        else:
            crowds.remove(key, place.address)
            del self._unproven[key]

    def make_room(self) -> int:
        """The key of one unproven connection whose place is given up, 0 where all are proven.

        For a process that can open no more files than it has: the places were counted too high.
        """
        fullest = max(self._crowds.values(), key=lambda one: one.most, default=None)
        if fullest is None or not fullest.count:
            return 0
        key = fullest.first()
        self.leave(key)
        self.displaced_count += 1
        return key

    def left_ns(self, key: int, now_ns: int) -> int:
        """How much of the time to greet is left, 0 where it is over."""
        place = self._places.get(key)
        return 0 if place is None else max(0, place.since_ns + self.limits.greeting_timeout_ns - now_ns)

    def since_ns(self, key: int) -> int:
        """When the connection was accepted, 0 where it has no place."""
        place = self._places.get(key)
        return 0 if place is None else place.since_ns

    def wait_anew(self, now_ns: int) -> None:
        """The node was away, and heard nobody: who is unproven has the whole time to greet from now on."""
        for key in self._unproven:
            self._places[key].since_ns = now_ns

    def take_late(self, now_ns: int) -> Iterator[int]:
        """The keys of those whose time to greet is over, oldest first; they have no place any more."""
        while self._unproven:
            key = next(iter(self._unproven))
            if self._places[key].since_ns + self.limits.greeting_timeout_ns > now_ns:
                return
            self.leave(key)
            self.late_count += 1
            yield key

    def check(self) -> None:
        """Raise `AssertionError` where an invariant does not hold."""
        limits = self.limits
        assert len(self._places) <= limits.count_max, "(1)"
        assert len(self._unproven) <= limits.unproven_max, "(2)"
        for name, crowds in self._crowds.items():
            held = [place for place in self._places.values() if place.listener == name]
            assert crowds.count + crowds.proven_count == len(held) <= limits.listener_max, "(1)"
            assert crowds.most <= limits.address_max, "(2)"
            assert crowds.count == sum(not place.is_proven for place in held)
