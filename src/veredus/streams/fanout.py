"""Which flows a publication reaches: those that have examined all that was durable, and could be pushed more.

    waits at its stream ── a publication ──► due ── its payer's share of a turn ──► fed, and waits again

A flow without credit, behind a congested link, or behind the head is at neither place: what it lacks wakes it, and a
publication costs nothing for it. Of all the others, those of one payer become due in one step, however many they are.

Of those that have a filter an index tells which a publication may be for; the others have examined it (`Audience`).

Invariants
    (1) A flow is at one of these places at most.
    (2) What became due first is taken first, and what is due is taken before it can become due again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

from .audience import Audience
from .flow import Flow
from .stream import Stream


class Fanout:
    """Owns the flows that are due, by payer; those that wait are with their streams."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        """Nobody is due."""
        self._due: dict[str, deque[OrderedDict[Flow, None]]] = {}

    def wait(self, flow: Flow) -> None:
        """Let the next publication of its stream that its filter may want reach the flow."""
        stream = flow.stream
        if flow.is_live and flow.wanted.needs:
            if stream.audience is None:
                stream.audience = Audience()
            if stream.audience.join(flow, stream.head_durable):
                return
        waiting = stream.waiting
        among = waiting.get(flow.payer)
        if among is None:
            among = waiting[flow.payer] = OrderedDict()
        among[flow] = None
        flow.among = among

    def leave(self, flow: Flow) -> None:
        """The flow is fed now, or is gone."""
        if flow.audience is not None:
            flow.audience.leave(flow)
        among, waiting = flow.among, flow.stream.waiting
        if among is not None:
            flow.among = None
            del among[flow]
            if not among and waiting.get(flow.payer) is among:
                del waiting[flow.payer]

    def reach(self, stream: Stream, reached: Iterable[Flow] = ()) -> list[str]:
        """The stream has publications: all that wait for one are due, and those `reached` among its audience. Their
        payers.
        """
        waiting, stream.waiting = stream.waiting, {}
        for flow in reached:
            flow.among = waiting.setdefault(flow.payer, OrderedDict())
            flow.among[flow] = None
        for payer, among in waiting.items():
            self._due.setdefault(payer, deque()).append(among)
        return list(waiting)

    def next_of(self, payer: str) -> Flow | None:
        """The flow of a payer that is due next, taken out; None where none is."""
        due = self._due.get(payer)
        while due:
            if due[0]:
                flow, _ = due[0].popitem(last=False)
                flow.among = None
                return flow
            due.popleft()
        self._due.pop(payer, None)
        return None
