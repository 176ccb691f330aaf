"""Whose announcements a proxy takes, and how much of them it keeps: nobody fills its memory with topics that none has.

What a server announces counts as its topics, each with up to `NAME_SIZE` bytes on average; longer names count as more.

Invariants
    (1) At most `SERVERS_MAX` servers are known, or those that are listed.
    (2) Of each at most `topics_max` topics are kept, of all together at most `SERVERS_FULL` times as many.
Source: seed 000, section 3.1.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from veredus.kernel.addresses import check_reached, is_same_address
from veredus.kernel.errors import Refused

SERVERS_MAX = 1000
SERVERS_FULL = 5
"""So many servers may have as many topics as one may have."""
NAME_SIZE = 256
NO_SERVER_NS = 60_000_000_000
"""For so long nobody is taken for a server at whose address a proxy has answered; then another may be there."""
_REPLACED_PERIODS = 3


class Announcements:
    """Owns what a proxy counts of servers: by which connections they come, and how many topics each announced."""

    def __init__(self, servers: tuple[str, ...], topics_max: int, learning_ns: int, own: str) -> None:
        """`servers`: who may announce; with none, anybody. `own`: the address of the proxy."""
        self._own = own
        self._servers = servers
        self._topics_max = topics_max
        self._learning_ns = learning_ns
        self._counts: dict[str, int] = {}
        """By server, of its last announcement that was taken."""
        self._names: dict[str, bytes] = {}
        """By server, what names it announced then."""
        self._all = 0
        self._proxies: dict[str, int] = {}
        """At which addresses of servers proxies have answered, and until when that counts (monotonic)."""
        self._origins: dict[str, tuple[bytes, bytes, int]] = {}
        """By server: the connection by which it was heard, the one before, and until when that one may come back only
        if another server has the same id (monotonic)."""

    def judge(self, server: str, names: bytes, origin: bytes, now_ns: int) -> bool:
        """Whether a server announces the same names as when it was taken last; otherwise they have to be read before
        they are kept. Raises `Refused` for an announcement that is not taken: "unlisted", "not-an-address",
        "too-many-servers", "second-server" or "too-many-topics".
        """
        if self._servers and server not in self._servers:
            said = f"{server} is not one of the {len(self._servers)} servers of this proxy: list it under `servers`"
            raise Refused("unlisted", said, server=server)
        self._check_address(server, now_ns)
        if server not in self._counts and not self._servers and len(self._counts) >= SERVERS_MAX:
            said = f"this proxy knows {SERVERS_MAX} servers, the limit: list those that are yours under topics.servers"
            raise Refused("too-many-servers", said, server=server)
        is_same = self._names.get(server) == names
        count = self._counts[server] if is_same else _count(names)
        most, most_of_all = self._topics_max, SERVERS_FULL * self._topics_max
        others = self._all - self._counts.get(server, 0)
        if count > most:
            said = f"{server} announces {count} topics, and this proxy keeps at most {most} of a server"
            raise Refused("too-many-topics", f"{said}: raise limits.streams_max of the proxy", server=server)
        if others + count > most_of_all:
            said = (
                f"{server} announces {count} topics and other servers {others}, this proxy keeps {most_of_all} of all"
            )
            advice = "list your servers under topics.servers and topics.members, or raise limits.streams_max"
            raise Refused("too-many-topics", f"{said}: {advice} of the proxy", server=server)
        current, former, until_ns = self._origins.get(server, (b"", b"", 0))
        if origin != current and origin == former and now_ns < until_ns:
            # It goes on by a connection that another one seemed to have replaced: both are there.
            said = f"two servers have the id {server}: give each the address at which others reach it (topics.id)"
            raise Refused("second-server", said, server=server)
        return is_same

    def _check_address(self, server: str, now_ns: int) -> None:
        """Raise `Refused("not-an-address")` for an id at which no server can be reached: topics would go there."""
        if server == self._own or is_same_address(server, self._own):
            said = f"{server} is the address of this proxy, and not of a server"
        elif now_ns < self._proxies.get(server, 0):
            said = no_server(server)
        else:
            try:
                check_reached(server)
            except ValueError as error:
                said = f"the id of a server is the address at which others reach it: {error}"
            else:
                return
        raise Refused("not-an-address", f"{said}; set topics.id of the server", server=server)

    def note_proxy(self, server: str, now_ns: int) -> None:
        """A proxy has answered at the address of a server: what that announced is kept no longer."""
        self._proxies = {known: until_ns for known, until_ns in self._proxies.items() if until_ns > now_ns}
        self._proxies[server] = now_ns + NO_SERVER_NS
        self._all -= self._counts.pop(server, 0)
        self._origins.pop(server, None)
        self._names.pop(server, None)

    def keep(self, server: str, names: bytes, origin: bytes, now_ns: int) -> None:
        """An announcement was taken."""
        if self._names.get(server) != names:
            count = _count(names)
            self._all += count - self._counts.get(server, 0)
            self._counts[server], self._names[server] = count, names
        current, _, _ = self._origins.get(server, (b"", b"", 0))
        if origin != current:
            self._origins[server] = (origin, current, now_ns + _REPLACED_PERIODS * self._learning_ns)

    def check(self) -> None:
        """The invariants of the module hold."""
        assert len(self._counts) <= max(SERVERS_MAX, len(self._servers)), "(1)"
        assert self._origins.keys() <= self._counts.keys() == self._names.keys(), "(1)"
        assert all(count <= self._topics_max for count in self._counts.values()), "(2)"
        assert self._all == sum(self._counts.values()) <= SERVERS_FULL * self._topics_max, "(2)"


def _count(names: bytes) -> int:
    """As how many topics these names count that spaces set apart."""
    return max(names.count(b" ") + 1, -(-len(names) // NAME_SIZE)) if names else 0


def no_server(address: str) -> str:
    """What is said of an address that is taken for that of a server."""
    return f"{address} is a proxy and not a server"


def not_heard(servers: Sequence[str], passed_ns: int) -> str:
    """What a proxy says that started so long ago, and waits for the announcements of `servers`, or of any server."""
    who = ", ".join(servers) or "any server"
    check = "that each of them runs and lists" if len(servers) > 1 else "that it runs and lists"
    if not servers:
        check = "that a server runs that lists"
    said = f"this proxy started {passed_ns / 1e9:.0f} s ago and has not heard from {who} yet: try again in a moment"
    return f"{said}, or check {check} this proxy in topics.proxies"
