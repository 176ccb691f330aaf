"""How a server tells proxies which topics it has: each period, and again whoever does not answer.

    period, or `announce` ──► the names of all streams ──► changed? encoded : as before ──► PERIODIC ──► each proxy
                                        ▲                                                                    │
                                        └────────────────────── not answered in time ────────────────────────┘

The topics of a server may be some megabytes, of which little changes. So they are encoded only when they differ from
those before, and a proxy has the longer to answer the larger its announcement is; each period it is told all the same,
since a proxy that has begun waits no longer for it.
Source: seed 000, section 3.1.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from veredus.kernel.absence import was_away
from veredus.kernel.engine import Now
from veredus.streams import exchange as x

from .desk import Desk
from .messages import Periodic, Status, StatusWord, encode_message
from .questions import Questions

_BYTE_NS = 500
"""How long a byte may be on its way: a proxy takes two megabytes in a second, however busy it is."""
_UNHEARD_PART = 10
"""A proxy that did not answer is told again after such a part of a period."""


class Pace(NamedTuple):
    """How often proxies are told."""

    period_ns: int
    answer_ns: int
    """How long an answer to a small announcement is waited for."""
    retries_max: int
    """So often in a row a proxy that does not answer is told again at once."""


class Announcing:
    """Owns what proxies were told last, and which of them did not answer."""

    def __init__(self, desk: Desk, questions: Questions, proxies: Sequence[str], pace: Pace) -> None:
        """Nobody was told anything yet."""
        self._desk = desk
        self._questions = questions
        self._proxies = proxies
        self._pace = pace
        self._names: list[str] | None = None
        self._data = b""
        """The announcement of these names."""
        self._period_at_ns: int | None = None
        self._unheard_at_ns: dict[str, int] = {}
        """Proxies that did not answer, and when each is told again."""
        self._unheard_counts: dict[str, int] = {}
        """How often in a row proxies did not answer that are told again at once."""
        self._silent_since_ns: dict[str, int] = {}
        """Proxies that do not answer; -1 where that was said."""

    def begin(self, now: Now) -> None:
        """Tell the proxies at once, and each period."""
        self._period_at_ns = now.monotonic_ns

    def stop(self) -> None:
        """Begin no period any more."""
        self._period_at_ns = None
        self._unheard_at_ns.clear()

    def deadline(self) -> int | None:
        """When proxies are to be told."""
        due = [*self._unheard_at_ns.values()] + ([] if self._period_at_ns is None else [self._period_at_ns])
        return min(due, default=None)

    def wake(self, now: Now) -> bool:
        """Tell those whose time has come; whether a period began."""
        at_ns = self._period_at_ns
        is_period = at_ns is not None and at_ns <= now.monotonic_ns
        if at_ns is not None and is_period:
            if was_away(at_ns, now.monotonic_ns, self._pace.period_ns):
                # Who could not be heard meanwhile was not silent.
                self._silent_since_ns = {
                    proxy: -1 if since_ns < 0 else now.monotonic_ns for proxy, since_ns in self._silent_since_ns.items()
                }
            self._period_at_ns = now.monotonic_ns + self._pace.period_ns
            self._unheard_at_ns.clear()
            self.announce()
        unheard = [proxy for proxy, at in self._unheard_at_ns.items() if at <= now.monotonic_ns]
        for proxy in unheard:
            del self._unheard_at_ns[proxy]
        if unheard:
            self._tell(unheard)
        return is_period

    def announce(self) -> None:
        """Tell each proxy which topics are there."""
        self._tell(self._proxies)

    def _tell(self, proxies: Sequence[str]) -> None:
        self._desk.administer("stream.names", {}, partial(self._listed, proxies))

    def _listed(self, proxies: Sequence[str], answer: x.AnswerAdmin | x.Refuse, now: Now) -> None:
        if isinstance(answer, x.Refuse):
            self._desk.note("error", "topics-not-announced", reason=f"{answer.message} [{answer.code}]")
            return
        assert isinstance(answer.result, list)
        if answer.result != self._names:
            self._names = answer.result
            self._data = encode_message(Periodic(self._desk.server_id, tuple(answer.result)))
        pace = self._pace
        answer_ns = max(pace.answer_ns, min(pace.period_ns, _BYTE_NS * len(self._data)))
        for proxy in proxies:
            # Who does not answer is told what is there by then: the same once more may be behind what it heard since.
            self._questions.ask(proxy, self._data, partial(self._answered, proxy), now, answer_ns, 0)

    def _answered(self, proxy: str, status: Status | None, now: Now) -> None:
        if status is None:
            self._say_silent(proxy, now)
            # A proxy that begins assigns nothing before it has heard of all.
            count = self._unheard_counts[proxy] = self._unheard_counts.get(proxy, 0) + 1
            if count <= self._pace.retries_max:
                self._tell((proxy,))
            else:
                del self._unheard_counts[proxy]
                self._unheard_at_ns.setdefault(proxy, now.monotonic_ns + self._pace.period_ns // _UNHEARD_PART)
            return
        self._unheard_counts.pop(proxy, None)
        self._silent_since_ns.pop(proxy, None)
        if status.status != StatusWord.OK:
            reason = status.body.decode(errors="backslashreplace")
            self._desk.note("warning", "proxy-refuses", proxy=proxy, reason=reason)

    def _say_silent(self, proxy: str, now: Now) -> None:
        """Say, once, that a proxy has been silent for a whole period; one that starts later than its servers is not."""
        since_ns = self._silent_since_ns.setdefault(proxy, now.monotonic_ns)
        if 0 <= since_ns <= now.monotonic_ns - self._pace.period_ns:
            self._silent_since_ns[proxy] = -1
            reason = "it does not answer, and its clients do not find this server: check topics.proxies"
            self._desk.note("warning", "proxy-silent", proxy=proxy, reason=reason)
