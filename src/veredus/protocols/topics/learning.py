"""How a proxy that has begun learns which topics servers have, before it assigns any: it listens for long enough.

    begin ── look ── look ── ... ──► heard for `learning_ns` ──► assigns
               └── late: nobody was heard meanwhile, which counts nothing; very late: from the beginning

Time that passes while the proxy is stopped, or its machine is, is none in which it could hear. What a server said
meanwhile may lie unread, or be said to a connection that is gone: a server says it again, but not at once. So the proxy
looks at the clock often, and only a look that comes in time counts.
Source: seed 000, section 3.1.5.
"""

from __future__ import annotations

from .announcements import not_heard

_LOOKS_MIN = 24
"""At least so many looks in time make the whole."""
_BUSY_NS = 100_000_000
"""Who has much to do is late by less, and hears all the same."""
_SLACK_PART = 6
"""Who comes late by such a part begins anew: it is what `learning_ns` has beyond a period of servers'."""


class Learning:
    """Owns for how long a proxy has listened, and which of its listed servers it has not heard yet."""

    def __init__(self, servers: tuple[str, ...], learning_ns: int, look_ns: int) -> None:
        """Until all of `servers`, or with none anybody, had `learning_ns`; looks are at most `look_ns` apart."""
        self._servers = servers
        self._learning_ns = learning_ns
        self._look_ns = max(1, min(look_ns, learning_ns // _LOOKS_MIN))
        self.unheard = list(servers)
        """Who is listed and has not said yet which topics it has."""
        self._began_ns: int | None = None
        self._left_ns = learning_ns
        self._due_ns: int | None = None
        self._is_done = False

    def begin(self, now_ns: int) -> None:
        """The proxy is there; harmless when it was before."""
        if self._began_ns is None:
            self._began_ns = now_ns
            self._look_next(now_ns)

    def look(self, now_ns: int) -> None:
        """Count what has passed since the last look, if it is time; all that had come by now was read."""
        if self._due_ns is None or now_ns < self._due_ns:
            return
        late_ns = now_ns - self._due_ns
        if late_ns < max(self._learning_ns // _LOOKS_MIN, _BUSY_NS):
            self._left_ns -= min(self._look_ns, self._left_ns)
        elif late_ns * _SLACK_PART >= self._learning_ns:
            self._left_ns = self._learning_ns
        self._look_next(now_ns)

    def _look_next(self, now_ns: int) -> None:
        self._due_ns = now_ns + min(self._look_ns, self._left_ns) if self._left_ns else None

    def deadline(self) -> int | None:
        """When to look next."""
        return self._due_ns

    def hear(self, server: str) -> None:
        """A server has said which topics it has."""
        self.unheard = [listed for listed in self.unheard if listed != server]

    def forget(self, server: str) -> None:
        """What was heard as this server's was another's."""
        self.unheard += [listed for listed in self._servers if listed == server]

    def missing(self, now_ns: int) -> str:
        """What must be known before a topic is assigned, "" when it is."""
        if not self._is_done:
            assert self._began_ns is not None
            if self._left_ns and (self.unheard or not self._servers):
                return not_heard(self.unheard, now_ns - self._began_ns)
            self._is_done = True
        return ""
